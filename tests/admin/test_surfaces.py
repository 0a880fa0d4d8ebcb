"""One fact, one answer: overview, list, page, shell and API of a random state show the same numbers and times."""

from __future__ import annotations

import html
import json
import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.core.management import call_command
from django.urls import reverse

from fanout.models import Run, RunTarget
from fanout.runs import controls
from tests.admin.conftest import login
from tests.api.conftest import Api
from tests.factories import AccountFactory, DailyLimitFactory, DriverFactory, RunFactory

pytestmark = pytest.mark.django_db

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
TIME = re.compile(r'<time datetime="([^"]+)"')


def a_state(seed: int, owner: User) -> datetime:
    """Make accounts with runs in every state, and return the moment at which to look."""
    rng = random.Random(seed)
    now = MONDAY + timedelta(minutes=rng.randrange(24 * 60))
    DriverFactory.create(beat_at=now)
    for number in range(rng.randint(1, 2)):
        hours = rng.choice([{}, {"hours_start": 9, "hours_end": 17}])
        rate = {"max_send_per_minute": rng.choice([1, 5, 40]), "send_burst": 1}
        account = AccountFactory.create(owner=owner, label=f"Line {number}", timezone="UTC", **hours, **rate)
        if rng.random() < 0.3:
            DailyLimitFactory.create(account=account, limit=rng.choice([0, 3, 50]))
        for status in rng.sample(["running", "queued", "paused", "paused", "success", "canceled"], 4):
            make_run(rng, account, status, now)
    return now


def make_run(rng: random.Random, account: Any, status: str, now: datetime) -> None:
    start, end = rng.choice([(0, 24), (6, 18), (8, 22)])
    left = rng.randint(1, 30) if status in ("running", "queued", "paused") else 0
    run = RunFactory.create(
        reminder__account=account,
        status=status,
        pause_reason="operator" if status == "paused" else "",
        scheduled_for=now - timedelta(hours=rng.randint(1, 3)),
        window_start_hour=start,
        window_end_hour=end,
        auto_resume=rng.random() < 0.5,
        resume_after_limit=rng.random() < 0.5,
        targets={"sent": rng.randint(1, 5), "failed": rng.randint(0, 2), "pending": left},
    )
    if status == "running" and rng.random() < 0.6:
        retried = RunTarget.objects.filter(run=run, status="pending").values("pk")[:1]
        RunTarget.objects.filter(pk__in=retried).update(next_attempt_at=now + timedelta(minutes=45))
    if status == "paused" and rng.random() < 0.7:
        controls.resume_at_opening(run, None, now)


def shell(*words: str) -> Any:
    out = StringIO()
    call_command(*words, "--json", stdout=out)
    return json.loads(out.getvalue())


def part_with(text: str, url: str, tag: str) -> str:
    """Return the element of this kind that links there; empty where there is none."""
    found = [part for part in re.findall(rf"<{tag}\b.*?</{tag}>", text, re.DOTALL) if f'href="{url}"' in part]
    return found[0] if found else ""


def figures(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r'data-count="(?:sent|total)">([\d,]+)<', text)[:2])


def plain(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", "", text).split())


@pytest.mark.parametrize("seed", range(8))
def test_every_surface_says_the_same(seed: int, operator: User) -> None:
    now = a_state(seed, operator)
    with time_machine.travel(now, tick=False):
        client = login(operator)
        overview = client.get(reverse("admin:index")).content.decode()
        listing = client.get(reverse("admin:fanout_run_changelist")).content.decode()
        listed = {row["run"]: row for row in shell("runs", "--limit", "100")["runs"]}
        why = {row["what"]: row for row in shell("why")["why"]}
        api = Api(operator)
        called = {row["id"]: row for row in api.get("/runs?limit=200").json()["items"]}
        for run in Run.objects.all():
            url = reverse("admin:fanout_run_change", args=[run.pk])
            page = client.get(url).content.decode()
            facts, row = listed[run.pk], part_with(listing, url, "tr")
            counts = (f"{run.sent}", f"{run.total}")
            assert figures(row) == figures(page) == counts == (f"{facts['sent']}", f"{facts['total']}")
            check_api(api, run, called[run.pk], facts, why.get(f"run {run.pk}"), page)
            if run.status in Run.LIVE:
                check_live(run, overview, row, page, facts, why[f"run {run.pk}"])
            if run.status == "paused":
                check_paused(run, overview, row, page, facts, why[f"run {run.pk}"], now)


def check_api(
    api: Api, run: Run, row: dict[str, Any], facts: dict[str, Any], why: dict[str, Any] | None, page: str
) -> None:
    """The list and the single run, what holds it back, its forecast and its targets."""
    assert api.get(f"/runs/{run.pk}").json() == row
    names = ("total", "pending", "sending", "sent", "failed", "skipped", "unconfirmed")
    assert row["counts"] == {name: getattr(run, name) for name in names}
    assert [row["counts"][name] for name in names if name in facts] == [facts[name] for name in names if name in facts]
    assert row["status"] == facts["status"] == run.status
    for name in ("expected_end", "resume_at"):
        assert moment(row[name]) == moment(facts[name]), name
    targets = api.get(f"/runs/{run.pk}/targets?limit=500").json()["items"]
    assert Counter(one["status"] for one in targets) == Counter(run.targets.values_list("status", flat=True))
    if why is not None:
        said = api.get(f"/runs/{run.pk}/why").json()
        assert said["why"] == why["why"]
        assert moment(said["next_send_at"]) == moment(why["next_send_at"])
    if shown := re.findall(r'<p class="forecast[^>]*>(.*?)</p>', page, re.DOTALL):
        sentence = api.get(f"/runs/{run.pk}/forecast").json()["sentence"]
        assert " ".join(sentence.split()) == plain(html.unescape(shown[0]))


def moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def check_live(run: Run, overview: str, row: str, page: str, facts: dict[str, Any], why: dict[str, Any]) -> None:
    """Its expected end, which is after the retry of a target that has to wait."""
    shown = part_with(overview, reverse("admin:fanout_run_change", args=[run.pk]), "tr")
    end = facts["expected_end"]
    done = page.partition("<dt>Done</dt>")[2].partition("</dd>")[0]
    seen = {name: TIME.findall(part)[-1:] for name, part in (("overview", shown), ("list", row), ("page", done))}
    if end is None:
        assert "never" in done
        return
    moment = datetime.fromisoformat(end).replace(microsecond=0).isoformat()
    assert seen["overview"] == seen["page"] == [moment]
    assert moment in TIME.findall(row)
    retried = run.targets.filter(next_attempt_at__gt=datetime.fromisoformat(end))
    assert not retried.exists()


def check_paused(
    run: Run, overview: str, row: str, page: str, facts: dict[str, Any], why: dict[str, Any], now: datetime
) -> None:
    """When it goes on; only one that does not go on by itself needs a person."""
    url = reverse("admin:fanout_run_change", args=[run.pk])
    needs, _, ahead = overview.partition("<h2>The next 24 hours</h2>")
    assert bool(part_with(needs, url, "li")) == (run.resume_at is None)
    if run.resume_at is None:
        assert "by itself" not in page
        return
    moment = run.resume_at.isoformat()
    assert facts["resume_at"] == why["next_send_at"] == moment
    assert moment in TIME.findall(row)
    assert TIME.findall(page.partition("Resumes by itself")[2])[0] == moment
    item = part_with(ahead, url, "li")
    assert bool(item) == (run.resume_at <= now + timedelta(hours=24))
    if item:
        assert TIME.findall(item)[0] == moment
        sentence = plain(re.findall(r'<p class="forecast[^>]*>(.*?)</p>', page, re.DOTALL)[0])
        assert sentence in plain(item)
