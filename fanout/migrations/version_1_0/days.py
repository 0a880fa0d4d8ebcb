"""Results per day: what was sent, failed, received, read, replied to and opted out of, by run, account and calendar day
of the run's timezone.

A trigger on fanout_runtarget appends the difference that each statement makes to `fanout_daychange`, so that no commit
waits for a row that others write, and retries, corrections and deletions count themselves. A task folds the differences
into `fanout_dayresult` once a minute. The view `fanout_day` has both and is exact at every commit.
"""

NAMES = ("sent", "failed", "received", "read", "replied", "opted_out")
KEYS = "run_id, account_id, day"
COLUMNS = ", ".join(NAMES)
NOTHING = f"({', '.join('0' for _ in NAMES)})"

TABLES = f"""
CREATE TABLE fanout_dayresult (
  run_id bigint NOT NULL, account_id bigint NOT NULL, day date NOT NULL,
  {", ".join(f"{name} int NOT NULL" for name in NAMES)}, PRIMARY KEY (run_id, account_id, day)
);
-- results of a period
CREATE INDEX fanout_dayresult_day ON fanout_dayresult (day, run_id);
-- results of one account in a period
CREATE INDEX fanout_dayresult_account ON fanout_dayresult (account_id, day);
CREATE TABLE fanout_daychange (
  run_id bigint NOT NULL, account_id bigint NOT NULL, day date NOT NULL,
  {", ".join(f"{name} int NOT NULL" for name in NAMES)}
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE VIEW fanout_day AS
  SELECT {KEYS}, {COLUMNS} FROM fanout_dayresult UNION ALL SELECT {KEYS}, {COLUMNS} FROM fanout_daychange;
"""

# When each counted thing happened; the same conditions as a run's funnel. The lookup of the timezone is by key for each
# row: a cached plan must not read all runs.
COUNTED = f"""
  SELECT t.run_id, t.account_id, (c.at AT TIME ZONE r.timezone)::date AS day,
         {", ".join(f"coalesce(sum(t.n) FILTER (WHERE c.what = '{name}'), 0) AS {name}" for name in NAMES)}
    FROM (%s) AS t
   CROSS JOIN LATERAL (SELECT timezone FROM fanout_run WHERE id = t.run_id OFFSET 0) AS r
   CROSS JOIN LATERAL (VALUES
     ('sent', CASE WHEN t.status = 'sent' THEN coalesce(t.settled_at, t.claimed_at) END),
     ('failed', CASE WHEN t.status = 'failed' THEN coalesce(t.settled_at, t.claimed_at) END),
     ('received', CASE WHEN t.status = 'sent' THEN t.delivered_at END),
     ('read', CASE WHEN t.status = 'sent' THEN t.read_at END),
     ('replied', CASE WHEN t.status = 'sent' THEN t.replied_at END),
     ('opted_out', CASE WHEN t.status = 'sent' THEN t.opted_out_at END)) AS c(what, at)
   WHERE c.at IS NOT NULL
   GROUP BY 1, 2, 3
"""
TIMES = "run_id, account_id, status, settled_at, claimed_at, delivered_at, read_at, replied_at, opted_out_at"


def rows(table: str, n: int) -> str:
    # Claims change nothing that is counted: their rows go no further than this.
    return f"SELECT {TIMES}, {n} AS n FROM {table} WHERE status IN ('sent', 'failed')"


CHANGES = {
    "inserted": rows("new_rows", 1),
    "deleted": rows("old_rows", -1),
    "updated": f"{rows('new_rows', 1)} UNION ALL {rows('old_rows', -1)}",
}
TABLE_OF = {
    "inserted": "INSERT ON fanout_runtarget REFERENCING NEW TABLE AS new_rows",
    "deleted": "DELETE ON fanout_runtarget REFERENCING OLD TABLE AS old_rows",
    "updated": "UPDATE ON fanout_runtarget REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows",
}

# Triggers fire in the order of their names: after the ones that lock the runs, so that a recount under that lock is
# exact.
TRIGGERS = "".join(
    f"""
CREATE FUNCTION fanout_days_{name}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO fanout_daychange ({KEYS}, {COLUMNS})
  SELECT {KEYS}, {COLUMNS} FROM ({COUNTED % changed}) AS d WHERE ({COLUMNS}) <> {NOTHING};
  RETURN NULL;
END $$;
CREATE TRIGGER fanout_runtarget_{name}_days AFTER {TABLE_OF[name]}
  FOR EACH STATEMENT EXECUTE FUNCTION fanout_days_{name}();
"""
    for name, changed in CHANGES.items()
)

# One fold or recount at a time; the number is "days" on a telephone.
LOCK = 3297

FOLD = f"""
CREATE FUNCTION fanout_fold_days() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  emptied bigint[];
BEGIN
  IF NOT pg_try_advisory_xact_lock({LOCK}) THEN
    RETURN;
  END IF;
  WITH taken AS (DELETE FROM fanout_daychange RETURNING *), written AS (
    INSERT INTO fanout_dayresult AS d ({KEYS}, {COLUMNS})
    SELECT {KEYS}, {", ".join(f"sum({name})" for name in NAMES)} FROM taken GROUP BY {KEYS}
    ON CONFLICT ({KEYS}) DO UPDATE SET {", ".join(f"{name} = d.{name} + excluded.{name}" for name in NAMES)}
    RETURNING d.*)
  SELECT array_agg(run_id) INTO emptied FROM written WHERE ({COLUMNS}) = {NOTHING};
  DELETE FROM fanout_dayresult WHERE run_id = ANY(emptied) AND ({COLUMNS}) = {NOTHING};
END $$;
"""

# From the targets themselves, under the runs' locks: what others have not committed yet comes after it.
RECOUNT = f"""
CREATE FUNCTION fanout_recount_days(runs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock({LOCK});
  PERFORM fanout_lock_runs(runs);
  DELETE FROM fanout_daychange WHERE run_id = ANY(runs);
  DELETE FROM fanout_dayresult WHERE run_id = ANY(runs);
  INSERT INTO fanout_dayresult ({KEYS}, {COLUMNS})
  SELECT {KEYS}, {COLUMNS} FROM ({COUNTED % (rows("fanout_runtarget", 1) + " AND run_id = ANY(runs)")}) AS d;
END $$;
"""

SQL = TABLES + TRIGGERS + FOLD + RECOUNT
