"""Triggers: the database itself keeps the counters of a run, so that no code path can forget them, and says when a
notification was written. Besides, storage settings for the tables that every delivery updates."""

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
        migrations.RunSQL(NEWS, NO_NEWS),
        migrations.RunSQL(ROOM, migrations.RunSQL.noop),
        migrations.RunSQL(QUEUE_INDEX, "DROP INDEX IF EXISTS crier_ormq_key_lock"),
    ]
