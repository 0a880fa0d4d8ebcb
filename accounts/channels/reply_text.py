"""What a person wrote in a reply by mail: without the mail that they quote, and without the line of their program.

Programs announce a quotation in three ways: a line such as “On 1 June Bob <bob@…> wrote:”, which they may break into
several, a block of headers (“From: … Sent: …”), or a rule (“-----Original Message-----”). What they look like in which
language is in accounts.channels.mail_phrases; where a line has a mail address and a date, no language is needed. The
text is read line by line, once, and every look ahead is bounded, so the time grows with the length.
"""

from __future__ import annotations

import re
from contextlib import suppress
from html.parser import HTMLParser

from accounts.channels.mail_phrases import BEGINS, FORWARDED, GET, HEADER_BLOCKS, PROGRAMS, SENT, WROTE, spoken

QUOTED = ">"
#: People do not write more; the rest is quoted or generated.
LONGEST_REPLY = 50_000
#: characters of one line that are looked at, and lines into which programs break the line above a quotation
LONGEST_LINE, MOST_LINES = 400, 5
LONGEST_SIGNATURE = 120
LINES_OF_A_BLOCK = 7

# Marks that set the direction of a text; programs put them around names and addresses.
MARKS = dict.fromkeys([0x200B, 0x200E, 0x200F, 0x061C, 0xFEFF, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
MAILBOX = re.compile(r"[^\s<>()@]++@[^\s<>()@]+")
DATE = re.compile(r"(?<!\d)(?:\d{4}(?!\d)|\d{1,2}[./-] ?\d{1,2}[./-] ?\d{2}(?!\d))")
TIME = re.compile(r"\d{1,2}[:.h]\d{2}")
# A date at the beginning, perhaps behind a short weekday: “2026-06-01 …”, “пн, 1 июн. …”, “1. juni …”.
BEGINS_WITH_DATE = re.compile(r"(?:[^\W\d]{1,12}+[.,]{0,2} )?(?:\d{4}[-./年년]|\d{1,2}[-./月]|\d{1,2} [^\W\d])")
# Gmail's older line has no word and perhaps no colon: “2013/7/20 Bob <bob@…>”, “2016-03-03 17:21 GMT+01:00 Bob”.
OLD_GMAIL = re.compile(
    r"\d{4}[-/]\d{1,2}[-/]\d{1,2} (?:\d{1,2}:\d{2} gmt[+-]\d|[^<>@]{0,200}<[^<>@\s]{1,100}@[^<>@\s]{1,100}>:?$)"
)
LABEL = re.compile(r"[*_ ]{0,3}([^\W\d][^:：*]{0,24}?)[*_ ]{0,3}[:：][*_ ]{0,3}")
COLONS = (":", "：")
RULE = "-_=*~#+—– "

WORDS_FOR_WROTE = spoken(WROTE)
BEGINNINGS = spoken(BEGINS)
WORDS_FOR_SENT = (*spoken(SENT), *spoken(GET))
NAMES_OF_PROGRAMS, ABOVE_FORWARDED = spoken(PROGRAMS), spoken(FORWARDED)
LABELS: dict[str, set[str]] = {}
for _labels in HEADER_BLOCKS.values():
    for _role, _spellings in zip(("from", "sent", "to", "subject"), _labels):
        for _spelling in spoken(_spellings):
            LABELS.setdefault(_spelling, set()).add(_role)


def own_words(text: str) -> str:
    """Return a reply without what it quotes. A text that is only a quotation stays: better too much than nothing."""
    return written(text) or unified(text).strip()


def written(text: str) -> str:
    """Return what the person wrote; nothing where they only quote."""
    lines = unified(text).split("\n")
    plain = [_plain(line) for line in lines]
    kept: list[str] = []
    at = 0
    while at < len(lines):
        if lines[at].startswith(QUOTED):
            at += 1
        elif _ends_here(plain, at):
            break
        elif size := _attribution(plain, at):
            at += size
            if not _quoted_follows(plain, at):
                break
        else:
            # In languages that we do not know, the line above a quotation ends in a colon.
            if not (plain[at].endswith(COLONS) and _quoted_follows(plain, at + 1)):
                kept.append(lines[at])
            at += 1
    return "\n".join(kept).strip()


def unified(text: str) -> str:
    return text[:LONGEST_REPLY].replace("\r\n", "\n").replace("\r", "\n")


def _plain(line: str) -> str:
    """Return the line as it is compared: without marks of direction, with ordinary blanks, in lower case."""
    return " ".join(line[:LONGEST_LINE].translate(MARKS).split()).casefold()


def _quoted_follows(plain: list[str], at: int) -> bool:
    for line in plain[at : at + MOST_LINES]:
        if line:
            return line.startswith(QUOTED)
    return False


# -- the line above a quotation ---------------------------------------------------------------------------


def _attribution(plain: list[str], at: int) -> int:
    """Return how many lines the announcement of a quotation has that begins here; 0: none begins here."""
    if OLD_GMAIL.match(plain[at]):
        return 1
    block = _paragraph(plain, at)
    for size in range(1, len(block) + 1):
        if not _announces(block[:size], _quoted_follows(plain, at + size)):
            continue
        # The person's own last line may stand directly above: the announcement begins as late as it can.
        later = [n for n in range(1, size) if _may_begin(block[n]) and _announces(block[n:size], False)]
        if not later or _belongs(block[0], block[later[-1] : size]):
            return size if _may_begin(block[0]) else 0
        return 0
    return 0


def _paragraph(plain: list[str], at: int) -> list[str]:
    block: list[str] = []
    for n, line in enumerate(plain[at : at + MOST_LINES], start=at):
        if not line:
            # Programs that make a text of HTML may set the address apart: “On … Bob\n\n<\nmailto:bob@…\n> wrote:”.
            if not block or not plain[n + 1 : n + 2] or not plain[n + 1].startswith(("<", "mailto:")):
                break
        elif line.startswith(QUOTED):
            # A line that ends the address's own bracket is no quotation: “<bob@…\n> wrote:”.
            text = " ".join(block)
            if text.count("<") <= text.count(">"):
                break
        block.append(line)
    return block


def _announces(block: list[str], quoted_follows: bool) -> bool:
    """Return whether these lines are such an announcement: a colon at the end, a date, and an address or a word."""
    text = " ".join(filter(None, block))
    if len(text) > LONGEST_LINE or not text.rstrip("* ").endswith(COLONS):
        return False
    mailbox, wrote = MAILBOX.search(text) is not None, _has_word(text)
    dated = DATE.search(text) is not None or (TIME.search(text) is not None and _begins(text))
    if mailbox:
        return dated or (wrote and "<" in text)
    # Without an address people may have written it themselves: “In 2026 I wrote:”.
    return wrote and dated and (_begins(text) or quoted_follows) and (TIME.search(text) is not None or quoted_follows)


def _has_word(text: str) -> bool:
    return any(word in text and _stands_alone(text, word) for word in WORDS_FOR_WROTE)


def _stands_alone(text: str, word: str) -> bool:
    """Return whether the word is no piece of a longer one. In scripts without lower case words have no gaps."""
    if not word[0].islower():
        return True
    return f" {word} " in f" {text.translate(NO_STOPS)} "


NO_STOPS = str.maketrans(dict.fromkeys(":,;.*", " "))


def _may_begin(line: str) -> bool:
    """Return whether an announcement can begin with this line: not inside the brackets of its address."""
    if line.startswith(("<", "(<", "mailto:")):
        return False
    opened, closed = line.find("<"), line.find(">")
    return closed < 0 or 0 <= opened < closed


def _begins(text: str) -> bool:
    if BEGINS_WITH_DATE.match(text):
        return True
    return any(_prefixed(text, beginning) for beginning in BEGINNINGS)


def _prefixed(text: str, phrase: str) -> bool:
    return text.startswith(phrase) and not (phrase[-1].islower() and text[len(phrase) : len(phrase) + 1].isalnum())


def _suffixed(text: str, phrase: str) -> bool:
    return text.endswith(phrase) and not (phrase[0].islower() and text[: -len(phrase)][-1:].isalnum())


def _belongs(line: str, below: list[str]) -> bool:
    """Return whether a line belongs to the announcement below it, which would do without: it has the beginning, or the
    address, that the other lines lack."""
    if _begins(line) and not _begins(below[0]):
        return any(sign.isdigit() for sign in line)
    return "<" in line and MAILBOX.search(line) is not None and MAILBOX.search(" ".join(below)) is None


# -- rules, blocks of headers, signatures -----------------------------------------------------------------


def _ends_here(plain: list[str], at: int) -> bool:
    """Return whether everything from this line on is the quoted mail, or a signature."""
    line = plain[at]
    if not line:
        return False
    if line in ("--", "—", "–") or (len(line) >= 10 and not line.strip("*").strip("_")):
        return True
    if not line.strip(RULE):
        return len(line) >= 3 and _block_follows(plain, at + 1)
    return (
        _is_rule(line)
        or _is_signature(line)
        or (line.endswith(COLONS) and line.rstrip(": ：") in ABOVE_FORWARDED)
        or _is_block(plain, at)
    )


def _block_follows(plain: list[str], at: int) -> bool:
    """Return whether the next line with words begins a block of headers or an announcement, or none is left."""
    for n in range(at, min(at + MOST_LINES, len(plain))):
        if plain[n] and plain[n].strip(RULE):
            return _is_block(plain, n) or bool(_attribution(plain, n))
    return at + MOST_LINES >= len(plain)


def _is_rule(line: str) -> bool:
    """Return whether the line is words between dashes, in any language."""
    bare = line.strip("* >")
    if not (bare.startswith(("---", "___", "===")) and bare.endswith(("---", "___", "==="))):
        return False
    words = bare.strip("-_= ")
    return 2 < len(words) <= 60 and "--" not in words


def _is_block(plain: list[str], at: int) -> bool:
    """Return whether a block of headers begins here: a sender, and below it a time and a subject or an address. GMX,
    WEB.DE and mail.com put the time above the sender."""
    roles = _roles(plain[at])
    if roles is None:
        return False
    if "sent" in roles and DATE.search(_value(plain[at])):
        sender = next((n for n in range(at + 1, min(at + 3, len(plain))) if plain[n]), at)
        if sender > at and "from" in (_roles(plain[sender]) or ()):
            below = plain[sender + 1 : sender + LINES_OF_A_BLOCK * 2]
            return _is_block([plain[sender], plain[at], *below], 0)
    following = [line for line in plain[at + 1 : at + LINES_OF_A_BLOCK * 2] if line][: LINES_OF_A_BLOCK - 1]
    found = [_roles(line) for line in following]
    # A list of the person's own may end in a line that looks like the first: the last sender begins the block.
    second = any(one == {"from"} for one in found)
    if "from" in roles and not second:
        named: set[str] = set().union(*(one for one in found if one))
        value = _value(plain[at])
        if "sent" in named and ("subject" in named or ("to" in named and MAILBOX.search(value))):
            return True
        if "subject" in named and "to" in named and MAILBOX.search(value):
            return True
        if "sent" in named and MAILBOX.search(value) and DATE.search(" ".join(following[:2])):
            return True
    # Any other language: three labels, an address behind the first and a date behind the second.
    return (
        MAILBOX.search(_value(plain[at])) is not None
        and len(found) >= 2
        and found[0] is not None
        and found[1] is not None
        and DATE.search(_value(following[0])) is not None
    )


def _roles(line: str) -> set[str] | None:
    """Return what the label of the line may mean; None: the line has no label."""
    label = LABEL.match(line)
    return None if label is None else LABELS.get(label[1].strip(), set())


def _value(line: str) -> str:
    label = LABEL.match(line)
    return line[label.end() :] if label else ""


def _is_signature(line: str) -> bool:
    """Return whether a program wrote the line: “Sent from my iPhone”, “Get Outlook for iOS”."""
    if len(line) > LONGEST_SIGNATURE or line == "ᐧ":
        return line == "ᐧ"
    words = line.strip("*_()[]")
    if words.startswith(("sent from my ", "sent from the ", "发自我的", "發自我的", "yahoo mail:")):
        return True
    if not any(program in words for program in NAMES_OF_PROGRAMS):
        return False
    for closing in ("<http", "(http", ": http", " http", "]("):
        words = words.partition(closing)[0]
    words = words.rstrip(" .!。")
    return any(_prefixed(words, word) or _suffixed(words, word) for word in WORDS_FOR_SENT)


# -- HTML -------------------------------------------------------------------------------------------------

#: Classes and ids of the elements in which programs put the mail that is answered, or their own line.
QUOTED_BOXES = frozenset(
    {
        *("gmail_quote", "gmail_quote_container", "gmail_attr", "gmail_extra", "gmail_signature", "yahoo_quoted"),
        *("protonmail_quote", "protonmail_signature_block", "moz-cite-prefix", "moz-signature", "zmail_extra"),
        *("tutanota_quote", "ms-outlook-mobile-signature", "mail-editor-reference-message-container", "wordsection0"),
        *("applemailsignature", "yahoo-signature", "qt-blockquote", "ymail_android_signature"),
    }
)
#: Outlook marks the place from which on everything is quoted.
QUOTED_FROM = frozenset({"divrplyfwdmsg", "appendonsend", "x_divrplyfwdmsg", "stopspelling", "olk_src_body_section"})
VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)


class _Words(HTMLParser):
    """Collects the text of an HTML mail without what it quotes."""

    LEFT_OUT = frozenset({"blockquote", "style", "script", "head", "title"})
    BREAKS = frozenset({"br", "p", "div", "tr", "li", "h1", "h2", "h3"})

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.inside = 0
        #: tag of the quoted box that is open, how many of its kind are open inside it, and whether the rest is quoted
        self.box, self.depth, self.ended = "", 0, False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside += tag in self.LEFT_OUT
        if self.box:
            self.depth += tag == self.box
        elif tag not in VOID:
            names = {name for key, value in attrs if key in ("class", "id") for name in (value or "").lower().split()}
            self.ended = self.ended or not names.isdisjoint(QUOTED_FROM)
            if not names.isdisjoint(QUOTED_BOXES):
                self.box, self.depth = tag, 1
        if tag in self.BREAKS:
            self.words.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self.inside = max(0, self.inside - (tag in self.LEFT_OUT))
        if self.box == tag:
            self.depth -= 1
            if not self.depth:
                self.box = ""

    def handle_data(self, data: str) -> None:
        if not (self.inside or self.box or self.ended):
            self.words.append(data)


def text_of_html(html: str) -> str:
    parser = _Words()
    # Python's parser gives up on texts such as "<![x": keep what it read before.
    with suppress(AssertionError):
        parser.feed(html)
    return "".join(parser.words)
