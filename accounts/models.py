"""Accounts that send: their credentials, pace and limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models, transaction
from django.db.models import F, Q
from django.db.models.functions import Cast

from accounts import actions, knobs
from accounts.actions import Action
from accounts.addresses import AddressError, normalise
from accounts.channels.registry import channel, channels, offered
from accounts.fields import EncryptedJSONField, Sealed
from accounts.inputs import EVERY_DAY, SEND_DAYS, valid_timezone


class Owned(models.Model):
    """Base of rows that belong to one operator and, where shared, to one team."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    team = models.ForeignKey(
        Group,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text="Members of this team see it and act on it too.",
    )

    class Meta:
        abstract = True


def status_in_words(status: str, reason: str) -> str:
    """Return a status with its reason: “suspended: wrong password”, “paused by an operator”."""
    reason = reason.rstrip(".")
    if reason.startswith(status):
        return reason
    return f"{status}: {reason}" if reason else status


class Account(Owned):
    class Status(models.TextChoices):
        ACTIVE = "active"
        PAUSED = "paused"
        SUSPENDED = "suspended"
        UNPAIRED = "unpaired"

    label = models.CharField(max_length=120)
    channel = models.CharField(max_length=32)
    address = models.CharField(
        max_length=254, blank=True, help_text="The sender's own number or mail address, as recipients see it."
    )
    timezone = models.CharField(max_length=64, default="UTC", help_text="Business hours and the daily caps follow it.")
    config = models.JSONField(default=dict, blank=True, help_text="How to reach the provider; no secrets here.")
    credentials = EncryptedJSONField(default=dict, blank=True)
    # The last part of its webhook address. An operator can renew it; the old address then answers 404.
    hook_token = models.CharField(
        max_length=36, unique=True, db_default=Cast(RandomUUID(), models.CharField()), editable=False
    )

    status = models.CharField(max_length=16, choices=Status, default=Status.ACTIVE)
    status_reason = models.CharField(max_length=500, blank=True)
    status_until = models.DateTimeField(null=True, blank=True)
    # Hidden from lists and choices, and never active: its history keeps it from being deleted.
    archived = models.BooleanField(default=False, db_default=False, editable=False)
    status_changed_at = models.DateTimeField(null=True, blank=True)
    # Since then nothing has shown that it works; empty: a test or a delivery succeeded with the stored settings.
    untested_since = models.DateTimeField(null=True, blank=True, editable=False)
    last_error = models.CharField(max_length=500, blank=True)
    last_error_at = models.DateTimeField(null=True, blank=True)
    # When its provider was last asked for the account's message templates, and why it did not list them.
    templates_read_at = models.DateTimeField(null=True, blank=True, editable=False)
    templates_problem = models.CharField(max_length=500, blank=True, default="", db_default="", editable=False)

    # Pace overrides. Empty means: as the environment says (accounts.knobs).
    max_send_per_minute = models.PositiveIntegerField(null=True, blank=True)
    send_burst = models.PositiveIntegerField(null=True, blank=True)
    group_concurrency = models.PositiveIntegerField(null=True, blank=True)
    min_gap_seconds = models.FloatField(null=True, blank=True)
    max_gap_seconds = models.FloatField(null=True, blank=True)
    batch_size = models.PositiveIntegerField(null=True, blank=True)
    batch_pause_seconds = models.FloatField(null=True, blank=True)
    part_jitter_min_ms = models.PositiveIntegerField(null=True, blank=True)
    part_jitter_max_ms = models.PositiveIntegerField(null=True, blank=True)
    error_rate_slowdown = models.FloatField(null=True, blank=True)
    circuit_breaker = models.FloatField(null=True, blank=True)
    bounce_rate_pause = models.FloatField(null=True, blank=True)
    complaint_rate_pause = models.FloatField(null=True, blank=True)
    retry_base_seconds = models.FloatField(null=True, blank=True)
    new_chats_per_day = models.PositiveIntegerField(null=True, blank=True)

    hours_start = models.PositiveSmallIntegerField(null=True, blank=True, help_text="Business hours: first hour.")
    hours_end = models.PositiveSmallIntegerField(null=True, blank=True, help_text="Business hours: closing hour.")
    send_days = ArrayField(
        models.PositiveSmallIntegerField(),
        null=True,
        blank=True,
        help_text="ISO weekdays on which it sends (1 Monday … 7 Sunday); empty: every day.",
    )

    warmup_started_on = models.DateField(null=True, blank=True)
    warmup_days = models.PositiveSmallIntegerField(default=0, help_text="0: no warm-up.")
    warmup_floor = models.PositiveIntegerField(default=5, help_text="Messages on the first day of the warm-up.")

    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["label", "id"]
        indexes = [
            # the account list and the firing check, by status
            models.Index(fields=["status"], name="account_status"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["owner", "label"], name="account_label_once_per_owner"),
            models.CheckConstraint(
                condition=Q(status__in=["active", "paused", "suspended", "unpaired"]), name="account_status_known"
            ),
            models.CheckConstraint(
                condition=Q(archived=False) | ~Q(status="active"), name="account_archived_is_not_active"
            ),
            models.CheckConstraint(
                condition=Q(hours_start__isnull=True, hours_end__isnull=True)
                # explicit: a comparison with NULL is neither true nor false, and passes a check
                | Q(
                    hours_start__isnull=False,
                    hours_end__isnull=False,
                    hours_start__lt=F("hours_end"),
                    hours_end__lte=24,
                ),
                name="account_hours_in_order",
            ),
            models.CheckConstraint(
                condition=Q(min_gap_seconds__isnull=True)
                | Q(max_gap_seconds__isnull=True)
                | Q(min_gap_seconds__lte=F("max_gap_seconds")),
                name="account_gap_in_order",
            ),
            models.CheckConstraint(
                condition=Q(warmup_days__lte=actions.MOST_WARMUP_DAYS), name="account_warmup_days_bounded"
            ),
            models.CheckConstraint(
                condition=Q(warmup_started_on__isnull=True)
                | Q(warmup_started_on__gte=actions.EARLIEST_WARMUP, warmup_started_on__lt=actions.LATEST_WARMUP),
                name="account_warmup_day_bounded",
            ),
        ]

    def __str__(self) -> str:
        return self.label

    @property
    def needs_pairing(self) -> bool:
        """Return whether it sends only after it was paired with its phone, on its page in Crier."""
        return self.status == self.Status.UNPAIRED and channel(self.channel).pairs

    @property
    def way_back(self) -> str:
        """Return what an operator does so that it sends again: “pair it” or “reactivate it”."""
        return "pair it" if self.needs_pairing else "reactivate it"

    def overrides(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in knobs.KNOBS}

    def settings(self) -> dict[str, knobs.Setting]:
        return knobs.resolve(self.overrides(), settings.BOT, channel(self.channel).knobs)

    def remember(self, learned: Mapping[str, str]) -> None:
        """Fill in settings that the provider told and the account still lacks."""
        if learned:
            with transaction.atomic():
                stored = Account.objects.select_for_update(no_key=True).get(pk=self.pk).config
                self.config = stored | {name: value for name, value in learned.items() if not stored.get(name)}
                self.save(update_fields=["config", "updated_at"])

    def destination(self) -> dict[str, Any]:
        """Return where the credentials are sent, and as whom."""
        return {"channel": self.channel} | channel(self.channel).destination(self.config, self.address)

    def clean(self) -> None:
        errors = self._channel_errors() | self._knob_errors() | self._hour_errors() | self.warmup_errors()
        if not valid_timezone(self.timezone):
            errors["timezone"] = f"{self.timezone!r} is not a timezone; write it like Asia/Kuala_Lumpur."
        if errors:
            raise ValidationError(errors)

    def _channel_errors(self) -> dict[str, str]:
        """Return the problems that the channel's description finds in settings, credentials and sender."""
        choices = offered() if self._state.adding else channels()
        if self.channel not in choices:
            return {"channel": f"Unknown channel {self.channel!r}: choose one of {', '.join(choices)}."}
        if not isinstance(self.config, dict):
            return {"config": 'The settings are a JSON object, such as {"host": "mail.example.com"}.'}
        described, errors = channel(self.channel), {}
        if problems := described.setting_problems(self.config):
            errors["config"] = " ".join(problems)
        if problems := self._credential_problems():
            # No form has a field for this column, so the error belongs to no field.
            errors[NON_FIELD_ERRORS] = " ".join(problems)
        if described.needs_sender and not (self.address or self.config.get("from_address")):
            errors["address"] = "Mail needs a sender: give the account its own mail address."
        elif problem := self._address_problem():
            errors["address"] = problem
        return errors

    def _address_problem(self) -> str:
        kind = channel(self.channel).own_kind
        try:
            if kind and self.address:
                normalise(kind, self.address)
        except AddressError as problem:
            return str(problem)
        return ""

    def _credential_problems(self) -> list[str]:
        """Return the problems of new credentials.

        Stored ones were checked when they came, and perhaps no key opens them.
        """
        credentials = self.__dict__.get("credentials")
        if isinstance(credentials, Sealed):
            return []
        return channel(self.channel).credential_problems(credentials or {})

    def _hour_errors(self) -> dict[str, str]:
        errors = {}
        if (self.hours_start is None) != (self.hours_end is None):
            errors["hours_end"] = "Give both business hours or neither."
        elif self.hours_start is not None and not 0 <= self.hours_start < (self.hours_end or 0) <= 24:
            errors["hours_end"] = "Business hours must satisfy 0 ≤ start < end ≤ 24 on one day."
        if self.send_days and not EVERY_DAY.issuperset(self.send_days):
            errors["send_days"] = SEND_DAYS
        return errors

    def warmup_errors(self) -> dict[str, str]:
        errors = {}
        if self.warmup_days and not 0 <= self.warmup_days <= actions.MOST_WARMUP_DAYS:
            errors["warmup_days"] = f"A warm-up takes at most {actions.MOST_WARMUP_DAYS} days."
        if self.warmup_started_on and not actions.EARLIEST_WARMUP <= self.warmup_started_on < actions.LATEST_WARMUP:
            errors["warmup_started_on"] = "Give the day on which the warm-up began or begins."
        return errors

    def _knob_errors(self) -> dict[str, str]:
        errors = {}
        for name, knob in knobs.KNOBS.items():
            value = getattr(self, name)
            if value is not None and not knob.low <= value <= knob.high:
                errors[name] = f"{name} must be between {knob.low:g} and {knob.high:g}."
        effective = self.settings()
        for low, high in (("min_gap_seconds", "max_gap_seconds"), ("part_jitter_min_ms", "part_jitter_max_ms")):
            if effective[low].value > effective[high].value:
                errors[low] = f"{low} ({effective[low].value:g}) is above {high} ({effective[high].value:g})."
        if problem := knobs.delay_error(channel(self.channel), effective):
            errors["max_send_per_minute"] = problem
        return errors


class MessageTemplate(models.Model):
    """A text that the provider has approved for the account, as it was last listed (accounts.message_templates)."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="templates")
    name = models.CharField(max_length=512)
    language = models.CharField(max_length=32)
    # accounts.channels.templates.Template in plain JSON; a reminder's part keeps the same with its values.
    content = models.JSONField()

    class Meta:
        ordering = ["name", "language"]
        constraints = [
            models.UniqueConstraint(fields=["account", "name", "language"], name="template_once_per_account")
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.language})"


class DailyLimit(models.Model):
    """An account's own cap for one action per calendar day in the account's timezone."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="daily_limits")
    action = models.CharField(max_length=32, choices=Action)
    limit = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: no cap for this action.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "action"], name="daily_limit_once_per_action")]

    def __str__(self) -> str:
        return f"{self.account}: {self.limit if self.limit is not None else 'no cap'} × {self.action} a day"


class PairedSession(models.Model):
    """The machine that has a paired number's session, by the bridge's journal there.

    A bridge notes a message in its journal before it leaves. Since `journal_since` that was this one: a message which
    it does not know, claimed after that, never left. A journal behind `journal_page` is an old copy.
    """

    account = models.OneToOneField(Account, on_delete=models.CASCADE, primary_key=True, related_name="paired_session")
    journal = models.CharField(max_length=36)
    journal_page = models.IntegerField(default=0)
    journal_since = models.DateTimeField()
    host = models.CharField(max_length=200)

    # As its bridge last reported it. A bridge that is gone reports nothing: `reported_at` stays behind.
    state = models.CharField(max_length=16, blank=True, default="", db_default="")
    state_since = models.DateTimeField(null=True, blank=True)
    reported_at = models.DateTimeField(null=True, blank=True)
    paired_at = models.DateTimeField(null=True, blank=True)
    # The machine that an operator moved the number to: no other may use the stored session until it is paired anew.
    moved_to = models.CharField(max_length=200, blank=True, default="", db_default="")
    # Names of groups that were joined, left or changed since they were last synchronised (reminders.groups).
    group_changes = models.JSONField(default=dict, blank=True, db_default={})

    def __str__(self) -> str:
        return f"session of {self.account_id} on {self.host}"


class BridgeBeat(models.Model):
    """The heartbeat of a machine's WhatsApp bridge, with or without numbers: numbers can be moved there."""

    host = models.CharField(max_length=200, primary_key=True)
    beat_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"bridge on {self.host}"


class Profile(models.Model):
    """The choices that a person made for their own pages."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="profile"
    )
    timezone = models.CharField(
        max_length=64,
        blank=True,
        help_text="Every time on the pages is shown by this clock. Empty: by the clock of the browser.",
    )

    def __str__(self) -> str:
        return f"profile of {self.user}"

    def clean(self) -> None:
        if self.timezone and not valid_timezone(self.timezone):
            raise ValidationError({"timezone": f"“{self.timezone}” is not a known timezone."})


class ApiToken(models.Model):
    """A person's key for programs. Only its hash is stored: the token itself is shown once (accounts.tokens)."""

    class Scope(models.TextChoices):
        READ = "read", "read: everything that the person sees"
        SEND = "send", "send: reminders, messages, runs and files"
        RECIPIENTS = "recipients", "recipients: add, change, suppress and erase"
        ACCOUNTS = "accounts", "accounts: pause, resume, pace and caps"
        WEBHOOKS = "webhooks", "webhooks: add, change, delete, new secrets"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=60, help_text="The program that uses it. The audit trail shows it.")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    # Its first characters, by which a person recognises it.
    begins = models.CharField(max_length=16, editable=False)
    scopes = ArrayField(models.CharField(max_length=12, choices=Scope), default=list)
    team = models.ForeignKey(
        Group,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text="The token sees and changes only what is shared with this team, and shares what it adds with it.",
    )
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_from = models.CharField(max_length=45, blank=True, default="", editable=False)
    # Calls in the minute that began then: written with every call, without waiting for the disk.
    minute = models.DateTimeField(null=True, blank=True, editable=False)
    calls = models.PositiveIntegerField(default=0, editable=False)

    class Meta:
        verbose_name = "API token"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(scopes__contained_by=["read", "send", "recipients", "accounts", "webhooks"]),
                name="token_scopes_known",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class TokenGuess(models.Model):
    """Calls with an unknown token from one address, since the first of them."""

    address = models.CharField(max_length=45, primary_key=True)
    since = models.DateTimeField()
    tries = models.PositiveIntegerField(default=1)

    def __str__(self) -> str:
        return f"{self.tries} unknown tokens from {self.address}"


def changed_destination(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings in which two destinations (`Account.destination`) differ.

    Stored credentials are for one destination. They cannot be read, and must not be sent elsewhere either: to point an
    account at another server or user, a person enters its credentials again.
    """
    return sorted(name for name in {**before, **after} if before.get(name) != after.get(name))


def reenter_credentials(names: list[str]) -> str:
    return (
        f"{' and '.join(names)} changed: the stored credentials are for the old destination, so enter them again "
        "together with the change."
    )


class CalendarFeed(models.Model):
    """The secret address under which a calendar program reads a person's calendar. Only a hash of the secret is kept;
    deleting the row revokes the address."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="calendar_feed"
    )
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"calendar address of {self.user}"
