from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_message_templates"),
    ]

    operations = [
        migrations.AddField(
            model_name="account",
            name="complaint_rate_pause",
            field=models.FloatField(blank=True, null=True),
        ),
    ]
