"""Replies that an operator has dealt with. Those from before count as handled: the page of replies begins empty."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q

REPLY_TO_US = Q(kind="reply", run_target_id__isnull=False) & ~Q(address="")

# A default that is the same for all rows is stored once, so that the table is not rewritten.
HANDLED = """
ALTER TABLE fanout_inboundevent ADD COLUMN handled_at timestamptz DEFAULT now();
ALTER TABLE fanout_inboundevent ALTER COLUMN handled_at DROP DEFAULT;
"""


class Migration(migrations.Migration):
    # Events come in while the indexes are built.
    atomic = False

    dependencies = [("fanout", "0018_opted_out")]

    operations = [
        migrations.RunSQL(
            HANDLED,
            "ALTER TABLE fanout_inboundevent DROP COLUMN handled_at",
            state_operations=[
                migrations.AddField("inboundevent", "handled_at", models.DateTimeField(blank=True, null=True))
            ],
        ),
        migrations.AddField(
            "inboundevent", "handled_by", models.CharField(blank=True, db_default="", default="", max_length=150)
        ),
        AddIndexConcurrently(
            "inboundevent", models.Index(fields=["-id"], name="inbound_replies", condition=REPLY_TO_US)
        ),
        AddIndexConcurrently(
            "inboundevent",
            models.Index(fields=["account", "-id"], name="inbound_account_replies", condition=REPLY_TO_US),
        ),
        AddIndexConcurrently(
            "inboundevent",
            models.Index(
                fields=["account", "-id"],
                name="inbound_unhandled",
                condition=REPLY_TO_US & Q(handled_at__isnull=True),
            ),
        ),
        AddIndexConcurrently(
            "inboundevent",
            models.Index(fields=["run_target_id"], name="inbound_reply_target", condition=REPLY_TO_US),
        ),
    ]
