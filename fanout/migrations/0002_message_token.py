from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fanout", "0001_version_1_0")]

    operations = [
        migrations.AddField(
            "singlemessage",
            "token",
            models.CharField(blank=True, db_default="", default="", editable=False, max_length=60),
        )
    ]
