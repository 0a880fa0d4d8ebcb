from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fanout", "0008_notification_wishes")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="is_test",
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
