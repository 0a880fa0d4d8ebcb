"""Decide whether a message opts its sender out, and say why.

It does if it says only that: a word or a short sentence of reminders.opt_out_words in any language, with nothing around
it but courtesy, and a closing and a name below it. “STOP, thank you” opts out; “I can't stop smiling” does not. The
site's own list (OptOutPhrase) comes first and may also take a word out (“CANCEL” for an appointment).
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache

from django.conf import settings

from reminders.opt_out_words import CLOSINGS, COURTESY, NOTICES, OPENINGS, PLEASE, REQUESTS, SENTENCES, WORDS

#: People who say more than this say something else too.
LONGEST = 100
#: characters of a message that are looked at, with the closing and the signature below the wish
LOOKED_AT = 1_000
# A greeting on a line of its own, or before a comma.
GREETING = re.compile(
    r"(?i)\s*+(?:hi|hello|hey|dear|good (?:morning|day|evening)|hallo|guten tag|liebes?|sehr geehrte[rs]?|bonjour|hola"
    r"|olá|ciao|gentile|beste|hej|cześć|здравствуйте|merhaba|halo)\b[^\n,!.]{0,40}[\n,!]"
)


@dataclass(frozen=True, slots=True)
class Decision:
    opts_out: bool
    #: a sentence for people who ask
    why: str


def decide_by_words(said: str) -> Decision:
    """Return the decision about the essence of a message; the site's own list comes before it."""
    if not said:
        return Decision(False, f"It says nothing, or more than {LONGEST} characters: people who opt out say only that.")
    if settings.OPT_OUT_WORDS:
        if said in {essence(word) for word in settings.OPT_OUT_WORDS}:
            return Decision(True, f"“{said}” is in OPT_OUT_WORDS.")
        return Decision(False, "It is not one of OPT_OUT_WORDS and of this site's list.")
    language = vocabulary().get(said)
    if language is None:
        return Decision(False, "It says something else than an opt-out, or more.")
    return Decision(True, f"It says only “{said}” ({language}).")


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
    letters = "".join(sign for sign in text[: 2 * LONGEST].casefold() if not unicodedata.combining(sign))
    apart = unicodedata.normalize("NFKD", letters)
    words = "".join(sign if _is_letter(sign) else " " for sign in apart if not unicodedata.combining(sign))
    return " ".join(words.split())


def _is_letter(sign: str) -> bool:
    """Return whether the sign belongs to a word: letters, digits, and the vowel signs of Indian and Thai scripts."""
    return sign.isalnum() or (unicodedata.category(sign) in ("Mn", "Mc") and not "\ufe00" <= sign <= "\ufe0f")


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
        for phrase in (*before.get(words.partition(" ")[0], ()), *joined):
            if words == phrase:
                return ""
            if words.startswith(phrase if phrase in joined else f"{phrase} "):
                words, changed = words[len(phrase) :].strip(), True
        for phrase in (*behind.get(words.rpartition(" ")[2], ()), *joined):
            if words.endswith(phrase if phrase in joined else f" {phrase}"):
                words, changed = words[: -len(phrase)].strip(), True
    return " ".join(word for word in words.split() if word not in pleases())


Phrases = dict[str, list[str]]


@cache
def courtesies() -> tuple[Phrases, Phrases, tuple[str, ...]]:
    """Return phrases of courtesy by their first word and by their last, long ones first, and those of scripts that put
    no blank between words."""
    phrases = sorted(map(bare, COURTESY.split("|")), key=len, reverse=True)
    joined = tuple(phrase for phrase in phrases if not phrase[0].islower())
    before: Phrases = {}
    behind: Phrases = {}
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
    return tuple(map(bare, NOTICES.split("|")))


@cache
def closings() -> frozenset[str]:
    return frozenset(map(bare, CLOSINGS.split("|")))


@cache
def vocabulary() -> dict[str, str]:
    """Return every opt-out in bare words, with its language."""
    known: dict[str, str] = {}
    for table in (WORDS, SENTENCES):
        for language, phrases in table.items():
            for phrase in phrases.split("|"):
                known.setdefault(_without_courtesy(bare(phrase)) or bare(phrase), language)
    for opening in OPENINGS.split("|"):
        for request, objects in REQUESTS.items():
            for about in objects.split("|"):
                sentence = bare(f"{opening} {request} {about}")
                known.setdefault(_without_courtesy(sentence), "en")
    known.pop("", None)
    return known
