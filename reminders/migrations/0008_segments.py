"""Segments: recipients by conditions, and the reminders that go to them."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.lookups
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("reminders", "0007_opt_out_phrases"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Segment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100)),
                (
                    "tags",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=60), blank=True, default=list, size=None
                    ),
                ),
                (
                    "every_tag",
                    models.BooleanField(
                        default=False, help_text="Off: one of them is enough.", verbose_name="all of these tags"
                    ),
                ),
                (
                    "without_tags",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=60), blank=True, default=list, size=None
                    ),
                ),
                ("fields", models.JSONField(blank=True, default=list)),
                (
                    "not_contacted_days",
                    models.PositiveSmallIntegerField(blank=True, null=True, verbose_name="not contacted for"),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "not_replied_to",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="reminders.reminder",
                        verbose_name="did not reply to",
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        blank=True,
                        help_text="Members of this team see it and act on it too.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="auth.group",
                    ),
                ),
            ],
            options={
                "ordering": ["name", "id"],
            },
        ),
        migrations.AddField(
            model_name="reminder",
            name="segment",
            field=models.ForeignKey(
                blank=True,
                help_text="Who is in it is decided anew at each firing.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="reminders",
                to="reminders.segment",
            ),
        ),
        migrations.AddConstraint(
            model_name="segment",
            constraint=models.UniqueConstraint(
                fields=("owner", "name"),
                name="segment_once_per_owner",
                violation_error_message="You have a segment of this name already.",
            ),
        ),
        migrations.AddConstraint(
            model_name="segment",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("tags", []), _negated=True),
                    models.Q(("without_tags", []), _negated=True),
                    models.Q(("fields", []), _negated=True),
                    ("not_replied_to__isnull", False),
                    ("not_contacted_days__isnull", False),
                    _connector="OR",
                ),
                name="segment_has_a_condition",
                violation_error_message="Give the segment at least one condition: without any, it would be everyone.",
            ),
        ),
        migrations.AddConstraint(
            model_name="segment",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("not_contacted_days__isnull", True),
                    models.Q(("not_contacted_days__gte", 1), ("not_contacted_days__lte", 3650)),
                    _connector="OR",
                ),
                name="segment_days_bounded",
                violation_error_message="Give a number of days from 1 to 3,650.",
            ),
        ),
        migrations.AddConstraint(
            model_name="segment",
            constraint=models.CheckConstraint(
                condition=django.db.models.lookups.LessThanOrEqual(
                    models.Func("fields", function="jsonb_array_length", output_field=models.IntegerField()), 10
                ),
                name="segment_fields_bounded",
                violation_error_message="Name at most 10 conditions about fields.",
            ),
        ),
    ]
