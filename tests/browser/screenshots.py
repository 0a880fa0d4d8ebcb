"""Pictures of the main pages for the documentation: `make screenshots`, or of some of them by name.

Shows the demo data on a scratch database, with a run that is going on, in light, dark and on a phone.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

TARGET = Path(__file__).resolve().parent.parent.parent / "docs" / "img"
LOOKS: dict[str, dict[str, Any]] = {
    "": {"viewport": {"width": 1280, "height": 860}},
    "-dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "-phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True},
}


@contextmanager
def scene() -> Iterator[dict[str, str]]:
    """Set Django up on a scratch database with the demo data; the pages' addresses by title."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"  # Playwright's loop runs in this thread, beside our queries
    django.setup()
    from django.conf import settings

    from benchmarks.scratch import scratch_database

    settings.STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.WHITENOISE_USE_FINDERS = True
    with scratch_database():
        yield set_the_scene()


def main() -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[1:]
    with scene() as paths, TemporaryDirectory() as folder:
        if chosen := {title: path for title, path in paths.items() if not wanted or title in wanted}:
            take(chosen)
        if not wanted or "pairing" in wanted:
            # Last, because a code is good for a minute.
            with a_number_to_pair(Path(folder)) as pairing:
                take({"pairing": pairing})


@contextmanager
def a_number_to_pair(folder: Path) -> Iterator[str]:
    """The page with a code on it, from a scripted WhatsApp."""
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.urls import reverse
    from django.utils import timezone

    from accounts.models import Account
    from fanout.lanes.accounts import add_account
    from tests.whatsapp.running import InThread

    mei = User.objects.get(username="mei")
    account = Account(owner=mei, label="WhatsApp number", channel="whatsapp", timezone="Asia/Kuala_Lumpur")
    add_account(account, mei, timezone.now())
    with InThread(folder, account.pk, pair=False, limits={}, codes=[600]) as bridge:
        settings.WHATSAPP_BRIDGE_URL = bridge.url
        bridge.ask("POST", f"/accounts/{account.pk}/pair")
        yield reverse("admin:accounts_account_pair", args=[account.pk])


def set_the_scene() -> dict[str, str]:
    from django.core.management import call_command
    from django.urls import reverse
    from django.utils import timezone

    from fanout.models import ClusterBeat, Run
    from reminders.models import Reminder

    call_command("demo_data", verbosity=0, stdout=io.StringIO())
    now = timezone.now()
    for cluster in ("main", "drivers"):
        ClusterBeat.objects.create(cluster=cluster, host="crier", pid=1, beat_at=now)
    live = Run.objects.filter(status="queued").order_by("-total")[0]
    send_some_of(live, now)
    paused = Run.objects.filter(status="paused", pause_reason="window_closed")[0]
    partial = Run.objects.filter(status="partial", unconfirmed__gt=0)[0]
    reminder = Reminder.objects.filter(schedule="cron")[0]
    return {
        "overview": reverse("admin:index"),
        "activity": reverse("admin:fanout_run_changelist"),
        "run-going-on": reverse("admin:fanout_run_change", args=[live.pk]),
        "run-paused": reverse("admin:fanout_run_change", args=[paused.pk]),
        "run-unconfirmed": reverse("admin:fanout_run_change", args=[partial.pk]),
        "offload": f"{reverse('admin:fanout_run_offload')}?runs={paused.pk}",
        "reminder": reverse("admin:reminders_reminder_change", args=[reminder.pk]),
        "accounts": reverse("admin:accounts_account_changelist"),
        "account": reverse("admin:accounts_account_change", args=[live.account_id]),
    }


def send_some_of(run: Any, now: datetime) -> None:
    """As a driver would have left it a moment ago."""
    from fanout.models import Activity, Driver, LaneState, Run, RunTarget

    begun = now - timedelta(minutes=9)
    Run.objects.filter(pk=run.pk).update(
        status="running",
        scheduled_for=begun,
        started_at=begun,
        first_attempt_at=begun,
        seconds_pacing=480,
        seconds_provider=50,
    )
    targets = list(run.targets.order_by("position")[:360])
    sent = {target.pk: begun + timedelta(seconds=n * 1.5) for n, target in enumerate(targets)}
    for target in targets:
        target.status, target.latency_ms = "sent", 180
        target.claimed_at = target.settled_at = sent[target.pk]
    RunTarget.objects.bulk_update(targets, ["status", "latency_ms", "claimed_at", "settled_at"])
    # What the account sent before: an hour's worth at a time.
    earlier = [(now - timedelta(hours=hour), 900 if hour % 7 in (2, 3) else 240) for hour in range(2, 12)]
    Activity.objects.bulk_create(
        Activity(account_id=run.account_id, run_target_id=pk, action="message", outcome="sent", at=at)
        for pk, at in [*sent.items(), *((None, at) for at, n in earlier for _ in range(n))]
    )
    Driver.objects.create(
        slot=0,
        token="crier:1",
        host="crier",
        pid=1,
        backend_pid=1,
        lanes=1,
        started_at=now,
        beat_at=now,
    )
    LaneState.objects.filter(account_id=run.account_id).update(holder="crier:1", last_claim_at=now, progress_at=now)


def beat() -> None:
    """Clusters and drivers are alive in every picture."""
    from django.utils import timezone

    from fanout.models import ClusterBeat, Driver

    for model in (ClusterBeat, Driver):
        model.objects.update(beat_at=timezone.now())


def take(paths: dict[str, str]) -> None:
    from playwright.sync_api import sync_playwright

    from config.logins import DEMO_LOGINS
    from tests.browser.conftest import CHROMIUM, FLAGS, Server, log_in

    name, password = next(login for login in DEMO_LOGINS if login[0] == "mei")
    with Server() as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        for suffix, look in LOOKS.items():
            page = browser.new_context(**look).new_page()
            log_in(page, server, name, password)
            for title, path in paths.items():
                beat()
                page.goto(server.url(path))
                settle(page)
                page.screenshot(path=TARGET / f"{title}{suffix}.png", full_page=True)
                sys.stdout.write(f"{title}{suffix}.png\n")
            page.context.close()
        browser.close()


def settle(page: Any) -> None:
    """Wait for what the page's scripts fetch."""
    page.wait_for_timeout(600)
    # Not by a function that waits in the page: its policy forbids eval.
    from playwright.sync_api import expect

    expect(page.locator("[data-forecast]", has_text=re.compile("^Working"))).to_have_count(0, timeout=120_000)


if __name__ == "__main__":
    main()
