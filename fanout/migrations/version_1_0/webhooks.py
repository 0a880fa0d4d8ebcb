"""What webhooks tell is written down by triggers, in the transaction in which it happens: no code path can forget it.

They are called only for changes that an endpoint may want; the conditions cost next to nothing for all other rows. Each
then looks whether the owner or the team has an endpoint at all.
"""

FUNCTIONS = """
CREATE FUNCTION fanout_wanted(what text, whose bigint, of_team bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT FROM fanout_webhookendpoint e
                  WHERE e.enabled AND e.kinds @> ARRAY[what]::varchar[]
                    AND (e.team_id = of_team OR e.team_id IS NULL AND e.owner_id = whose));
$$;

CREATE FUNCTION fanout_run_told() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE FUNCTION fanout_target_told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO fanout_webhookevent (kind, owner_id, team_id, run_id, target_id, account_id, at, facts)
  SELECT 'target.' || NEW.status, r.owner_id, r.team_id, r.id, NEW.id, NEW.account_id, clock_timestamp(),
         jsonb_build_object('status', NEW.status, 'error_kind', NEW.error_kind, 'error', NEW.error)
    FROM fanout_run r
   WHERE r.id = NEW.run_id AND NOT r.is_test AND fanout_wanted('target.' || NEW.status, r.owner_id, r.team_id);
  RETURN NULL;
END $$;

CREATE FUNCTION fanout_inbound_told() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  what text := CASE WHEN NEW.opts_out OR NEW.kind IN ('unsubscribe', 'complaint') THEN 'opt_out' ELSE 'reply' END;
BEGIN
  INSERT INTO fanout_webhookevent (kind, owner_id, team_id, inbound_id, target_id, account_id, at, facts)
  SELECT what, a.owner_id, a.team_id, NEW.id, NEW.run_target_id, a.id, clock_timestamp(), '{}'
    FROM accounts_account a WHERE a.id = NEW.account_id AND fanout_wanted(what, a.owner_id, a.team_id);
  RETURN NULL;
END $$;

CREATE FUNCTION fanout_account_told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF fanout_wanted('account.suspended', NEW.owner_id, NEW.team_id) THEN
    INSERT INTO fanout_webhookevent (kind, owner_id, team_id, account_id, at, facts)
    VALUES ('account.suspended', NEW.owner_id, NEW.team_id, NEW.id, clock_timestamp(), jsonb_build_object(
      'status', NEW.status, 'reason', NEW.status_reason, 'until', NEW.status_until));
  END IF;
  RETURN NULL;
END $$;
"""

# A run's start is told once, with its first attempt; runs that collect single messages tell neither start nor end. The
# first attempt may be folded into the row by a change of its status (counters.py). Triggers go by their names: the start
# is then told before the end.
TRIGGERS = """
CREATE TRIGGER fanout_run_told AFTER UPDATE OF status ON fanout_run FOR EACH ROW
  WHEN (NEW.status <> OLD.status AND NEW.is_test IS FALSE
        AND (NEW.status = 'paused'
             OR NEW.collects = '' AND NEW.status IN ('success', 'partial', 'failed', 'skipped', 'canceled')))
  EXECUTE FUNCTION fanout_run_told();
CREATE TRIGGER fanout_run_started AFTER UPDATE OF status, first_attempt_at ON fanout_run FOR EACH ROW
  WHEN (OLD.first_attempt_at IS NULL AND NEW.first_attempt_at IS NOT NULL
        AND NEW.is_test IS FALSE AND NEW.collects = '')
  EXECUTE FUNCTION fanout_run_told('run.started');
CREATE TRIGGER fanout_target_told AFTER UPDATE OF status ON fanout_runtarget FOR EACH ROW
  WHEN (NEW.status IN ('failed', 'unconfirmed') AND NEW.status <> OLD.status)
  EXECUTE FUNCTION fanout_target_told();
CREATE TRIGGER fanout_inbound_told AFTER UPDATE OF state ON fanout_inboundevent FOR EACH ROW
  WHEN (NEW.state = 'done' AND OLD.state <> 'done' AND NEW.kind IN ('reply', 'unsubscribe', 'complaint')
        AND NEW."group" = '')
  EXECUTE FUNCTION fanout_inbound_told();
CREATE TRIGGER fanout_account_told AFTER UPDATE OF status ON accounts_account FOR EACH ROW
  WHEN (NEW.status IN ('suspended', 'unpaired') AND NEW.status <> OLD.status)
  EXECUTE FUNCTION fanout_account_told();
"""

SQL = FUNCTIONS + TRIGGERS
