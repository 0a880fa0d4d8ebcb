"""Score the reading of replies: by language and program on our own formats, by file in a directory of foreign mails.

`python -m tests.inbound.scorecard_replies [DIRECTORY]`; a directory has mails as `name.txt` and beside each
`name.expected.txt`, what the person wrote.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from accounts.channels.machine_mail import away_until, by_subject
from reminders.opt_outs import decide_by_words
from tests.inbound.opt_out_samples import HARMLESS, OPT_OUTS
from tests.inbound.reply_formats import (
    ABSENCES,
    ATTRIBUTIONS,
    AWAY,
    MAILBOX,
    OUTLOOK,
    OWN,
    PERSONAL,
    RULES,
    SIGNATURES,
    TIME_FIRST,
    WHO,
)

QUOTED = "> Hello Ann,\n>\n> the doors open at nine.\n> Bob\n"
UNMARKED = "Hello Ann,\n\nthe doors open at nine.\nBob\n"


@dataclass(frozen=True, slots=True)
class Case:
    """A reply, and what its writer wrote."""

    subject: str
    language: str
    client: str
    layout: str
    text: str
    own: str


@dataclass(frozen=True, slots=True)
class Score:
    subject: str
    language: str
    client: str
    right: int
    total: int


def cases() -> Iterator[Case]:
    for language, client, line in ATTRIBUTIONS:
        for layout, above, attribution, below in layouts(line):
            for own in OWN.values():
                yield Case("attribution", language, client, layout, f"{own}{above}{attribution}\n{below}", own)
        for own in OWN.values():
            yield Case("attribution", language, client, "below the quotation", f"{line}\n{QUOTED}\n{own}\n", own)
    for language, labels in OUTLOOK.items():
        for layout, block in blocks(labels):
            for own in OWN.values():
                yield Case("header block", language, "Outlook", layout, f"{own}{block}\n{UNMARKED}", own)
    for language, client, block in TIME_FIRST:
        for layout, above, lines in (
            ("below", "\n\n", block),
            ("directly below", "\n", block),
            ("apart", "\n \n\n", block.replace("\n", "\n\n")),
            ("bold", "\n\n", re.sub(r"(?m)^([^:]+:)", r"*\1*", block)),
        ):
            for own in OWN.values():
                yield Case("header block", language, client, layout, f"{own}{above}{lines}\n\n{UNMARKED}", own)
    for language, rule in RULES:
        for own in OWN.values():
            yield Case("rule", language, "rule", "above", f"{own}\n\n{rule}\nFrom: {WHO}\n\n{UNMARKED}", own)
            yield Case("rule", language, "rule", "bold", f"{own}\n*{rule}*\n{UNMARKED}", own)
    for language, client, line in SIGNATURES:
        for own in OWN.values():
            yield Case("signature", language, client, "alone", f"{own}\n\n{line}\n", own)
            below = f"{ATTRIBUTIONS[0][2]}\n{QUOTED}"
            yield Case("signature", language, client, "above a quotation", f"{own}\n{line}\n\n{below}", own)


def decisions() -> list[Score]:
    """Return how many messages of each language that opt out count, and how many harmless ones change nothing."""
    received = [
        Score("opt-out", language, "any", sum(decide_by_words(one).opts_out for one in messages), len(messages))
        for language, messages in OPT_OUTS.items()
    ]
    harmless = sum(not decide_by_words(one).opts_out for one in HARMLESS)
    return [*received, Score("no opt-out", "any", "any", harmless, len(HARMLESS))]


def machine_mail() -> list[Score]:
    """Return how many absence notes and receipts are told from people's replies by their subject."""
    judged: dict[str, list[bool]] = {}
    for language, subject in ABSENCES:
        judged.setdefault(language, []).append(bool(by_subject(subject)))
    notes = [Score("absence note", language, "subject", sum(found), len(found)) for language, found in judged.items()]
    people = sum(not by_subject(subject) for subject in PERSONAL)
    dates = sum(away_until(text) == until for text, until in AWAY)
    return [
        *notes,
        Score("person's subject", "any", "subject", people, len(PERSONAL)),
        Score("away until", "any", "text", dates, len(AWAY)),
    ]


def layouts(line: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the ways in which programs set the line: what is above it, the line, and what is below it."""
    yield "a line of its own", "\n\n", line, QUOTED
    yield "directly below", "\n", line, QUOTED
    yield "not marked", "\n\n", line, f"\n{UNMARKED}"
    yield "directly below, not marked", "\n", line, f"\n{UNMARKED}"
    if "<" in line:
        broken = line.replace(" <", "\n<").replace(" (<", "\n(<")
        yield "broken before <", "\n\n", broken, f"\n{QUOTED}"
        yield "broken before <, directly below", "\n", broken, QUOTED
        yield "broken before <, not marked", "\n\n", broken, f"\n{UNMARKED}"
        yield "broken after <", "\n\n", line.replace("<", "<\n"), f"\n{QUOTED}"
    middle = line.rfind(" ", 0, len(line) * 2 // 3)
    if middle > 0:
        yield "broken in the middle", "\n\n", line[:middle] + "\n" + line[middle + 1 :], QUOTED


def blocks(labels: tuple[str, str, str, str]) -> Iterator[tuple[str, str]]:
    values = (f"{WHO} {MAILBOX}", "Monday, June 1, 2026 10:00 AM", "Ann <ann@example.org>", "RE: Doors")
    plain = "\n".join(f"{label}: {value}" for label, value in zip(labels, values))
    yield "without a rule", f"\n\n{plain}\n"
    yield "directly below", f"\n{plain}\n"
    yield "under a rule", f"\n\n________________________________\n{plain}\n"
    yield "bold", "\n\n" + "\n".join(f"*{label}:* {value}" for label, value in zip(labels, values)) + "\n"
    yield "space before the colon", "\n\n" + plain.replace(": ", "\u00a0: ") + "\n"
    yield "wide colon", "\n\n" + plain.replace(": ", "：") + "\n"
    named = "\n".join(f"{label}: {value}" for label, value in zip(labels, (WHO, *values[1:2], "Ann", "RE: Doors")))
    yield "names alone", f"\n\n{named}\n"


def scores(read: Callable[[str], str]) -> list[Score]:
    """Return how many replies of each language and program this function reads right."""
    counted: dict[tuple[str, str, str], list[bool]] = {}
    for case in cases():
        right = same(read(case.text), case.own)
        counted.setdefault((case.subject, case.language, case.client), []).append(right)
    return [Score(*what, sum(judged), len(judged)) for what, judged in counted.items()]


def all_scores(read: Callable[[str], str]) -> list[Score]:
    return scores(read) + decisions() + machine_mail()


def foreign(directory: Path, read: Callable[[str], str]) -> dict[str, bool]:
    """Return whether each mail of the directory is read as the file beside it says."""
    judged = {}
    for path in sorted(directory.glob("*.expected.txt")):
        mail = path.with_name(path.name.replace(".expected.txt", ".txt"))
        judged[mail.stem] = same(read(mail.read_text()), path.read_text())
    return judged


def same(one: str, other: str) -> bool:
    """Return whether two texts have the same words in the same lines."""
    return [line.strip() for line in one.strip().splitlines()] == [line.strip() for line in other.strip().splitlines()]


def report(directory: Path | None, read: Callable[[str], str]) -> Iterator[str]:
    table = all_scores(read)
    for subject in dict.fromkeys(score.subject for score in table):
        rows = [score for score in table if score.subject == subject]
        yield f"{subject}: {sum(row.right for row in rows)} of {sum(row.total for row in rows)}"
        for row in rows:
            yield f"  {row.language:24} {row.client:22} {row.right:3} of {row.total}"
    if directory is not None:
        judged = foreign(directory, read)
        yield f"{directory.name}: {sum(judged.values())} of {len(judged)}"
        yield from (f"  not as expected: {name}" for name, right in judged.items() if not right)


if __name__ == "__main__":
    from accounts.channels.reply_text import own_words

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    for line in report(Path(sys.argv[1]) if len(sys.argv) > 1 else None, own_words):
        sys.stdout.write(f"{line}\n")
