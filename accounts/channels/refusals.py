"""The meaning of a mail server's refusal, in an SMTP dialogue or in a bounce. Pure.

The reply code decides, with the enhanced status (RFC 3463) where there is one, and the stage of the dialogue: the same
550 is about the account after MAIL, the recipient after RCPT, and the content after DATA. Words only choose between two
meanings of a code that is known to have both; a number in the text never counts.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from accounts.channels.base import Kind, NotSent

#: Gmail's and Outlook's "daily limit" answers do not say when it ends: ask again once an hour.
DAILY_LIMIT_RETRY = 3600.0

# At the very start of the text, as RFC 2034 requires; anywhere else it is prose.
ENHANCED = re.compile(r"([245])\.(\d{1,3})\.(\d{1,3})(?![\d.])")
RATE_WORDS = re.compile(
    r"too many|too fast|too quickly|too frequent|rate.?limit|throttl|slow down|unusual rate"
    r"|(?:rate|limit|quota)\b.{0,40}\b(?:exceeded|reached)|(?:exceeded|reached).{0,40}\b(?:rate|limit|quota)",
    re.IGNORECASE,
)
AUTH_WORDS = re.compile(
    r"authentication (?:is )?(?:required|failed)|must (?:first )?(?:authenticate|log ?in)|not authenticated"
    r"|(?:unable|not (?:allowed|permitted|authori[sz]ed)|refus\w+) to relay|(?:do not|don't|won't|cannot) relay"
    r"|relay(?:ing)? (?:access )?(?:is )?(?:denied|disabled|forbidden|not|prohibited|refused)|rcpthosts"
    r"|send ?as ?denied|not (?:allowed|permitted|authori[sz]ed) to send",
    re.IGNORECASE,
)
FULL_WORDS = re.compile(r"\bfull\b|quota|storage|space", re.IGNORECASE)


class Stage(enum.StrEnum):
    CONNECT = "connect"
    LOGIN = "login"
    MAIL = "mail"
    RCPT = "rcpt"
    DATA = "data"


class Status(NamedTuple):
    """Class, subject and detail of an enhanced status."""

    group: int
    subject: int
    detail: int


def enhanced_status(code: int, text: str) -> Status | None:
    """Return the enhanced status that a reply starts with; one that contradicts its code is ignored."""
    match = ENHANCED.match(text.strip())
    if match is None or int(match[1]) != code // 100:
        return None
    return Status(*map(int, match.groups()))


def refusal(code: int, text: str, stage: Stage) -> NotSent:
    """Return the meaning of a reply that is not a yes."""
    status = enhanced_status(code, text)
    detail = f"{code} {' '.join(text.split())}".strip()
    if code // 100 == 4:
        return NotSent(_temporary(code, status, text, stage), detail)
    if code // 100 != 5:
        # A yes at the wrong moment, or garbage: the dialogue is out of sync.
        return NotSent(Kind.NETWORK, detail)
    if _daily_limit(status, text):
        return NotSent(Kind.RATE_LIMITED, detail, DAILY_LIMIT_RETRY)
    return NotSent(_permanent(code, status, text, stage), detail)


def _daily_limit(status: Status | None, text: str) -> bool:
    """Return whether a daily limit is reached: 5.4.5 is Gmail's, 5.1.90 Outlook's. Both count for the sender."""
    return status == (5, 4, 5) or (status == (5, 1, 90) and bool(RATE_WORDS.search(text)))


# -- 4xx --------------------------------------------------------------------------------------------------


def _temporary(code: int, status: Status | None, text: str, stage: Stage) -> Kind:
    subject = (status.subject, status.detail) if status else None
    if _limits_us(code, status, text, stage):
        return Kind.RATE_LIMITED
    # 421 closes the connection, 4.3.1 and 4.3.2 are a full or a closing system: no message gets through.
    if code == 421 or subject in ((3, 1), (3, 2)) or stage in (Stage.CONNECT, Stage.LOGIN):
        return Kind.UNAVAILABLE
    return Kind.SOFT_BOUNCE


def _limits_us(code: int, status: Status | None, text: str, stage: Stage) -> bool:
    """Return whether the sender is limited. 4.2.x, or 452 after RCPT, limits the recipient's mailbox, despite its
    words."""
    if status is None:
        return not (code == 452 and stage is Stage.RCPT) and bool(RATE_WORDS.search(text))
    if status.subject == 7:
        return code == 421 or bool(RATE_WORDS.search(text))
    return (status.subject, status.detail) in ((3, 2), (5, 3)) and bool(RATE_WORDS.search(text))


# -- 5xx --------------------------------------------------------------------------------------------------


def _permanent(code: int, status: Status | None, text: str, stage: Stage) -> Kind:
    if code in (530, 534, 535, 538) or stage in (Stage.CONNECT, Stage.LOGIN):
        # Before MAIL nothing of the message was seen: it is the account, or where it connects from.
        return Kind.AUTH
    if status is not None and status.detail + status.subject > 0:
        return _by_status(status, text, stage)
    return _by_code(code, text, stage)


def _by_status(status: Status, text: str, stage: Stage) -> Kind:
    if status.subject == 7:
        return _policy(status.detail, text, stage)
    if status.subject == 1:
        # 5.1.7 and 5.1.8 are the *sender's* address, also when a server says so only after RCPT.
        sender = status.detail in (7, 8) or stage is Stage.MAIL or (not status.detail and AUTH_WORDS.search(text))
        return Kind.AUTH if sender else Kind.HARD_BOUNCE
    if status.subject == 2:
        return _mailbox(status.detail, stage)
    if status.subject == 4:
        # No way to the recipient's host, at the moment or for good: never the recipient's own fault.
        return Kind.SOFT_BOUNCE
    if status.subject == 5:
        return Kind.UNKNOWN
    return Kind.CONTENT_REJECTED


def _policy(detail: int, text: str, stage: Stage) -> Kind:
    """Return the kind of a security or policy refusal: the account's or the content's fault, never the recipient's."""
    about_login = detail in (8, 9, 11, 14) or (detail in (0, 1, 54, 60) and bool(AUTH_WORDS.search(text)))
    return Kind.AUTH if about_login or stage is Stage.MAIL else Kind.CONTENT_REJECTED


def _mailbox(detail: int, stage: Stage) -> Kind:
    if stage is Stage.MAIL:
        return Kind.AUTH
    return {1: Kind.HARD_BOUNCE, 2: Kind.SOFT_BOUNCE}.get(detail, Kind.CONTENT_REJECTED)


def _by_code(code: int, text: str, stage: Stage) -> Kind:
    if code < 510:
        # Syntax and order of commands: the dialogue is at fault, and worth another try.
        return Kind.UNKNOWN
    if stage is Stage.MAIL:
        return Kind.CONTENT_REJECTED if code == 552 else Kind.AUTH
    if stage is Stage.DATA:
        return Kind.CONTENT_REJECTED
    if AUTH_WORDS.search(text):
        # Not signed in, or not allowed to relay: every recipient would get this answer, and none is at fault.
        return Kind.AUTH
    if code == 552 and FULL_WORDS.search(text):
        return Kind.SOFT_BOUNCE
    return Kind.CONTENT_REJECTED if code in (552, 554) else Kind.HARD_BOUNCE
