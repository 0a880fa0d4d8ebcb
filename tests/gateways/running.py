"""A run of many targets through a gateway by the real engine, judged by the gateway's own book."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.utils import timezone

from accounts.models import Account, DailyLimit
from fanout.models import Run, RunTarget
from fanout.runs import controls
from reminders.models import Recipient, Reminder, ReminderMessage, ReminderTarget
from tests.engine.stage import whole_day
from tests.gateways.process import GatewayServer

AT_ONCE = 20


def make_run(
    channel: str,
    config: dict[str, Any],
    credentials: dict[str, Any],
    recipients: list[tuple[str, str]],
    action: str,
    templates: tuple[dict[str, Any] | None, ...] = (None,),
    words: dict[str, dict[str, str]] | None = None,
) -> Run:
    """A run that is due, to recipients of (kind, address), at no pace but the gateway's; a part for each template.

    `words`: the personal words of people, by their address.
    """
    owner = get_user_model().objects.create_user("operator", is_staff=True, is_superuser=True)
    account = Account.objects.create(
        owner=owner,
        label="Line",
        channel=channel,
        config=config,
        credentials=credentials,
        max_send_per_minute=0,
        batch_size=0,
        min_gap_seconds=0,
        max_gap_seconds=0,
        group_concurrency=AT_ONCE,
        retry_base_seconds=0.3,
        error_rate_slowdown=1,
        circuit_breaker=1,
        bounce_rate_pause=1,
    )
    DailyLimit.objects.create(account=account, action=action, limit=None)
    reminder = Reminder.objects.create(
        owner=owner,
        account=account,
        title="Doors open at nine",
        subject="Doors",
        action=action,
        **whole_day(timezone.now()),
    )
    for position, template in enumerate(templates):
        ReminderMessage.objects.create(
            reminder=reminder, position=position, text="Doors open at nine", template=template
        )
    people = Recipient.objects.bulk_create(
        Recipient(owner=owner, kind=kind, address=address, fields=(words or {}).get(address, {}))
        for kind, address in recipients
    )
    ReminderTarget.objects.bulk_create(
        ReminderTarget(reminder=reminder, recipient=person, position=n) for n, person in enumerate(people)
    )
    done = controls.fire(reminder, owner, timezone.now())
    assert done.run is not None
    return done.run


def judge_by_the_book(run: Run, server: GatewayServer) -> tuple[dict[str, int], int]:
    """Nobody got it twice, what is sent is in the book, and what is in the book is sent or unconfirmed.

    Returns how many targets are in each status, and how many of the unconfirmed are not in the book.
    """
    delivered = [delivery.to for delivery in server.book().deliveries()]
    by_status: dict[str, set[str]] = {}
    for status, address in RunTarget.objects.filter(run=run).values_list("status", "address"):
        by_status.setdefault(status, set()).add(address)
    run.refresh_from_db()

    assert len(delivered) == len(set(delivered))
    assert by_status["sent"] <= set(delivered)
    assert set(delivered) - by_status["sent"] <= by_status.get("unconfirmed", set())
    assert not by_status.keys() & {"pending", "sending"}
    assert run.sent + run.failed + run.skipped + run.unconfirmed == run.total
    not_delivered = by_status.get("unconfirmed", set()) - set(delivered)
    return {status: len(addresses) for status, addresses in by_status.items()}, len(not_delivered)
