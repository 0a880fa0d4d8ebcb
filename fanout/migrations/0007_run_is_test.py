from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fanout", "0006_hearing_back")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="is_test",
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
