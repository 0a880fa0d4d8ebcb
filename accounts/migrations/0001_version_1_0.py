"""Everything of this app as of 1.0: who sends."""

from datetime import date

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID
from django.db import migrations, models
from django.db.models.functions import Cast

from accounts.fields import EncryptedJSONField


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("accounts", "0001_initial"),
        ("accounts", "0002_message_templates"),
        ("accounts", "0003_complaint_rate_pause"),
        ("accounts", "0004_paired_sessions"),
        ("accounts", "0007_session_health"),
        ("accounts", "0008_api_tokens"),
        ("accounts", "0009_calendar_feed"),
        ("accounts", "0010_webhook_scope"),
        ("accounts", "0011_bridge_beat"),
    ]

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Account",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("owner", models.ForeignKey(on_delete=models.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                (
                    "team",
                    models.ForeignKey(
                        blank=True,
                        help_text="Members of this team see it and act on it too.",
                        null=True,
                        on_delete=models.SET_NULL,
                        related_name="+",
                        to="auth.group",
                    ),
                ),
                ("label", models.CharField(max_length=120)),
                ("channel", models.CharField(max_length=32)),
                (
                    "address",
                    models.CharField(
                        blank=True,
                        help_text="The sender's own number or mail address, as recipients see it.",
                        max_length=254,
                    ),
                ),
                (
                    "timezone",
                    models.CharField(
                        default="UTC", help_text="Business hours and the daily caps follow it.", max_length=64
                    ),
                ),
                (
                    "config",
                    models.JSONField(blank=True, default=dict, help_text="How to reach the provider; no secrets here."),
                ),
                ("credentials", EncryptedJSONField(blank=True)),
                (
                    "hook_token",
                    models.CharField(
                        db_default=Cast(RandomUUID(), models.CharField()), editable=False, max_length=36, unique=True
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("active", "Active"),
                            ("paused", "Paused"),
                            ("suspended", "Suspended"),
                            ("unpaired", "Unpaired"),
                        ],
                        default="active",
                        max_length=16,
                    ),
                ),
                ("status_reason", models.CharField(blank=True, max_length=500)),
                ("status_until", models.DateTimeField(blank=True, null=True)),
                ("archived", models.BooleanField(db_default=False, default=False, editable=False)),
                ("status_changed_at", models.DateTimeField(blank=True, null=True)),
                ("untested_since", models.DateTimeField(blank=True, editable=False, null=True)),
                ("last_error", models.CharField(blank=True, max_length=500)),
                ("last_error_at", models.DateTimeField(blank=True, null=True)),
                ("templates_read_at", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "templates_problem",
                    models.CharField(blank=True, db_default="", default="", editable=False, max_length=500),
                ),
                ("max_send_per_minute", models.PositiveIntegerField(blank=True, null=True)),
                ("send_burst", models.PositiveIntegerField(blank=True, null=True)),
                ("group_concurrency", models.PositiveIntegerField(blank=True, null=True)),
                ("min_gap_seconds", models.FloatField(blank=True, null=True)),
                ("max_gap_seconds", models.FloatField(blank=True, null=True)),
                ("batch_size", models.PositiveIntegerField(blank=True, null=True)),
                ("batch_pause_seconds", models.FloatField(blank=True, null=True)),
                ("part_jitter_min_ms", models.PositiveIntegerField(blank=True, null=True)),
                ("part_jitter_max_ms", models.PositiveIntegerField(blank=True, null=True)),
                ("error_rate_slowdown", models.FloatField(blank=True, null=True)),
                ("circuit_breaker", models.FloatField(blank=True, null=True)),
                ("bounce_rate_pause", models.FloatField(blank=True, null=True)),
                ("complaint_rate_pause", models.FloatField(blank=True, null=True)),
                ("retry_base_seconds", models.FloatField(blank=True, null=True)),
                ("new_chats_per_day", models.PositiveIntegerField(blank=True, null=True)),
                (
                    "hours_start",
                    models.PositiveSmallIntegerField(blank=True, help_text="Business hours: first hour.", null=True),
                ),
                (
                    "hours_end",
                    models.PositiveSmallIntegerField(blank=True, help_text="Business hours: closing hour.", null=True),
                ),
                (
                    "send_days",
                    ArrayField(
                        base_field=models.PositiveSmallIntegerField(),
                        blank=True,
                        help_text="ISO weekdays on which it sends (1 Monday … 7 Sunday); empty: every day.",
                        null=True,
                        size=None,
                    ),
                ),
                ("warmup_started_on", models.DateField(blank=True, null=True)),
                ("warmup_days", models.PositiveSmallIntegerField(default=0, help_text="0: no warm-up.")),
                (
                    "warmup_floor",
                    models.PositiveIntegerField(default=5, help_text="Messages on the first day of the warm-up."),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "ordering": ["label", "id"],
                "indexes": [
                    models.Index(fields=["status"], name="account_status"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("owner", "label"), name="account_label_once_per_owner"),
                    models.CheckConstraint(
                        condition=models.Q(status__in=["active", "paused", "suspended", "unpaired"]),
                        name="account_status_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(archived=False) | ~models.Q(status="active"),
                        name="account_archived_is_not_active",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(hours_end__isnull=True, hours_start__isnull=True)
                        | models.Q(
                            hours_end__isnull=False,
                            hours_end__lte=24,
                            hours_start__isnull=False,
                            hours_start__lt=models.F("hours_end"),
                        ),
                        name="account_hours_in_order",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(min_gap_seconds__isnull=True)
                        | models.Q(max_gap_seconds__isnull=True)
                        | models.Q(min_gap_seconds__lte=models.F("max_gap_seconds")),
                        name="account_gap_in_order",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(warmup_days__lte=365), name="account_warmup_days_bounded"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(warmup_started_on__isnull=True)
                        | models.Q(
                            warmup_started_on__gte=date(2000, 1, 1),
                            warmup_started_on__lt=date(2100, 1, 1),
                        ),
                        name="account_warmup_day_bounded",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="DailyLimit",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "account",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="daily_limits", to="accounts.account"),
                ),
                (
                    "action",
                    models.CharField(
                        choices=[
                            ("email", "e-mail"),
                            ("message", "message"),
                            ("connection_request", "connection request"),
                            ("inmail", "InMail"),
                        ],
                        max_length=32,
                    ),
                ),
                (
                    "limit",
                    models.PositiveIntegerField(blank=True, help_text="Empty: no cap for this action.", null=True),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("account", "action"), name="daily_limit_once_per_action"),
                ],
            },
        ),
        migrations.CreateModel(
            name="MessageTemplate",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "account",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="templates", to="accounts.account"),
                ),
                ("name", models.CharField(max_length=512)),
                ("language", models.CharField(max_length=32)),
                ("content", models.JSONField()),
            ],
            options={
                "ordering": ["name", "language"],
                "constraints": [
                    models.UniqueConstraint(fields=("account", "name", "language"), name="template_once_per_account"),
                ],
            },
        ),
        migrations.CreateModel(
            name="PairedSession",
            fields=[
                (
                    "account",
                    models.OneToOneField(
                        on_delete=models.CASCADE,
                        primary_key=True,
                        related_name="paired_session",
                        serialize=False,
                        to="accounts.account",
                    ),
                ),
                ("journal", models.CharField(max_length=36)),
                ("journal_page", models.IntegerField(default=0)),
                ("journal_since", models.DateTimeField()),
                ("host", models.CharField(max_length=200)),
                ("state", models.CharField(blank=True, db_default="", default="", max_length=16)),
                ("state_since", models.DateTimeField(blank=True, null=True)),
                ("reported_at", models.DateTimeField(blank=True, null=True)),
                ("paired_at", models.DateTimeField(blank=True, null=True)),
                ("moved_to", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("group_changes", models.JSONField(blank=True, db_default={}, default=dict)),
            ],
        ),
        migrations.CreateModel(
            name="BridgeBeat",
            fields=[
                ("host", models.CharField(max_length=200, primary_key=True, serialize=False)),
                ("beat_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Profile",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=models.CASCADE,
                        primary_key=True,
                        related_name="profile",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "timezone",
                    models.CharField(
                        blank=True,
                        help_text="Every time on the pages is shown by this clock. Empty: by the clock of the browser.",
                        max_length=64,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="CalendarFeed",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=models.CASCADE,
                        primary_key=True,
                        related_name="calendar_feed",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("created_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="ApiToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "user",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="api_tokens", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "name",
                    models.CharField(help_text="The program that uses it. The audit trail shows it.", max_length=60),
                ),
                ("digest", models.CharField(editable=False, max_length=64, unique=True)),
                ("begins", models.CharField(editable=False, max_length=16)),
                (
                    "scopes",
                    ArrayField(
                        base_field=models.CharField(
                            choices=[
                                ("read", "read: everything that the person sees"),
                                ("send", "send: reminders, messages, runs and files"),
                                ("recipients", "recipients: add, change, suppress and erase"),
                                ("accounts", "accounts: pause, resume, pace and caps"),
                                ("webhooks", "webhooks: add, change, delete, new secrets"),
                            ],
                            max_length=12,
                        ),
                        default=list,
                        size=None,
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        blank=True,
                        help_text="The token sees and changes only what is shared with this team, and shares what it adds with it.",
                        null=True,
                        on_delete=models.CASCADE,
                        related_name="+",
                        to="auth.group",
                    ),
                ),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("last_used_from", models.CharField(blank=True, default="", editable=False, max_length=45)),
                ("minute", models.DateTimeField(blank=True, editable=False, null=True)),
                ("calls", models.PositiveIntegerField(default=0, editable=False)),
            ],
            options={
                "verbose_name": "API token",
                "ordering": ["-id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(scopes__contained_by=["read", "send", "recipients", "accounts", "webhooks"]),
                        name="token_scopes_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="TokenGuess",
            fields=[
                ("address", models.CharField(max_length=45, primary_key=True, serialize=False)),
                ("since", models.DateTimeField()),
                ("tries", models.PositiveIntegerField(default=1)),
            ],
        ),
    ]
