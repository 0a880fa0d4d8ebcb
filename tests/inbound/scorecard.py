"""Measure how bounce mails are judged, by class and form, against the verdicts of a postmaster; and how replies are
read, by language and mail program.

    python -m tests.inbound.scorecard              on our own mails (tests/inbound/bounce_mails.py)
    python -m tests.inbound.scorecard DIRECTORY    on foreign mails, too

DIRECTORY, or its folder `bounces`, has mails (*.eml) and `verdicts.json`: for each file a list of objects with
`recipient`, `reason` and `hardbounce` (1: the address is gone). Reasons `feedback` (a complaint), `vacation` and
`delivered` are no failures. Its folder `replies` has mails (*.txt) and beside each what the person wrote
(*.expected.txt). `test_scorecard` fails if a figure on our own mails falls.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import django

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()

from accounts.channels.reply_text import own_words
from fanout.inbound import complaints, origins
from fanout.inbound.mails import parse_bounce
from tests.inbound import scorecard_replies
from tests.inbound.bounce_mails import Case, Verdict, cases
from tests.inbound.mails import id_of

NO_FAILURE = ("feedback", "vacation", "delivered")


@dataclass
class Row:
    """Counts of one class. `right`: hard or not as the verdict says, of those found."""

    total: int = 0
    found: int = 0
    right: int = 0
    hard: int = 0
    suppressed: int = 0
    wrongly: int = 0

    def add(self, verdict: Verdict, found: bool, suppresses: bool) -> None:
        self.total += 1
        self.found += found
        self.right += found and suppresses == verdict.hard
        self.hard += verdict.hard
        self.suppressed += verdict.hard and suppresses
        self.wrongly += not verdict.hard and suppresses


@dataclass
class Score:
    classes: dict[str, Row]
    forms: dict[str, Row]
    total: Row
    #: mails without a failure in which one was found, and whether it would settle something
    mistaken: list[str]
    #: recipients that were not found or judged otherwise, in words
    wrong: list[str]
    complaints: tuple[int, int] = (0, 0)
    #: of the failures, had the mail no id of ours: noted by recipient, sender and time, and suppressed for 30 days
    noted: int = 0
    for_a_while: int = 0


def score(mails: Iterable[Case]) -> Score:
    result = Score({}, {}, Row(), [], [])
    for mail in mails:
        failures = [verdict for verdict in mail.verdicts if verdict.reason not in NO_FAILURE]
        bounces = {bounce.address: bounce for bounce in parse_bounce(mail.raw)}
        if any(verdict.reason == "feedback" for verdict in mail.verdicts):
            told, received = result.complaints
            result.complaints = told + 1, received + (complaints.parse_complaint(mail.raw) is not None)
        unnamed = without_id(mail.raw)
        origin = origins.origin_of(unnamed)
        fits = bool(origin.senders) and (origin.sent_at is not None or not origin.foreign)
        reports = {bounce.address: bounce for bounce in parse_bounce(unnamed)} if fits else {}
        if not failures and any(bounce.final for bounce in bounces.values()):
            result.mistaken.append(mail.name)
        for verdict in failures:
            bounce = bounces.get(verdict.recipient.lower())
            suppresses = bounce is not None and bounce.final and bounce.hard
            if (report := reports.get(verdict.recipient.lower())) and report.message is None:
                result.noted += 1
                result.for_a_while += report.final and report.hard
            rows = (result.classes.setdefault(verdict.reason, Row()), result.forms.setdefault(mail.form, Row()))
            for row in (*rows, result.total):
                row.add(verdict, bounce is not None, suppresses)
            if bounce is None or suppresses != verdict.hard:
                judged = f"{bounce.kind.value}: {bounce.detail[:80]}" if bounce else "not found"
                result.wrong.append(f"{mail.name} ({verdict.reason}): {judged}")
    return result


def without_id(raw: bytes) -> bytes:
    """Return the mail as servers send it that return nothing of our message's id."""
    return raw.replace(id_of(7).encode(), b"")


def read_directory(directory: Path) -> Iterator[Case]:
    folder = directory / "bounces" if (directory / "bounces").is_dir() else directory
    for name, verdicts in sorted(json.loads((folder / "verdicts.json").read_text()).items()):
        # A mail without a verdict may be a bounce that the judge could not read.
        if verdicts:
            raw = (folder / name).read_bytes()
            form = "RFC 3464" if b"message/delivery-status" in raw.lower() else "other"
            found = (Verdict(v["recipient"], v["reason"], bool(v["hardbounce"])) for v in verdicts)
            yield Case(name, form, raw, tuple(found))


def table(title: str, rows: dict[str, Row]) -> str:
    lines = [f"| {title} | recipients | found | hard or not as judged | hard: suppressed | not hard: suppressed |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for name, row in sorted(rows.items()):
        lines.append(
            f"| {name} | {row.total} | {share(row.found, row.total)} | {share(row.right, row.found)} "
            f"| {row.suppressed} of {row.hard} | {row.wrongly} of {row.total - row.hard} |"
        )
    return "\n".join(lines)


def share(part: int, of: int) -> str:
    return f"{part / of:.0%}" if of else "–"


def show(name: str, result: Score, wrong: bool) -> None:
    told, received = result.complaints
    say(f"\n## Bounces: {name}\n")
    say(table("class", result.classes) + "\n")
    say(table("form", result.forms | {"all": result.total}))
    say(f"\nNo failure, but read as one: {len(result.mistaken)}. Complaints received: {received} of {told}.")
    say(
        f"Reports without our id, of {result.total.total}: {result.noted} noted where one delivery fits, "
        f"{result.for_a_while} of them suppressed for 30 days; they fail no message and count for no account."
    )
    if wrong:
        say("\n".join(["", "Judged otherwise:", *result.wrong, *result.mistaken]))


def say(words: str) -> None:
    print(words)  # noqa: T201


def main() -> None:
    arguments = [word for word in sys.argv[1:] if not word.startswith("-")]
    directory = Path(arguments[0]) if arguments else None
    wrong = "--wrong" in sys.argv
    show("our own mails", score(cases()), wrong)
    if directory:
        show(str(directory), score(read_directory(directory)), wrong)
    replies = directory and next((one for one in (directory / "replies", directory) if one.is_dir()), None)
    for line in scorecard_replies.report(replies, own_words):
        say(line)


if __name__ == "__main__":
    main()
