"""Follow-ups that a reminder sends by itself."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fanout", "0021_count_days")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="follows",
            field=models.ForeignKey(
                blank=True,
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="follow_ups",
                to="fanout.run",
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="next_step_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="run",
            name="step",
            field=models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="run",
            name="steps",
            field=models.JSONField(db_default=models.Value([], models.JSONField()), default=list),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("next_step_at__isnull", False)), fields=["next_step_at"], name="run_step_due"
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.UniqueConstraint(
                condition=models.Q(("follows__isnull", False)),
                fields=("follows", "step"),
                name="run_one_follow_up_per_step",
            ),
        ),
    ]
