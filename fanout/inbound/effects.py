"""What each kind of event does. One function per kind: it takes the stored event and says in words what it did.

It is called inside a transaction, in the order in which events of one address came, perhaps more than once for the same
event (a worker may die after the effect and before the note of it): a second time must change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from fanout.models import InboundEvent

Effect = Callable[[InboundEvent, datetime], str]

EFFECTS: dict[str, Effect] = {}
