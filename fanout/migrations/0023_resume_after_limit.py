from django.db import migrations, models

# One switch stood for both. Runs that have ended never go on: there may be millions of them.
BOTH = """
UPDATE fanout_run SET resume_after_limit = true
 WHERE auto_resume AND (status IN ('preparing', 'queued', 'running', 'waiting', 'paused') OR answers_id IS NOT NULL)
"""


class Migration(migrations.Migration):
    dependencies = [
        ("fanout", "0022_sequences"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="resume_after_limit",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.RunSQL(BOTH, migrations.RunSQL.noop),
    ]
