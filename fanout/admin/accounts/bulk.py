"""What operators do with many accounts at once, after a question."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import Count, Sum

from accounts.inputs import counted
from accounts.models import Account
from fanout.admin.asking import Question, asking_action
from fanout.models import PauseReason, Run
from fanout.runs import controls


def reactivate_selected() -> Any:
    return asking_action(
        "reactivate", "Reactivate the selected accounts", "Reactivated", about_reactivating, controls.reactivate
    )


def about_reactivating(accounts: Sequence[Account], now: datetime) -> Question:
    down = [account for account in accounts if account.status != Account.Status.ACTIVE]
    active = len(accounts) - len(down)
    sentences = [
        "Each begins with a single trial message." if down else "",
        _held(down) if down else "",
        f"{counted(active, 'selected account')} {'is' if active == 1 else 'are'} active already." if active else "",
    ]
    title = f"Reactivate {counted(len(down), 'account')}?"
    rows = [(account.label, f"{account.status}: {account.status_reason}".rstrip(": ")) for account in down]
    return Question(title, [text for text in sentences if text], title.rstrip("?") if down else "", rows)


def _held(accounts: Sequence[Account]) -> str:
    """The paused runs that these accounts hold up."""
    held = Run.objects.filter(
        status=Run.Status.PAUSED,
        pause_reason=PauseReason.ACCOUNT_DOWN,
        lanes__overlap=[account.pk for account in accounts],
    )
    sums = held.order_by().aggregate(runs=Count("pk"), pending=Sum("pending", default=0))
    if not sums["runs"]:
        return ""
    runs = counted(sums["runs"], "paused run")
    return f"{runs} with {sums['pending']:,} still to send can then be resumed from the Activity page."
