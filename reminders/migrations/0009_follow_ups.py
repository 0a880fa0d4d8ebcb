"""Follow-ups that a reminder sends by itself: their days and parts."""

import django.contrib.postgres.fields
import django.db.models.constraints
import django.db.models.deletion
import django.db.models.functions.text
import django.db.models.lookups
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("reminders", "0008_segments")]

    operations = [
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
                ("template", models.JSONField(blank=True, null=True)),
                ("step", models.PositiveSmallIntegerField(default=1)),
            ],
            options={
                "ordering": ["step", "position"],
                "abstract": False,
            },
        ),
        migrations.AddField(
            model_name="reminder",
            name="follow_up_days",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.PositiveSmallIntegerField(),
                blank=True,
                db_default=models.Value(
                    [], django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), size=None)
                ),
                default=list,
                size=None,
                verbose_name="follow up after days",
            ),
        ),
        migrations.AddConstraint(
            model_name="reminder",
            constraint=models.CheckConstraint(
                condition=models.Q(("follow_up_days__len__lte", 3)),
                name="reminder_few_follow_ups",
                violation_error_message="A reminder has at most 3 follow-ups.",
            ),
        ),
        migrations.AddField(
            model_name="followuppart",
            name="media",
            field=models.ForeignKey(
                blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="reminders.mediafile"
            ),
        ),
        migrations.AddField(
            model_name="followuppart",
            name="reminder",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="follow_up_parts", to="reminders.reminder"
            ),
        ),
        migrations.AddConstraint(
            model_name="followuppart",
            constraint=models.UniqueConstraint(
                deferrable=django.db.models.constraints.Deferrable["DEFERRED"],
                fields=("reminder", "position"),
                name="follow_up_part_position_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="followuppart",
            constraint=models.CheckConstraint(
                condition=models.Q(("step__gte", 1), ("step__lte", 3)), name="follow_up_part_step_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="followuppart",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind", "text"), ("media__isnull", True), models.Q(("text", ""), _negated=True)),
                    models.Q(models.Q(("kind", "text"), _negated=True), ("media__isnull", False)),
                    _connector="OR",
                ),
                name="follow_up_part_has_content",
                violation_error_message="A text part needs a text; every other part needs a file.",
            ),
        ),
        migrations.AddConstraint(
            model_name="followuppart",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    django.db.models.lookups.LessThanOrEqual(django.db.models.functions.text.Length("text"), 65536),
                    django.db.models.lookups.LessThanOrEqual(django.db.models.functions.text.Length("html"), 200000),
                ),
                name="follow_up_part_is_bounded",
                violation_error_message="A text has at most 65,536 characters, its HTML 200,000.",
            ),
        ),
    ]
