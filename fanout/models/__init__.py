"""Runs and their targets, the lanes that send them, events, notifications and the audit trail."""

from fanout.models.api import KeptAnswer, SingleMessage
from fanout.models.events import Event, InboundEvent, Notification, Subscription
from fanout.models.lane import Activity, ClusterBeat, Driver, KnownChat, KnownId, LaneState, MediaUpload, Tally
from fanout.models.run import Correction, Offload, PauseReason, Run, RunTarget
from fanout.models.server import KnownServer, LostClaim
from fanout.models.trail import TrailEntry
from fanout.models.webhooks import WebhookDelivery, WebhookEndpoint, WebhookEvent

__all__ = [
    "Activity",
    "ClusterBeat",
    "Correction",
    "Driver",
    "Event",
    "InboundEvent",
    "KeptAnswer",
    "KnownChat",
    "KnownId",
    "KnownServer",
    "LaneState",
    "LostClaim",
    "MediaUpload",
    "Notification",
    "Offload",
    "PauseReason",
    "Run",
    "RunTarget",
    "SingleMessage",
    "Subscription",
    "Tally",
    "TrailEntry",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WebhookEvent",
]
