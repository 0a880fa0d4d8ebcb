"""Paused runs by lane, for drivers that take a lane."""

from django.contrib.postgres.indexes import GinIndex
from django.db import migrations
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("fanout", "0016_hot_counters")]

    operations = [
        migrations.AddIndex(
            "run", GinIndex(fields=["lanes"], name="run_paused", fastupdate=False, condition=Q(status="paused"))
        ),
    ]
