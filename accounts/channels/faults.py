"""Whose fault a mail server's refusal is: one table for SMTP dialogues, delivery reports and bounces of any form. Pure.

The recipient is gone, the recipient is unable to take it now, our content, our reputation or authentication, or the
network. Only a recipient who is gone is suppressed for good. `meaning` reads the reply code, the enhanced status
(RFC 3463) where there is one, and the words: they decide where codes are known to be used for anything. A number in the
text never counts.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from accounts.channels.base import Kind

#: Characters of an answer that are read for words: the reason stands first.
MOST_WORDS = 2_000

# At the very start of the text, as RFC 2034 requires; anywhere else it is prose.
ENHANCED = re.compile(r"[#(]?([245])\.(\d{1,3})\.(\d{1,3})(?![\d.]\d)")
# qmail's form, behind the words: "(#5.1.1)".
BEHIND = re.compile(r"\(#([245])\.(\d{1,3})\.(\d{1,3})\b")
# A relay that puts the answer it got behind its own status: "5.1.0 - Unknown address error 550-'5.2.2 …".
QUOTED_REPLY = re.compile(
    r"(?:['\"<(]|error |-> |: )(5\d\d)[ -]['\"]?#?(5\.\d{1,3}\.\d{1,3})?(?![\d.])[ '\"]*([^\d\s].*)"
)


class Stage(enum.StrEnum):
    CONNECT = "connect"
    LOGIN = "login"
    MAIL = "mail"
    RCPT = "rcpt"
    DATA = "data"
    # A report that does not say at which command the answer came.
    REPORT = "report"


class Fault(enum.StrEnum):
    """Whose fault a refusal is."""

    GONE = "recipient gone"
    UNABLE = "recipient temporarily unable"
    CONTENT = "our content"
    SENDER = "our reputation or authentication"
    NETWORK = "network"


class Cause(enum.StrEnum):
    """What is at fault, where the answer says so. `ADVICE` has what to do about our own."""

    UNKNOWN_USER = "unknown user"
    UNKNOWN_HOST = "unknown host"
    FULL = "mailbox full"
    DISABLED = "mailbox disabled"
    FILTERED = "recipient's own filter"
    BUSY = "recipient gets too much mail"
    AUTHENTICATION = "SPF, DKIM or DMARC"
    REVERSE_DNS = "reverse DNS"
    BLOCKED = "sender blocked"
    SENDER_ADDRESS = "sender's address"
    RELAY = "relaying"
    RATE = "sending rate"
    SPAM = "looks like spam"
    VIRUS = "virus or forbidden file"
    SIZE = "message too large"
    POLICY = "policy of the recipient's server"
    FORM = "form of the message"
    EXPIRED = "not delivered in time"
    UNREACHABLE = "server not reachable"
    SYSTEM = "error of the recipient's server"
    UNCLEAR = "unclear"


#: What to do about a fault of our own, in one sentence for the account's page.
ADVICE = {
    Cause.AUTHENTICATION: "Fix the sender's domain: publish SPF and DKIM records that cover this server, and a DMARC "
    "record that they satisfy.",
    Cause.REVERSE_DNS: "The sending server's IP address needs a reverse DNS (PTR) record that fits its name: ask the "
    "provider of that server.",
    Cause.BLOCKED: "The sending server or domain is blocked or has a bad reputation: see the answer's link, ask to "
    "be delisted, and send less until then.",
    Cause.SENDER_ADDRESS: "The sender's address is refused: check that it exists and that its domain receives mail.",
    Cause.RELAY: "The mail server takes no mail from this account for other domains: check its login and server.",
    Cause.RATE: "Too much mail in a short time: lower the account's messages per minute or its daily limit.",
    Cause.SPAM: "The message looks like spam to the recipient's server: change text, links and subject, and write only "
    "to people who expect it.",
    Cause.VIRUS: "A file of the message is refused: send another type of file, or a link.",
    Cause.SIZE: "The message is too large: send smaller files, or a link.",
    Cause.FORM: "The message is not written as the server wants it: check subject, sender and text.",
    Cause.POLICY: "The recipient's server refuses the message by a rule of its own: ask its administrator, check the "
    "sender's domain.",
}


class Meaning(NamedTuple):
    fault: Fault
    cause: Cause


class Status(NamedTuple):
    """Class, subject and detail of an enhanced status."""

    group: int
    subject: int
    detail: int


def enhanced_status(code: int, text: str) -> Status | None:
    """Return the enhanced status that a reply starts with; one that contradicts its code is ignored."""
    match = ENHANCED.match(text.strip()) or BEHIND.search(text[:MOST_WORDS])
    if match is None or int(match[1]) != code // 100:
        return None
    return Status(*map(int, match.groups()))


# -- words ------------------------------------------------------------------------------------------------

# Addresses and links say nothing about the reason, and people choose them: "no-such-user@…", "…/spam".
NO_WORDS = re.compile(r"<[^<>\s]{0,320}>|\bhttps?://\S{0,500}|[^\s<>@]{1,64}@[^\s<>@]{1,255}")

_WHO = r"(?:user(?: ?id)?|recipient|mail ?box|account|address(?:ee)?|local.?part|alias|person|rcpt|member)"
_NOT = r"(?:is not|isn'?t|was not|wasn'?t|are not|not|could not be|couldn'?t be|cannot be|can'?t be)"


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


#: Words and their meaning, the first that fits. Our own faults stand first: their answers often name the recipient too
#: ("Recipient address rejected: SPF check failed"), and no address may be suppressed for them.
WORDS: tuple[tuple[Meaning, re.Pattern[str]], ...] = (
    (
        Meaning(Fault.SENDER, Cause.AUTHENTICATION),
        _any(
            r"\bdmarc\b|\bspf\b|\bdkim\b|sender policy framework|sender.?id\b|purported responsible",
            r"unauthenticated (?:e-?mail|mail|message|sender)|required authentication level",
            r"authentication checks? failed|domain authentication|mismatch\w* client ip",
        ),
    ),
    (
        Meaning(Fault.SENDER, Cause.REVERSE_DNS),
        _any(
            r"reverse dns|\br-?dns\b|\bptr\b|reverse (?:host ?name|lookup|address)|fcrdns|no reverse",
            r"cannot (?:find|resolve) your (?:reverse )?host ?name|(?:ip|host) ?name lookup failed.{0,20}client",
        ),
    ),
    (
        Meaning(Fault.SENDER, Cause.BLOCKED),
        _any(
            r"black.?list|block.?list|deny.?list|\bd?n?[sr]bl\b|\baup#|spamhaus|spamcop|sorbs|barracudacentral"
            r"|senderscore",
            r"reputation|(?:ip|host|client|server|network|domain|sender)s?\b.{0,40}\b(?:is |are |was |been )?"
            r"(?:blocked|banned|listed|blacklisted)\b",
            r"block(?:ed|ing)? (?:for|due to|because of|ip|using|your)\b|banned|client host rejected|for abuse\b",
            r"messages? from .{0,60}(?:weren'?t sent|temporarily deferred)|user complaints",
            r"(?:use|through) (?:the |your )?(?:smtp|mail) server of your isp|dynamic (?:ip|host)|direct.to.mx",
            r"not accept(?:ing|ed)? (?:mail|e-?mail|connections?|messages?) from (?:you|your|this|dynamic|servers)",
        ),
    ),
    (
        Meaning(Fault.SENDER, Cause.RATE),
        _any(
            r"too (?:many|much) (?:e-?mails?|mails?|messages?|connections?|sessions?|requests?|sent|errors)",
            r"frequency limited|rate.?limit|throttl|slow down|(?:daily|hourly|relay|sending|message|mail|smtp) "
            r"(?:\w+ ){0,2}(?:quota|limit|rate)\b.{0,30}(?:exceed|reach|limit)",
            r"(?:exceed|reach)\w*.{0,30}(?:daily|hourly|relay|sending|connection|message) (?:\w+ )?(?:quota"
            r"|limit|rate)",
            r"concurrent connections|too (?:fast|frequent|quickly)",
        ),
    ),
    (
        Meaning(Fault.UNABLE, Cause.BUSY),
        _any(
            r"(?:receiving|receives|gets) (?:mail|messages) (?:at a rate|too (?:quickly|fast|much))",
            r"user .{0,60}(?:receiving|received) (?:mail|messages) (?:at|too)",
        ),
    ),
    (
        Meaning(Fault.SENDER, Cause.RELAY),
        _any(
            r"\b(?:no|not|denied|unable|refuse\w*|disabled|cannot|can'?t|don'?t|won'?t|without)\b.{0,20}\brelay",
            r"relay(?:ing)?\b.{0,30}\b(?:denied|disabled|forbidden|not|prohibited|refused|permitted|rejected)"
            r"|rcpthosts",
            r"turn on smtp authentication|authentication (?:is )?required|must (?:first )?authenticate"
            r"|send ?as ?denied",
            r"unauthenticated senders?|not (?:allowed|permitted|authori[sz]ed) to send",
        ),
    ),
    (
        Meaning(Fault.SENDER, Cause.SENDER_ADDRESS),
        _any(
            r"\bsender\b.{0,60}\b(?:rejected|refused|denied|invalid|unknown|not|does|verif\w+|blocked"
            r"|unroutable|deferred)",
            r"(?:invalid|unknown|bad|unroutable|unverified|rejected|null|empty envelope) sender|return(?:ed)? ?path",
            r"\bfrom:? (?:domain|address|header)\b.{0,30}(?:invalid|not|does|must)|domain of sender"
            r"|mail from\b.{0,40}"
            r"(?:reject|not|denied|invalid|does)|emetteur invalide|envelope.?from",
            r"non-?member|members?-only|not (?:a )?member|not allowed to (?:post|send)|permission to post"
            r"|post(?:ing)? to "
            r"(?:this|the) (?:group|list|mailing)|registered gateway user|only accept\w* (?:mail|messages?) from",
            r"you are not (?:authori[sz]ed|permitted|allowed)|not (?:accept|allow)\w* (?:mail|e-?mail|messages) from",
        ),
    ),
    (
        Meaning(Fault.UNABLE, Cause.FULL),
        _any(
            r"(?:over|exceed\w*|out of|above|reached)\b.{0,40}\bquota|quota\b.{0,40}\b(?:exceed|reach|full"
            r"|violat|over|used)",
            r"(?:mail ?box|inbox|mail ?folder|mail ?dir|account|disk|disc|storage|boite"
            r"|\bbox)\b.{0,40}\b(?:full\b|pleine|"
            r"over ?quota|exceed\w*|insufficient)|full (?:mail ?box|inbox)|over ?quota|quota ?exceeded|\bdiskquota",
            r"(?:insufficient|not enough|no more|exceed\w*|out of|no)\b.{0,30}\b(?:storage|disk|space)"
            r"|too much mail data",
            r"(?:storage|disk|space)\b.{0,40}\b(?:limit|used up|exceed|full|insufficient|allocation)",
            r"too many messages (?:on|in)|receiving limits|mailbox size limit",
            r"voll\b|postfach (?:ist )?.{0,10}voll|buz[oó]n lleno|casella piena|メールボックス.{0,12}(?:一杯"
            r"|いっぱい|満杯|容量)",
        ),
    ),
    (
        Meaning(Fault.UNABLE, Cause.FILTERED),
        _any(
            r"recipient preferences|user rules|refused? (?:to receive|by (?:the )?(?:user|recipient))|user reject",
            r"blocked by (?:the )?(?:user|recipient)|recipient.{0,20}refuse|is protected by|message filtered",
            r"not accept(?:ing)? (?:any )?(?:mail|messages)\b(?! from)(?=.{0,40}(?:user|recipient|moment|currently))",
        ),
    ),
    (
        Meaning(Fault.UNABLE, Cause.DISABLED),
        _any(
            r"(?:user|recipient|mail ?box|account|compte|address)\b.{0,80}?\b(?:disabled|suspend\w*|frozen"
            r"|locked|deactivated|"
            r"discontinued|bloque|blocked|temporarily|restricted|on hold|expired)\b",
            r"(?:disabled|suspended|frozen|locked|deactivated|blocked) (?:user|recipient|mail ?box|account|address)",
            r"invalid/inactive user|suspend the service",
        ),
    ),
    (
        Meaning(Fault.CONTENT, Cause.VIRUS),
        _any(
            r"\bvirus|malware|infected|trojan|phish|(?:illegal|forbidden|prohibited|dangerous|executable|banned"
            r"|blocked)\b"
            r".{0,30}\b(?:attachment|file|content)|attachment.{0,40}(?:blocked|not allowed|rejected|type)",
        ),
    ),
    (
        Meaning(Fault.CONTENT, Cause.SIZE),
        _any(
            r"(?:message|mail|e-?mail|size|length|body|attachment)\b.{0,40}\b(?:too (?:large|big|long)|exceed\w*)",
            r"(?:exceed\w*|larger than|greater than|over)\b.{0,40}\b(?:maximum|message|size|length)"
            r"|\btoo (?:large|big)\b",
            r"sizelimit|size limit",
        ),
    ),
    (
        Meaning(Fault.CONTENT, Cause.SPAM),
        _any(
            r"\bspam\w*|\bube\b|\buce\b|\bunsolicited|\bbulk\b|junk|content (?:was |is )?(?:reject|filter|block"
            r"|den)\w*",
            r"message (?:content )?(?:was )?(?:rejected|blocked|refused)\b.{0,20}(?:content|by (?:filter"
            r"|content))|blocked "
            r"(?:message )?content|mail rejete|surbl|uribl",
        ),
    ),
    (
        Meaning(Fault.CONTENT, Cause.FORM),
        _any(
            r"rfc ?\d{3,4}.{0,20}(?:complian|violat|compli)|not .{0,10}complian|header error|(?:missing"
            r"|multiple|invalid|bad|"
            r"duplicate) .{0,20}headers?|malformed|too many hops|mail loop|loop(?:ing)? detected|bare (?:lf|cr"
            r"|linefeed)",
        ),
    ),
    (
        Meaning(Fault.CONTENT, Cause.POLICY),
        _any(
            r"\bpolic(?:y|ies)\b|administrative(?:ly)? prohib|prohibited by|security (?:reason|violation)"
            r"|email rejected",
            r"delivery not authori[sz]ed|message refused|protocol violation",
        ),
    ),
    (
        Meaning(Fault.NETWORK, Cause.UNREACHABLE),
        _any(
            r"(?:connection|connect|session|greeting|conversation|operation)\w*\b.{0,60}\b(?:timed? ?-?out"
            r"|refused|reset|lost|"
            r"dropped|failed|broken|closed|unable)|timed? ?out|no route to|network (?:is )?(?:unreachable|error)",
            r"unable to connect|could ?n[o']t connect|cannot connect|(?:cannot|could not|couldn'?t"
            r"|wasn'?t able to) (?:be )?"
            r"(?:establish|contact|reach)|not found, try again|tls (?:is )?(?:required|not|error)|certificate",
            r"dns (?:error|failure|lookup|server)|name (?:server|service)\b.{0,40}\b(?:failure|temporar|timeout"
            r"|again)",
            r"servfail|mail loop|loops back|temporar\w+ (?:name|dns|lookup)|remote protocol error",
        ),
    ),
    (
        Meaning(Fault.GONE, Cause.UNKNOWN_HOST),
        _any(
            r"\b(?:host|domain|hostname|domain name|server)\b.{0,50}\b(?:not found|unknown|does ?n[o']t exist"
            r"|does not exist|"
            r"not exist|is not reachable|must exist|doesn'?t receive|no mail exchanger)",
            r"(?:unknown|no such|unresolvable|non-?existent|invalid|bad) (?:mail )?(?:host|domain|hostname)"
            r"|nxdomain|null mx",
            r"name or service not known|unrouteable (?:mail )?(?:address|domain)|no mx (?:or a )?(?:record|host)",
            r"does ?n[o']t accept (?:any )?(?:mail|e-?mail)\b(?! from)|does not accept (?:any )?(?:mail"
            r"|e-?mail)\b(?! from)",
            r"no mail server|mail (?:server )?does not receive",
        ),
    ),
    (
        Meaning(Fault.GONE, Cause.UNKNOWN_USER),
        _any(
            rf"(?:unknown|no such|non-?existent|invalid|bad|undefined|unregistered|inactive|illegal|wrong"
            rf"|no valid|unrecogni[sz]ed)"
            rf"(?: or \w+)?(?: (?:e-?mail|mail|local|virtual|destination|smtp|to|final"
            rf"|delivery)){{0,2}}[ _-]{_WHO}s?\b(?! error)",
            rf"\b{_WHO}s?\b.{{0,80}}?\b(?:unknown|invalid|does ?n[o']t exist|do(?:es)? not exist|doesnt exist"
            rf"|not exist|"
            rf"{_NOT} (?:be )?(?:found|known|listed|recogni[sz]ed|valid|local|present|active|registered|available)|"
            rf"{_NOT} a (?:valid|known|local|registered)|no longer|inexistent|has moved|is inactive|"
            rf"doesn'?t have an?|does not have an?|wrong|unavailable|undeliverable)",
            rf"{_NOT} an? (?:\w+ )?(?:{_WHO}|active address)|no one at this address|there is no one"
            rf"|cannot find (?:a )?{_WHO}",
            rf"(?:unknown|no) {_WHO}\b|no mail ?box here|have an? \S{{1,80}} account|recip\w{{0,6}}notfound"
            rf"|bad.?rcpt.?to|"
            r"bad_recipient|\bunknown\b.{0,20}\b(?:user|address)|address rejected(?!:)|no such (?:name|person)"
            r"|\bmoved\b",
            r"check (?:if|that|whether) (?:the |this )?(?:e-?mail )?address is correct",
            r"not listed in|not found in (?:\w+ )?directory|not in directory|not our customer|no account"
            r"|list does not exist",
            r"destinataire (?:invalide|inconnu)|(?:adresse|utilisateur|compte|boite).{0,40}(?:inconnu|invalide"
            r"|n'existe)",
            r"(?:usuario|destinatario|direcci[oó]n|cuenta|buz[oó]n).{0,40}(?:no existe|desconocid|inv[aá]lid)"
            r"|no existe",
            r"(?:empf[aä]nger|benutzer|adresse|postfach).{0,40}(?:unbekannt|nicht bekannt|existiert nicht"
            r"|nicht gefunden)",
            r"(?:utente|destinatario|casella|indirizzo).{0,40}(?:sconosciut|inesistente|non (?:esiste|trovat))",
            r"(?:usu[aá]rio|destinat[aá]rio|conta).{0,40}(?:n[aã]o existe|desconhecid|inexistente)",
            r"(?:не существует|не найден|неизвестн|见?不存在|不存在|無此|查无|見つかりません|存在しません"
            r"|リストにありません|없는 )",
        ),
    ),
    (
        Meaning(Fault.NETWORK, Cause.EXPIRED),
        _any(
            r"\bexpired\b|(?:retry|delivery) time (?:was |not )?(?:exceeded|reached)|gave up|giving up|too long"
            r"|for too long",
            r"(?:not|un)\w* .{0,40}(?:delivered|deliver).{0,40}(?:for|within|after|in) .{0,20}(?:days?|hours?"
            r"|minutes)",
            r"will not be retried|retry timeout|queue (?:too long|lifetime)|could not be delivered for|last attempt",
        ),
    ),
    (
        Meaning(Fault.NETWORK, Cause.SYSTEM),
        _any(
            r"(?:internal|system|local|mailer|server|configuration|software|i/o|temporary"
            r"|upstream) (?:\w+ )?(?:error|failure|"
            r"problem)|mailer ?error|out of memory|command output|procmail|exit(?:ed)? (?:with )?(?:status"
            r"|code)|pipe to",
            r"local delivery failed|broken pipe|not permitted to run|can'?t create|couldn'?t create",
        ),
    ),
)


# -- the table --------------------------------------------------------------------------------------------

_GONE = Meaning(Fault.GONE, Cause.UNKNOWN_USER)
_AUTHENTICATION = Meaning(Fault.SENDER, Cause.AUTHENTICATION)
SENDER_ADDRESS = Meaning(Fault.SENDER, Cause.SENDER_ADDRESS)
_SIZE = Meaning(Fault.CONTENT, Cause.SIZE)
_FULL = Meaning(Fault.UNABLE, Cause.FULL)
_SYSTEM = Meaning(Fault.NETWORK, Cause.SYSTEM)
UNCLEAR = Meaning(Fault.UNABLE, Cause.UNCLEAR)

#: Subject and detail of statuses that mean the same with any words (RFC 3463, 7372, 7505; Microsoft's 5.7.5xx).
SURE: dict[tuple[int, int], Meaning] = {
    (1, 6): _GONE,
    (1, 7): SENDER_ADDRESS,
    (1, 8): SENDER_ADDRESS,
    (1, 10): Meaning(Fault.GONE, Cause.UNKNOWN_HOST),
    (2, 2): _FULL,
    (2, 3): _SIZE,
    (3, 4): _SIZE,
    (7, 13): Meaning(Fault.UNABLE, Cause.DISABLED),
    **{(7, detail): _AUTHENTICATION for detail in (20, 21, 22, 23, 24, 26, 29, 509, 515)},
    (7, 25): Meaning(Fault.SENDER, Cause.REVERSE_DNS),
    **{
        (7, detail): Meaning(Fault.SENDER, Cause.BLOCKED)
        for detail in (511, 512, 513, *range(606, 650), 703, 705, 708, 750)
    },
}
#: A server that could not look a user up does not say that there is none.
FOR_NOW = re.compile(
    r"(?i)\b(?:temporar\w{0,5}|grey ?list\w{0,5}|gray ?list\w{0,5}|unverified address|verification in progress"
    r"|timed out|try again (?:later|in|after|at)|try later|retry later|maintenance)\b"
)
#: The subject alone, where neither the detail nor the words say more.
BY_SUBJECT: dict[int, Meaning] = {
    1: _GONE,
    3: _SYSTEM,
    4: Meaning(Fault.NETWORK, Cause.UNREACHABLE),
    6: Meaning(Fault.CONTENT, Cause.FORM),
    7: Meaning(Fault.CONTENT, Cause.POLICY),
}
#: Servers answer 5.1.x when the address is wrong. These causes are told apart all the same, because servers are known
#: to hide them behind it; words of another cause are prose there.
BEHIND_ADDRESS = frozenset(
    {Cause.AUTHENTICATION, Cause.REVERSE_DNS, Cause.BLOCKED, Cause.RATE, Cause.BUSY, Cause.SENDER_ADDRESS}
    | {Cause.FULL, Cause.FILTERED, Cause.SPAM, Cause.VIRUS}
)
# RFC 7504: the host accepts no mail at all.
NO_MAIL_HERE = (521, 556)
# Exchange Online answers so for an address that its directory does not have.
EDGE_BLOCK = re.compile(r"(?i)recipient address rejected: access denied")


def meaning(code: int, text: str, reported: Stage | None = None) -> Meaning | None:
    """Return whose fault a final refusal is; None if neither status nor words say it.

    `reported` is the stage that a report names: a server that had accepted the recipient and says "user unknown" after
    the data hides a filter behind it, as carriers do. In our own dialogue the answer after DATA is of our own server,
    which passes on what the next one said.
    """
    status = enhanced_status(code, text)
    quoted = QUOTED_REPLY.search(text[:MOST_WORDS])
    if quoted and (status is None or (status.subject, status.detail) in ((0, 0), (1, 0), (3, 0), (4, 7))):
        inner = meaning(int(quoted[1]), f"{quoted[2] or ''} {quoted[3]}".strip(), reported)
        if inner is not None:
            return inner
    found = _by_status_and_words(code, status, text)
    if found is None or found.fault is not Fault.GONE:
        return found
    if reported is not None and found.cause is Cause.UNKNOWN_USER and not _believed(code, status, reported):
        return Meaning(Fault.UNABLE, Cause.FILTERED)
    if found.cause is Cause.UNKNOWN_USER and FOR_NOW.search(text[:MOST_WORDS]):
        return Meaning(Fault.UNABLE, Cause.UNCLEAR)
    if code // 100 == 4 and not (status and status[1:] == (1, 1)):
        # Nothing that a server calls temporary is for good, except that it never knew the user.
        return Meaning(Fault.NETWORK if found.cause is Cause.UNKNOWN_HOST else Fault.UNABLE, found.cause)
    return found


def _believed(code: int, status: Status | None, stage: Stage) -> bool:
    """Return whether a report of an unknown user is believed: not after the data, when the server had accepted the
    recipient; and with a bare 550 only where it answered RCPT, because filters of carriers say the same later. A
    server's own words without any code are believed."""
    if stage is Stage.DATA:
        return False
    return code == 0 or stage is Stage.RCPT or (status is not None and status.subject not in (0, 2, 3, 7))


def _by_status_and_words(code: int, status: Status | None, text: str) -> Meaning | None:
    key = (status.subject, status.detail) if status else (0, 0)
    if key in SURE:
        return SURE[key]
    if key == (4, 1) and EDGE_BLOCK.search(text):
        return _GONE
    found = said(text)
    if key[0] == 1:
        return found if found and (found.cause in BEHIND_ADDRESS or found.fault is Fault.GONE) else _GONE
    if code == 552 and (found is None or found.fault is Fault.SENDER):
        # RFC 5321: exceeded storage, of the mailbox or for one message.
        return _SIZE
    if found is not None:
        return found
    if code in NO_MAIL_HERE and key[0] in (0, 3):
        return Meaning(Fault.GONE, Cause.UNKNOWN_HOST)
    if key == (2, 1):
        return Meaning(Fault.UNABLE, Cause.DISABLED)
    return BY_SUBJECT.get(key[0])


def said(text: str) -> Meaning | None:
    """Return what the words alone mean."""
    text = text[:MOST_WORDS]
    words = NO_WORDS.sub(" ", text)
    if BLOCKLIST_LINK.search(text):
        return Meaning(Fault.SENDER, Cause.BLOCKED)
    return next((found for found, pattern in WORDS if pattern.search(words)), None)


BLOCKLIST_LINK = re.compile(r"(?i)\b(?:spamhaus\.org|spamcop\.net|sorbs\.net|barracudacentral\.org|[sr]bl[./?])")

KINDS = {
    Fault.GONE: Kind.HARD_BOUNCE,
    Fault.UNABLE: Kind.SOFT_BOUNCE,
    Fault.CONTENT: Kind.CONTENT_REJECTED,
    Fault.SENDER: Kind.SENDER_REJECTED,
    Fault.NETWORK: Kind.SOFT_BOUNCE,
}


def kind_of(found: Meaning) -> Kind:
    return Kind.CONTENT_REJECTED if found.cause is Cause.SYSTEM else KINDS[found.fault]


def cause_of(detail: str) -> Cause:
    """Return the cause of a stored refusal, such as "550 5.7.26 Unauthenticated mail"."""
    match = REPLY.match(detail)
    found = meaning(int(match[1]), match[2]) if match else said(detail)
    return found.cause if found else Cause.UNCLEAR


REPLY = re.compile(r"(?s)\s*([245]\d\d)[ -]?(.*)")
