"""What each kind of event does. One function per kind: it takes the stored event and says in words what it did.

It is called inside a transaction, in the order in which events of one address came, perhaps more than once for the same
event (a worker may die after the effect and before the note of it): a second time must change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from fanout.inbound import bounces, opt_out, replies, sessions
from fanout.models import InboundEvent

Kind = InboundEvent.Kind
Effect = Callable[[InboundEvent, datetime], str]

EFFECTS: dict[str, Effect] = {
    Kind.BOUNCE: bounces.bounced,
    Kind.REPLY: replies.reply,
    Kind.UNSUBSCRIBE: opt_out.unsubscribe,
    Kind.COMPLAINT: opt_out.complaint,
    Kind.SESSION: sessions.session_changed,
}
