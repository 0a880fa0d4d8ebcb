import django.db.models.deletion
from django.db import migrations, models


def rotation_becomes_senders(apps, schema_editor):
    """Where several accounts took turns, they are the senders now. The reminder's own account stays the first if it
    was among them; if not, it sent nothing."""
    Reminder = apps.get_model("reminders", "Reminder")
    ReminderSender = apps.get_model("reminders", "ReminderSender")
    for reminder in Reminder.objects.filter(rotation__isnull=False).distinct():
        accounts = list(reminder.rotation.order_by("label", "id").values_list("pk", flat=True))
        if reminder.account_id not in accounts:
            Reminder.objects.filter(pk=reminder.pk).update(account_id=accounts[0])
            reminder.account_id = accounts[0]
        accounts.remove(reminder.account_id)
        ReminderSender.objects.bulk_create(
            ReminderSender(reminder_id=reminder.pk, account_id=pk, position=position)
            for position, pk in enumerate(accounts, start=1)
        )
    # Its check is deferred, and a table with pending checks cannot lose its rotation below.
    schema_editor.execute("SET CONSTRAINTS ALL IMMEDIATE")


class Migration(migrations.Migration):

    dependencies = [
        ("accounts", "0001_initial"),
        ("reminders", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="ReminderSender",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("position", models.PositiveSmallIntegerField()),
                ("account", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.account")),
                ("reminder", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="further_senders", to="reminders.reminder")),
            ],
            options={"ordering": ["position", "id"]},
        ),
        migrations.AddConstraint(
            model_name="remindersender",
            constraint=models.UniqueConstraint(fields=("reminder", "account"), name="sender_once_per_reminder"),
        ),
        migrations.RunPython(rotation_becomes_senders, migrations.RunPython.noop),
        migrations.RemoveField(model_name="reminder", name="rotation"),
    ]
