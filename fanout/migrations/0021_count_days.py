"""Count the days of earlier runs, and note opt-outs with the messages after which they came. A few runs at a time: what
is sent meanwhile is counted by the triggers of 0042."""

from django.db import migrations, transaction

AT_ONCE = 100

RUNS = "SELECT id FROM fanout_run WHERE id > %s AND total > 0 ORDER BY id LIMIT %s"
NOTE_OPT_OUTS = """
UPDATE fanout_runtarget t SET opted_out_at = e.at
  FROM (SELECT run_target_id, min(happened_at) AS at FROM fanout_inboundevent
         WHERE opts_out AND run_target_id IS NOT NULL GROUP BY 1) AS e
 WHERE t.id = e.run_target_id AND t.opted_out_at IS NULL AND t.run_id = ANY(%s)
"""


def count(apps, schema_editor):
    last = 0
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM fanout_inboundevent WHERE opts_out AND run_target_id IS NOT NULL)")
        (opted_out,) = cursor.fetchone()
        while True:
            cursor.execute(RUNS, [last, AT_ONCE])
            runs = [pk for (pk,) in cursor.fetchall()]
            if not runs:
                return
            with transaction.atomic(schema_editor.connection.alias):
                cursor.execute("SELECT fanout_lock_runs(%s)", [runs])
                if opted_out:
                    cursor.execute(NOTE_OPT_OUTS, [runs])
                cursor.execute("SELECT fanout_recount_days(%s)", [runs])
            last = runs[-1]


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("fanout", "0020_day_results")]

    operations = [migrations.RunPython(count, migrations.RunPython.noop)]
