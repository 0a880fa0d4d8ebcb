"""When a person opted out after a message, and the lists of a run's replies and opt-outs."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    # Deliveries go on while the indexes are built.
    atomic = False

    dependencies = [("fanout", "0017_run_paused")]

    operations = [
        migrations.AddField("runtarget", "opted_out_at", models.DateTimeField(blank=True, null=True)),
        AddIndexConcurrently(
            "runtarget",
            models.Index(fields=["run", "position"], name="target_replied", condition=Q(replied_at__isnull=False)),
        ),
        AddIndexConcurrently(
            "runtarget",
            models.Index(fields=["run", "position"], name="target_opted_out", condition=Q(opted_out_at__isnull=False)),
        ),
    ]
