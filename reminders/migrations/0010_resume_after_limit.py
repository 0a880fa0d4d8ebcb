from django.db import migrations, models

# One switch stood for both: what was on goes on by itself after the account's limits, too.
BOTH = "UPDATE reminders_reminder SET resume_after_limit = true WHERE auto_resume"


class Migration(migrations.Migration):
    dependencies = [
        ("reminders", "0009_follow_ups"),
    ]

    operations = [
        migrations.AddField(
            model_name="reminder",
            name="resume_after_limit",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="Go on by itself when the account may send again, after its daily cap, its hours or its new "
                "chats.",
            ),
        ),
        migrations.RunSQL(BOTH, migrations.RunSQL.noop),
    ]
