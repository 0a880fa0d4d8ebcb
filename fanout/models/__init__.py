"""How it goes out: runs, their targets, the lanes that send them, and what is remembered of it."""

from fanout.models.lane import Activity, ClusterBeat, Driver, LaneState, MediaUpload
from fanout.models.news import Event, Notification, Subscription
from fanout.models.run import PauseReason, Run, RunTarget

__all__ = [
    "Activity",
    "ClusterBeat",
    "Driver",
    "Event",
    "LaneState",
    "MediaUpload",
    "Notification",
    "PauseReason",
    "Run",
    "RunTarget",
    "Subscription",
]
