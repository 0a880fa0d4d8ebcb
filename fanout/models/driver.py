"""Signs of life of the processes that send: drivers and clusters."""

from __future__ import annotations

from django.db import models


class Driver(models.Model):
    """The heartbeat of one of a machine's driver slots. The backend pid lets the living free the locks of one that is
    stuck."""

    host = models.CharField(max_length=200)
    slot = models.PositiveIntegerField()
    token = models.CharField(max_length=64)
    pid = models.IntegerField()
    backend_pid = models.IntegerField()
    started_at = models.DateTimeField()
    beat_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    lanes = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            # the look-up of a beat is by token: a few rows, so it needs no index
            models.UniqueConstraint(fields=["host", "slot"], name="driver_once_per_slot"),
        ]

    def __str__(self) -> str:
        return f"driver {self.slot} on {self.host}"


class ClusterBeat(models.Model):
    """The heartbeat of a django-q2 cluster, written from its main process."""

    cluster = models.CharField(max_length=32)
    host = models.CharField(max_length=200)
    pid = models.IntegerField()
    beat_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "host"], name="cluster_beat_once")]

    def __str__(self) -> str:
        return f"{self.cluster} on {self.host}"
