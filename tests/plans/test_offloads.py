"""A proposal to offload: only where it helps, to an account that the person may use, in the words of the button."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fanout.models import Run
from fanout.plans.forecast import forecast_run
from fanout.plans.offloads import Proposal, propose
from tests.factories import AccountFactory, LaneStateFactory, RunFactory, UserFactory

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)  # a Monday; windows are 6–18


def slow_run(pending: int = 189, **fields: Any) -> Run:
    """One message in four minutes: about 135 fit today."""
    account = AccountFactory.create(label="Office line", min_gap_seconds=240, max_gap_seconds=240)
    values = {"reminder__account": account, "reminder__owner": account.owner, "status": "running", **fields}
    values |= {"window_start_hour": 6, "window_end_hour": 18, "window_closes_at": NOW.replace(hour=18)}
    return RunFactory.create(**values, scheduled_for=NOW, targets={"pending": pending})


def proposal(run: Run, user: Any = None, zone: str = "") -> Proposal | None:
    return propose(run, forecast_run(run, NOW, zone), user, NOW, zone)


def test_the_account_that_is_done_first_is_proposed() -> None:
    run = slow_run()
    AccountFactory.create(label="Slow line", max_send_per_minute=2)
    AccountFactory.create(label="Events line", max_send_per_minute=60)
    found = proposal(run)
    assert found is not None
    assert found.sentence == "Offload 189 to Events line: done 09:03 instead of Tue 09:32"
    assert found.waits == ""
    again = proposal(run, zone="Asia/Tokyo")
    assert again is not None
    assert again.sentence.startswith("Offload 189 to Events line: done 18:03")


def test_a_paused_run_says_that_it_goes_on() -> None:
    run = slow_run(status="paused", pause_reason="operator")
    AccountFactory.create(label="Events line", max_send_per_minute=60)
    found = proposal(run)
    assert found is not None
    assert found.sentence == "Offload 189 to Events line and resume: done 09:03 instead of Tue 09:32"


def test_a_run_whose_account_cannot_send_never_ends() -> None:
    run = slow_run(pending=3, status="paused", pause_reason="account_down")
    run.account.status = "suspended"
    run.account.save(update_fields=["status"])
    AccountFactory.create(label="Events line", max_send_per_minute=60)
    found = proposal(run)
    assert found is not None
    assert found.sentence == "Offload 3 to Events line and resume: done 09:00 instead of never"


def test_what_the_account_is_sending_already_is_named() -> None:
    run = slow_run(pending=200)
    busy = AccountFactory.create(label="Events line", max_send_per_minute=60)
    LaneStateFactory.create(account=busy)
    RunFactory.create(
        reminder__account=busy,
        title="Friday market",
        status="running",
        scheduled_for=NOW + timedelta(seconds=1),
        targets={"pending": 100},
    )
    found = proposal(run)
    assert found is not None
    assert "Will wait for it: Friday market (" in found.waits


@pytest.mark.parametrize(
    ("pending", "fields", "other"),
    [
        pytest.param(30, {}, {}, id="it-fits-anyway"),
        pytest.param(189, {}, {"status": "paused"}, id="the-other-is-paused"),
        pytest.param(189, {}, {"channel": "smtp"}, id="another-channel"),
        pytest.param(189, {}, {"min_gap_seconds": 240, "max_gap_seconds": 240}, id="not-sooner"),
        pytest.param(189, {"status": "canceled"}, {}, id="over"),
        pytest.param(189, {"status": "preparing"}, {}, id="not-ready"),
    ],
)
def test_nothing_is_proposed(pending: int, fields: dict[str, Any], other: dict[str, Any]) -> None:
    run = slow_run(pending, **fields)
    AccountFactory.create(**{"label": "Events line", "max_send_per_minute": 60, **other})
    assert proposal(run) is None


def test_only_accounts_of_the_person_are_proposed() -> None:
    run = slow_run()
    stranger = AccountFactory.create(label="Foreign line", max_send_per_minute=600, owner=UserFactory.create())
    assert proposal(run, run.owner) is None
    found = proposal(run, stranger.owner)
    assert found is not None
    assert found.account == stranger
