"""Triggers that write down what webhooks tell, in the transaction in which it happens: no code path can forget it.

They are called only for changes that an endpoint may want; the conditions cost next to nothing for all other rows. Each
then looks whether the owner or the team has an endpoint at all.
"""

import base64
import secrets

from django.db import migrations

TRIGGERS = """
CREATE FUNCTION fanout_wanted(what text, whose bigint, of_team bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT FROM fanout_webhookendpoint e
                  WHERE e.enabled AND e.kinds @> ARRAY[what]::varchar[]
                    AND (e.team_id = of_team OR e.team_id IS NULL AND e.owner_id = whose));
$$;

CREATE FUNCTION fanout_run_told() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  what text := CASE NEW.status WHEN 'running' THEN 'run.started' WHEN 'paused' THEN 'run.paused' ELSE 'run.finished' END;
BEGIN
  IF fanout_wanted(what, NEW.owner_id, NEW.team_id) THEN
    INSERT INTO fanout_webhookevent (kind, owner_id, team_id, run_id, at, facts)
    VALUES (what, NEW.owner_id, NEW.team_id, NEW.id, clock_timestamp(), jsonb_build_object(
      'status', NEW.status, 'pause_reason', NEW.pause_reason, 'total', NEW.total, 'pending', NEW.pending,
      'sending', NEW.sending, 'sent', NEW.sent, 'failed', NEW.failed, 'skipped', NEW.skipped,
      'unconfirmed', NEW.unconfirmed));
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER fanout_run_told AFTER UPDATE OF status ON fanout_run FOR EACH ROW
  WHEN (NEW.status <> OLD.status AND NEW.is_test IS FALSE
        AND (NEW.status IN ('paused', 'success', 'partial', 'failed', 'skipped', 'canceled')
             OR NEW.status = 'running' AND OLD.status = 'queued'))
  EXECUTE FUNCTION fanout_run_told();

CREATE FUNCTION fanout_target_told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO fanout_webhookevent (kind, owner_id, team_id, run_id, target_id, account_id, at, facts)
  SELECT 'target.' || NEW.status, r.owner_id, r.team_id, r.id, NEW.id, NEW.account_id, clock_timestamp(),
         jsonb_build_object('status', NEW.status, 'error_kind', NEW.error_kind, 'error', NEW.error)
    FROM fanout_run r
   WHERE r.id = NEW.run_id AND NOT r.is_test AND fanout_wanted('target.' || NEW.status, r.owner_id, r.team_id);
  RETURN NULL;
END $$;
CREATE TRIGGER fanout_target_told AFTER UPDATE OF status ON fanout_runtarget FOR EACH ROW
  WHEN (NEW.status IN ('failed', 'unconfirmed') AND NEW.status <> OLD.status)
  EXECUTE FUNCTION fanout_target_told();

CREATE FUNCTION fanout_inbound_told() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  what text := CASE WHEN NEW.opts_out OR NEW.kind IN ('unsubscribe', 'complaint') THEN 'opt_out' ELSE 'reply' END;
BEGIN
  INSERT INTO fanout_webhookevent (kind, owner_id, team_id, inbound_id, target_id, account_id, at, facts)
  SELECT what, a.owner_id, a.team_id, NEW.id, NEW.run_target_id, a.id, clock_timestamp(), '{}'
    FROM accounts_account a WHERE a.id = NEW.account_id AND fanout_wanted(what, a.owner_id, a.team_id);
  RETURN NULL;
END $$;
CREATE TRIGGER fanout_inbound_told AFTER UPDATE OF state ON fanout_inboundevent FOR EACH ROW
  WHEN (NEW.state = 'done' AND OLD.state <> 'done' AND NEW.kind IN ('reply', 'unsubscribe', 'complaint')
        AND NEW."group" = '')
  EXECUTE FUNCTION fanout_inbound_told();

CREATE FUNCTION fanout_account_told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF fanout_wanted('account.suspended', NEW.owner_id, NEW.team_id) THEN
    INSERT INTO fanout_webhookevent (kind, owner_id, team_id, account_id, at, facts)
    VALUES ('account.suspended', NEW.owner_id, NEW.team_id, NEW.id, clock_timestamp(), jsonb_build_object(
      'status', NEW.status, 'reason', NEW.status_reason, 'until', NEW.status_until));
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER fanout_account_told AFTER UPDATE OF status ON accounts_account FOR EACH ROW
  WHEN (NEW.status IN ('suspended', 'unpaired') AND NEW.status <> OLD.status)
  EXECUTE FUNCTION fanout_account_told();
"""
UNDO = """
DROP TRIGGER fanout_account_told ON accounts_account;
DROP TRIGGER fanout_inbound_told ON fanout_inboundevent;
DROP TRIGGER fanout_target_told ON fanout_runtarget;
DROP TRIGGER fanout_run_told ON fanout_run;
DROP FUNCTION fanout_account_told();
DROP FUNCTION fanout_inbound_told();
DROP FUNCTION fanout_target_told();
DROP FUNCTION fanout_run_told();
DROP FUNCTION fanout_wanted(text, bigint, bigint);
"""


def move_personal_webhooks(apps, schema_editor):
    """People's unsigned webhooks become signed ones for what they own."""
    Endpoint = apps.get_model("fanout", "WebhookEndpoint")
    for wish in apps.get_model("fanout", "Subscription").objects.exclude(webhook=""):
        kinds = ["run.paused", "run.finished", "account.suspended"]
        secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
        Endpoint.objects.create(owner_id=wish.user_id, url=wish.webhook, kinds=kinds, secrets={"current": secret})


class Migration(migrations.Migration):
    dependencies = [("fanout", "0026_webhooks_out")]

    operations = [
        migrations.RunSQL(TRIGGERS, UNDO),
        migrations.RunPython(move_personal_webhooks, migrations.RunPython.noop),
    ]
