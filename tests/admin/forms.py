"""Posted data of the reminder's and the account's form."""

from __future__ import annotations

from typing import Any

from django.urls import reverse

from accounts.models import Account
from tests.admin.conftest import login

MAIL = "ann@example.com"
ONE = "120363025246125400@g.us"
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 50


def parts(*texts: str, prefix: str = "messages", **more: Any) -> dict[str, Any]:
    data: dict[str, Any] = {
        f"{prefix}-TOTAL_FORMS": len(texts),
        f"{prefix}-INITIAL_FORMS": 0,
        f"{prefix}-MIN_NUM_FORMS": 1,
        f"{prefix}-MAX_NUM_FORMS": 1000,
    }
    for number, text in enumerate(texts):
        data |= {f"{prefix}-{number}-kind": "text", f"{prefix}-{number}-text": text}
    return data | more


def filled(account: Account, **changes: Any) -> dict[str, Any]:
    plain = {
        "title": "Choir",
        "account": account.pk,
        "timezone": "Asia/Kuala_Lumpur",
        "schedule": "cron",
        "cron": "0 9 * * 1-5",
        "fire_at": "",
        "delivery_window_start_hour": 6,
        "delivery_window_end_hour": 18,
        "paste": ONE,
        "tag": "",
    }
    return plain | parts("Hello") | parts(prefix="reply_parts") | parts(prefix="follow_up_parts") | changes


def save(user: Any, data: dict[str, Any], pk: int | None = None) -> Any:
    path = reverse("admin:reminders_reminder_change", args=[pk]) if pk else reverse("admin:reminders_reminder_add")
    return login(user).post(path, data)


def account_form(**changes: Any) -> dict[str, Any]:
    return {
        "label": "Line",
        "channel": "sandbox",
        "timezone": "UTC",
        "warmup_days": 0,
        "warmup_floor": 5,
    } | changes
