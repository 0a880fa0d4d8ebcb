"""Signs of life of the processes that send: drivers and clusters."""

from __future__ import annotations

from django.db import models


class Driver(models.Model):
    """The heartbeat of a driver slot. The backend pid lets the living free the locks of one that is stuck."""

    slot = models.PositiveIntegerField(primary_key=True)
    token = models.CharField(max_length=64)
    host = models.CharField(max_length=200)
    pid = models.IntegerField()
    backend_pid = models.IntegerField()
    started_at = models.DateTimeField()
    beat_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    lanes = models.PositiveIntegerField(default=0)
    drain = models.BooleanField(default=False)

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
