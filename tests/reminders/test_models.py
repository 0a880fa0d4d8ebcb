"""Constraints of the database, and senders of a reminder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from reminders.models import MOST_HTML, MOST_TEXT, Recipient, Reminder, ReminderMessage, ReplyPart
from tests.factories import (
    AccountFactory,
    MediaFileFactory,
    RecipientFactory,
    ReminderFactory,
    ReminderMessageFactory,
    ReminderTargetFactory,
    UserFactory,
)

pytestmark = pytest.mark.django_db

MAX_SMALL = 32_767


def refused(constraint: str, write: Callable[[], Any]) -> None:
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        write()


@pytest.mark.parametrize(
    ("start", "end"),
    [
        pytest.param(22, 6, id="over midnight"),
        pytest.param(9, 9, id="empty"),
        pytest.param(6, 25, id="25 hours"),
        pytest.param(24, 24, id="nothing at the end"),
        pytest.param(0, MAX_SMALL, id="far too long"),
    ],
)
def test_a_window_lies_within_one_day(start, end):
    reminder = ReminderFactory.create()
    window = {"delivery_window_start_hour": start, "delivery_window_end_hour": end}
    refused("reminder_window_in_one_day", lambda: Reminder.objects.filter(pk=reminder.pk).update(**window))


@pytest.mark.parametrize(("start", "end"), [(0, 24), (0, 1), (23, 24), (6, 18)])
def test_a_window_within_one_day_is_taken(start, end):
    ReminderFactory(delivery_window_start_hour=start, delivery_window_end_hour=end)
    stored = Reminder.objects.get()
    assert (stored.delivery_window_start_hour, stored.delivery_window_end_hour) == (start, end)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"schedule": "cron", "cron": ""}, id="cron without expression"),
        pytest.param({"schedule": "once", "cron": "0 9 * * *"}, id="once with expression"),
        pytest.param({"schedule": "cron", "cron": "0 9 * * *", "fire_at": timezone.now()}, id="both"),
    ],
)
def test_a_schedule_is_one_or_the_other(fields):
    refused("reminder_schedule_whole", lambda: ReminderFactory(**fields))


def test_an_address_is_once_per_owner_and_free_to_others():
    recipient = RecipientFactory.create()
    refused("recipient_once_per_owner", lambda: RecipientFactory(owner=recipient.owner, address=recipient.address))
    RecipientFactory(owner=UserFactory(), address=recipient.address)


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [({"kind": "pigeon"}, "recipient_kind_known"), ({"address": ""}, "recipient_has_address")],
)
def test_a_recipient_has_a_kind_and_an_address(fields, constraint):
    recipient = RecipientFactory.create()
    refused(constraint, lambda: Recipient.objects.filter(pk=recipient.pk).update(**fields))


def test_a_recipient_is_once_among_the_targets():
    target = ReminderTargetFactory.create()
    refused(
        "target_once_per_reminder",
        lambda: ReminderTargetFactory(reminder=target.reminder, recipient=target.recipient, position=7),
    )


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"kind": "text", "text": ""}, id="text without text"),
        pytest.param({"kind": "image", "text": "caption"}, id="image without file"),
    ],
)
def test_a_part_has_content(fields):
    refused("part_has_content", lambda: ReminderMessageFactory(**fields))


def test_a_text_part_has_no_file():
    media = MediaFileFactory.create()
    refused("part_has_content", lambda: ReminderMessageFactory(kind="text", text="hello", media=media))


@pytest.mark.parametrize(("field", "most"), [("text", MOST_TEXT), ("html", MOST_HTML)])
@pytest.mark.parametrize("kind", [ReminderMessage, ReplyPart])
def test_a_parts_text_has_a_limit(kind, field, most):
    part = kind(reminder=ReminderFactory.create(parts=()), text="x")
    setattr(part, field, "ü" * most)
    part.full_clean()
    part.save()
    setattr(part, field, "ü" * (most + 1))
    refused("part_is_bounded", part.save)
    with pytest.raises(ValidationError) as caught:
        part.full_clean()
    assert f"has {most + 1:,} characters; at most {most:,} are sent." in caught.value.message_dict[field][0]


def test_parts_may_swap_places_in_one_transaction():
    reminder = ReminderFactory.create(parts=("a", "b"))
    first, second = reminder.messages.all()
    with transaction.atomic():
        ReminderMessage.objects.filter(pk=first.pk).update(position=1)
        ReminderMessage.objects.filter(pk=second.pk).update(position=0)
    assert [part.text for part in reminder.messages.all()] == ["b", "a"]


def test_a_file_is_once_per_owner():
    media = MediaFileFactory.create()
    refused("media_once_per_owner", lambda: MediaFileFactory(owner=media.owner, sha256=media.sha256))


@pytest.mark.django_db
def test_the_first_sender_is_named_once() -> None:
    reminder = ReminderFactory.create()
    other = AccountFactory.create(owner=reminder.owner)
    reminder.set_further_senders([other, reminder.account, other])
    assert reminder.senders == [reminder.account, other]
    reminder.set_further_senders([])
    assert reminder.senders == [reminder.account]


@pytest.mark.django_db
def test_senders_that_were_read_before_cost_no_query(django_assert_num_queries: Any) -> None:
    """As lists and the overview read many reminders."""
    reminder = ReminderFactory.create()
    other = AccountFactory.create(owner=reminder.owner)
    reminder.set_further_senders([other])
    read = Reminder.objects.select_related("account").prefetch_related("further_senders").get()
    with django_assert_num_queries(0):
        assert read.senders == [reminder.account, other]
