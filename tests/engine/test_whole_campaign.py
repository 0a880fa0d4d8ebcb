"""The judge of the campaign in which everything goes wrong at once notices what it is there for."""

from __future__ import annotations

import os
from argparse import Namespace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from accounts.channels.sandbox.book import MemoryBook
from fanout.engine.claim_journal import ClaimJournal
from fanout.engine.commit import Claim, Result
from fanout.models import Run
from tests.engine.clicking import Operator
from tests.engine.whole_campaign import AFTER_A_STOP, WholeCampaign
from tests.factories import RunFactory, RunTargetFactory

ADDRESS = "+4915110000001"


@pytest.fixture
def campaign(tmp_path: Path) -> WholeCampaign:
    return WholeCampaign(tmp_path, Namespace(kills=1, seed=1, groups=0, rate=300), None)  # type: ignore[arg-type]


def delivered(target: int, part: int, at: float = 0.0, number: int = 1, text: str = "one") -> dict[str, Any]:
    message = {"to": ADDRESS, "part": part, "message_id": f"crier-{target}-{part}-hash", "text": f"{text} {part}"}
    return {"t": at, "account": "a0", "provider_id": f"sbx-{number}", **message}


def reported(kind: str, number: int, at: float, status: int = 200) -> dict[str, Any]:
    return {"t": at, "account": "a0", "report": kind, "id": f"ev-sbx-{number}-{kind}", "status": status}


def test_a_text_that_came_twice_under_two_ids(campaign: WholeCampaign) -> None:
    once = MemoryBook([delivered(1, 0), delivered(1, 1)])
    assert campaign.repeated_texts(once) == []
    twice = MemoryBook([delivered(1, 0), delivered(2, 0)])
    assert campaign.repeated_texts(twice) == [(ADDRESS, "one 0")]


@pytest.mark.parametrize(
    ("status", "later", "honoured", "late"),
    [
        pytest.param(200, AFTER_A_STOP - 1, 1, 0, id="already claimed"),
        pytest.param(200, AFTER_A_STOP + 1, 1, 1, id="after the STOP"),
        pytest.param(503, AFTER_A_STOP + 1, 0, 0, id="the STOP was not accepted yet"),
    ],
)
def test_what_comes_after_a_stop(campaign: WholeCampaign, status: int, later: float, honoured: int, late: int) -> None:
    lines = [delivered(1, 0), reported("reply", 1, 10.0, status), delivered(2, 0, 10.0 + later, number=2)]
    stops, complaints = campaign.judge_stops(MemoryBook(lines))
    assert (stops, len(complaints)) == (honoured, late)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("status", "parts_sent", "parts", "wrong"),
    [
        pytest.param("sent", 2, [0, 1], 0, id="sent"),
        pytest.param("sent", 2, [0], 1, id="sent, but the provider has one part"),
        pytest.param("unconfirmed", 1, [0], 0, id="unconfirmed and not delivered"),
        pytest.param("unconfirmed", 1, [0, 1], 0, id="unconfirmed and delivered"),
        pytest.param("unconfirmed", 0, [0, 1], 1, id="unconfirmed, and a further part went out"),
        pytest.param("skipped", 0, [0], 1, id="skipped, but delivered"),
        pytest.param("pending", 0, [], 1, id="never sent"),
    ],
)
def test_targets_and_the_book(
    campaign: WholeCampaign, status: str, parts_sent: int, parts: list[int], wrong: int
) -> None:
    target: Any = RunTargetFactory(status=status, parts_sent=parts_sent)
    book = MemoryBook([delivered(target.pk, part) for part in parts])
    assert len(campaign.compare([], book)[1]) == wrong


@pytest.mark.django_db
def test_a_message_of_no_target_and_a_lost_report(campaign: WholeCampaign) -> None:
    book = MemoryBook([delivered(4711, 0), reported("delivered", 1, 1.0), reported("read", 1, 1.0, 503)])
    complaints = campaign.compare([], book)[1]
    assert [complaint.partition(" ev-")[0] for complaint in complaints] == [
        "the provider has messages of target 4711, which does not exist",
        "the report",
    ]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("killed", "answer", "right"),
    [
        pytest.param(True, "", 1, id="its driver was killed"),
        pytest.param(False, "unconfirmed", 1, id="there was no answer"),
        pytest.param(False, "", 0, id="its driver lives and says nothing"),
        pytest.param(False, "sent", 0, id="its driver lives and knows better"),
    ],
)
def test_unconfirmed_targets_need_a_reason(
    campaign: WholeCampaign, tmp_path: Path, killed: bool, answer: str, right: int
) -> None:
    at = timezone.now() - timedelta(seconds=5)
    target: Any = RunTargetFactory(status="unconfirmed", claim_epoch=3, claimed_at=at)
    journal = ClaimJournal(tmp_path / "var" / "claims" / "crier")
    names = {"target_id": target.pk, "run_id": target.run_id, "account_id": target.account_id, "epoch": 3, "part": 0}
    origin = f"1\t{at.isoformat()}\tmessage"
    journal.claimed([Claim(**names, at=at, address=target.address, origin=origin)])
    if answer:
        del names["part"]
        journal.answered(Result(**names, claimed_at=at, status=answer, parts_sent=0, attempts=1, at=at))
    journal.close()
    if killed:
        campaign.killed_pids[os.getpid()] = at.timestamp() + 1
    counts, complaints = campaign.judge_unconfirmed(MemoryBook(), [])
    assert (counts["right"], counts["wrong"], len(complaints)) == (right, 1 - right, 1 - right)


@pytest.mark.django_db
def test_an_operator_clicks_on_a_run_that_another_has_just_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: Any = RunFactory(status="paused", pause_reason="operator")
    operator = Operator(1, tmp_path)

    def resumed_meanwhile(listed: list[int]) -> int:
        Run.objects.update(status="queued", pause_reason="")
        return listed[0]

    monkeypatch.setattr(operator.rng, "choice", resumed_meanwhile)
    assert operator.one_of(Run.objects.filter(status="paused")) == run
