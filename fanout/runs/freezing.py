"""Targets of a reminder are copied into its run, each with its plan and its values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import connection, transaction

from fanout.models import Run
from fanout.plans.plan import PlannedTarget
from reminders.placeholders import VALUES_SQL, names_in, required_in

# At creation the plan goes in with the targets: rewriting 100,000 fresh rows took five seconds more. A target that has
# left the reminder since it was planned is left out, and one that the run has already stays as it is. Positions go on
# where the last chunk ended.
FREEZE = f"""
INSERT INTO fanout_runtarget (run_id, account_id, recipient_id, position, address, status, parts_sent, attempts,
                              planned_at, claim_epoch, provider_id, error_kind, error, settled_at, values)
SELECT %(run)s, coalesce(p.account_id, %(account)s), p.recipient_id,
       %(total)s + row_number() OVER (ORDER BY p.n), r.address,
       CASE WHEN p.why <> '' THEN 'skipped' ELSE 'pending' END, 0, 0, p.at, 0, '', '', p.why,
       CASE WHEN p.why <> '' THEN %(now)s END,
       CASE WHEN %(names)s::text[] <> '{{}}' THEN {VALUES_SQL} END
  FROM unnest(%(recipients)s::bigint[], %(accounts)s::bigint[], %(moments)s::timestamptz[], %(whys)s::text[])
       WITH ORDINALITY AS p(recipient_id, account_id, at, why, n)
  JOIN reminders_remindertarget t ON t.reminder_id = %(reminder)s AND t.recipient_id = p.recipient_id
  JOIN reminders_recipient r ON r.id = p.recipient_id
 ORDER BY p.n
ON CONFLICT DO NOTHING
"""
# A text with a hole in it is worse than none. Of this chunk only those that lack something are touched.
SKIP_LACKING = """
UPDATE fanout_runtarget t SET status = 'skipped', settled_at = %(now)s, error = (
         SELECT 'no value for ' || string_agg('{' || name || '}', ', ' ORDER BY name) || ', which has no default'
           FROM unnest(%(required)s::text[]) AS needed(name) WHERE NOT t.values ? name)
 WHERE t.run_id = %(run)s AND t.status = 'pending' AND t.position > %(total)s AND NOT t.values ?& %(required)s::text[]
"""


def freeze(run: Run, planned: Sequence[PlannedTarget], now: datetime) -> None:
    """Copy these targets of the reminder into the run, with their plan; the accounts become lanes of the run."""
    accounts = [target.account_id for _, target in planned]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            FREEZE,
            {
                "run": run.pk,
                "account": run.account_id,
                "reminder": run.reminder_id,
                "total": run.total,
                "recipients": [recipient for recipient, _ in planned],
                "accounts": accounts,
                "moments": [target.at for _, target in planned],
                "whys": [target.why for _, target in planned],
                "now": now,
                # Of Message 2 too: its targets get the same values.
                "names": names_in([*run.parts, *run.reply_parts]),
            },
        )
        if required := required_in(run.parts):
            cursor.execute(SKIP_LACKING, {"run": run.pk, "total": run.total, "now": now, "required": required})
        lanes = {account for account in accounts if account is not None}.union(run.lanes if run.total else ())
        ordered = sorted(lanes or {run.account_id})  # a run that sends nothing needs a lane to end it
        if ordered != run.lanes:
            run.lanes = ordered
            run.save(update_fields=["lanes"])
        run.refresh_from_db(fields=["total", "pending", "skipped"])
