"""The files of the claim journal: full disks, short writes, and several processes of one machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from fanout.engine import claim_journal
from fanout.engine.claim_journal import ClaimJournal
from fanout.engine.lane_loop import UNNOTED
from fanout.models import LaneState, Run
from fanout.ops import diagnosis
from tests.engine.stage import MONDAY, Stage, fresh
from tests.engine.test_lost_commits import claim, journaled, journals

__all__ = ["journaled", "journals"]  # fixtures


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> dict[str, int | None]:
    """A disk that has room for so many bytes (None: enough)."""
    room: dict[str, int | None] = {"left": None}

    def limited(write: Callable[..., int]) -> Callable[..., int]:
        def full(file: int, text: bytes, *offset: int) -> int:
            left = room["left"]
            if left is None:
                return write(file, text, *offset)
            if left <= 0:
                raise OSError(28, "No space left on device")
            written = write(file, text[:left], *offset)
            room["left"] = left - written
            return written

        return full

    monkeypatch.setattr(os, "write", limited(os.write))
    return room


def test_nothing_is_sent_that_cannot_be_noted(journaled: Stage, tmp_path: Path, disk: dict[str, int | None]) -> None:
    run = journaled.fire(journaled.reminder(journaled.account(), groups=30, parts=("text", "text")))
    journaled.play(10)
    disk["left"] = 70  # less than a line
    before = len(journaled.book.deliveries())
    journaled.play(20)
    assert len(journaled.book.deliveries()) == before
    assert LaneState.objects.get().why == UNNOTED
    assert not run.targets.filter(status__in=("sending", "unconfirmed")).exists()
    disk["left"] = None
    journaled.play()
    assert (fresh(run).status, fresh(run).sent) == (Run.Status.SUCCESS, 30)
    assert not journaled.book.duplicates("to", "part")
    sent = {target.pk for target in run.targets.all()}
    assert set(ClaimJournal(tmp_path / "claims").compare(0, {}).claims) == sent


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path, disk: dict[str, int | None]) -> None:
    journal = ClaimJournal(tmp_path, host="a")
    journal.now_in(5)
    assert journal.claimed([claim(1)])
    disk["left"] = 30
    assert not journal.claimed([claim(2)])
    assert not journal.can_write()
    disk["left"] = None
    assert journal.can_write()
    assert journal.claimed([claim(3)])
    compared = ClaimJournal(tmp_path, host="a").compare(5, {})
    assert set(compared.claims) == {1, 3}
    assert compared.generation == 5


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, text: write(file, text[:7]))
    journal = ClaimJournal(tmp_path, host="a")
    assert journal.claimed([claim(1), claim(2)])
    assert set(journal.compare(0, {}).claims) == {1, 2}


def test_the_file_of_a_process_that_writes_is_not_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_journal, "FILE_SIZE", 200)
    monkeypatch.setattr(claim_journal, "ALL_FILES", 1_000)
    slow, busy = ClaimJournal(tmp_path, host="a"), ClaimJournal(tmp_path, host="a")
    slow.claimed([claim(1)])
    for target in range(100, 150):
        busy.claimed([claim(target)])
    slow.claimed([claim(2)])
    assert {1, 2} <= set(ClaimJournal(tmp_path, host="a").compare(0, {}).claims)
    slow.close()
    for target in range(150, 170):
        busy.claimed([claim(target)])
    assert 1 not in busy.compare(0, {}).claims, "an ended process keeps nothing"


def test_a_journal_that_was_deleted_is_begun_anew(tmp_path: Path) -> None:
    journal = ClaimJournal(tmp_path, host="a")
    journal.claimed([claim(1)])
    next(tmp_path.glob("*.claims")).unlink()
    journal.claimed([claim(2)])
    journal.beaten(0, MONDAY + timedelta(seconds=1))
    assert set(journal.compare(0, {}).claims) == {2}


def test_doctor_says_that_claims_cannot_be_noted(tmp_path: Path, settings: object) -> None:
    settings.VAR_DIR = tmp_path  # type: ignore[attr-defined]
    (tmp_path / "claims").write_text("a file where the directory should be")
    assert diagnosis.files().state == diagnosis.FAILED
