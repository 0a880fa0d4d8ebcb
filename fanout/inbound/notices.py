"""Read bounce notices that are not RFC 3464 reports, in the words of any mail server. Pure: texts in, failures out.

Servers have written such notices in hundreds of forms. They agree on more than they differ in: a mailer daemon sends
them, they name each failed recipient, quote the server's answer near it, and put a copy of the message below. These
rules read that, instead of one parser per server. `refusals` says what an answer means.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from accounts.channels.refusals import Stage, stage_in

#: Characters of a notice that are read, and of one line: the report stands above the copy of the message.
MOST_TEXT, MOST_LINE = 50_000, 1_000
#: recipients of one mail that are looked at
MOST_RECIPIENTS = 50
MOST_REPLY = 600

# -- is it one? -------------------------------------------------------------------------------------------

DAEMON = re.compile(
    r"(?i)mailer.?daemon|post.?master|mail ?delivery|mail.?system|delivery.?(?:system|subsystem|status|reports?)"
    r"|mail.?(?:administrator|router|server)|mdaemon|microsoft ?exchange|bounces?[-+@]"
)
SUBJECT = re.compile(
    r"(?i)undeliver|not deliver|could(?: ?n[o']t| not) be (?:delivered|sent)|return(?:ed|ing) (?:e-?)?(?:mail"
    r"|message)"
    r"|mail (?:could not|system error|failure)|(?:delivery|mail|message|transmission) (?:\w+ ){0,3}(?:fail"
    r"|error|problem)"
    r"|delivery (?:status|report|notification|delay|has been|has failed|warning|unsuccessful)|failure notice"
    r"|fail(?:ed|ure) (?:delivery|notice|mail|to deliver)|nondelivery|non-delivery|rejected (?:mail|message)"
    r"|mail (?:was )?(?:returned|rejected|bounced)|unzustellbar|nicht zugestellt|non remis|no entregad|niet bezorg"
    r"|warning: (?:could|message|mail)|user unknown|配信不能|配信できません|エラー通知|宛先不明|недоставлен"
    r"|не доставлен|退信"
)
REPLY_SUBJECT = re.compile(r"(?i)\s*(?:re|aw|sv|antw)\s*:")


def is_notice(sender: str, subject: str) -> bool:
    """Return whether a mail server wrote it, by its sender or its subject."""
    if DAEMON.search(sender):
        return True
    return bool(SUBJECT.search(subject)) and not REPLY_SUBJECT.match(subject)


# A notice that the server goes on trying. It settles nothing.
ONLY_LATE = re.compile(
    r"(?i)warning message only|(?:do|does) not need to re-?send|no action is required|will (?:be|keep"
    r"|continue)\w*(?: on)? "
    r"(?:retr|try|attempt)|still (?:being )?(?:tr(?:y|ied)|queued|retr)|has not yet been delivered"
    r"|delivery attempts will "
    r"continue|delivery (?:has been|is|was|temporarily) (?:delayed|suspended|deferred)|will (?:re)?try (?:again"
    r"|for|until)"
    r"|status notification \(delay\)|not been delivered yet|temporarily delayed|keep trying"
)


def is_only_late(subject: str, text: str) -> bool:
    return bool(ONLY_LATE.search(subject) or ONLY_LATE.search(text[:MOST_TEXT]))


# -- its text ---------------------------------------------------------------------------------------------

# Below such a line stands the message that came back.
COPY = re.compile(
    r"""(?imx)^[ \t>*#=-]{0,20}(?:
      (?:below|following|attached)\b[^\n]{0,60}\b(?:copy|message|header)
    | (?:this\ is\ a|here\ is\ a|the)\ (?:copy|beginning|first|header)[^\n]{0,60}\bmessage
    | (?:the\ )?(?:original|returned|unsent|undelivered|your|message)\ (?:message|mail|text|headers?)?[ \t]{0,4}
      (?:message|text|headers?|content)?[ \t]{0,4}
      (?:follows?|was|is\ (?:included|below|attached)|begins|included|as\ follows|information)?
      [ \t]{0,4}[:.-]{0,40}[ \t]{0,4}$
    | (?:message|mail)\ (?:headers?|text|body|contents?)\b[^\n]{0,40}\b(?:follows?|below)
    | [^\n]{0,40}\bcopy\ of\ (?:the|your)\b[^\n]{0,60}\b(?:message|mail|headers?)
    )[^\n]{0,80}$"""
)
# Or it stands there without a word.
HEADERS = re.compile(r"(?im)^(?:received|return-path|x-original-to|dkim-signature)[ \t]*:[ \t]")
QUOTE_MARKS = re.compile(r"(?m)^(?:>[ \t]?){1,3}(?![<>])")


def notice_of(text: str, own: Collection[str] = ()) -> str:
    """Return the server's own words: without quotation marks of a person who forwards it, and without the copy of the
    message, which begins below the first recipient that is named."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")[:MOST_TEXT]
    text = "\n".join(line[:MOST_LINE] for line in text.split("\n"))
    if text.count("\n> ") > 3:
        text = QUOTE_MARKS.sub("", text)
    first = next((end for end, _, named in _addresses(text, own) if named), len(text))
    ends = [match.start() for pattern in (COPY, HEADERS) if (match := pattern.search(text, first))]
    return text[: min(ends)] if ends else text


# -- whom it is about -------------------------------------------------------------------------------------

# As people and servers write addresses, bounded: a line may be long.
ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,8}")
# Where servers name a failed recipient: alone or first in a line, or behind these words.
NAMED = re.compile(
    r"(?im)(?:^[ \t>*•-]{0,12}(?:\W{0,3}(?:original|final|failed|envelope"
    r"|intended)?[ -]?(?:recipients?(?: address)?|to|rcpt to"
    r"|address(?:es)?|user|mailbox|for)[ \t]*[:=][ \t]*(?:rfc822;[ \t]*)?"
    r"|[45]\d\d[ -](?:[45]\.\d\.\d[ ])?)?[<\"'(\[]{0,2}"
    r"|\brcpt to:[ \t]*<?|\b(?:your mail|message|deliver\w*)\b[^\n@]{0,60}\b(?:to|for)[: \t]{1,3}[<\"']{0,2})$"
)
# An address to ask for help.
HELP = re.compile(r"(?i)\b(?:contact|assistance|help|support|questions?|forward|e-?mail us)\b[^\n@]{0,60}$")
NO_RECIPIENT = re.compile(r"(?i)^(?:mailer.?daemon|postmaster|mail.?admin|abuse|administrator|root)@")


class Failure(NamedTuple):
    """One failed recipient, and the answer that the notice quotes: its code (0: none), its words and the command."""

    address: str
    code: int
    words: str
    stage: Stage


def failures(text: str, own: Collection[str] = (), known: Iterable[str] = ()) -> list[Failure]:
    """Return who did not get the message, by the server's own words (`notice_of`).

    `own` are addresses that are no recipients: the sender's and the daemon's. `known` are recipients that are known
    from elsewhere, such as headers.
    """
    known = [address.lower() for address in known]
    recipients = list(dict.fromkeys([*known, *_named(text, own, bool(known))]))[:MOST_RECIPIENTS]
    about = sections(text, recipients)
    # Many recipients may share one section, which is read once.
    answers = {words: reply_in(words) for words in set(about.values())}
    if len(recipients) == 1 and answers[about[recipients[0]]] is None:
        about = dict.fromkeys(recipients, text)
        answers = {text: reply_in(text)}
    answered = {words: answer or (0, _shortened(words), stage_in(words)) for words, answer in answers.items()}
    return [Failure(address, *answered[about[address]]) for address in recipients]


def _named(text: str, own: Collection[str], surely: bool) -> list[str]:
    """Return the recipients that stand where servers name them; otherwise, unless `surely`, all addresses that are not
    our own."""
    found = list(_addresses(text, own))
    strong = [address for _, address, named in found if named]
    return strong if strong or surely else [address for _, address, _ in found]


def _addresses(text: str, own: Collection[str]) -> Iterator[tuple[int, str, bool]]:
    """Yield the addresses that may be recipients: where each ends, and whether it stands where servers name one."""
    for match in ADDRESS.finditer(text):
        address = match[0].strip(".'").lower()
        if address in own or NO_RECIPIENT.match(address) or "." not in address.partition("@")[2]:
            continue
        line = text.rfind("\n", 0, match.start()) + 1
        before = text[max(line, match.start() - 120) : match.start()]
        if not HELP.search(before):
            yield match.end(), address, bool(NAMED.search(before))


def _shortened(words: str) -> str:
    return " ".join(words.split())[:MOST_REPLY]


def sections(text: str, recipients: Collection[str]) -> dict[str, str]:
    """Return the lines about each recipient: those that name it, and what follows until another one is named."""
    if len(recipients) == 1:
        (address,) = recipients
        start = text.lower().find(address)
        return {address: text[text.rfind("\n", 0, start) + 1 :] if start >= 0 else text}
    lines: dict[frozenset[str], list[str]] = {}
    named: frozenset[str] = frozenset()
    for line in text.split("\n"):
        named = frozenset(one for one in recipients if one in line.lower()) or named
        lines.setdefault(named, []).append(line)
    texts = {group: "\n".join(some) for group, some in lines.items()}
    return {address: "\n".join(words for group, words in texts.items() if address in group) for address in recipients}


# The reporter's own judgement, which may stand beside the answer that it got.
JUDGEMENT = re.compile(
    r"(?im)^[ \t]{0,20}(?:error|reason|problem|cause|diagnosis)[ \t]{0,4}:[ \t]{0,4}([^\d\n][^\n]{0,200})$"
)


def judgement_in(text: str) -> str:
    """Return the words of a line such as “Error: Invalid user address”; empty where there is none."""
    found = JUDGEMENT.search(text[:MOST_TEXT])
    return found[1] if found else ""


# -- the answer that it quotes ----------------------------------------------------------------------------

# A reply code where an answer begins, perhaps with its status; not a number within prose or another number.
ANSWER = re.compile(
    r"(?m)(?:^[ \t]{0,40}|[<>]{3}[ \t]*|[:(\"'=>,.][ \t]{0,3}|\b(?:said|error|reason|code|response|returned|with|was"
    r"|failed)[ \t]{1,3})"
    r"(?:smtp;?[ \t]*)?([45]\d\d)(?:[ \t]+[45]\d\d)?(?=[ \t-]+[#(<]?\D|[ \t-]+[#(]?[45]\.\d|[ \t]*$)[ \t-]*"
)
# x.0.0 says nothing.
STATUS_ALONE = re.compile(r"(?<![\d.])([45])\.(?!0\.0\b)(\d{1,3})\.(\d{1,3})(?![\d.]\d)")


def reply_in(text: str) -> tuple[int, str, Stage] | None:
    """Return the answer that a text quotes: that of the remote server (“<<<”) first, else the first one with a status,
    else the first one; a status alone counts as the code of its class. None: there is none."""
    found = sorted(_answers(text), key=lambda answer: (not answer.remote, not answer.with_status))
    if found:
        return found[0].code, found[0].words, _stage_near(text, found[0])
    status = STATUS_ALONE.search(text)
    if status is None:
        return None
    words = f"{status[0]} {' '.join(text.split())}"[:MOST_REPLY]
    return (554 if status[1] == "5" else 450), words, stage_in(text)


class _Answer(NamedTuple):
    start: int
    code: int
    words: str
    remote: bool
    with_status: bool


def _answers(text: str) -> Iterator[_Answer]:
    for match in ANSWER.finditer(text):
        behind = text[match.end() : match.end() + MOST_REPLY]
        # An answer of several lines repeats its code.
        words = " ".join(
            re.split(rf"\n[ \t]*(?:\n|[<>]{{3}}|(?!{match[1]})[2-5]\d\d[ -])", behind, maxsplit=1)[0].split()
        )
        with_status = bool(STATUS_ALONE.match(words.lstrip("#(")))
        yield _Answer(match.start(), int(match[1]), words, "<<<" in match[0], with_status)


def _stage_near(text: str, answer: _Answer) -> Stage:
    stage = stage_in(answer.words)
    return stage if stage is not Stage.REPORT else stage_in(text[max(0, answer.start - 300) : answer.start])
