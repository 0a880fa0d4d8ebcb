"""Limit the length of a part's text and HTML. Not validated: a part that is longer and was stored before stays."""

from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models
from django.db.models.functions import Length
from django.db.models.lookups import LessThanOrEqual


def bounded(name: str) -> models.CheckConstraint:
    return models.CheckConstraint(
        condition=models.Q(LessThanOrEqual(Length("text"), 65_536), LessThanOrEqual(Length("html"), 200_000)),
        name=name,
        violation_error_message="A text has at most 65,536 characters, its HTML 200,000.",
    )


class Migration(migrations.Migration):
    dependencies = [("reminders", "0003_firing_problems")]

    operations = [
        AddConstraintNotValid(model_name="remindermessage", constraint=bounded("part_is_bounded")),
        AddConstraintNotValid(model_name="replypart", constraint=bounded("reply_part_is_bounded")),
    ]
