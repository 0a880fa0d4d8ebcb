"""One factory per model, each making the plainest thing that works. `.create(…)` tells mypy what it makes."""

from __future__ import annotations

from typing import Any

import factory
from django.contrib.auth.models import Group, User
from django.core.files.base import ContentFile
from django.utils import timezone
from factory.django import DjangoModelFactory

from accounts.models import Account, DailyLimit
from fanout.models import (
    Activity,
    ClusterBeat,
    Driver,
    Event,
    InboundEvent,
    LaneState,
    MediaUpload,
    Notification,
    Run,
    RunTarget,
)
from reminders.models import MediaFile, Recipient, Reminder, ReminderMessage, ReminderTarget, Segment, Suppression
from reminders.window import Window

TEXT = {"kind": "text", "text": "Hello"}


class UserFactory(DjangoModelFactory[User]):
    class Meta:
        model = User

    username = factory.Sequence(lambda n: f"operator{n}")
    is_staff = True


class TeamFactory(DjangoModelFactory[Group]):
    class Meta:
        model = Group

    name = factory.Sequence(lambda n: f"team {n}")


class AccountFactory(DjangoModelFactory[Account]):
    class Meta:
        model = Account

    owner = factory.SubFactory(UserFactory)
    label = factory.Sequence(lambda n: f"line {n}")
    channel = "sandbox"
    config = factory.LazyAttribute(lambda account: settings_of(account.channel, account.label))


def settings_of(channel: str, label: str) -> dict[str, str]:
    """The least that the channel asks for."""
    wanted = {"sandbox": {"account": label.replace(" ", "-")}, "smtp": {"host": "mail.example.com"}}
    return wanted.get(channel, {})


class DailyLimitFactory(DjangoModelFactory[DailyLimit]):
    class Meta:
        model = DailyLimit

    account = factory.SubFactory(AccountFactory)
    action = "message"
    limit = 100


class RecipientFactory(DjangoModelFactory[Recipient]):
    class Meta:
        model = Recipient

    owner = factory.SubFactory(UserFactory)
    kind = "group"
    address = factory.Sequence(lambda n: f"120363{n:012d}@g.us")
    name = factory.Sequence(lambda n: f"group {n}")


class SuppressionFactory(DjangoModelFactory[Suppression]):
    class Meta:
        model = Suppression

    address = factory.Sequence(lambda n: f"gone{n}@example.com")
    reason = "manual"


class MediaFileFactory(DjangoModelFactory[MediaFile]):
    class Meta:
        model = MediaFile

    owner = factory.SubFactory(UserFactory)
    filename = "picture.png"
    mime = "image/png"
    file = factory.Sequence(lambda n: ContentFile(f"picture {n}".encode(), name="picture.png"))


class ReminderFactory(DjangoModelFactory[Reminder]):
    """With one text part, and `targets=N` groups."""

    class Meta:
        model = Reminder
        skip_postgeneration_save = True

    owner = factory.SelfAttribute("account.owner")
    account = factory.SubFactory(AccountFactory)
    title = factory.Sequence(lambda n: f"reminder {n}")
    delivery_window_start_hour = 0
    delivery_window_end_hour = 24

    @factory.post_generation
    def parts(self: Any, create: bool, extracted: Any, **kwargs: Any) -> None:
        for position, text in enumerate(("Hello",) if extracted is None else extracted):
            ReminderMessageFactory(reminder=self, position=position, text=text)

    @factory.post_generation
    def targets(self: Any, create: bool, extracted: int | None, **kwargs: Any) -> None:
        for position in range(extracted or 0):
            ReminderTargetFactory(reminder=self, recipient__owner=self.owner, position=position)


class ReminderMessageFactory(DjangoModelFactory[ReminderMessage]):
    class Meta:
        model = ReminderMessage

    reminder = factory.SubFactory(ReminderFactory, parts=())
    kind = "text"
    text = "Hello"


class ReminderTargetFactory(DjangoModelFactory[ReminderTarget]):
    class Meta:
        model = ReminderTarget

    reminder = factory.SubFactory(ReminderFactory)
    recipient = factory.SubFactory(RecipientFactory)


class RunFactory(DjangoModelFactory[Run]):
    """With `targets={"sent": 3, "pending": 2}`; the trigger counts them."""

    class Meta:
        model = Run
        skip_postgeneration_save = True

    reminder = factory.SubFactory(ReminderFactory)
    account = factory.SelfAttribute("reminder.account")
    owner = factory.SelfAttribute("reminder.owner")
    lanes = factory.LazyAttribute(lambda run: [run.account.pk])
    kinds = ["group"]
    title = factory.SelfAttribute("reminder.title")
    action = "message"
    scheduled_for = factory.LazyFunction(timezone.now)
    parts = [TEXT]
    timezone = "UTC"
    window_start_hour = 0
    window_end_hour = 24
    window_closes_at = factory.LazyAttribute(
        lambda run: Window(run.timezone, run.window_start_hour, run.window_end_hour).closes_on(run.scheduled_for)
    )

    @factory.post_generation
    def targets(self: Any, create: bool, extracted: dict[str, int] | None, **kwargs: Any) -> None:
        for status, count in (extracted or {}).items():
            for _ in range(count):
                RunTargetFactory(run=self, status=status)
        self.refresh_from_db()


class RunTargetFactory(DjangoModelFactory[RunTarget]):
    class Meta:
        model = RunTarget

    run = factory.SubFactory(RunFactory)
    account = factory.SelfAttribute("run.account")
    recipient = factory.SubFactory(RecipientFactory, owner=factory.SelfAttribute("..run.owner"))
    address = factory.SelfAttribute("recipient.address")
    position = factory.Sequence(lambda n: n)


class LaneStateFactory(DjangoModelFactory[LaneState]):
    class Meta:
        model = LaneState

    account = factory.SubFactory(AccountFactory)


class ActivityFactory(DjangoModelFactory[Activity]):
    class Meta:
        model = Activity

    account = factory.SubFactory(AccountFactory)
    action = "message"
    outcome = "sent"
    at = factory.LazyFunction(timezone.now)


class MediaUploadFactory(DjangoModelFactory[MediaUpload]):
    class Meta:
        model = MediaUpload

    account = factory.SubFactory(AccountFactory)
    sha256 = factory.Sequence(lambda n: f"{n:064x}")
    handle = "handle"
    uploaded_at = factory.LazyFunction(timezone.now)


class DriverFactory(DjangoModelFactory[Driver]):
    class Meta:
        model = Driver

    slot = factory.Sequence(lambda n: n)
    token = factory.Sequence(lambda n: f"host:1:{n}")
    host = "host"
    pid = 1
    backend_pid = 1
    started_at = factory.LazyFunction(timezone.now)
    beat_at = factory.LazyFunction(timezone.now)


class ClusterBeatFactory(DjangoModelFactory[ClusterBeat]):
    class Meta:
        model = ClusterBeat

    cluster = "main"
    host = "host"
    pid = 1
    beat_at = factory.LazyFunction(timezone.now)


class EventFactory(DjangoModelFactory[Event]):
    class Meta:
        model = Event

    run = factory.SubFactory(RunFactory)
    at = factory.LazyFunction(timezone.now)
    verb = "fired"


class NotificationFactory(DjangoModelFactory[Notification]):
    class Meta:
        model = Notification

    user = factory.SubFactory(UserFactory)
    title = "Reminder sent"
    body = "All of it."
    created_at = factory.LazyFunction(timezone.now)


class InboundEventFactory(DjangoModelFactory[InboundEvent]):
    """A delivered receipt; its words are a dict."""

    class Meta:
        model = InboundEvent

    account = factory.SubFactory(AccountFactory)
    key = factory.Sequence(lambda n: f"event-{n}")
    kind = "delivered"
    happened_at = factory.LazyFunction(timezone.now)
    came_at = factory.SelfAttribute("happened_at")


class SegmentFactory(DjangoModelFactory[Segment]):
    class Meta:
        model = Segment

    owner = factory.SubFactory(UserFactory)
    name = factory.Sequence(lambda n: f"segment {n}")
    tags = ["north"]
