"""How fast the operator's pages are over a full database.

    python -m benchmarks.admin_pages [--targets 2000000] [--runs 20000] [--accounts 6000] [--rounds 30]

Fills a scratch database with targets, runs, accounts, recipients and activity, then asks for every list and
detail page as an operator and as an administrator. Prints the 95th percentile and the number of queries of each;
the goal is 300 ms and 25 queries.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

GOAL_MS, GOAL_QUERIES = 300.0, 25

FILL = [
    """
    INSERT INTO accounts_account (owner_id, label, channel, address, timezone, config, credentials, status,
        status_reason,
        last_error, warmup_days, warmup_floor, created_at, updated_at)
    SELECT %(owner)s, 'line ' || n, 'sandbox', '', 'Asia/Kuala_Lumpur', '{}', %(sealed)s,
           CASE WHEN n %% 25 = 0 THEN 'paused' ELSE 'active' END, '', '', 0, 5, now(), now()
      FROM generate_series(1, %(accounts)s) AS n
    """,
    """
    INSERT INTO fanout_lanestate (account_id, epoch, holder, wake_count, batch_sent, slow_factor, sample, probing,
        crashes, why)
    SELECT id, 0, '', 0, 0, 1, '', false, 0, '' FROM accounts_account
    """,
    """
    INSERT INTO reminders_recipient (owner_id, kind, address, name, tags, status, follow_up_attempts, created_at)
    SELECT %(owner)s, 'group', (120363000000000000 + n) || '@g.us', 'group ' || n, ARRAY['tag ' || n %% 40],
        'active', 0, now()
      FROM generate_series(1, 20000) AS n
    """,
    """
    INSERT INTO reminders_reminder (owner_id, title, account_id, action, subject, timezone, schedule, cron,
        delivery_window_start_hour, delivery_window_end_hour, enabled, auto_resume, next_fire_at, created_at,
        updated_at)
    SELECT %(owner)s, 'reminder ' || n, (SELECT min(id) FROM accounts_account) + n %% %(accounts)s, 'message', '',
           'Asia/Kuala_Lumpur', 'cron', '0 9 * * *', 6, 18, true, false, now() + n * interval '1 minute', now(), now()
      FROM generate_series(1, %(reminders)s) AS n
    """,
    """
    INSERT INTO reminders_remindermessage (reminder_id, position, kind, text, html)
    SELECT id, 0, 'text', 'Hello', '' FROM reminders_reminder
    """,
    """
    INSERT INTO reminders_remindertarget (reminder_id, recipient_id, position)
    SELECT r.id, (SELECT min(id) FROM reminders_recipient) + n, n
      FROM reminders_reminder r, generate_series(0, 199) AS n
    """,
    # A few are going on, some are paused, most are over; the books are set here and not by the trigger.
    """
    INSERT INTO fanout_run (owner_id, reminder_id, account_id, lanes, title, action, status, pause_reason,
        error_summary,
        archived, scheduled_for, created_at, started_at, first_attempt_at, finished_at, waiting_why, parts, timezone,
        window_start_hour, window_end_hour, window_closes_at, auto_resume, total, pending, sending, sent, failed,
        skipped,
        unconfirmed, seconds_pacing, seconds_provider, seconds_media, seconds_retries, seconds_waiting, delays)
    SELECT %(owner)s, r.id, r.account_id, ARRAY[r.account_id], r.title, 'message', s.status,
           CASE WHEN s.status = 'paused' THEN 'window_closed' ELSE '' END, '', n %% 10 = 0 AND n > 100,
           now() - n * interval '7 minutes', now(), now() - n * interval '7 minutes', now() - n * interval '7 minutes',
           now() - n * interval '7 minutes' + interval '40 minutes', '', '[{"kind": "text", "text": "Hello"}]',
           'Asia/Kuala_Lumpur', 0, 24, now() + interval '8 hours', false, 0, 0, 0, 0, 0, 0, 0, 60, 5, 0, 0, 0, '{}'
      FROM generate_series(1, %(runs)s) AS n
      JOIN reminders_reminder r ON r.id = (SELECT min(id) FROM reminders_reminder) + n %% %(reminders)s
      CROSS JOIN LATERAL (SELECT CASE WHEN n <= 8 THEN 'running' WHEN n <= 60 THEN 'paused'
                                      WHEN n %% 7 = 0 THEN 'partial' ELSE 'success' END AS status) AS s
    """,
    "ALTER TABLE fanout_runtarget DISABLE TRIGGER USER",
    "ALTER TABLE fanout_run DROP CONSTRAINT run_books_balance",
    # One run is a hundred times as large as the others.
    """
    INSERT INTO fanout_runtarget (run_id, account_id, recipient_id, position, address, status, parts_sent, attempts,
        claim_epoch, claimed_at, settled_at, latency_ms, provider_id, error_kind, error, delivered_at, read_at,
        replied_at, opted_out_at)
    SELECT run.id, run.account_id, p.first + n, n, (120363000000000001 + n) || '@g.us', s.status,
           1, 1, 0, run.started_at, run.started_at + n * interval '1.5 seconds', 120, '',
           CASE WHEN s.status = 'failed' THEN (ARRAY['soft_bounce', 'network', 'unavailable'])[1 + n %% 3] ELSE '' END,
           CASE WHEN s.status = 'failed' THEN 'mailbox full' ELSE '' END,
           CASE WHEN s.status = 'sent' THEN run.started_at + interval '1 hour' END,
           CASE WHEN s.status = 'sent' AND n %% 3 > 0 THEN run.started_at + interval '2 hours' END,
           CASE WHEN s.status = 'sent' AND n %% 50 = 7 THEN run.started_at + interval '1 day' END,
           CASE WHEN s.status = 'sent' AND n %% 500 = 7 THEN run.started_at + interval '1 day' END
      FROM (SELECT r.*, row_number() OVER (ORDER BY id) AS number FROM fanout_run r) AS run
      CROSS JOIN (SELECT min(id) AS first FROM reminders_recipient) AS p
      CROSS JOIN LATERAL generate_series(0, CASE WHEN run.number = 1 THEN %(each)s * 100 ELSE %(each)s END - 1) AS n
      CROSS JOIN LATERAL (
        SELECT CASE WHEN run.status IN ('running', 'paused') AND n %% 3 = 0 THEN 'pending'
                    WHEN run.status = 'partial' AND n %% 20 = 0 THEN 'failed'
                    WHEN run.status = 'partial' AND n = 1 AND run.number %% 500 = 0 THEN 'unconfirmed'
                    ELSE 'sent' END AS status) AS s
    """,
    """
    UPDATE fanout_run r SET total = c.total, pending = c.pending, sent = c.sent, failed = c.failed,
        unconfirmed = c.unconfirmed
      FROM (SELECT run_id, count(*) AS total, count(*) FILTER (WHERE status = 'pending') AS pending,
                   count(*) FILTER (WHERE status = 'sent') AS sent, count(*) FILTER (WHERE status = 'failed') AS failed,
                   count(*) FILTER (WHERE status = 'unconfirmed') AS unconfirmed
              FROM fanout_runtarget GROUP BY run_id) AS c
     WHERE c.run_id = r.id
    """,
    "SELECT fanout_recount_days(ARRAY(SELECT id FROM fanout_run))",
    # Of replies, one in a hundred waits for an operator.
    """
    INSERT INTO fanout_inboundevent (account_id, key, kind, address, "group", provider_id, message_id, words, detail,
        happened_at, came_at, state, attempts, effect, run_target_id, handled_at)
    SELECT account_id, id::text, 'reply', address, '', '', '', %(sealed)s, '{}', replied_at, replied_at, 'done', 0,
           'noted', id, CASE WHEN id %% 100 > 0 THEN now() END
      FROM fanout_runtarget WHERE replied_at IS NOT NULL ORDER BY replied_at
    """,
    """
    INSERT INTO fanout_activity (account_id, run_target_id, action, outcome, kind, part, at)
    SELECT account_id, id, 'message', 'sent', '', 0, settled_at FROM fanout_runtarget WHERE status = 'sent'
    """,
    """
    INSERT INTO fanout_event (run_id, at, verb, detail)
    SELECT id, scheduled_for, verb, '' FROM fanout_run, (VALUES ('fired'), ('paused'), ('resumed')) AS v(verb)
    """,
    """
    INSERT INTO fanout_notification (user_id, run_id, title, body, level, created_at)
    SELECT %(owner)s, id, 'Reminder delivered', 'all', 'info', now() FROM fanout_run
    """,
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--accounts", type=int, default=6_000)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    django.setup()
    from benchmarks.scratch import scratch_database

    plain_static_files()
    with scratch_database():
        people = fill(options.runs, options.targets // options.runs, options.accounts)
        slow = [row for name, user in people.items() for row in measure(name, user, options.rounds)]
    say("all pages within the goal" if not any(slow) else "some pages are slower than the goal")
    sys.exit(any(slow))


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def plain_static_files() -> None:
    from django.conf import settings

    settings.ALLOWED_HOSTS = ["testserver"]
    settings.STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}


def fill(runs: int, each: int, accounts: int) -> dict[str, Any]:
    from django.contrib.auth.models import Group, User
    from django.db import connection

    from accounts import crypto

    operator = User.objects.create(username="operator", is_staff=True)
    operator.groups.add(Group.objects.get(name="operators"))
    administrator = User.objects.create(username="administrator", is_staff=True, is_superuser=True)
    options: Any = {
        "owner": operator.pk,
        "runs": runs,
        "each": each,
        "accounts": accounts,
        # one a day for each of the accounts that the calendar shows first
        "reminders": max(500, accounts // 3),
        "sealed": crypto.encrypt({}),
    }
    started = time.monotonic()
    with connection.cursor() as cursor:
        for statement in FILL:
            cursor.execute(statement, options)
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("SELECT count(*) FROM fanout_runtarget")
        (targets,) = cursor.fetchone()
    say(f"{targets:,} run targets, {runs:,} runs, filled in {time.monotonic() - started:.0f} s\n")
    return {"operator": operator, "administrator": administrator}


def pages() -> dict[str, str]:
    from django.urls import reverse

    from fanout.models import Run, RunTarget

    def newest(**which: Any) -> int:
        return Run.objects.filter(**which).values_list("pk", flat=True)[0]

    big, largest = Run.objects.order_by("-total").values_list("pk", "total")[0]
    unarchived = Run.objects.filter(archived=False).count()
    partial, running = newest(status="partial"), newest(status="running")
    run_list, targets = reverse("admin:fanout_run_changelist"), reverse("admin:fanout_runtarget_changelist")
    shown = Run.objects.get(pk=partial)
    address, person = RunTarget.objects.filter(run=partial).values_list("address", "recipient")[0]
    return {
        "dashboard": reverse("admin:index"),
        "run list": run_list,
        "run list, paused": f"{run_list}?status=paused",
        "run list, partial": f"{run_list}?status=partial",
        "run list, a late page": f"{run_list}?p={min(unarchived, 10_000) // 50}",
        "run list, search": f"{run_list}?q=reminder+33",
        "run list, one account": f"{run_list}?account={shown.account_id}&since=2020-01-01",
        "run list, by title": f"{run_list}?o=1",
        "run list, a recipient": f"{run_list}?q={address}",
        "run, partial": reverse("admin:fanout_run_change", args=[partial]),
        "run, running": reverse("admin:fanout_run_change", args=[running]),
        "run, the largest": reverse("admin:fanout_run_change", args=[big]),
        "run, live part": reverse("admin:fanout_run_live", args=[running]),
        "offload": f"{reverse('admin:fanout_run_offload')}?runs={running}",
        "targets of a run": f"{targets}?run__id__exact={partial}",
        "targets, failed": f"{targets}?run__id__exact={partial}&status__exact=failed",
        "targets, the largest run": f"{targets}?run__id__exact={big}",
        "targets, a late page": f"{targets}?run__id__exact={big}&p={min(largest, 10_000) // 50}",
        "targets, unconfirmed": targets,
        "targets of a recipient": f"{targets}?q={address}",
        "targets, replied": f"{targets}?run__id__exact={big}&status__exact=sent&result=replied",
        "targets, unread": f"{targets}?run__id__exact={big}&result=unread",
        "person, many deliveries": reverse("admin:reminders_recipient_change", args=[person]),
        "replies": reverse("admin:replies"),
        "replies, all": f"{reverse('admin:replies')}?state=all",
        "replies, one account": f"{reverse('admin:replies')}?state=all&account={shown.account_id}",
        "replies, one run": f"{reverse('admin:replies')}?state=all&run={big}",
        "results": reverse("admin:results"),
        "results, 26 weeks": f"{reverse('admin:results')}?weeks=26",
        "results, one account": f"{reverse('admin:results')}?weeks=26&account={shown.account_id}",
        "results, one reminder": f"{reverse('admin:results')}?weeks=26&reminder={shown.reminder_id}",
        "calendar, week": reverse("admin:calendar"),
        "calendar, month": f"{reverse('admin:calendar')}?view=month",
        "calendar, one account": f"{reverse('admin:calendar')}?view=month&account={shown.account_id}",
        "two runs": f"{reverse('admin:results_compare')}?a={big}&b={partial}",
        "reminder list": reverse("admin:reminders_reminder_changelist"),
        "reminder": reverse("admin:reminders_reminder_change", args=[shown.reminder_id]),
        "recipient list": reverse("admin:reminders_recipient_changelist"),
        "recipient list, search": reverse("admin:reminders_recipient_changelist") + "?q=group+123",
        "account list": reverse("admin:accounts_account_changelist"),
        "account": reverse("admin:accounts_account_change", args=[shown.account_id]),
        "notifications": reverse("admin:fanout_notification_changelist"),
    }


def measure(name: str, user: Any, rounds: int) -> list[bool]:
    from django.test import Client

    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    say(f"{name:28} {'p50 ms':>8} {'p95 ms':>8} {'queries':>8}")
    missed = []
    for title, path in pages().items():
        p50, p95, queries = ask(client, path, rounds)
        late = p95 > GOAL_MS or queries > GOAL_QUERIES
        say(f"  {title:26} {p50:8.0f} {p95:8.0f} {queries:8}{'  over the goal' if late else ''}")
        missed.append(late)
    say("")
    return missed


def ask(client: Any, path: str, rounds: int) -> tuple[float, float, int]:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    client.get(path)  # templates and caches of the process
    with CaptureQueriesContext(connection) as captured:
        answer = client.get(path)
    queries = len(captured)
    if answer.status_code != 200:
        raise SystemExit(f"{path} answered {answer.status_code}")
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        client.get(path)
        times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times), statistics.quantiles(times, n=20)[-1], queries


if __name__ == "__main__":
    main()
