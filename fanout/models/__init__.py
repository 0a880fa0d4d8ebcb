"""How it goes out: runs, their targets, the lanes that send them, and what is remembered of it."""

from fanout.models.activity import Activity, MediaUpload
from fanout.models.driver import ClusterBeat, Driver
from fanout.models.event import Event
from fanout.models.inbound_event import InboundEvent
from fanout.models.known_chat import KnownChat
from fanout.models.lane import LaneState
from fanout.models.notification import Notification, Subscription
from fanout.models.run import PauseReason, Run
from fanout.models.tally import Tally
from fanout.models.target import RunTarget
from fanout.models.trail_entry import TrailEntry

__all__ = [
    "Activity",
    "ClusterBeat",
    "Driver",
    "Event",
    "InboundEvent",
    "KnownChat",
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
