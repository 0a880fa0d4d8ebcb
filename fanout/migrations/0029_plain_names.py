"""Give three columns the names that a new reader would expect."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("fanout", "0028_personal_webhooks_gone")]

    operations = [
        migrations.RenameField("lanestate", "poke", "wake_count"),
        migrations.RenameField("lanestate", "tat", "theoretical_arrival"),
        migrations.RenameField("run", "slips", "delays"),
    ]
