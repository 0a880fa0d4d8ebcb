"""Everything of this app as of 1.0: what is sent, to whom and when."""

from datetime import UTC, datetime

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import migrations, models
from django.db.models.functions import Length, Upper
from django.db.models.lookups import LessThanOrEqual

# What follow-ups know of a person belongs to the address, in every list: the recipient with the address that was there
# first is what is known. In the database, because recipients come by forms, imports, scripts and the
# synchronisation of groups. Once per statement, not once per row: for each row it would keep the plan that it made for a
# small table, and read a large one for every row of a long list. A new plan for every statement, because the number of
# new rows and the size of the table decide which one is good.
KNOWN_PEOPLE = """
CREATE FUNCTION reminders_known_people() RETURNS trigger LANGUAGE plpgsql
SET plan_cache_mode = force_custom_plan AS $$
BEGIN
  UPDATE reminders_recipient r
     SET follow_up_attempts = known.follow_up_attempts,
         attempts_reset_at = known.attempts_reset_at,
         cooldown_until = known.cooldown_until,
         replied_at = known.replied_at,
         status = CASE WHEN known.tells THEN known.status ELSE r.status END,
         limited = CASE WHEN known.tells THEN known.limited ELSE r.limited END
    FROM (SELECT DISTINCT ON (added.id) added.id AS new_id, p.*,
                 added.status = 'active' AND (p.limited OR p.status = 'opted_out') AS tells
            FROM added JOIN reminders_recipient p ON p.address = added.address AND p.id < added.id
           ORDER BY added.id, p.id) AS known
   WHERE r.id = known.new_id;
  RETURN NULL;
END $$;
CREATE TRIGGER reminders_recipient_known AFTER INSERT ON reminders_recipient
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION reminders_known_people();
"""


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("reminders", "0001_initial"),
        ("reminders", "0002_triggers"),
        ("reminders", "0003_firing_problems"),
        ("reminders", "0004_part_text_limits"),
        ("reminders", "0005_known_people_by_statement"),
        ("reminders", "0006_part_templates"),
        ("reminders", "0007_opt_out_phrases"),
        ("reminders", "0008_segments"),
        ("reminders", "0009_follow_ups"),
        ("reminders", "0010_resume_after_limit"),
    ]

    dependencies = [
        ("accounts", "0001_version_1_0"),
        ("auth", "0012_alter_user_first_name_max_length"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Recipient",
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
                    "kind",
                    models.CharField(
                        choices=[
                            ("group", "Group"),
                            ("person", "Person"),
                            ("mailbox", "Mailbox"),
                            ("profile", "LinkedIn profile"),
                        ],
                        max_length=16,
                    ),
                ),
                ("address", models.CharField(max_length=254)),
                ("name", models.CharField(blank=True, max_length=200)),
                ("tags", ArrayField(base_field=models.CharField(max_length=60), blank=True, default=list, size=None)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("active", "Active"),
                            ("not_interested", "Not interested"),
                            ("do_not_disturb", "Do not disturb"),
                            ("opted_out", "Opted out"),
                            ("blacklisted", "Blacklisted"),
                            ("converted", "Converted"),
                            ("closed", "Closed"),
                        ],
                        default="active",
                        max_length=16,
                    ),
                ),
                ("fields", models.JSONField(blank=True, db_default=models.Value({}, models.JSONField()), default=dict)),
                ("follow_up_attempts", models.PositiveIntegerField(default=0)),
                ("attempts_reset_at", models.DateTimeField(blank=True, null=True)),
                ("cooldown_until", models.DateTimeField(blank=True, null=True)),
                ("replied_at", models.DateTimeField(blank=True, null=True)),
                ("limited", models.BooleanField(db_default=False, default=False)),
                ("archived", models.BooleanField(db_default=False, default=False, editable=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["name", "id"],
                "indexes": [
                    models.Index(fields=["owner", "name"], name="recipient_owner_name"),
                    models.Index(fields=["address"], name="recipient_address"),
                    models.Index(
                        condition=models.Q(cooldown_until__isnull=False),
                        fields=["cooldown_until"],
                        name="recipient_cooling",
                    ),
                    models.Index(Upper("name"), name="recipient_upper_name"),
                    GinIndex(fields=["tags"], name="recipient_tags"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("owner", "address"),
                        name="recipient_once_per_owner",
                        violation_error_message="This recipient is already in your list, perhaps in another spelling.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(kind__in=["group", "person", "mailbox", "profile"]),
                        name="recipient_kind_known",
                    ),
                    models.CheckConstraint(condition=~models.Q(address=""), name="recipient_has_address"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "account",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="memberships", to="accounts.account"),
                ),
                (
                    "recipient",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="memberships", to="reminders.recipient"),
                ),
                ("name", models.CharField(blank=True, max_length=200)),
                ("size", models.PositiveIntegerField(blank=True, null=True)),
                ("announce_only", models.BooleanField(db_default=False, default=False)),
                ("may_write", models.BooleanField(db_default=True, default=True)),
                ("seen_at", models.DateTimeField()),
                ("gone_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("account", "recipient"), name="membership_once_per_account"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Suppression",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("address", models.CharField(max_length=254, unique=True)),
                (
                    "reason",
                    models.CharField(
                        choices=[
                            ("hard_bounce", "Hard bounce"),
                            ("soft_bounces", "Repeated soft bounces"),
                            ("unsubscribed", "Unsubscribed"),
                            ("opted_out", "Opted out"),
                            ("complaint", "Complaint"),
                            ("manual", "Manual"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "source",
                    models.CharField(
                        choices=[
                            ("provider", "Provider"),
                            ("recipient", "Recipient"),
                            ("operator", "Operator"),
                            ("import", "Import"),
                        ],
                        db_default="provider",
                        default="provider",
                        max_length=12,
                    ),
                ),
                ("detail", models.CharField(blank=True, max_length=500)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                (
                    "added_by",
                    models.ForeignKey(
                        blank=True,
                        editable=False,
                        null=True,
                        on_delete=models.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="OptOutPhrase",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "phrase",
                    models.CharField(
                        help_text="A message that says only this. Case, accents, punctuation, “please” and “thank you” do not matter.",
                        max_length=100,
                    ),
                ),
                ("essence", models.CharField(editable=False, max_length=400)),
                (
                    "opts_out",
                    models.BooleanField(
                        db_default=True,
                        default=True,
                        help_text="Off: people who write this stay in, although the built-in list has it.",
                        verbose_name="opts out",
                    ),
                ),
                ("note", models.CharField(blank=True, help_text="Why it is in the list.", max_length=200)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "verbose_name": "opt-out phrase",
                "ordering": ["phrase"],
                "constraints": [
                    models.UniqueConstraint(fields=("essence",), name="opt_out_phrase_once"),
                    models.CheckConstraint(condition=~models.Q(essence=""), name="opt_out_phrase_says_something"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ErasedAddress",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("erased_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="MediaFile",
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
                ("file", models.FileField(upload_to="media/%Y/%m")),
                ("filename", models.CharField(blank=True, max_length=200)),
                ("mime", models.CharField(blank=True, max_length=100)),
                ("size", models.PositiveBigIntegerField(default=0)),
                ("sha256", models.CharField(blank=True, editable=False, max_length=64)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["sha256"], name="media_sha256"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("owner", "sha256"), name="media_once_per_owner"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Reminder",
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
                ("title", models.CharField(max_length=200)),
                (
                    "account",
                    models.ForeignKey(on_delete=models.PROTECT, related_name="reminders", to="accounts.account"),
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
                        default="message",
                        max_length=32,
                    ),
                ),
                ("subject", models.CharField(blank=True, help_text="For mail.", max_length=200)),
                ("timezone", models.CharField(default="UTC", max_length=64)),
                (
                    "schedule",
                    models.CharField(
                        choices=[("once", "Once"), ("cron", "repeated (cron)")], default="once", max_length=8
                    ),
                ),
                ("fire_at", models.DateTimeField(blank=True, help_text="For a reminder that fires once.", null=True)),
                (
                    "cron",
                    models.CharField(blank=True, help_text="Five fields, in the reminder's timezone.", max_length=120),
                ),
                ("delivery_window_start_hour", models.PositiveSmallIntegerField(default=6)),
                ("delivery_window_end_hour", models.PositiveSmallIntegerField(default=18)),
                ("enabled", models.BooleanField(default=True)),
                ("archived", models.BooleanField(db_default=False, default=False, editable=False)),
                (
                    "auto_resume",
                    models.BooleanField(
                        default=False,
                        help_text="Go on by itself at the next opening. Off: it waits for you, because its text may be out of date.",
                    ),
                ),
                (
                    "resume_after_limit",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="Go on by itself when the account may send again, after its daily cap, its hours or its new chats.",
                    ),
                ),
                (
                    "follow_up",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="Stops by itself at people who do not reply, and is not added to a long queue unless it is urgent.",
                    ),
                ),
                (
                    "urgency",
                    models.CharField(
                        choices=[("high", "High"), ("medium", "Medium"), ("low", "Low")],
                        db_default="medium",
                        default="medium",
                        help_text="For follow-ups: only urgent ones (high) join an account's long queue.",
                        max_length=8,
                    ),
                ),
                ("next_fire_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("firing_attempts", models.PositiveSmallIntegerField(db_default=0, default=0, editable=False)),
                (
                    "firing_problem",
                    models.CharField(blank=True, db_default="", default="", editable=False, max_length=300),
                ),
                (
                    "follow_up_days",
                    ArrayField(
                        base_field=models.PositiveSmallIntegerField(),
                        blank=True,
                        db_default=models.Value([], ArrayField(base_field=models.IntegerField(), size=None)),
                        default=list,
                        size=None,
                        verbose_name="follow up after days",
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(condition=models.Q(enabled=True), fields=["next_fire_at"], name="reminder_due"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            delivery_window_end_hour__lte=24,
                            delivery_window_start_hour__gte=0,
                            delivery_window_start_hour__lt=models.F("delivery_window_end_hour"),
                        ),
                        name="reminder_window_in_one_day",
                        violation_error_message="The delivery window must satisfy 0 ≤ start < end ≤ 24.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(archived=False) | models.Q(enabled=False), name="reminder_archived_is_off"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(follow_up_days__len__lte=3),
                        name="reminder_few_follow_ups",
                        violation_error_message="A reminder has at most 3 follow-ups.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(cron="", schedule="once")
                        | models.Q(fire_at__isnull=True, schedule="cron") & ~models.Q(cron=""),
                        name="reminder_schedule_whole",
                        violation_error_message="A once-only reminder has a time, a repeated one has a cron expression.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(fire_at__isnull=True)
                        | models.Q(
                            fire_at__gte=datetime(2000, 1, 1, 0, 0, tzinfo=UTC),
                            fire_at__lt=datetime(2200, 1, 1, 0, 0, tzinfo=UTC),
                        ),
                        name="reminder_time_bounded",
                        violation_error_message="Choose a time within the next 10 years.",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Segment",
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
                ("name", models.CharField(max_length=100)),
                ("tags", ArrayField(base_field=models.CharField(max_length=60), blank=True, default=list, size=None)),
                (
                    "every_tag",
                    models.BooleanField(
                        default=False, help_text="Off: one of them is enough.", verbose_name="all of these tags"
                    ),
                ),
                (
                    "without_tags",
                    ArrayField(base_field=models.CharField(max_length=60), blank=True, default=list, size=None),
                ),
                ("fields", models.JSONField(blank=True, default=list)),
                (
                    "not_replied_to",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=models.PROTECT,
                        related_name="+",
                        to="reminders.reminder",
                        verbose_name="did not reply to",
                    ),
                ),
                (
                    "not_contacted_days",
                    models.PositiveSmallIntegerField(blank=True, null=True, verbose_name="not contacted for"),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "ordering": ["name", "id"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("owner", "name"),
                        name="segment_once_per_owner",
                        violation_error_message="You have a segment of this name already.",
                    ),
                    models.CheckConstraint(
                        condition=~models.Q(tags=[])
                        | ~models.Q(without_tags=[])
                        | ~models.Q(fields=[])
                        | models.Q(not_replied_to__isnull=False)
                        | models.Q(not_contacted_days__isnull=False),
                        name="segment_has_a_condition",
                        violation_error_message="Give the segment at least one condition: without any, it would be everyone.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(not_contacted_days__isnull=True)
                        | models.Q(not_contacted_days__gte=1, not_contacted_days__lte=3650),
                        name="segment_days_bounded",
                        violation_error_message="Give a number of days from 1 to 3,650.",
                    ),
                    models.CheckConstraint(
                        condition=LessThanOrEqual(
                            models.Func("fields", function="jsonb_array_length", output_field=models.IntegerField()), 10
                        ),
                        name="segment_fields_bounded",
                        violation_error_message="Name at most 10 conditions about fields.",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ReminderTarget",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "reminder",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="targets", to="reminders.reminder"),
                ),
                ("recipient", models.ForeignKey(on_delete=models.CASCADE, related_name="+", to="reminders.recipient")),
                ("position", models.PositiveIntegerField(default=0)),
            ],
            options={
                "ordering": ["position", "id"],
                "indexes": [
                    models.Index(fields=["reminder", "position", "id"], name="reminder_target_order"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("reminder", "recipient"),
                        name="target_once_per_reminder",
                        violation_error_message="This recipient is already among the targets.",
                    ),
                ],
            },
        ),
        migrations.AddField(
            "reminder",
            "segment",
            models.ForeignKey(
                blank=True,
                help_text="Who is in it is decided anew at each firing.",
                null=True,
                on_delete=models.PROTECT,
                related_name="reminders",
                to="reminders.segment",
            ),
        ),
        migrations.AddField(
            "reminder",
            "recipients",
            models.ManyToManyField(
                related_name="reminders", through="reminders.ReminderTarget", to="reminders.recipient"
            ),
        ),
        migrations.CreateModel(
            name="ReminderSender",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "reminder",
                    models.ForeignKey(
                        on_delete=models.CASCADE, related_name="further_senders", to="reminders.reminder"
                    ),
                ),
                ("account", models.ForeignKey(on_delete=models.PROTECT, related_name="+", to="accounts.account")),
                ("position", models.PositiveSmallIntegerField()),
            ],
            options={
                "ordering": ["position", "id"],
                "constraints": [
                    models.UniqueConstraint(fields=("reminder", "account"), name="sender_once_per_reminder"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ReminderMessage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("position", models.PositiveSmallIntegerField(default=0)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("text", "Text"),
                            ("image", "Image"),
                            ("video", "Video"),
                            ("audio", "Audio"),
                            ("document", "Document"),
                        ],
                        default="text",
                        max_length=16,
                    ),
                ),
                ("text", models.TextField(blank=True, help_text="The text, or the caption of a file.")),
                ("html", models.TextField(blank=True, help_text="For mail: the same in HTML.")),
                ("media", models.ForeignKey(blank=True, null=True, on_delete=models.PROTECT, to="reminders.mediafile")),
                ("template", models.JSONField(blank=True, null=True)),
                (
                    "reminder",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="messages", to="reminders.reminder"),
                ),
            ],
            options={
                "ordering": ["position"],
                "constraints": [
                    models.UniqueConstraint(
                        deferrable=models.Deferrable.DEFERRED,
                        fields=("reminder", "position"),
                        name="part_position_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(kind="text", media__isnull=True) & ~models.Q(text="")
                        | ~models.Q(kind="text") & models.Q(media__isnull=False),
                        name="part_has_content",
                        violation_error_message="A text part needs a text; every other part needs a file.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(LessThanOrEqual(Length("text"), 65536))
                        & models.Q(LessThanOrEqual(Length("html"), 200000)),
                        name="part_is_bounded",
                        violation_error_message="A text has at most 65,536 characters, its HTML 200,000.",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ReplyPart",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("position", models.PositiveSmallIntegerField(default=0)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("text", "Text"),
                            ("image", "Image"),
                            ("video", "Video"),
                            ("audio", "Audio"),
                            ("document", "Document"),
                        ],
                        default="text",
                        max_length=16,
                    ),
                ),
                ("text", models.TextField(blank=True, help_text="The text, or the caption of a file.")),
                ("html", models.TextField(blank=True, help_text="For mail: the same in HTML.")),
                ("media", models.ForeignKey(blank=True, null=True, on_delete=models.PROTECT, to="reminders.mediafile")),
                ("template", models.JSONField(blank=True, null=True)),
                (
                    "reminder",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="reply_parts", to="reminders.reminder"),
                ),
            ],
            options={
                "ordering": ["position"],
                "constraints": [
                    models.UniqueConstraint(
                        deferrable=models.Deferrable.DEFERRED,
                        fields=("reminder", "position"),
                        name="reply_part_position_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(kind="text", media__isnull=True) & ~models.Q(text="")
                        | ~models.Q(kind="text") & models.Q(media__isnull=False),
                        name="reply_part_has_content",
                        violation_error_message="A text part needs a text; every other part needs a file.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(LessThanOrEqual(Length("text"), 65536))
                        & models.Q(LessThanOrEqual(Length("html"), 200000)),
                        name="reply_part_is_bounded",
                        violation_error_message="A text has at most 65,536 characters, its HTML 200,000.",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="FollowUpPart",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("position", models.PositiveSmallIntegerField(default=0)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("text", "Text"),
                            ("image", "Image"),
                            ("video", "Video"),
                            ("audio", "Audio"),
                            ("document", "Document"),
                        ],
                        default="text",
                        max_length=16,
                    ),
                ),
                ("text", models.TextField(blank=True, help_text="The text, or the caption of a file.")),
                ("html", models.TextField(blank=True, help_text="For mail: the same in HTML.")),
                ("media", models.ForeignKey(blank=True, null=True, on_delete=models.PROTECT, to="reminders.mediafile")),
                ("template", models.JSONField(blank=True, null=True)),
                (
                    "reminder",
                    models.ForeignKey(
                        on_delete=models.CASCADE, related_name="follow_up_parts", to="reminders.reminder"
                    ),
                ),
                ("step", models.PositiveSmallIntegerField(default=1)),
            ],
            options={
                "ordering": ["step", "position"],
                "constraints": [
                    models.UniqueConstraint(
                        deferrable=models.Deferrable.DEFERRED,
                        fields=("reminder", "position"),
                        name="follow_up_part_position_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(step__gte=1, step__lte=3), name="follow_up_part_step_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(kind="text", media__isnull=True) & ~models.Q(text="")
                        | ~models.Q(kind="text") & models.Q(media__isnull=False),
                        name="follow_up_part_has_content",
                        violation_error_message="A text part needs a text; every other part needs a file.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(LessThanOrEqual(Length("text"), 65536))
                        & models.Q(LessThanOrEqual(Length("html"), 200000)),
                        name="follow_up_part_is_bounded",
                        violation_error_message="A text has at most 65,536 characters, its HTML 200,000.",
                    ),
                ],
            },
        ),
        migrations.RunSQL(KNOWN_PEOPLE),
    ]
