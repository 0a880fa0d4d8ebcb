"""Recipients, segments, suppressions, media files, and reminders with their parts, senders and targets."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Length, Upper
from django.db.models.lookups import LessThanOrEqual
from django.utils import timezone
from django.utils.text import Truncator

from accounts.actions import Action
from accounts.addresses import CHOICES, KINDS, AddressError, normalise
from accounts.channels.registry import channel
from accounts.inputs import valid_timezone
from accounts.models import Account, Owned
from reminders import schedule, segments, window
from reminders.opt_outs import essence


class Recipient(Owned):
    class Status(models.TextChoices):
        ACTIVE = "active"
        NOT_INTERESTED = "not_interested", "Not interested"
        DO_NOT_DISTURB = "do_not_disturb", "Do not disturb"
        OPTED_OUT = "opted_out", "Opted out"
        BLACKLISTED = "blacklisted"
        CONVERTED = "converted"
        CLOSED = "closed"

    #: these get nothing at all; the others that are not active get no follow-ups
    GETS_NOTHING = (Status.OPTED_OUT, Status.BLACKLISTED, Status.DO_NOT_DISTURB)

    kind = models.CharField(max_length=16, choices=CHOICES)
    address = models.CharField(max_length=254)
    name = models.CharField(max_length=200, blank=True)
    tags = ArrayField(models.CharField(max_length=60), default=list, blank=True)
    status = models.CharField(max_length=16, choices=Status, default=Status.ACTIVE)
    # The person's own texts for placeholders, besides the name: {"flat": "12 B"}.
    fields = models.JSONField(default=dict, db_default=Value({}, models.JSONField()), blank=True)
    # The state of follow-ups to this person. It is the same for every recipient with this address, in all lists: a
    # trigger copies it to new ones, and every change is made to all of them.
    follow_up_attempts = models.PositiveIntegerField(default=0)  # that went out and had no reply
    attempts_reset_at = models.DateTimeField(null=True, blank=True)
    cooldown_until = models.DateTimeField(null=True, blank=True)
    replied_at = models.DateTimeField(null=True, blank=True)
    # "not interested" only because of the follow-up limit: a reply or the end of the cooldown takes it back.
    limited = models.BooleanField(default=False, db_default=False)
    # Hidden from lists and pickers, and not a target of any reminder. Adding the address again restores it.
    archived = models.BooleanField(default=False, db_default=False, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name", "id"]
        indexes = [
            # the recipient list and the target picker of one operator, by name
            models.Index(fields=["owner", "name"], name="recipient_owner_name"),
            # inbound events and bounces find a recipient by address
            models.Index(fields=["address"], name="recipient_address"),
            # hygiene asks for cooldowns that are over, the metrics for how many are not
            models.Index(
                fields=["cooldown_until"], name="recipient_cooling", condition=Q(cooldown_until__isnull=False)
            ),
            # the search of the run list, by a recipient's whole name in any case
            models.Index(Upper("name"), name="recipient_upper_name"),
            # targets chosen by tag
            GinIndex(fields=["tags"], name="recipient_tags"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "address"],
                name="recipient_once_per_owner",
                violation_error_message="This recipient is already in your list, perhaps in another spelling.",
            ),
            models.CheckConstraint(condition=Q(kind__in=list(CHOICES)), name="recipient_kind_known"),
            models.CheckConstraint(condition=~Q(address=""), name="recipient_has_address"),
        ]

    def __str__(self) -> str:
        return self.name or self.address

    def clean(self) -> None:
        if self.kind not in KINDS:
            return  # the field's own sentence says so
        try:
            self.address = normalise(self.kind, self.address)
        except AddressError as error:
            raise ValidationError({"address": str(error)}) from None

    def save(self, *args: Any, **kwargs: Any) -> None:
        # Normalised here too, because scripts and imports do not call clean().
        fields = kwargs.get("update_fields")
        if fields is None or "address" in fields:
            self.address = normalise(self.kind, self.address)
        super().save(*args, **kwargs)


class Segment(Owned):
    """Recipients by conditions, evaluated whenever a reminder to them fires. All of its conditions must hold."""

    name = models.CharField(max_length=100)
    tags = ArrayField(models.CharField(max_length=60), default=list, blank=True)
    every_tag = models.BooleanField("all of these tags", default=False, help_text="Off: one of them is enough.")
    without_tags = ArrayField(models.CharField(max_length=60), default=list, blank=True)
    # [["city", "=", "Penang"], …]: see reminders.segments.FieldCondition.
    fields = models.JSONField(default=list, blank=True)
    # They got it and have not written since. Protected: without it the segment would become larger.
    not_replied_to = models.ForeignKey(
        "Reminder", on_delete=models.PROTECT, null=True, blank=True, related_name="+", verbose_name="did not reply to"
    )
    not_contacted_days = models.PositiveSmallIntegerField("not contacted for", null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "name"],
                name="segment_once_per_owner",
                violation_error_message="You have a segment of this name already.",
            ),
            models.CheckConstraint(
                condition=~Q(tags=[])
                | ~Q(without_tags=[])
                | ~Q(fields=[])
                | Q(not_replied_to__isnull=False)
                | Q(not_contacted_days__isnull=False),
                name="segment_has_a_condition",
                violation_error_message=segments.NO_CONDITION,
            ),
            models.CheckConstraint(
                condition=Q(not_contacted_days__isnull=True)
                | Q(not_contacted_days__gte=1, not_contacted_days__lte=segments.MOST_DAYS),
                name="segment_days_bounded",
                violation_error_message=f"Give a number of days from 1 to {segments.MOST_DAYS:,}.",
            ),
            models.CheckConstraint(
                condition=LessThanOrEqual(
                    Func("fields", function="jsonb_array_length", output_field=models.IntegerField()),
                    segments.MOST_CONDITIONS,
                ),
                name="segment_fields_bounded",
                violation_error_message=f"Name at most {segments.MOST_CONDITIONS} conditions about fields.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        errors = {
            name: problem
            for name in ("tags", "without_tags")
            if (problem := segments.tags_problem(getattr(self, name) or []))
        }
        try:
            segments.stored_conditions(self.fields)
        except ValueError as problem:
            errors["fields"] = str(problem)
        if self.not_contacted_days is not None and not 1 <= self.not_contacted_days <= segments.MOST_DAYS:
            errors["not_contacted_days"] = f"Give a number of days from 1 to {segments.MOST_DAYS:,}."
        if errors:
            raise ValidationError(errors)

    @property
    def words(self) -> str:
        """Return its conditions in words."""
        return segments.in_words(
            self.tags,
            self.every_tag,
            self.without_tags,
            segments.stored_conditions(self.fields),
            self.not_replied_to.title if self.not_replied_to else "",
            self.not_contacted_days,
        )


class Membership(models.Model):
    """A group that an account is in, or was: what its provider listed when they were last synchronised."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="memberships")
    recipient = models.ForeignKey(Recipient, on_delete=models.CASCADE, related_name="memberships")
    # The provider's name for the group. The recipient's own may be an operator's.
    name = models.CharField(max_length=200, blank=True)
    size = models.PositiveIntegerField(null=True, blank=True)
    # Only admins write there; and whether this account may.
    announce_only = models.BooleanField(default=False, db_default=False)
    may_write = models.BooleanField(default=True, db_default=True)
    seen_at = models.DateTimeField()
    gone_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["account", "recipient"], name="membership_once_per_account"),
        ]

    def __str__(self) -> str:
        return f"{self.account} in {self.name or self.recipient}"


class Suppression(models.Model):
    """An address that gets nothing any more, from any account."""

    class Reason(models.TextChoices):
        HARD_BOUNCE = "hard_bounce", "Hard bounce"
        SOFT_BOUNCES = "soft_bounces", "Repeated soft bounces"
        UNSUBSCRIBED = "unsubscribed"
        OPTED_OUT = "opted_out", "Opted out"
        COMPLAINT = "complaint"
        MANUAL = "manual"

    class Source(models.TextChoices):
        PROVIDER = "provider"  # an answer, a report or an event of a provider
        RECIPIENT = "recipient"  # the person said so
        OPERATOR = "operator"
        IMPORT = "import"

    address = models.CharField(max_length=254, unique=True)
    reason = models.CharField(max_length=16, choices=Reason)
    source = models.CharField(max_length=12, choices=Source, default=Source.PROVIDER, db_default="provider")
    detail = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    # Empty: for ever. An expired suppression has no effect.
    expires_at = models.DateTimeField(null=True, blank=True)
    added_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, editable=False, related_name="+"
    )

    def __str__(self) -> str:
        return f"{self.address} ({self.get_reason_display().lower()})"


class OptOutPhrase(models.Model):
    """A word or short sentence that opts people out on this site, or that does not although it would elsewhere."""

    phrase = models.CharField(
        max_length=100,
        help_text="A message that says only this. Case, accents, punctuation, “please” and “thank you” do not matter.",
    )
    # The phrase in the form in which messages are compared.
    essence = models.CharField(max_length=400, editable=False)
    opts_out = models.BooleanField(
        "opts out",
        default=True,
        db_default=True,
        help_text="Off: people who write this stay in, although the built-in list has it.",
    )
    note = models.CharField(max_length=200, blank=True, help_text="Why it is in the list.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = "opt-out phrase"
        ordering = ["phrase"]
        constraints = [
            models.UniqueConstraint(fields=["essence"], name="opt_out_phrase_once"),
            models.CheckConstraint(condition=~Q(essence=""), name="opt_out_phrase_says_something"),
        ]

    def __str__(self) -> str:
        return self.phrase

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.essence = essence(self.phrase)
        if "update_fields" in kwargs:
            kwargs["update_fields"] = {*kwargs["update_fields"], "essence"}
        super().save(*args, **kwargs)

    def clean(self) -> None:
        self.essence = essence(self.phrase)
        if not self.essence:
            raise ValidationError({"phrase": "Write at least one word; signs alone are not compared."})
        if OptOutPhrase.objects.filter(essence=self.essence).exclude(pk=self.pk).exists():
            raise ValidationError({"phrase": "The list has this phrase already, perhaps in another spelling."})


class ErasedAddress(models.Model):
    """The keyed hash of an erased address that must not come back by an import."""

    digest = models.CharField(max_length=64, unique=True)
    erased_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"erased {self.erased_at:%F}"


class MediaFile(Owned):
    file = models.FileField(upload_to="media/%Y/%m")
    filename = models.CharField(max_length=200, blank=True)
    mime = models.CharField(max_length=100, blank=True)
    size = models.PositiveBigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [
            # a gateway fetches a file by its signed link
            models.Index(fields=["sha256"], name="media_sha256"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["owner", "sha256"], name="media_once_per_owner"),
        ]

    def __str__(self) -> str:
        return self.filename or str(self.file)

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self.sha256:
            self._describe()
        super().save(*args, **kwargs)

    def clean(self) -> None:
        if self.file and self.file.size > settings.MEDIA_MAX_MB * 1024 * 1024:
            raise ValidationError({"file": f"The file is larger than {settings.MEDIA_MAX_MB} MB; shrink it first."})

    def _describe(self) -> None:
        digest = hashlib.sha256()
        for chunk in self.file.chunks():
            digest.update(chunk)
        self.sha256 = digest.hexdigest()
        self.size = self.file.size
        self.filename = self.filename or str(self.file).rsplit("/", 1)[-1]
        self.mime = self.mime or mimetypes.guess_type(self.filename)[0] or "application/octet-stream"


#: follow-ups of one firing, and the days after it
MOST_STEPS, MOST_STEP_DAYS = 3, 90


def follow_up_days_problem(days: list[int]) -> str:
    """Return what is wrong with the days of the follow-ups, in a sentence, or nothing."""
    if len(days) > MOST_STEPS:
        return f"A reminder has at most {MOST_STEPS} follow-ups."
    if any(not 1 <= day <= MOST_STEP_DAYS for day in days):
        return f"A follow-up comes 1 to {MOST_STEP_DAYS} days after the firing."
    return "" if sorted(set(days)) == days else "Write the days in ascending order, each once, such as 2, 5."


class Reminder(Owned):
    class Schedule(models.TextChoices):
        ONCE = "once"
        CRON = "cron", "repeated (cron)"

    class Urgency(models.TextChoices):
        HIGH = "high"
        MEDIUM = "medium"
        LOW = "low"

    title = models.CharField(max_length=200)
    # The first sender; further ones are ReminderSender rows, so that no second copy of the first could disagree.
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="reminders")
    action = models.CharField(max_length=32, choices=Action, default=Action.MESSAGE)
    subject = models.CharField(max_length=200, blank=True, help_text="For mail.")
    timezone = models.CharField(max_length=64, default="UTC")
    schedule = models.CharField(max_length=8, choices=Schedule, default=Schedule.ONCE)
    fire_at = models.DateTimeField(null=True, blank=True, help_text="For a reminder that fires once.")
    cron = models.CharField(max_length=120, blank=True, help_text="Five fields, in the reminder's timezone.")
    delivery_window_start_hour = models.PositiveSmallIntegerField(default=6)
    delivery_window_end_hour = models.PositiveSmallIntegerField(default=18)
    enabled = models.BooleanField(default=True)
    # Hidden from lists and switched off: its runs keep it from being deleted. See fanout.runs.
    archived = models.BooleanField(default=False, db_default=False, editable=False)
    auto_resume = models.BooleanField(
        default=False,
        help_text="Go on by itself at the next opening. Off: it waits for you, because its text may be out of date.",
    )
    resume_after_limit = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Go on by itself when the account may send again, after its daily cap, its hours or its new chats.",
    )
    follow_up = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Stops by itself at people who do not reply, and is not added to a long queue unless it is urgent.",
    )
    urgency = models.CharField(
        max_length=8,
        choices=Urgency,
        default=Urgency.MEDIUM,
        db_default="medium",
        help_text="For follow-ups: only urgent ones (high) join an account's long queue.",
    )
    next_fire_at = models.DateTimeField(null=True, blank=True, editable=False)
    # Firings that were begun and not finished: each has ended its worker. See fanout.runs.firing.
    firing_attempts = models.PositiveSmallIntegerField(default=0, db_default=0, editable=False)
    # Why it could not be fired, in a sentence. Of one that is off: why Crier has set it aside.
    firing_problem = models.CharField(max_length=300, blank=True, default="", db_default="", editable=False)
    recipients = models.ManyToManyField(Recipient, through="ReminderTarget", related_name="reminders")
    # Days after a firing on which people who have not replied get a follow-up, at most three: [2, 5]. Its parts are
    # FollowUpPart rows; a run freezes both. See fanout.runs.sequences.
    follow_up_days = ArrayField(
        models.PositiveSmallIntegerField(),
        default=list,
        db_default=Value([], ArrayField(models.IntegerField())),
        blank=True,
        verbose_name="follow up after days",
    )
    # Besides the fixed targets: everyone who is in it when the reminder fires. See fanout.plans.audience.
    segment = models.ForeignKey(
        Segment,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="reminders",
        help_text="Who is in it is decided anew at each firing.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            # firing asks every minute for what is due
            models.Index(fields=["next_fire_at"], name="reminder_due", condition=Q(enabled=True)),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(
                    delivery_window_start_hour__gte=0,
                    delivery_window_start_hour__lt=F("delivery_window_end_hour"),
                    delivery_window_end_hour__lte=24,
                ),
                name="reminder_window_in_one_day",
                violation_error_message="The delivery window must satisfy 0 ≤ start < end ≤ 24.",
            ),
            models.CheckConstraint(condition=Q(archived=False) | Q(enabled=False), name="reminder_archived_is_off"),
            models.CheckConstraint(
                condition=Q(follow_up_days__len__lte=MOST_STEPS),
                name="reminder_few_follow_ups",
                violation_error_message=f"A reminder has at most {MOST_STEPS} follow-ups.",
            ),
            models.CheckConstraint(
                condition=Q(schedule="once", cron="") | (Q(schedule="cron", fire_at__isnull=True) & ~Q(cron="")),
                name="reminder_schedule_whole",
                violation_error_message="A once-only reminder has a time, a repeated one has a cron expression.",
            ),
            models.CheckConstraint(
                condition=Q(fire_at__isnull=True) | Q(fire_at__gte=schedule.EARLIEST, fire_at__lt=schedule.LATEST),
                name="reminder_time_bounded",
                violation_error_message=schedule.TOO_FAR,
            ),
        ]

    def __str__(self) -> str:
        return self.title

    def clean(self) -> None:
        errors: dict[str, str] = {}
        if not valid_timezone(self.timezone):
            errors["timezone"] = f"{self.timezone!r} is not a timezone; write it like Asia/Kuala_Lumpur."
        if self.delivery_window_start_hour is not None and self.delivery_window_end_hour is not None:
            problem = window.window_error(self.delivery_window_start_hour, self.delivery_window_end_hour)
            if problem:
                errors["delivery_window_end_hour"] = problem
        if self.schedule == self.Schedule.CRON:
            problem = schedule.cron_error(self.cron)
            if problem:
                errors["cron"] = problem
            if self.fire_at:
                errors["fire_at"] = "A repeated reminder has no single time; leave it empty."
        elif self.fire_at and not schedule.EARLIEST <= self.fire_at < _farthest():
            errors["fire_at"] = schedule.TOO_FAR
        elif self.cron:
            errors["cron"] = "A reminder that fires once has no cron expression; leave it empty."
        if problem := follow_up_days_problem(self.follow_up_days or []):
            errors["follow_up_days"] = problem
        if self.archived and self.enabled:
            errors["enabled"] = "This reminder is archived: restore it first, then switch it on."
        if errors:
            raise ValidationError(errors)

    @property
    def senders(self) -> list[Account]:
        """Return the accounts it goes out through, in order; never empty."""
        return [self.account, *(row.account for row in self.further_senders.all())]

    @property
    def run_action(self) -> str:
        """Return the action of its runs, as the channel of its first sender counts it."""
        return channel(self.account.channel).counts(self.action)

    def set_further_senders(self, accounts: Iterable[Account]) -> None:
        """Store the senders besides the first, each once."""
        self.further_senders.all().delete()
        further = [account for account in dict.fromkeys(accounts) if account.pk != self.account_id]
        ReminderSender.objects.bulk_create(
            ReminderSender(reminder=self, account=account, position=position)
            for position, account in enumerate(further, start=1)
        )

    @property
    def set_aside(self) -> bool:
        """Return whether Crier has switched it off."""
        return bool(self.firing_problem) and not self.enabled

    def forgive(self) -> None:
        """Clear the record of failed firings, after a person has edited it. The caller saves."""
        self.firing_attempts, self.firing_problem = 0, ""

    @property
    def timed(self) -> bool:
        """Return whether it has a time to fire at, even a past one."""
        return bool(self.cron or self.fire_at)

    @property
    def window(self) -> window.Window:
        return window.Window(self.timezone, self.delivery_window_start_hour, self.delivery_window_end_hour)

    def firing_after(self, moment: datetime) -> datetime | None:
        """Return the first firing after the given moment, which callers store as `next_fire_at`."""
        return schedule.next_firing(self.schedule, self.fire_at, self.cron, self.timezone, moment)

    def firings_after(self, moment: datetime) -> Iterator[datetime]:
        return schedule.firings(self.schedule, self.fire_at, self.cron, self.timezone, moment)

    def late_error(self, now: Any) -> str | None:
        """Return a sentence when all its firings come after its window has closed, else None."""
        return schedule.late_error(self.schedule, self.fire_at, self.cron, self.timezone, self.window, now)


def _farthest() -> datetime:
    return timezone.now() + timedelta(days=366 * schedule.MOST_YEARS_AHEAD)


class WithAccount(models.Manager["ReminderSender"]):
    """Reads every sender together with its account."""

    def get_queryset(self) -> models.QuerySet[ReminderSender]:
        return super().get_queryset().select_related("account")


class ReminderSender(models.Model):
    """A further account that a reminder goes out through, besides its first."""

    reminder = models.ForeignKey(Reminder, on_delete=models.CASCADE, related_name="further_senders")
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+")
    position = models.PositiveSmallIntegerField()

    objects = WithAccount()

    class Meta:
        ordering = ["position", "id"]
        constraints = [
            models.UniqueConstraint(fields=["reminder", "account"], name="sender_once_per_reminder"),
        ]

    def __str__(self) -> str:
        return str(self.account)


#: Characters of a part's text: the limit of a WhatsApp message, and enough for any mail.
MOST_TEXT = 65_536
#: Characters of a part's HTML. Gmail hides everything after the first 102 KB.
MOST_HTML = 200_000


class MessagePart(models.Model):
    """One message of a reminder. Parts go out in their order."""

    class Kind(models.TextChoices):
        TEXT = "text"
        IMAGE = "image"
        VIDEO = "video"
        AUDIO = "audio"
        DOCUMENT = "document"

    position = models.PositiveSmallIntegerField(default=0)
    kind = models.CharField(max_length=16, choices=Kind, default=Kind.TEXT)
    text = models.TextField(blank=True, help_text="The text, or the caption of a file.")
    html = models.TextField(blank=True, help_text="For mail: the same in HTML.")
    media = models.ForeignKey(MediaFile, on_delete=models.PROTECT, null=True, blank=True)
    # The message template by which it reaches people who have not written for a day, where the provider wants one, with
    # a value for each variable (accounts.channels.templates.Template.as_part).
    template = models.JSONField(null=True, blank=True)

    class Meta:
        abstract = True
        ordering = ["position"]

    def __str__(self) -> str:
        return f"{self.kind}: {Truncator(self.text).chars(40)}"

    def clean(self) -> None:
        if too_long := length_problems(self.text, self.html):
            raise ValidationError(too_long)
        if self.kind == self.Kind.TEXT and (self.media_id or not self.text.strip()):
            raise ValidationError("A text part needs a text and has no file.")
        if self.kind != self.Kind.TEXT and not self.media_id:
            raise ValidationError("This part needs a file.")


def length_problems(text: str, html: str) -> dict[str, str]:
    """Return a sentence for each of the two that is too long, by the name of its field."""
    limits = {"text": ("text", text, MOST_TEXT), "html": ("HTML", html, MOST_HTML)}
    return {
        name: f"The {what} has {len(value):,} characters; at most {most:,} are sent. Shorten it or add another part."
        for name, (what, value, most) in limits.items()
        if len(value) > most
    }


def _part_is_bounded(name: str) -> models.CheckConstraint:
    return models.CheckConstraint(
        condition=LessThanOrEqual(Length("text"), MOST_TEXT) & LessThanOrEqual(Length("html"), MOST_HTML),
        name=name,
        violation_error_message=f"A text has at most {MOST_TEXT:,} characters, its HTML {MOST_HTML:,}.",
    )


def _part_has_content(name: str) -> models.CheckConstraint:
    return models.CheckConstraint(
        condition=(Q(kind="text", media__isnull=True) & ~Q(text="")) | (~Q(kind="text") & Q(media__isnull=False)),
        name=name,
        violation_error_message="A text part needs a text; every other part needs a file.",
    )


class ReminderMessage(MessagePart):
    """A part of the reminder itself (Message 1)."""

    reminder = models.ForeignKey(Reminder, on_delete=models.CASCADE, related_name="messages")

    class Meta(MessagePart.Meta):
        constraints = [
            models.UniqueConstraint(
                fields=["reminder", "position"], name="part_position_once", deferrable=models.Deferrable.DEFERRED
            ),
            _part_has_content("part_has_content"),
            _part_is_bounded("part_is_bounded"),
        ]


class ReplyPart(MessagePart):
    """A part of Message 2: what a person gets who replies to the reminder within a day."""

    reminder = models.ForeignKey(Reminder, on_delete=models.CASCADE, related_name="reply_parts")

    class Meta(MessagePart.Meta):
        constraints = [
            models.UniqueConstraint(
                fields=["reminder", "position"], name="reply_part_position_once", deferrable=models.Deferrable.DEFERRED
            ),
            _part_has_content("reply_part_has_content"),
            _part_is_bounded("reply_part_is_bounded"),
        ]


class FollowUpPart(MessagePart):
    """A part of one of the follow-ups: what a person gets who has not replied some days after a firing."""

    reminder = models.ForeignKey(Reminder, on_delete=models.CASCADE, related_name="follow_up_parts")
    # The first, second or third follow-up.
    step = models.PositiveSmallIntegerField(default=1)

    class Meta(MessagePart.Meta):
        ordering = ["step", "position"]
        constraints = [
            models.UniqueConstraint(
                fields=["reminder", "position"],
                name="follow_up_part_position_once",
                deferrable=models.Deferrable.DEFERRED,
            ),
            models.CheckConstraint(condition=Q(step__gte=1, step__lte=MOST_STEPS), name="follow_up_part_step_known"),
            _part_has_content("follow_up_part_has_content"),
            _part_is_bounded("follow_up_part_is_bounded"),
        ]


class ReminderTarget(models.Model):
    reminder = models.ForeignKey(Reminder, on_delete=models.CASCADE, related_name="targets")
    recipient = models.ForeignKey(Recipient, on_delete=models.CASCADE, related_name="+")
    position = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["position", "id"]
        indexes = [
            # a large run copies them in chunks, in this order
            models.Index(fields=["reminder", "position", "id"], name="reminder_target_order"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["reminder", "recipient"],
                name="target_once_per_reminder",
                violation_error_message="This recipient is already among the targets.",
            ),
        ]

    def __str__(self) -> str:
        return str(self.recipient)
