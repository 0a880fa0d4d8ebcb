"""Triggers: the database itself keeps the counters of a run, so that no code path can forget them, keeps accounts
that have targets, says when a notification was written, and never changes the audit trail. Besides, storage settings for
the tables that every delivery updates."""

from django.db import migrations

# A trigger function can only name the transition tables that its trigger has, hence one for each kind of change.
COUNT = """
CREATE FUNCTION fanout_count_%(name)s() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT min(run_id) <> max(run_id) FROM %(any)s) THEN
    -- In the order of their ids, so that two drivers that share runs never wait for each other in a circle.
    PERFORM 1 FROM fanout_run WHERE id IN (SELECT run_id FROM %(any)s) ORDER BY id FOR NO KEY UPDATE;
  END IF;
  UPDATE fanout_run r
       SET total = r.total + c.total, pending = r.pending + c.pending, sending = r.sending + c.sending,
           sent = r.sent + c.sent, failed = r.failed + c.failed, skipped = r.skipped + c.skipped,
           unconfirmed = r.unconfirmed + c.unconfirmed,
           first_attempt_at = coalesce(r.first_attempt_at, c.claimed_at),
           -- A finished run with something to send again is not finished.
           status = CASE WHEN r.status IN ('success', 'partial', 'failed')
                          AND r.pending + c.pending + r.sending + c.sending > 0 THEN 'running' ELSE r.status END
      FROM (SELECT run_id, sum(n) AS total,
                   coalesce(sum(n) FILTER (WHERE status = 'pending'), 0) AS pending,
                   coalesce(sum(n) FILTER (WHERE status = 'sending'), 0) AS sending,
                   coalesce(sum(n) FILTER (WHERE status = 'sent'), 0) AS sent,
                   coalesce(sum(n) FILTER (WHERE status = 'failed'), 0) AS failed,
                   coalesce(sum(n) FILTER (WHERE status = 'skipped'), 0) AS skipped,
                   coalesce(sum(n) FILTER (WHERE status = 'unconfirmed'), 0) AS unconfirmed,
                   min(claimed_at) FILTER (WHERE status = 'sending') AS claimed_at
              FROM (%(rows)s) AS rows
             GROUP BY run_id) AS c
     WHERE r.id = c.run_id
       AND (c.total, c.pending, c.sending, c.sent, c.failed, c.skipped, c.unconfirmed) <> (0, 0, 0, 0, 0, 0, 0);
  RETURN NULL;
END $$;
"""

CHANGES = {
    "inserted": ("new_rows", "SELECT run_id, status, 1 AS n, claimed_at FROM new_rows"),
    "deleted": ("old_rows", "SELECT run_id, status, -1 AS n, NULL::timestamptz AS claimed_at FROM old_rows"),
    "updated": (
        "new_rows",
        "SELECT run_id, status, 1 AS n, claimed_at FROM new_rows"
        " UNION ALL SELECT run_id, status, -1, NULL FROM old_rows",
    ),
}
FUNCTIONS = "".join(COUNT % {"name": name, "any": any_, "rows": rows} for name, (any_, rows) in CHANGES.items())

TRIGGERS = """
CREATE TRIGGER fanout_runtarget_inserted AFTER INSERT ON fanout_runtarget
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION fanout_count_inserted();
CREATE TRIGGER fanout_runtarget_updated AFTER UPDATE ON fanout_runtarget
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION fanout_count_updated();
CREATE TRIGGER fanout_runtarget_deleted AFTER DELETE ON fanout_runtarget
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION fanout_count_deleted();
"""

UNDO = """
DROP TRIGGER fanout_runtarget_inserted ON fanout_runtarget;
DROP TRIGGER fanout_runtarget_updated ON fanout_runtarget;
DROP TRIGGER fanout_runtarget_deleted ON fanout_runtarget;
DROP FUNCTION fanout_count_inserted();
DROP FUNCTION fanout_count_updated();
DROP FUNCTION fanout_count_deleted();
"""

# One signal per statement, and PostgreSQL folds equal signals of a transaction into one: whoever listens then reads
# what is new. NOTIFY takes a lock at commit that all share, so deliveries never send one.
NEWS = """
CREATE FUNCTION fanout_news() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('crier_news', '');
  RETURN NULL;
END $$;
CREATE TRIGGER fanout_notification_news AFTER INSERT ON fanout_notification
  FOR EACH STATEMENT EXECUTE FUNCTION fanout_news();
"""

NO_NEWS = """
DROP TRIGGER fanout_notification_news ON fanout_notification;
DROP FUNCTION fanout_news();
"""

# An account without targets is deleted without a look at the targets. A foreign key without an index reads all of
# fanout_runtarget for every account that is deleted, and an index costs a third of the speed at which deliveries are
# written. So triggers keep the same promise: `fanout_sender` lists the accounts that have had targets, and only those are
# looked up.
SENDERS = """
CREATE TABLE fanout_sender (account_id bigint PRIMARY KEY);

CREATE FUNCTION fanout_hold_senders(senders bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  held int;
BEGIN
  -- Whoever deletes one of them waits for our commit, and then finds our targets.
  PERFORM 1 FROM accounts_account WHERE id = ANY(senders) ORDER BY id FOR KEY SHARE;
  GET DIAGNOSTICS held = ROW_COUNT;
  IF held < cardinality(senders) THEN
    RAISE foreign_key_violation USING MESSAGE = 'a run target names an account that does not exist';
  END IF;
  INSERT INTO fanout_sender SELECT unnest(senders) ORDER BY 1 ON CONFLICT DO NOTHING;
END $$;

CREATE FUNCTION fanout_senders_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM fanout_hold_senders(ARRAY(SELECT DISTINCT account_id FROM new_rows));
  RETURN NULL;
END $$;

CREATE FUNCTION fanout_sender_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM fanout_hold_senders(ARRAY[NEW.account_id]);
  RETURN NULL;
END $$;

CREATE FUNCTION fanout_account_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM fanout_sender WHERE account_id = OLD.id;
  IF FOUND AND EXISTS (SELECT 1 FROM fanout_runtarget WHERE account_id = OLD.id) THEN
    RAISE foreign_key_violation USING MESSAGE = format('account %s still has run targets', OLD.id);
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER fanout_runtarget_senders AFTER INSERT ON fanout_runtarget
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION fanout_senders_inserted();
-- Named in the SET list only when targets move to another account: no delivery fires it.
CREATE TRIGGER fanout_runtarget_sender AFTER UPDATE OF account_id ON fanout_runtarget
  FOR EACH ROW WHEN (NEW.account_id <> OLD.account_id) EXECUTE FUNCTION fanout_sender_changed();
CREATE TRIGGER fanout_account_deleted AFTER DELETE ON accounts_account
  FOR EACH ROW EXECUTE FUNCTION fanout_account_deleted();
"""

NO_SENDERS = """
DROP TRIGGER fanout_account_deleted ON accounts_account;
DROP TRIGGER fanout_runtarget_sender ON fanout_runtarget;
DROP TRIGGER fanout_runtarget_senders ON fanout_runtarget;
DROP FUNCTION fanout_account_deleted();
DROP FUNCTION fanout_sender_changed();
DROP FUNCTION fanout_senders_inserted();
DROP FUNCTION fanout_hold_senders(bigint[]);
DROP TABLE fanout_sender;
"""

# Retention deletes old entries; nothing changes one.
NEVER_CHANGED = """
CREATE FUNCTION fanout_trail_never_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'entries of the audit trail are never changed';
END $$;
CREATE TRIGGER fanout_trail_never_changed BEFORE UPDATE ON fanout_trailentry
  FOR EACH STATEMENT EXECUTE FUNCTION fanout_trail_never_changed();
"""

CHANGEABLE = """
DROP TRIGGER fanout_trail_never_changed ON fanout_trailentry;
DROP FUNCTION fanout_trail_never_changed();
"""

# These rows are updated with every commit of the ledger: room on the page keeps the updates off the indexes.
ROOM = """
ALTER TABLE fanout_run SET (fillfactor = 50);
ALTER TABLE fanout_lanestate SET (fillfactor = 50);
ALTER TABLE fanout_driver SET (fillfactor = 50);
ALTER TABLE fanout_runtarget SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05);
"""

# django-q2 polls its queue by (key, lock) and brings no index for it.
QUEUE_INDEX = "CREATE INDEX IF NOT EXISTS crier_ormq_key_lock ON django_q_ormq (key, lock)"


class Migration(migrations.Migration):
    dependencies = [("fanout", "0001_initial"), ("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more")]

    operations = [
        migrations.RunSQL(FUNCTIONS + TRIGGERS, UNDO),
        migrations.RunSQL(SENDERS, NO_SENDERS),
        migrations.RunSQL(NEWS, NO_NEWS),
        migrations.RunSQL(NEVER_CHANGED, CHANGEABLE),
        migrations.RunSQL(ROOM, migrations.RunSQL.noop),
        migrations.RunSQL(QUEUE_INDEX, "DROP INDEX IF EXISTS crier_ormq_key_lock"),
    ]
