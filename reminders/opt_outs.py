"""Decide whether a message opts its sender out, and say why.

It does if it says only that. A single word counts alone (“CANCEL”, reminders.opt_out_words.WORDS). A wish that leaves
no doubt (“stop”, “remove me”, WISHES) may also stand in a sentence of words that change nothing, between a greeting,
courtesy, a remark (“not interested”), a closing and a signature. Every piece of the message must be one of these: “No
thanks, stop. Cheers, Bob” opts out; “I can't stop smiling” does not. Only a sentence that names the writer's messages
(“Please take me off your list.”) is heard beside any other; so is such a beginning or end of a sentence, unless a word
beside it changes it (“stop the emails, text me instead”). The site's own list (OptOutPhrase) comes first and may also
take a word out (“CANCEL” for an appointment).
"""

from __future__ import annotations

import enum
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from django.conf import settings

from reminders.courtesy_words import (
    ASKED_BEFORE,
    CLOSINGS,
    COURTESY,
    DEATHS,
    GREETINGS,
    NOTICES,
    PLEASE,
    REMARKS,
)
from reminders.opt_out_words import (
    ACCENTED,
    AROUND,
    CHANGES,
    FEWER,
    MESSAGES,
    MINE,
    PLAIN_BEFORE,
    SHARED,
    STOPS,
    THEIRS,
    WISHES,
    WORDS,
)

#: People who say more than this in one sentence, or in a message, say something else too.
LONGEST, LONGEST_MESSAGE = 100, 300
#: characters of a message that are looked at, with the closing and the signature below the wish
LOOKED_AT = 1_000
#: lines of a message above its signature, lines of a signature, and characters of one of them
MOST_LINES, MOST_SIGNATURE, LONGEST_SIGNATURE = 8, 10, 60
#: words of a name behind a greeting or a closing
MOST_NAMES = 3
#: Languages that put no blanks between words, or put endings to them: compared sign by sign.
JOINED = frozenset({"zh", "ja", "ko", "th"})

# A greeting on a line of its own, or before a comma.
GREETING = re.compile(
    r"(?i)\s*+(?:hi|hello|hey|dear|good (?:morning|day|evening)|hallo|guten tag|liebes?|sehr geehrte[rs]?|bonjour|hola"
    r"|olá|ciao|gentile|beste|hej|cześć|здравствуйте|merhaba|halo)\b[^\n,!.]{0,40}[\n,!]"
)
# A full stop ends a sentence only before a blank: “a.u.b.” is one word.
SENTENCES = re.compile(r"(?:[.!?…](?=[\s.!?…]|\Z)|[?。！？؟।])+")
CLAUSES = re.compile(r"[,;:،؛，、；：\n()|]+|\s[-–—]+\s|[–—]+")
# Mail programs break long lines; what goes on is written small.
WRAPPED = re.compile(r"(?<=[^\n.!?,;:]{30})\n(?=[^\W\d_])(?=[a-zà-öø-ÿа-я])")
# “unsubscribe - John Smith”
SIGNED_BEHIND = re.compile(r"\s[-–—]{1,2}\s?((?:[^\W\d_a-z][\w'’.-]{0,30}\s?){2,3})\Z")
QUESTION = re.compile(r"[?？؟]")
GROUP = re.compile(r"\(([^()]*)\)")
#: words of names, titles and companies that are not capitalised
SMALL = frozenset(
    {"of", "and", "the", "for", "de", "la", "von", "van", "der", "di", "du", "und", "y", "e", "et", "tel"}
)
# “I am not Maria”: with a capital, unlike “I am not coming”.
NOT_ME = re.compile(
    r"(?i:i am not|i['’]?m not|this is not|this isn['’]?t|ich bin nicht|je ne suis pas|no soy|não sou|non sono"
    r"|ik ben niet|saya bukan)((?: [^\W\d_a-z][^\W\d_]*+){1,2})"
)
#: a word, and the one behind it
WORD = re.compile(r"\w++(?=\s?+(\w*+))")
#: put behind a word, makes it another one
ANOTHER = "x"
CONTACT = re.compile(r"@|\bwww\.|https?:|(?:\d[\s./()-]{0,3}){6}")


@dataclass(frozen=True, slots=True)
class Decision:
    opts_out: bool
    #: a sentence for people who ask
    why: str


def decide_by_words(text: str) -> Decision:
    """Return the decision about a message; the site's own list comes before it."""
    said = essence(text)
    if settings.OPT_OUT_WORDS:
        if said and said in {essence(word) for word in settings.OPT_OUT_WORDS}:
            return Decision(True, f"“{said}” is in OPT_OUT_WORDS.")
        return Decision(False, "It is not one of OPT_OUT_WORDS and of this site's list.")
    text = _told_apart(text[:LOOKED_AT])
    alone = _folded(_closed_up(essence(text)))
    if alone in shared() and set(_folded(bare(text)).split()) != {alone}:
        return Decision(False, f"“{said}” opts out only alone: it is a word of several languages.")
    if alone in words_alone() and QUESTION.search(text):
        return Decision(False, f"“{said}” as a question may be about something else, such as an appointment.")
    if language := words_alone().get(alone) or stops().get(alone) or _composed_in(alone):
        return Decision(True, f"It says only “{said}” ({language}).")
    if wish := _wish_in(text):
        return Decision(True, f"It says only “{wish}”.")
    if not text.strip():
        return Decision(False, "It says nothing.")
    return Decision(False, "It says something else than an opt-out, or more.")


def _told_apart(text: str) -> str:
    """Return the text with a sign behind words that only accents tell from those of the tables: “đúng” is not “dừng”.
    Without any accents such a word counts before certain others."""

    def marked(found: re.Match[str]) -> str:
        word = _folded(found[0].casefold())
        plain = _folded(bare(word))
        if plain not in accented() or word in accented()[plain]:
            return found[0]
        return found[0] if word == plain and bare(found[1] or "") in plain_before() else f"{found[0]}{ANOTHER}"

    return WORD.sub(marked, unicodedata.normalize("NFC", text))


def _closed_up(words: str) -> str:
    """Return letters that stand apart, “s t o p”, as a word."""
    letters = words.split()
    apart = len(letters) > 2 and all(len(letter) == 1 and letter.islower() for letter in letters)
    return "".join(letters) if apart else words


def essence(text: str) -> str:
    """Return what the message says in bare words, without greeting, courtesy, closing and repetition; nothing where it
    is too long for an opt-out."""
    said = _without_closing(text[:LOOKED_AT])
    said = said[greeting.end() :] if (greeting := GREETING.match(said)) else said
    if len(said.strip()) > LONGEST:
        return ""
    words = bare(said)
    shorter = _without_courtesy(words).split()
    if len(set(shorter)) == 1:
        return shorter[0]
    return " ".join(shorter) or words


def bare(text: str) -> str:
    """Return the text in lower case, without accents, punctuation and symbols; one space between words."""
    # Only what may be an opt-out is compared, and NFKD sorts accents in quadratic time: no more than this is looked at.
    return " ".join(_plain(text[: 2 * LONGEST]).split())


def _plain(text: str, kept: str = "") -> str:
    letters = "".join(sign for sign in text.casefold() if not unicodedata.combining(sign))
    apart = unicodedata.normalize("NFKD", letters)
    return "".join(
        sign if sign in kept or _is_letter(sign) else " " for sign in apart if not unicodedata.combining(sign)
    )


def _is_letter(sign: str) -> bool:
    """Return whether the sign belongs to a word: letters, digits, and the vowel signs of Indian and Thai scripts."""
    return sign.isalnum() or (unicodedata.category(sign) in ("Mn", "Mc") and not "\ufe00" <= sign <= "\ufe0f")


def _folded(words: str) -> str:
    """Return bare words with the Turkish ı as i: in capitals both are I."""
    return words.replace("ı", "i")


def _without_closing(text: str) -> str:
    """Return the lines above “Best regards” and above a company's notice."""
    lines = text.strip().splitlines()
    for number, line in enumerate(lines[1:], start=1):
        words = bare(line)
        if words in closings() or words.startswith(notices()):
            return "\n".join(lines[:number])
    return "\n".join(lines)


def _without_courtesy(words: str) -> str:
    """Return the words without phrases of courtesy before and behind them."""
    before, behind, joined = courtesies()
    changed = True
    while words and changed:
        changed = False
        # Scripts without lower case put no blanks between words.
        apart = words[0].islower() and words[-1].islower()
        for phrase in (*before.get(words.partition(" ")[0], ()), *(() if apart else joined)):
            if words == phrase:
                return ""
            if words.startswith(f"{phrase} " if phrase[0].islower() else phrase):
                words, changed = words[len(phrase) :].strip(), True
        for phrase in (*behind.get(words.rpartition(" ")[2], ()), *(() if apart else joined)):
            if words.endswith(f" {phrase}" if phrase[0].islower() else phrase):
                words, changed = words[: -len(phrase)].strip(), True
    return " ".join(word for word in words.split() if word not in pleases())


# -- a wish in sentences ----------------------------------------------------------------------------------


class _Kind(enum.Enum):
    """What a piece of a message says."""

    WISH = "a wish"
    ASKED = "a wish of one word, as a question"
    POLITE = "a greeting, courtesy or closing"
    REMARK = "a remark"
    DEATH = "news of a death"
    THEIRS = "a wish for another person"
    OTHER = "something else"


class _Piece(NamedTuple):
    words: str
    kind: _Kind
    #: a sentence; otherwise a clause of one
    whole: bool
    #: the first or the last clause of its sentence
    outer: bool = True


def _wish_in(text: str) -> str:
    """Return the words of the wish, if the message says nothing else; empty otherwise. Below a wish may stand lines
    that look like a signature."""
    lines = SIGNED_BEHIND.sub(r"\n\1", _without_closing(text).strip()).splitlines()
    for size in range(len(lines), 0, -1):
        if size < len(lines) and not _may_sign(lines[size]):
            return ""
        if size <= MOST_LINES and (wish := _said_only("\n".join(lines[:size]))):
            return wish
        if len(lines) - size >= MOST_SIGNATURE:
            return ""
    return ""


def _may_sign(line: str) -> bool:
    """Return whether a signature may have this line: a name, a title, a company, or how to reach them."""
    line = line.strip()
    if len(line) > LONGEST_SIGNATURE or QUESTION.search(line):
        return False
    if not line or CONTACT.search(line):
        return True
    names = [word for word in re.split(r"[\s.,/&|-]+", line) if word[:1].isalpha()]
    if not names or len(names) > 8:
        return False
    # Scripts without capitals: a name has few signs.
    return all(word[0].isupper() or word in SMALL for word in names) or (
        not any(word[0].islower() for word in names) and len(line) <= 12
    )


def _said_only(text: str) -> str:
    """Return the words of the wish, if every piece of the text is a wish or changes nothing; or of a sentence that
    leaves no doubt, even if the others say something else."""
    if len(text.strip()) > LONGEST_MESSAGE:
        return ""
    found = list(_pieces(WRAPPED.sub(" ", text)))
    if len(found) > 1 and found[-1].kind is _Kind.OTHER and _is_name(found[-1].words, found[-2].kind):
        found.pop()
    kinds = {piece.kind for piece in found}
    wishes = {_Kind.WISH, _Kind.ASKED} | ({_Kind.THEIRS} if _Kind.DEATH in kinds else set())
    if _Kind.OTHER in kinds or (_Kind.THEIRS in kinds and _Kind.THEIRS not in wishes):
        return next((piece.words for piece in found if _is_explicit(piece, found)), "")
    if _Kind.ASKED in kinds and _Kind.REMARK in kinds:
        return ""
    return "; ".join(piece.words for piece in found if piece.kind in wishes)


def _is_name(words: str, behind: _Kind) -> bool:
    """Return whether the last words may be a name: behind a closing, “Thanks, Bob”; behind the wish itself only in a
    script without capitals, where a name has few signs."""
    if behind is _Kind.WISH:
        return len(words) <= 4 and not any(sign.islower() or sign.isdigit() for sign in words)
    return behind is _Kind.POLITE and len(words.split()) <= MOST_NAMES and not any(map(str.isdigit, words))


def _is_explicit(piece: _Piece, found: Sequence[_Piece]) -> bool:
    """Return whether a sentence, or its first or last clause, asks to end the writer's own messages. The link below a
    newsletter, “Unsubscribe from this list”, does not speak of a person."""
    if piece.kind is not _Kind.WISH or not piece.outer:
        return False
    if not piece.whole and any(_names(one.words, changes()) for one in found if one.kind is _Kind.OTHER):
        return False
    if _names(piece.words, fewer()):
        return False
    return _names(piece.words, about()) and (_names(piece.words, mine()) or _names(piece.words, pleases()))


def _names(words: str, some: Collection[str]) -> bool:
    return any(f" {one} " in f" {words} " if one[0].islower() else one in words for one in some)


def _pieces(text: str) -> Iterator[_Piece]:
    """Yield sentences, and the clauses of those that are not understood as one, with what they say."""
    first, start = True, 0
    for end in (*SENTENCES.finditer(text), None):
        sentence = text[start : end.start() if end else len(text)]
        asked = end is not None and QUESTION.search(end[0]) is not None
        start = end.end() if end else len(text)
        clauses = [clause for clause in CLAUSES.split(sentence) if bare(clause)]
        if len(clauses) > 1 and _judge(sentence, asked, first) in (_Kind.WISH, _Kind.REMARK, _Kind.THEIRS):
            clauses = [sentence]
        for number, clause in enumerate(clauses):
            outer = number in (0, len(clauses) - 1) and not asked
            yield _Piece(bare(clause), _judge(clause, asked, first), len(clauses) == 1, outer or len(clauses) == 1)
            first = False


def _judge(text: str, asked: bool, first: bool) -> _Kind:
    """Return what a sentence or a clause says. A greeting counts only in the first."""
    if len(text) > 2 * LONGEST:
        return _Kind.OTHER
    words, opened = bare(text), greetings() if first else frozenset()
    core = _without_courtesy(words)
    if not core or words in closings() or words in opened:
        return _Kind.POLITE
    if _folded(core) in stops() or _composed_in(_folded(words)):
        return _Kind.ASKED if asked and len(core.split()) == 1 else _Kind.WISH
    if _folded(words) in remarks() or _folded(core) in remarks():
        return _Kind.REMARK
    for kind, phrases in ((_Kind.DEATH, deaths()), (_Kind.THEIRS, theirs())):
        if _folded(core) in phrases:
            return kind
    if (name := NOT_ME.fullmatch(text.strip())) and not name[1].isupper():
        return _Kind.REMARK
    if any(_composed_in(_folded(rest)) for rest in _behind_greeting(words, opened)):
        return _Kind.WISH
    if _has_few_names(words, opened):
        return _Kind.POLITE
    return _Kind.WISH if _signed(words) else _Kind.OTHER


def _signed(words: str) -> bool:
    """Return whether a wish, thanks and a name make up the words: “stop thanks bob”."""
    parts = words.split()
    return len(parts) <= 12 and any(
        " ".join(parts[at : at + size]) in closings() and _composed_in(_folded(" ".join(parts[:at])))
        for at in range(1, len(parts) - 1)
        for size in (1, 2)
        if len(parts) - at - size <= 2
    )


def _has_few_names(words: str, opened: Collection[str]) -> bool:
    """Return whether at most a name stands behind a closing or a greeting."""
    parts = words.split()
    for size in range(len(parts) - 1, 0, -1):
        if (phrase := " ".join(parts[:size])) in closings() or phrase in opened:
            return len(parts) - size <= MOST_NAMES and not any(word in wish_words() for word in parts[size:])
    return False


def _behind_greeting(words: str, opened: Collection[str]) -> Iterator[str]:
    """Yield what stands behind a greeting and perhaps a name: “hi bob please stop”."""
    parts = words.split()
    for size in range(1, min(len(parts), 4)):
        if " ".join(parts[:size]) in opened:
            yield from (" ".join(parts[size + names :]) for names in range(MOST_NAMES) if parts[size + names :])


def _composed_in(words: str) -> str:
    """Return the language in which the words are a wish, and words around it that change nothing."""
    # Scripts without lower case are those without blanks, among others.
    signs = words.replace(" ", "") if any(not (sign.islower() or sign == " ") for sign in words) else ""
    units: dict[bool, Sequence[str]] = {False: words.split(), True: signs}
    return next((key for key, phrases in grammar().items() if _covers(units[key in JOINED], phrases)), "")


@dataclass(frozen=True, slots=True)
class Phrases:
    """The phrases of one language, joined by blanks or not, and the most units that one has."""

    wishes: frozenset[str]
    others: frozenset[str]
    #: with what a wish begins
    heads: frozenset[str]
    joint: str
    longest: int


def _covers(units: Sequence[str], phrases: Phrases) -> bool:
    """Return whether the units can be read as phrases one after the other, at least one of them a wish."""
    if phrases.heads.isdisjoint(units):
        return False
    #: by place: whether the units before it can be read without a wish, and with one
    plain, wished = [True], [False]
    reached = 0
    for end in range(1, len(units) + 1):
        if end - reached > phrases.longest:
            return False
        plain.append(False)
        wished.append(False)
        for start in range(max(0, end - phrases.longest), end):
            if not (plain[start] or wished[start]):
                continue
            phrase = phrases.joint.join(units[start:end])
            if phrase in phrases.others:
                plain[end], wished[end] = plain[end] or plain[start], wished[end] or wished[start]
            if phrase in phrases.wishes:
                wished[end] = True
        reached = end if plain[end] or wished[end] else reached
    return wished[-1]


# -- tables -----------------------------------------------------------------------------------------------


def expanded(phrases: str) -> Iterator[str]:
    """Yield the bare phrases of a table's entry: “(a/b) c” stands for “a c” and “b c”."""
    for phrase in _plain(phrases, kept="()/|").split("|"):
        waiting = [phrase]
        while waiting:
            one = waiting.pop()
            if group := GROUP.search(one):
                waiting += (one[: group.start()] + choice + one[group.end() :] for choice in group[1].split("/"))
            elif words := " ".join(one.split()):
                yield words


ByWord = dict[str, list[str]]


@cache
def courtesies() -> tuple[ByWord, ByWord, tuple[str, ...]]:
    """Return phrases of courtesy by their first word and by their last, long ones first, and those of scripts that put
    no blank between words."""
    phrases = sorted(expanded(COURTESY), key=len, reverse=True)
    joined = tuple(phrase for phrase in phrases if not phrase[0].islower())
    before: ByWord = {}
    behind: ByWord = {}
    for phrase in phrases:
        if phrase not in joined:
            before.setdefault(phrase.partition(" ")[0], []).append(phrase)
            behind.setdefault(phrase.rpartition(" ")[2], []).append(phrase)
    return before, behind, joined


@cache
def pleases() -> frozenset[str]:
    return frozenset(bare(PLEASE).split())


@cache
def notices() -> tuple[str, ...]:
    return tuple(expanded(NOTICES))


@cache
def closings() -> frozenset[str]:
    return frozenset(expanded(CLOSINGS))


@cache
def greetings() -> frozenset[str]:
    return frozenset(expanded(GREETINGS))


@cache
def remarks() -> frozenset[str]:
    return frozenset(map(_folded, (*expanded(REMARKS), *expanded(ASKED_BEFORE))))


@cache
def deaths() -> frozenset[str]:
    return frozenset(map(_folded, expanded(DEATHS)))


@cache
def theirs() -> frozenset[str]:
    return frozenset(map(_folded, expanded(THEIRS)))


@cache
def fewer() -> frozenset[str]:
    return frozenset(expanded(FEWER))


@cache
def changes() -> frozenset[str]:
    return frozenset(expanded(CHANGES))


@cache
def shared() -> frozenset[str]:
    return frozenset(expanded(SHARED))


@cache
def plain_before() -> frozenset[str]:
    return frozenset(expanded(PLAIN_BEFORE))


@cache
def accented() -> dict[str, set[str]]:
    """Return by its bare form each word that needs its accents, in the spellings that count."""
    found: dict[str, set[str]] = {}
    for word in ACCENTED.split(" | "):
        found.setdefault(_folded(bare(word)), set()).add(_folded(word))
    return found


@cache
def about() -> frozenset[str]:
    return frozenset(expanded(MESSAGES))


@cache
def mine() -> frozenset[str]:
    return frozenset(expanded(MINE))


@cache
def words_alone() -> dict[str, str]:
    """Return the words that count only alone, with their language."""
    return _vocabulary(WORDS)


@cache
def stops() -> dict[str, str]:
    return _vocabulary(STOPS)


def _vocabulary(table: Mapping[str, str]) -> dict[str, str]:
    known: dict[str, str] = {}
    for language, phrases in table.items():
        for phrase in expanded(phrases):
            known.setdefault(_folded(_without_courtesy(phrase) or phrase), language)
    return known


@cache
def wish_words() -> frozenset[str]:
    """Return every word of a wish that stands for itself."""
    inside = (phrase for phrases in grammar().values() for phrase in phrases.wishes)
    return frozenset(phrase for phrase in (*words_alone(), *stops(), *inside) if " " not in phrase)


@cache
def grammar() -> dict[str, Phrases]:
    courtesy = {_folded(phrase) for phrase in (*expanded(COURTESY), *pleases())}
    found = {}
    for language, phrases in WISHES.items():
        joint = "" if language in JOINED else " "
        wished = {joint.join(_folded(phrase).split()) for phrase in expanded(phrases)}
        others = {joint.join(phrase.split()) for phrase in courtesy}
        others |= {joint.join(_folded(phrase).split()) for phrase in expanded(AROUND.get(language, ""))}
        heads = {phrase[0] if language in JOINED else phrase.partition(" ")[0] for phrase in wished}
        longest = max(len(phrase if language in JOINED else phrase.split()) for phrase in wished | others)
        found[language] = Phrases(frozenset(wished), frozenset(others), frozenset(heads), joint, longest)
    return found
