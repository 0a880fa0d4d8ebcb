"""The meaning of a mail server's refusal, in an SMTP dialogue or in a report. Pure.

`faults` says whose fault it is. Here the stage of the dialogue counts, too: the same 550 is about the account after
MAIL, the recipient after RCPT, and the content after DATA.
"""

from __future__ import annotations

import re

from accounts.channels.base import Kind, NotSent
from accounts.channels.faults import (
    MOST_WORDS,
    SENDER_ADDRESS,
    UNCLEAR,
    Fault,
    Meaning,
    Status,
    enhanced_status,
    kind_of,
    meaning,
)
from accounts.channels.faults import (
    Stage as Stage,
)

#: Gmail's and Outlook's "daily limit" answers do not say when it ends: ask again once an hour.
DAILY_LIMIT_RETRY = 3600.0

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


# -- in the SMTP dialogue ---------------------------------------------------------------------------------


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


def _permanent(code: int, status: Status | None, text: str, stage: Stage) -> Kind:
    if _refuses_account(code, status, text, stage):
        return Kind.AUTH
    if status is None and code < 510:
        # Syntax and order of commands: the dialogue is at fault, and worth another try.
        return Kind.UNKNOWN
    if stage is Stage.MAIL:
        return Kind.UNKNOWN if status and status.subject == 5 else Kind.CONTENT_REJECTED
    if (found := meaning(code, text)) is not None:
        return kind_of(found) if not _only_words_after_data(found, status, stage) else Kind.CONTENT_REJECTED
    if status is not None and status.subject == 5:
        return Kind.UNKNOWN
    if stage is Stage.DATA or code in (552, 554) or (status is not None and status.subject + status.detail > 0):
        return Kind.CONTENT_REJECTED
    return Kind.HARD_BOUNCE


def _refuses_account(code: int, status: Status | None, text: str, stage: Stage) -> bool:
    """Return whether every recipient would get this answer, and none is at fault: not signed in, not allowed to relay,
    or the sender's address is refused."""
    if code in (530, 534, 535, 538) or stage in (Stage.CONNECT, Stage.LOGIN):
        # Before MAIL nothing of the message was seen: it is the account, or where it connects from.
        return True
    subject, detail = (status.subject, status.detail) if status else (0, 0)
    if stage is Stage.MAIL:
        return code >= 510 and (subject in (1, 2, 7) or (subject == detail == 0 and code != 552))
    if subject == 1:
        # 5.1.7 and 5.1.8 are the *sender's* address, also when a server says so only after RCPT.
        return detail in (7, 8) or (not detail and bool(AUTH_WORDS.search(text)))
    if subject == 7:
        return detail in (8, 9, 11, 14) or (detail in (0, 1, 54, 60) and bool(AUTH_WORDS.search(text)))
    return subject == detail == 0 and code >= 510 and stage is not Stage.DATA and bool(AUTH_WORDS.search(text))


def _only_words_after_data(found: Meaning, status: Status | None, stage: Stage) -> bool:
    return found.fault is Fault.GONE and stage is Stage.DATA and (status is None or status.subject != 1)


# -- in a report ------------------------------------------------------------------------------------------

# In the words of Postfix, Exim, Sendmail, qmail, Gmail, Yahoo, GMX and DragonFly. What Sendmail shows below “>>> DATA”
# says nothing: it pipelines, so it may answer RCPT.
STAGES = (
    (
        Stage.DATA,
        re.compile(
            r"(?i)in reply to (?:end of )?data|after (?:end of )?data\b|\[BODY\]|our (?:final )?data|\(state 1[5-9]\)"
            r"|after i sent the message|for (?:text|data) command"
        ),
    ),
    (
        Stage.MAIL,
        re.compile(r"(?i)in reply to mail from|after mail from|\[MAIL_?FROM\]|our mail from|sender was rejected"),
    ),
    (
        Stage.RCPT,
        re.compile(
            r"(?i)in reply to rcpt|after rcpt|\[RCPT_?TO\]|our rcpt|>>> rcpt to|not like recipient|\(state 1[34]\)"
            r"|smtp:rcpt|for rcpt to command"
        ),
    ),
)


def stage_in(text: str) -> Stage:
    """Return the command that a report names."""
    words = " ".join(text[: 2 * MOST_WORDS].split())
    return next((stage for stage, pattern in STAGES if pattern.search(words)), Stage.REPORT)


def reported(code: int, text: str, stage: Stage = Stage.REPORT) -> Meaning:
    """Return the meaning of a final failure in a report; one that cannot be read suppresses no address for good."""
    found = meaning(code, text, stage)
    if found is None:
        return UNCLEAR
    if found.fault is Fault.GONE and stage is Stage.MAIL:
        return SENDER_ADDRESS
    return found
