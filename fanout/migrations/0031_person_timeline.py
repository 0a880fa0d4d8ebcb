"""Put the times of a target into the index of its recipient: the timeline of a person who got 20,000 messages read as
many pages of the table, and reads 150 of the index."""

from django.db import migrations, models

TIMES = ("id", "settled_at", "claimed_at")
# Built beside the old one while targets come in, then put in its place under its name.
REPLACE = [
    "DROP INDEX CONCURRENTLY IF EXISTS target_of_recipient",
    "CREATE UNIQUE INDEX CONCURRENTLY target_of_recipient ON fanout_runtarget (recipient_id, run_id)"
    f" INCLUDE ({', '.join(TIMES)})",
    "ALTER TABLE fanout_runtarget DROP CONSTRAINT target_once_per_run",
    "ALTER INDEX target_of_recipient RENAME TO target_once_per_run",
]
UNDO = [
    "CREATE UNIQUE INDEX CONCURRENTLY target_of_recipient ON fanout_runtarget (recipient_id, run_id)",
    "DROP INDEX target_once_per_run",
    "ALTER TABLE fanout_runtarget ADD CONSTRAINT target_once_per_run UNIQUE USING INDEX target_of_recipient",
]


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("fanout", "0030_corrections")]

    operations = [
        migrations.RunSQL(
            REPLACE,
            UNDO,
            state_operations=[
                migrations.RemoveConstraint("runtarget", "target_once_per_run"),
                migrations.AddConstraint(
                    "runtarget",
                    models.UniqueConstraint(fields=["recipient", "run"], name="target_once_per_run", include=TIMES),
                ),
            ],
        )
    ]
