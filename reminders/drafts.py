"""What a reminder lacks before it may be on. One that lacks something is a draft: it is off, and fires only by hand."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.text import get_text_list

#: what a reminder needs before it can fire by itself
NO_MESSAGE, NOBODY, NO_TIME = "no message", "nobody to send it to", "no time"


def missing(parts: int, people: int, timed: bool) -> list[str]:
    """What a reminder lacks before it can fire by itself."""
    has = {NO_MESSAGE: parts, NOBODY: people, NO_TIME: timed}
    return [what for what, there in has.items() if not there]


def missing_in_words(missing: Sequence[str]) -> str:
    """ "It has no message and no time yet."; empty where nothing is missing."""
    return f"It has {get_text_list(list(missing), 'and')} yet." if missing else ""
