"""Runs and their targets, the lanes that send them, events, notifications and the audit trail."""

from fanout.models.events import Event, InboundEvent, Notification, Subscription
from fanout.models.lane import Activity, ClusterBeat, Driver, KnownChat, KnownId, LaneState, MediaUpload, Tally
from fanout.models.run import PauseReason, Run, RunTarget
from fanout.models.trail import TrailEntry

__all__ = [
    "Activity",
    "ClusterBeat",
    "Driver",
    "Event",
    "InboundEvent",
    "KnownChat",
    "KnownId",
    "LaneState",
    "MediaUpload",
    "Notification",
    "PauseReason",
    "Run",
    "RunTarget",
    "Subscription",
    "Tally",
    "TrailEntry",
]
