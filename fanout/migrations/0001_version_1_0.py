"""Everything of this app as of 1.0: runs, lanes, what comes back, and the triggers that keep their books.

The longer pieces of SQL are in `version_1_0/`, beside this file. They are frozen as it is: a later change of a function is
a later migration, which replaces it.
"""

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import migrations, models

from accounts.fields import EncryptedJSONField
from fanout.migrations.version_1_0 import counters, days, senders, webhooks

# One signal per statement, and PostgreSQL folds equal signals of a transaction into one: a listener then reads
# what is new. NOTIFY takes a lock at commit that all share, so deliveries never send one.
NEWS = """
CREATE FUNCTION fanout_news() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('crier_news', '');
  RETURN NULL;
END $$;
CREATE TRIGGER fanout_notification_news AFTER INSERT ON fanout_notification
  FOR EACH STATEMENT EXECUTE FUNCTION fanout_news();
"""

# Retention deletes old entries; nothing changes one.
NEVER_CHANGED = """
CREATE FUNCTION fanout_trail_never_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'entries of the audit trail are never changed';
END $$;
CREATE TRIGGER fanout_trail_never_changed BEFORE UPDATE ON fanout_trailentry
  FOR EACH STATEMENT EXECUTE FUNCTION fanout_trail_never_changed();
"""

# These rows are updated with every commit of the ledger: room on the page keeps the updates off the indexes.
ROOM = """
ALTER TABLE fanout_run SET (fillfactor = 50);
ALTER TABLE fanout_lanestate SET (fillfactor = 50);
ALTER TABLE fanout_driver SET (fillfactor = 50);
ALTER TABLE fanout_runtarget SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05);
"""

# django-q2 polls its queue by (key, lock) and brings no index for it.
QUEUE_INDEX = "CREATE INDEX IF NOT EXISTS crier_ormq_key_lock ON django_q_ormq (key, lock)"


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("fanout", "0001_initial"),
        ("fanout", "0002_triggers"),
        ("fanout", "0003_notifications_of_reminders"),
        ("fanout", "0004_pause_reason_account_hours"),
        ("fanout", "0005_known_ids"),
        ("fanout", "0006_complaints"),
        ("fanout", "0007_opt_outs_first"),
        ("fanout", "0008_lane_timeouts"),
        ("fanout", "0009_offloads_under_way"),
        ("fanout", "0010_part_ids"),
        ("fanout", "0012_written_on_phone"),
        ("fanout", "0014_known_server"),
        ("fanout", "0015_run_kinds"),
        ("fanout", "0016_hot_counters"),
        ("fanout", "0017_run_paused"),
        ("fanout", "0018_opted_out"),
        ("fanout", "0019_replies_handled"),
        ("fanout", "0020_day_results"),
        ("fanout", "0021_count_days"),
        ("fanout", "0022_sequences"),
        ("fanout", "0023_resume_after_limit"),
        ("fanout", "0024_kept_answers"),
        ("fanout", "0025_single_messages"),
        ("fanout", "0026_webhooks_out"),
        ("fanout", "0027_webhook_triggers"),
        ("fanout", "0028_personal_webhooks_gone"),
        ("fanout", "0029_plain_names"),
        ("fanout", "0030_corrections"),
        ("fanout", "0031_person_timeline"),
        ("fanout", "0032_webhook_log"),
        ("fanout", "0033_webhooks_of_runs"),
    ]

    dependencies = [
        ("accounts", "0001_version_1_0"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more"),
        ("reminders", "0001_version_1_0"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Run",
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
                ("reminder", models.ForeignKey(on_delete=models.PROTECT, related_name="runs", to="reminders.reminder")),
                ("account", models.ForeignKey(on_delete=models.PROTECT, related_name="runs", to="accounts.account")),
                ("lanes", ArrayField(base_field=models.BigIntegerField(), default=list, size=None)),
                (
                    "kinds",
                    ArrayField(base_field=models.CharField(max_length=16), db_default=[], default=list, size=None),
                ),
                ("title", models.CharField(max_length=200)),
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
                    "status",
                    models.CharField(
                        choices=[
                            ("preparing", "being prepared"),
                            ("queued", "Queued"),
                            ("running", "Running"),
                            ("waiting", "Waiting"),
                            ("paused", "Paused"),
                            ("success", "Success"),
                            ("partial", "Partial"),
                            ("failed", "Failed"),
                            ("skipped", "Skipped"),
                            ("canceled", "Canceled"),
                        ],
                        default="queued",
                        max_length=16,
                    ),
                ),
                (
                    "pause_reason",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("window_closed", "delivery window closed"),
                            ("account_hours", "outside business hours"),
                            ("account_capacity", "account at capacity"),
                            ("circuit_breaker", "too many errors"),
                            ("account_down", "account not active"),
                            ("media", "media could not be uploaded"),
                            ("operator", "paused by an operator"),
                        ],
                        max_length=20,
                    ),
                ),
                ("error_summary", models.TextField(blank=True)),
                ("archived", models.BooleanField(default=False)),
                ("scheduled_for", models.DateTimeField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("first_attempt_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("waiting_until", models.DateTimeField(blank=True, null=True)),
                ("waiting_why", models.CharField(blank=True, max_length=300)),
                ("resume_at", models.DateTimeField(blank=True, null=True)),
                ("delays", models.JSONField(default=dict)),
                ("parts", models.JSONField(default=list)),
                ("timezone", models.CharField(max_length=64)),
                ("window_start_hour", models.PositiveSmallIntegerField()),
                ("window_end_hour", models.PositiveSmallIntegerField()),
                ("window_closes_at", models.DateTimeField()),
                ("auto_resume", models.BooleanField(default=False)),
                ("resume_after_limit", models.BooleanField(db_default=False, default=False)),
                ("follow_up", models.BooleanField(db_default=False, default=False)),
                (
                    "urgency",
                    models.CharField(
                        choices=[("high", "High"), ("medium", "Medium"), ("low", "Low")],
                        db_default="medium",
                        default="medium",
                        max_length=8,
                    ),
                ),
                ("reply_parts", models.JSONField(db_default=models.Value([], models.JSONField()), default=list)),
                (
                    "answers",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=models.CASCADE, related_name="message_2", to="fanout.run"
                    ),
                ),
                ("steps", models.JSONField(db_default=models.Value([], models.JSONField()), default=list)),
                ("next_step_at", models.DateTimeField(blank=True, null=True)),
                (
                    "follows",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=models.SET_NULL,
                        related_name="follow_ups",
                        to="fanout.run",
                    ),
                ),
                ("step", models.PositiveSmallIntegerField(db_default=0, default=0)),
                ("collects", models.CharField(blank=True, db_default="", default="", editable=False, max_length=64)),
                ("is_test", models.BooleanField(db_default=False, default=False)),
                ("total", models.PositiveIntegerField(default=0)),
                ("pending", models.PositiveIntegerField(default=0)),
                ("sending", models.PositiveIntegerField(default=0)),
                ("sent", models.PositiveIntegerField(default=0)),
                ("failed", models.PositiveIntegerField(default=0)),
                ("skipped", models.PositiveIntegerField(default=0)),
                ("unconfirmed", models.PositiveIntegerField(default=0)),
                ("counted_to", models.BigIntegerField(db_default=0, default=0, editable=False)),
                ("seconds_pacing", models.FloatField(default=0)),
                ("seconds_provider", models.FloatField(default=0)),
                ("seconds_media", models.FloatField(default=0)),
                ("seconds_retries", models.FloatField(default=0)),
                ("seconds_waiting", models.FloatField(default=0)),
            ],
            options={
                "ordering": ["-scheduled_for", "-id"],
                "indexes": [
                    models.Index(fields=["owner", "-scheduled_for", "-id"], name="run_owner_newest"),
                    models.Index(fields=["-scheduled_for", "-id"], name="run_newest"),
                    models.Index(fields=["status", "-scheduled_for"], name="run_status"),
                    GinIndex(
                        condition=models.Q(status__in=["queued", "running", "waiting"]),
                        fastupdate=False,
                        fields=["lanes"],
                        name="run_live",
                    ),
                    GinIndex(
                        condition=models.Q(status="paused"), fastupdate=False, fields=["lanes"], name="run_paused"
                    ),
                    GinIndex(fastupdate=False, fields=["lanes"], name="run_lanes"),
                    models.Index(fields=["account", "-scheduled_for"], name="run_account"),
                    models.Index(
                        condition=models.Q(next_step_at__isnull=False), fields=["next_step_at"], name="run_step_due"
                    ),
                    models.Index(
                        condition=~models.Q(collects=""), fields=["reminder", "collects", "-id"], name="run_collects"
                    ),
                    models.Index(condition=models.Q(status="paused"), fields=["resume_at"], name="run_resume_due"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(answers__isnull=True),
                        fields=("reminder", "scheduled_for"),
                        name="run_once_per_moment",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(follows__isnull=False),
                        fields=("follows", "step"),
                        name="run_one_follow_up_per_step",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(answers__isnull=False), fields=("answers",), name="run_one_message_2"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            total=models.F("pending")
                            + models.F("sending")
                            + models.F("sent")
                            + models.F("failed")
                            + models.F("skipped")
                            + models.F("unconfirmed")
                        ),
                        name="run_books_balance",
                    ),
                    models.CheckConstraint(
                        condition=~models.Q(status__in=["success", "partial", "failed"])
                        | models.Q(pending=0, sending=0),
                        name="run_finished_means_settled",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(status="paused") & ~models.Q(pause_reason="")
                        | ~models.Q(status="paused") & models.Q(pause_reason=""),
                        name="run_paused_has_reason",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(window_end_hour__lte=24, window_start_hour__lt=models.F("window_end_hour")),
                        name="run_window_in_one_day",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="RunTarget",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False, on_delete=models.CASCADE, related_name="targets", to="fanout.run"
                    ),
                ),
                (
                    "account",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=models.PROTECT,
                        related_name="+",
                        to="accounts.account",
                    ),
                ),
                (
                    "recipient",
                    models.ForeignKey(
                        db_index=False, on_delete=models.PROTECT, related_name="run_targets", to="reminders.recipient"
                    ),
                ),
                ("position", models.PositiveIntegerField()),
                ("address", models.CharField(max_length=254)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("sending", "Sending"),
                            ("sent", "Sent"),
                            ("failed", "Failed"),
                            ("skipped", "Skipped"),
                            ("unconfirmed", "Unconfirmed"),
                        ],
                        default="pending",
                        max_length=12,
                    ),
                ),
                ("parts_sent", models.PositiveSmallIntegerField(default=0)),
                (
                    "part_ids",
                    models.JSONField(blank=True, db_default=models.Value({}, models.JSONField()), default=dict),
                ),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("next_attempt_at", models.DateTimeField(blank=True, null=True)),
                ("planned_at", models.DateTimeField(blank=True, null=True)),
                ("values", models.JSONField(blank=True, null=True)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("claim_epoch", models.BigIntegerField(default=0)),
                ("claimed_at", models.DateTimeField(blank=True, null=True)),
                ("settled_at", models.DateTimeField(blank=True, null=True)),
                ("latency_ms", models.PositiveIntegerField(blank=True, null=True)),
                ("provider_id", models.CharField(blank=True, max_length=200)),
                ("in_doubt", models.BooleanField(db_default=False, default=False)),
                ("reopened_at", models.DateTimeField(blank=True, null=True)),
                ("error_kind", models.CharField(blank=True, max_length=24)),
                ("error", models.CharField(blank=True, max_length=500)),
                ("delivered_at", models.DateTimeField(blank=True, null=True)),
                ("read_at", models.DateTimeField(blank=True, null=True)),
                ("replied_at", models.DateTimeField(blank=True, null=True)),
                ("opted_out_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ["position", "id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(status="pending"),
                        fields=["run", "account", "position"],
                        name="target_pending",
                    ),
                    models.Index(
                        condition=models.Q(status__in=["sending", "unconfirmed"]),
                        fields=["account", "claimed_at"],
                        name="target_open",
                    ),
                    models.Index(
                        condition=~models.Q(provider_id=""), fields=["provider_id"], name="target_provider_id"
                    ),
                    models.Index(fields=["run", "status", "position"], name="target_run_status"),
                    models.Index(
                        condition=models.Q(replied_at__isnull=False), fields=["run", "position"], name="target_replied"
                    ),
                    models.Index(
                        condition=models.Q(opted_out_at__isnull=False),
                        fields=["run", "position"],
                        name="target_opted_out",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("recipient", "run"),
                        include=("id", "settled_at", "claimed_at"),
                        name="target_once_per_run",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            status__in=["pending", "sending", "sent", "failed", "skipped", "unconfirmed"]
                        ),
                        name="target_status_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Offload",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("run", models.OneToOneField(on_delete=models.CASCADE, related_name="offload", to="fanout.run")),
                (
                    "account",
                    models.ForeignKey(
                        db_index=False, on_delete=models.CASCADE, related_name="+", to="accounts.account"
                    ),
                ),
                (
                    "actor",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=models.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("began_at", models.DateTimeField()),
                ("total", models.PositiveIntegerField(default=0)),
                ("moved", models.PositiveIntegerField(default=0)),
                ("and_resume", models.BooleanField(default=False)),
                ("moved_at", models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Correction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("run", models.ForeignKey(on_delete=models.CASCADE, related_name="corrections", to="fanout.run")),
                ("began_at", models.DateTimeField()),
                ("delivered", models.BooleanField(null=True)),
                ("words", models.CharField(blank=True, max_length=200)),
                ("targets", ArrayField(base_field=models.BigIntegerField(), size=None)),
                ("done", models.PositiveIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="LaneState",
            fields=[
                (
                    "account",
                    models.OneToOneField(
                        on_delete=models.CASCADE,
                        primary_key=True,
                        related_name="lane",
                        serialize=False,
                        to="accounts.account",
                    ),
                ),
                ("epoch", models.BigIntegerField(default=0)),
                ("holder", models.CharField(blank=True, max_length=64)),
                ("due_at", models.DateTimeField(blank=True, null=True)),
                ("wake_count", models.BigIntegerField(default=0)),
                (
                    "theoretical_arrival",
                    models.DateTimeField(
                        blank=True, help_text="GCRA: theoretical arrival time of the next message.", null=True
                    ),
                ),
                (
                    "next_send_at",
                    models.DateTimeField(blank=True, help_text="Gap, batch pause or slow-down ends.", null=True),
                ),
                ("batch_sent", models.PositiveIntegerField(default=0)),
                ("written_elsewhere", models.BigIntegerField(db_default=0, default=0)),
                ("slow_factor", models.FloatField(default=1.0)),
                ("last_claim_at", models.DateTimeField(blank=True, null=True)),
                ("sample", models.CharField(blank=True, max_length=100)),
                ("sample_run", models.BigIntegerField(blank=True, null=True)),
                ("probing", models.BooleanField(default=False)),
                ("timeouts", models.PositiveSmallIntegerField(db_default=0, default=0)),
                ("new_chats_after", models.DateTimeField(blank=True, null=True)),
                ("new_chats_why", models.CharField(blank=True, db_default="", default="", max_length=300)),
                ("new_chat_refusals", models.PositiveSmallIntegerField(db_default=0, default=0)),
                ("crashes", models.PositiveIntegerField(default=0)),
                ("progress_at", models.DateTimeField(blank=True, null=True)),
                ("why", models.CharField(blank=True, max_length=300)),
            ],
            options={
                "indexes": [
                    models.Index(condition=models.Q(due_at__isnull=False), fields=["due_at"], name="lane_due"),
                    models.Index(condition=models.Q(holder=""), fields=["due_at", "account"], name="lane_free"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Driver",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("host", models.CharField(max_length=200)),
                ("slot", models.PositiveIntegerField()),
                ("token", models.CharField(max_length=64)),
                ("pid", models.IntegerField()),
                ("backend_pid", models.IntegerField()),
                ("started_at", models.DateTimeField()),
                ("beat_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("lanes", models.PositiveIntegerField(default=0)),
                ("synchronous", models.BooleanField(db_default=False, default=False)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("host", "slot"), name="driver_once_per_slot"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ClusterBeat",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("cluster", models.CharField(max_length=32)),
                ("host", models.CharField(max_length=200)),
                ("pid", models.IntegerField()),
                ("beat_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "host"), name="cluster_beat_once"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Activity",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "account",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=models.CASCADE,
                        related_name="+",
                        to="accounts.account",
                    ),
                ),
                (
                    "run_target",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=models.DO_NOTHING,
                        related_name="+",
                        to="fanout.runtarget",
                    ),
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
                    "outcome",
                    models.CharField(
                        choices=[("sent", "Sent"), ("failed", "Failed"), ("rate_limited", "Rate Limited")],
                        max_length=12,
                    ),
                ),
                ("kind", models.CharField(blank=True, max_length=24)),
                ("part", models.PositiveSmallIntegerField(default=0)),
                ("at", models.DateTimeField()),
            ],
            options={
                "verbose_name_plural": "activity",
                "indexes": [
                    models.Index(fields=["account", "action", "at"], name="activity_account_day"),
                ],
            },
        ),
        migrations.CreateModel(
            name="MediaUpload",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("account", models.ForeignKey(on_delete=models.CASCADE, related_name="+", to="accounts.account")),
                ("sha256", models.CharField(max_length=64)),
                ("kind", models.CharField(blank=True, default="", max_length=16)),
                ("handle", models.TextField()),
                ("size", models.PositiveBigIntegerField(default=0)),
                ("uploaded_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("account", "sha256", "kind"), name="upload_once_per_account"),
                ],
            },
        ),
        migrations.CreateModel(
            name="KnownChat",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "account_id", "address", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "account",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=models.CASCADE,
                        related_name="+",
                        to="accounts.account",
                    ),
                ),
                ("address", models.CharField(max_length=254)),
                ("begun_at", models.DateTimeField(blank=True, null=True)),
                ("heard_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(begun_at__isnull=False), fields=["account", "begun_at"], name="chat_begun"
                    ),
                    models.Index(fields=["address"], name="chat_address"),
                ],
            },
        ),
        migrations.CreateModel(
            name="KnownId",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "account_id", "known_as", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "account",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=models.CASCADE,
                        related_name="+",
                        to="accounts.account",
                    ),
                ),
                ("known_as", models.CharField(max_length=100)),
                ("address", models.CharField(max_length=254)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["address"], name="known_id_address"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Tally",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "account",
                    models.ForeignKey(
                        db_index=False, on_delete=models.CASCADE, related_name="+", to="accounts.account"
                    ),
                ),
                (
                    "what",
                    models.CharField(
                        choices=[
                            ("attempts", "Attempts"),
                            ("cooldowns", "Cooldowns"),
                            ("backpressure", "Backpressure"),
                            ("refused", "Refused"),
                            ("removed", "Removed"),
                        ],
                        max_length=16,
                    ),
                ),
                ("why", models.CharField(blank=True, max_length=40)),
                ("n", models.BigIntegerField(default=0)),
            ],
            options={
                "verbose_name_plural": "tallies",
                "constraints": [
                    models.UniqueConstraint(fields=("account", "what", "why"), name="tally_once"),
                ],
            },
        ),
        migrations.CreateModel(
            name="InboundEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "account",
                    models.ForeignKey(
                        db_index=False, on_delete=models.CASCADE, related_name="inbound_events", to="accounts.account"
                    ),
                ),
                ("key", models.CharField(max_length=200)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("reply", "Reply"),
                            ("delivered", "Delivered"),
                            ("read", "Read"),
                            ("bounce", "Bounce"),
                            ("complaint", "Complaint"),
                            ("unsubscribe", "Unsubscribe"),
                            ("automatic", "Automatic"),
                            ("written", "Written"),
                            ("session", "Session"),
                        ],
                        max_length=12,
                    ),
                ),
                ("address", models.CharField(blank=True, max_length=254)),
                ("group", models.CharField(blank=True, max_length=254)),
                ("provider_id", models.CharField(blank=True, max_length=200)),
                ("message_id", models.CharField(blank=True, max_length=200)),
                ("words", EncryptedJSONField(blank=True)),
                ("detail", models.JSONField(blank=True, default=dict)),
                ("happened_at", models.DateTimeField()),
                ("came_at", models.DateTimeField()),
                (
                    "state",
                    models.CharField(
                        choices=[("new", "New"), ("done", "Done"), ("failed", "Failed")], default="new", max_length=8
                    ),
                ),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("next_attempt_at", models.DateTimeField(blank=True, null=True)),
                ("opts_out", models.BooleanField(db_default=False, default=False)),
                ("effect", models.CharField(blank=True, max_length=500)),
                ("run_target_id", models.BigIntegerField(blank=True, null=True)),
                ("handled_at", models.DateTimeField(blank=True, null=True)),
                ("handled_by", models.CharField(blank=True, db_default="", default="", max_length=150)),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(state="new") & ~models.Q(kind__in=["delivered", "read"]),
                        fields=["id"],
                        name="inbound_new",
                    ),
                    models.Index(
                        condition=models.Q(state="new") & models.Q(kind__in=["delivered", "read"]),
                        fields=["id"],
                        name="inbound_new_receipts",
                    ),
                    models.Index(
                        condition=models.Q(opts_out=True, state="new"), fields=["id"], name="inbound_opt_outs"
                    ),
                    models.Index(
                        condition=models.Q(next_attempt_at__isnull=False, state="new")
                        & ~models.Q(kind__in=["delivered", "read"]),
                        fields=["next_attempt_at"],
                        name="inbound_waiting",
                    ),
                    models.Index(
                        condition=~models.Q(address=""), fields=["address", "-happened_at"], name="inbound_address"
                    ),
                    models.Index(fields=["account", "-id"], name="inbound_account"),
                    models.Index(condition=models.Q(state="failed"), fields=["-id"], name="inbound_failed"),
                    models.Index(
                        condition=models.Q(kind="session"), fields=["account", "-happened_at"], name="inbound_session"
                    ),
                    models.Index(
                        condition=models.Q(kind="complaint"),
                        fields=["account", "happened_at"],
                        name="inbound_complaint",
                    ),
                    models.Index(fields=["came_at"], name="inbound_came"),
                    models.Index(
                        condition=models.Q(kind="reply", run_target_id__isnull=False) & ~models.Q(address=""),
                        fields=["-id"],
                        name="inbound_replies",
                    ),
                    models.Index(
                        condition=models.Q(kind="reply", run_target_id__isnull=False) & ~models.Q(address=""),
                        fields=["account", "-id"],
                        name="inbound_account_replies",
                    ),
                    models.Index(
                        condition=models.Q(kind="reply", run_target_id__isnull=False)
                        & ~models.Q(address="")
                        & models.Q(handled_at__isnull=True),
                        fields=["account", "-id"],
                        name="inbound_unhandled",
                    ),
                    models.Index(
                        condition=models.Q(kind="reply", run_target_id__isnull=False) & ~models.Q(address=""),
                        fields=["run_target_id"],
                        name="inbound_reply_target",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("account", "key"), name="inbound_once_per_account"),
                    models.CheckConstraint(
                        condition=models.Q(state__in=["new", "done", "failed"]), name="inbound_state_known"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "run",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=models.CASCADE, related_name="events", to="fanout.run"
                    ),
                ),
                (
                    "account",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=models.CASCADE, related_name="events", to="accounts.account"
                    ),
                ),
                (
                    "actor",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=models.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                ("at", models.DateTimeField()),
                ("verb", models.CharField(max_length=40)),
                ("detail", models.TextField(blank=True)),
            ],
            options={
                "ordering": ["at", "id"],
                "indexes": [
                    models.Index(fields=["run", "at"], name="event_run"),
                    models.Index(fields=["account", "at"], name="event_account"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Notification",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=models.CASCADE, related_name="notifications", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=models.CASCADE, related_name="+", to="fanout.run"
                    ),
                ),
                (
                    "account",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=models.CASCADE, related_name="+", to="accounts.account"
                    ),
                ),
                (
                    "reminder",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=models.CASCADE, related_name="+", to="reminders.reminder"
                    ),
                ),
                ("title", models.CharField(max_length=120)),
                ("body", models.TextField()),
                ("level", models.CharField(default="info", max_length=12)),
                ("created_at", models.DateTimeField()),
                ("read_at", models.DateTimeField(blank=True, null=True)),
                ("passed_on_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["user", "-id"], name="notification_user"),
                    models.Index(
                        condition=models.Q(passed_on_at__isnull=True), fields=["id"], name="notification_to_pass_on"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Subscription",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "user",
                    models.OneToOneField(
                        on_delete=models.CASCADE, related_name="subscription", to=settings.AUTH_USER_MODEL
                    ),
                ),
                ("email", models.EmailField(blank=True, help_text="Empty: no mail.", max_length=254)),
                ("webhook", models.URLField(blank=True, editable=False)),
                (
                    "bell",
                    models.BooleanField(
                        db_default=True,
                        default=True,
                        help_text="Count them on the bell and show them as they come.",
                        verbose_name="on the bell",
                    ),
                ),
                (
                    "team",
                    models.BooleanField(
                        db_default=True,
                        default=True,
                        help_text="Also what happens to reminders and accounts that others share with your team.",
                        verbose_name="my team's too",
                    ),
                ),
                (
                    "only_problems",
                    models.BooleanField(default=True, help_text="No mail for runs that were delivered in full."),
                ),
            ],
        ),
        migrations.CreateModel(
            name="TrailEntry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(verbose_name="when")),
                ("actor_id", models.BigIntegerField(blank=True, null=True)),
                ("actor_name", models.CharField(max_length=150, verbose_name="who")),
                ("address", models.CharField(blank=True, max_length=45, verbose_name="from")),
                ("verb", models.CharField(max_length=40, verbose_name="what")),
                ("kind", models.CharField(blank=True, max_length=40)),
                ("subject_id", models.CharField(blank=True, max_length=40)),
                ("subject", models.CharField(blank=True, max_length=200)),
                ("detail", models.TextField(blank=True)),
            ],
            options={
                "verbose_name": "audit trail entry",
                "verbose_name_plural": "audit trail",
                "ordering": ["-at", "-id"],
                "indexes": [
                    models.Index(fields=["at"], name="trail_at"),
                    models.Index(fields=["verb", "at"], name="trail_verb"),
                    models.Index(fields=["kind", "at"], name="trail_kind"),
                ],
            },
        ),
        migrations.CreateModel(
            name="KnownServer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("system_identifier", models.BigIntegerField(blank=True, null=True)),
                ("timeline", models.BigIntegerField(blank=True, null=True)),
                ("generation", models.PositiveIntegerField(db_default=0, default=0)),
                ("new_system_identifier", models.BigIntegerField(blank=True, null=True)),
                ("new_timeline", models.BigIntegerField(blank=True, null=True)),
                ("noticed_at", models.DateTimeField(blank=True, null=True)),
                ("machines", models.JSONField(blank=True, default=dict)),
                ("held", models.BooleanField(db_default=False, default=False)),
                ("why", models.TextField(blank=True, default="")),
                ("lost_since", models.DateTimeField(blank=True, null=True)),
                ("confirmed_at", models.DateTimeField(blank=True, null=True)),
                (
                    "confirmed_by",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=models.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "verbose_name": "known database server",
                "constraints": [
                    models.CheckConstraint(condition=models.Q(pk=1), name="known_server_once"),
                ],
            },
        ),
        migrations.CreateModel(
            name="LostClaim",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "account",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=models.CASCADE,
                        related_name="+",
                        to="accounts.account",
                    ),
                ),
                ("target_id", models.BigIntegerField()),
                ("run_id", models.BigIntegerField()),
                ("reminder_id", models.BigIntegerField()),
                ("scheduled_for", models.DateTimeField()),
                ("address", models.CharField(max_length=254)),
                ("part", models.PositiveSmallIntegerField()),
                ("claimed_at", models.DateTimeField()),
                ("host", models.CharField(max_length=200, verbose_name="machine")),
                ("answer", models.CharField(blank=True, max_length=12)),
                ("target_found", models.BooleanField()),
                ("noticed_at", models.DateTimeField()),
                ("confirmed_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "lost message",
                "ordering": ["-claimed_at", "-id"],
                "indexes": [
                    models.Index(fields=["address", "reminder_id"], name="lost_claim_address"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("target_id", "part", "claimed_at"), name="lost_claim_once"),
                ],
            },
        ),
        migrations.CreateModel(
            name="WebhookEndpoint",
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
                ("url", models.URLField(help_text="Gets a signed POST for each event.", max_length=500)),
                (
                    "kinds",
                    ArrayField(
                        base_field=models.CharField(
                            choices=[
                                ("run.started", "run started"),
                                ("run.paused", "run paused"),
                                ("run.finished", "run finished"),
                                ("target.failed", "target failed"),
                                ("target.unconfirmed", "target unconfirmed"),
                                ("reply", "reply"),
                                ("opt_out", "opt-out"),
                                ("account.suspended", "account suspended"),
                            ],
                            max_length=20,
                        ),
                        default=list,
                        size=None,
                    ),
                ),
                ("secrets", EncryptedJSONField()),
                ("previous_until", models.DateTimeField(blank=True, editable=False, null=True)),
                ("enabled", models.BooleanField(default=True, verbose_name="on")),
                ("failing_since", models.DateTimeField(blank=True, editable=False, null=True)),
                ("warned_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("problem", models.CharField(blank=True, default="", editable=False, max_length=300)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "verbose_name": "webhook",
                "ordering": ["-id"],
                "indexes": [
                    models.Index(condition=models.Q(enabled=True), fields=["team"], name="endpoint_team"),
                ],
            },
        ),
        migrations.CreateModel(
            name="WebhookEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=20)),
                ("owner_id", models.BigIntegerField()),
                ("team_id", models.BigIntegerField(null=True)),
                ("run_id", models.BigIntegerField(null=True)),
                ("target_id", models.BigIntegerField(null=True)),
                ("inbound_id", models.BigIntegerField(null=True)),
                ("account_id", models.BigIntegerField(null=True)),
                ("at", models.DateTimeField()),
                ("facts", models.JSONField(default=dict)),
            ],
        ),
        migrations.CreateModel(
            name="WebhookDelivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "endpoint",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="deliveries", to="fanout.webhookendpoint"),
                ),
                ("message_id", models.CharField(max_length=40, unique=True)),
                ("kind", models.CharField(max_length=20, verbose_name="event")),
                ("payload", models.JSONField()),
                ("subject", models.CharField(blank=True, default="", max_length=40)),
                (
                    "state",
                    models.CharField(
                        choices=[("pending", "Pending"), ("delivered", "Delivered"), ("failed", "Failed")],
                        default="pending",
                        max_length=10,
                    ),
                ),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("next_attempt_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField()),
                ("settled_at", models.DateTimeField(blank=True, null=True)),
                ("answer", models.CharField(blank=True, default="", max_length=300)),
            ],
            options={
                "verbose_name": "webhook delivery",
                "verbose_name_plural": "webhook deliveries",
                "ordering": ["-id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(state="pending"), fields=["endpoint", "subject", "id"], name="delivery_next"
                    ),
                    models.Index(fields=["endpoint", "-id"], name="delivery_log"),
                    models.Index(fields=["endpoint", "state", "-id"], name="delivery_log_state"),
                    models.Index(fields=["settled_at"], name="delivery_settled"),
                ],
            },
        ),
        migrations.CreateModel(
            name="SingleMessage",
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
                (
                    "account",
                    models.ForeignKey(
                        db_index=False, on_delete=models.CASCADE, related_name="+", to="accounts.account"
                    ),
                ),
                ("recipient", models.ForeignKey(on_delete=models.CASCADE, related_name="+", to="reminders.recipient")),
                ("parts", models.JSONField(default=list)),
                ("key", models.CharField(max_length=64)),
                ("values", models.JSONField(blank=True, null=True)),
                ("timezone", models.CharField(max_length=64)),
                ("window_start_hour", models.PositiveSmallIntegerField(default=0)),
                ("window_end_hour", models.PositiveSmallIntegerField(default=24)),
                ("earliest", models.DateTimeField(blank=True, null=True)),
                ("latest", models.DateTimeField(blank=True, null=True)),
                ("accepted_at", models.DateTimeField()),
                ("run_target_id", models.BigIntegerField(blank=True, null=True)),
                ("problem", models.CharField(blank=True, default="", max_length=300)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(problem="", run_target_id__isnull=True),
                        fields=["id"],
                        name="message_waiting",
                    ),
                    models.Index(fields=["accepted_at"], name="message_accepted"),
                ],
            },
        ),
        migrations.CreateModel(
            name="KeptAnswer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "token",
                    models.ForeignKey(
                        db_index=False, on_delete=models.CASCADE, related_name="+", to="accounts.apitoken"
                    ),
                ),
                ("key", models.CharField(max_length=255)),
                ("digest", models.CharField(max_length=64)),
                ("status", models.PositiveSmallIntegerField(blank=True, null=True)),
                ("kind", models.CharField(blank=True, default="", max_length=60)),
                ("body", models.TextField(blank=True, default="")),
                ("began_at", models.DateTimeField()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["began_at"], name="kept_answer_began"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("token", "key"), name="kept_answer_once_per_key"),
                ],
            },
        ),
        migrations.RunSQL(ROOM),
        migrations.RunSQL(QUEUE_INDEX),
        migrations.RunSQL(counters.SQL),
        migrations.RunSQL(senders.SQL),
        migrations.RunSQL(days.SQL),
        migrations.RunSQL(webhooks.SQL),
        migrations.RunSQL(NEWS),
        migrations.RunSQL(NEVER_CHANGED),
    ]
