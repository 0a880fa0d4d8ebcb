"""The figures of the scorecard on our own mails never fall, and whose fault each of them reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from accounts.channels.base import Kind
from accounts.channels.faults import ADVICE, Cause, Fault, cause_of
from accounts.channels.refusals import reported
from fanout.inbound.mails import parse_bounce
from fanout.rules.message_ids import Named
from tests.inbound.bounce_mails import ANN, ANSWERS, FORMS, Case, cases, mail
from tests.inbound.scorecard import read_directory, score

#: Every mail is found and judged as its verdict says. Never lower these.
FOUND = RIGHT = 1.0
WRONGLY_SUPPRESSED = 0


def test_our_own_mails_are_judged_as_a_postmaster_would() -> None:
    result = score(cases())

    assert result.wrong == []
    assert result.mistaken == []
    assert result.total.found / result.total.total == FOUND
    assert result.total.right / result.total.found == RIGHT
    assert result.total.wrongly == WRONGLY_SUPPRESSED
    assert result.total.suppressed == result.total.hard
    assert (result.noted, result.for_a_while) == (result.total.total, result.total.hard)
    assert len(result.forms) > len(FORMS)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_leads_to_our_message(form: str) -> None:
    for case in (case for case in cases() if case.form == form):
        (bounce,) = parse_bounce(case.raw)
        assert (bounce.message, bounce.final) == (Named(7, 0), True), case.name


OWN_FAULTS = ("authfailure", "reversedns", "blocked", "rejected", "norelaying")
CONTENT = ("spamdetected", "virusdetected", "mesgtoobig")


@pytest.mark.parametrize(
    ("reasons", "kind"),
    [(OWN_FAULTS, Kind.SENDER_REJECTED), (CONTENT, Kind.CONTENT_REJECTED)],
    ids=["sender", "content"],
)
def test_our_own_faults_are_told_apart_and_explained(reasons: tuple[str, ...], kind: Kind) -> None:
    for answer in (answer for reason in reasons for answer in ANSWERS[reason][1]):
        (bounce,) = parse_bounce(next(case.raw for case in cases() if case.name.endswith(answer)))
        assert bounce.kind is kind, answer
        assert cause_of(bounce.detail) in ADVICE, answer


def test_what_cannot_be_read_suppresses_nobody() -> None:
    assert reported(550, "Gnorf") == reported(0, "") == (Fault.UNABLE, Cause.UNCLEAR)


@pytest.mark.parametrize(
    ("code", "words", "gone"),
    [
        (450, "4.1.1 <ann@example.org>: unverified address: connection timed out", False),
        (550, "5.1.1 <ann@example.org>: Temporary lookup failure", False),
        (550, "5.1.1 User unknown; try again later", False),
        (450, "4.1.1 <ann@example.org>: User unknown", True),
        (550, "5.1.1 The address couldn't be found. Check for typos and try again.", True),
    ],
)
def test_a_server_that_could_not_look_a_user_up_does_not_say_that_there_is_none(
    code: int, words: str, gone: bool
) -> None:
    assert (reported(code, words).fault is Fault.GONE) is gone


@pytest.mark.parametrize(
    ("command", "hard"), [("RCPT TO", True), ("TEXT", False), ("DATA", False)], ids=["recipient", "text", "data"]
)
def test_a_notice_without_a_status_counts_by_the_command_that_it_names(command: str, hard: bool) -> None:
    form = FORMS["GMX"].replace("RCPT TO command", f"{command} command")
    (bounce,) = parse_bounce(mail(form, "550 User unknown"))
    assert (bounce.hard, bounce.final) == (hard, True)


def test_a_directory_of_foreign_mails(tmp_path: Path) -> None:
    verdicts = {}
    for number, case in enumerate((*list(cases())[:4], Case("none", "", b"Subject: hello\n\nhello", ()))):
        (tmp_path / f"{number}.eml").write_bytes(case.raw)
        verdicts[f"{number}.eml"] = [
            {"recipient": ANN, "reason": verdict.reason, "hardbounce": int(verdict.hard)} for verdict in case.verdicts
        ]
    (tmp_path / "verdicts.json").write_text(json.dumps(verdicts))

    result = score(read_directory(tmp_path))

    assert (result.total.total, result.total.right, result.wrong) == (4, 4, [])
