"""Opt-outs are recognised when they come and worked on first; mail that a program wrote is a kind of its own."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("fanout", "0006_complaints"), ("reminders", "0007_opt_out_phrases")]

    operations = [
        migrations.AddField(
            model_name="inboundevent",
            name="opts_out",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddIndex(
            model_name="inboundevent",
            index=models.Index(fields=["id"], name="inbound_opt_outs", condition=Q(state="new", opts_out=True)),
        ),
        migrations.AlterField(
            model_name="inboundevent",
            name="kind",
            field=models.CharField(
                choices=[
                    ("reply", "Reply"),
                    ("delivered", "Delivered"),
                    ("read", "Read"),
                    ("bounce", "Bounce"),
                    ("complaint", "Complaint"),
                    ("unsubscribe", "Unsubscribe"),
                    ("automatic", "Automatic"),
                    ("session", "Session"),
                ],
                max_length=12,
            ),
        ),
    ]
