"""`run.started` is told once, with the first attempt of the run: one that a limit held first was never told, and one that
was resumed was told again. Runs that collect single messages start and finish after each of them: neither is told.
"""

from importlib import import_module

from django.db import migrations

FUNCTION = """
CREATE OR REPLACE FUNCTION fanout_run_told() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  what text := coalesce(TG_ARGV[0], CASE NEW.status WHEN 'paused' THEN 'run.paused' ELSE 'run.finished' END);
BEGIN
  IF fanout_wanted(what, NEW.owner_id, NEW.team_id) THEN
    INSERT INTO fanout_webhookevent (kind, owner_id, team_id, run_id, at, facts)
    VALUES (what, NEW.owner_id, NEW.team_id, NEW.id, clock_timestamp(), jsonb_build_object(
      'status', CASE what WHEN 'run.started' THEN 'running' ELSE NEW.status END,
      'pause_reason', NEW.pause_reason, 'total', NEW.total, 'pending', NEW.pending,
      'sending', NEW.sending, 'sent', NEW.sent, 'failed', NEW.failed, 'skipped', NEW.skipped,
      'unconfirmed', NEW.unconfirmed));
  END IF;
  RETURN NULL;
END $$;
"""
# The first attempt may be folded into the row by a change of its status (migration 0016). Triggers go by their names:
# the start is then told before the end.
TRIGGERS = """
DROP TRIGGER fanout_run_told ON fanout_run;
CREATE TRIGGER fanout_run_told AFTER UPDATE OF status ON fanout_run FOR EACH ROW
  WHEN (NEW.status <> OLD.status AND NEW.is_test IS FALSE
        AND (NEW.status = 'paused'
             OR NEW.collects = '' AND NEW.status IN ('success', 'partial', 'failed', 'skipped', 'canceled')))
  EXECUTE FUNCTION fanout_run_told();
CREATE TRIGGER fanout_run_started AFTER UPDATE OF status, first_attempt_at ON fanout_run FOR EACH ROW
  WHEN (OLD.first_attempt_at IS NULL AND NEW.first_attempt_at IS NOT NULL
        AND NEW.is_test IS FALSE AND NEW.collects = '')
  EXECUTE FUNCTION fanout_run_told('run.started');
"""

BEFORE: str = import_module("fanout.migrations.0027_webhook_triggers").TRIGGERS
UNDO = "DROP TRIGGER fanout_run_started ON fanout_run; DROP TRIGGER fanout_run_told ON fanout_run;" + (
    "CREATE OR REPLACE FUNCTION fanout_run_told" + BEFORE.split("CREATE FUNCTION fanout_run_told")[1]
).split("CREATE FUNCTION fanout_target_told")[0]


class Migration(migrations.Migration):
    dependencies = [("fanout", "0032_webhook_log")]

    operations = [migrations.RunSQL(FUNCTION + TRIGGERS, UNDO)]
