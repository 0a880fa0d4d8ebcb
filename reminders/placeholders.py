"""Placeholders in what a reminder says: {name}, {first_name|there}, {flat}. Pure.

A text with nothing like a placeholder in it goes out as it is, braces included. One with such a thing is a template:
there {{ and }} write braces, and a single brace is a mistake.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

from accounts.addresses import GROUP_KINDS, sql_list
from accounts.channels.base import Part

ALWAYS = ("name", "first_name")
#: The recipient's own unsubscribe link, made when the message is sent; no list and no default can give another.
UNSUBSCRIBE = "unsubscribe_link"
#: where a part may have placeholders; a caption is the text of its file
TEXTS = ("text", "html", "subject")

# Also matches near misses such as {first name} and {First-Name}: no recipient has such a field, so they are reported
# instead of going out. At most three words, one with a letter: {1}, CSS and JSON do not match. Quantifiers are
# possessive (*+, ++), so that text is read once: with plain ones 20 KB of blanks behind a brace took 11 seconds.
# No group is possessive: before Python 3.11.5 such a group keeps what its last, failed turn had read.
NAME = r"(?=[\d -]*+[^\W\d])\w[\w-]*+(?:[ ][\w-]++){0,2}"
LIKE_A_PLACEHOLDER = re.compile(rf"\{{\s*+(?:(?:name|first_name)\b|{NAME}\s*+[|}}])")
TOKEN = re.compile(rf"\{{\{{|\}}\}}|\{{\s*+(?P<name>{NAME})\s*+(?:\|(?P<default>[^{{}}\n]*+))?\}}|[{{}}]")
#: {{name}}, as other tools write a placeholder; here doubled braces write braces, so it would go out as {name}
DOUBLED = re.compile(rf"\{{(?P<placeholder>\{{\s*+(?P<name>{NAME})\s*+(?:\|[^{{}}\n]*+)?\}})\}}")
FIRST_WORD = re.compile(r"\S+")
AROUND = 12  # characters shown on either side of a mistake


class Person(Protocol):
    """A recipient, as far as placeholders go."""

    kind: str
    name: str
    fields: Any


class Malformed(ValueError):
    """A single brace in a template; the sentence says where."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    name: str
    default: str | None = None


Piece = str | Placeholder


# --- one text -----------------------------------------------------------------------------------------------


def is_template(text: str) -> bool:
    return LIKE_A_PLACEHOLDER.search(text) is not None


@lru_cache(maxsize=64)
def parse(text: str) -> tuple[Piece, ...]:
    """Return the text in pieces. Raises Malformed."""
    return tuple(_pieces(text)) if is_template(text) else (text,)


def _pieces(text: str) -> Iterator[Piece]:
    end = 0
    for token in TOKEN.finditer(text):
        yield text[end : token.start()]
        if token["name"]:
            default = token["default"]
            yield Placeholder(token["name"].lower(), None if default is None else default.strip())
        elif len(token[0]) == 2:
            yield token[0][0]
        else:
            raise Malformed(_where(text, token.start()))
        end = token.end()
    yield text[end:]


def _where(text: str, at: int) -> str:
    line, brace = text.count("\n", 0, at) + 1, text[at]
    around = " ".join(text[max(0, at - AROUND) : at + AROUND].split())
    return (
        f"Line {line} has a single “{brace}” at “{around}”. Write {brace * 2} for a brace, "
        "and a placeholder like {name} or {first_name|there}."
    )


def render(text: str, values: Mapping[str, str], written: Callable[[str], str] = str) -> str:
    """Return the text with values filled in, each formatted by `written`; empty where there is no value or default."""
    return "".join(piece if isinstance(piece, str) else _filled(piece, values, written) for piece in parse(text))


def _filled(piece: Placeholder, values: Mapping[str, str], written: Callable[[str], str]) -> str:
    return written(values[piece.name]) if piece.name in values else piece.default or ""


def placeholders(text: str) -> list[Placeholder]:
    return [piece for piece in parse(text) if isinstance(piece, Placeholder)]


# --- the parts of a run ---------------------------------------------------------------------------------------


def frozen(part: dict[str, Any]) -> dict[str, Any]:
    """Return the part as a run keeps it: a template if it differs between recipients, otherwise the finished text."""
    try:
        if any(placeholders(text) for text in texts_of(part)):
            return part | {"personal": True}
        plain = part | {text: render(part[text], {}) for text in TEXTS if part.get(text)}
        return plain | ({"template": with_values(part["template"], {})} if part.get("template") else {})
    except Malformed:
        return part  # it was stored unchecked: it goes out as it is


def texts_of(part: Mapping[str, Any]) -> list[str]:
    """Return the texts of a part that may have placeholders: its own, and the values of its message template."""
    return [*(part.get(text) or "" for text in TEXTS), *values_in(part.get("template")).values()]


def values_in(template: Mapping[str, Any] | None) -> dict[str, str]:
    return (template or {}).get("values") or {}


def with_values(template: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """Return the message template of a part with a person's values in those of its variables."""
    return {**template, "values": {key: render(text, values) for key, text in values_in(template).items()}}


def in_parts(parts: Iterable[Mapping[str, Any]]) -> list[Placeholder]:
    return [one for part in parts if part.get("personal") for text in texts_of(part) for one in placeholders(text)]


def names_in(parts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of all placeholders in the parts whose values come from the recipient."""
    return sorted({one.name for one in in_parts(parts)} - {UNSUBSCRIBE})


def required_in(parts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of placeholders without a default."""
    return sorted({one.name for one in in_parts(parts) if one.default is None} - {UNSUBSCRIBE})


def lacking(names: Iterable[str]) -> str:
    """Return the reason for skipping a recipient, as freezing a run words it too."""
    return f"no value for {', '.join(f'{{{name}}}' for name in sorted(names))}, which has no default"


def rendered(part: Part, values: Mapping[str, str], target_id: int, link: str | None = None) -> Part:
    """Return the part for one recipient, with a key of its own, because its bytes are not shared. `link` unsubscribes
    this recipient."""
    values = {**values, UNSUBSCRIBE: link or ""}
    return replace(
        part,
        key=f"{part.key}:{target_id}",
        text=render(part.text, values),
        subject=render(part.subject, values),
        html=render(part.html, values, html.escape),
        template=with_values(part.template, values) if part.template else None,
    )


END_OF_BODY = re.compile(r"(?i)</body\s*>")


def with_link(part: Part, link: str, words: str, target_id: int) -> Part:
    """Return the part with an unsubscribe link below its text and its HTML, unless it shows that link already."""
    if link in part.text or link in part.html:
        return part
    anchor = f'<p style="font-size:small"><a href="{html.escape(link)}">{html.escape(words)}</a></p>'
    ends = [match.start() for match in END_OF_BODY.finditer(part.html)]
    end = ends[-1] if ends else len(part.html)
    return replace(
        part,
        key=part.key if part.personal else f"{part.key}:{target_id}",
        text=f"{part.text}\n\n{words}: {link}".lstrip() if part.text or not part.html else "",
        html=part.html[:end] + anchor + part.html[end:] if part.html else "",
        personal=True,
    )


# --- a person's values ----------------------------------------------------------------------------------------


def value_of(person: Person, name: str) -> str:
    """Return a person's value, or nothing. A group's name has no first name in it."""
    if name == "name":
        return person.name.strip()
    own = str(person.fields.get(name) or "").strip()
    if own or name != "first_name" or person.kind in GROUP_KINDS:
        return own
    first = FIRST_WORD.search(person.name)
    return first[0] if first else ""


def values_of(person: Person, names: Iterable[str]) -> dict[str, str]:
    return {name: value for name in names if (value := value_of(person, name))}


def values_for(person: Person, parts: Iterable[Mapping[str, Any]]) -> dict[str, str] | None:
    """Return the values that a run target keeps for these frozen parts; None if they have no placeholders."""
    names = names_in(parts)
    return values_of(person, names) if names else None


# The same in SQL for all recipients of a run: `r` is the recipient, %(names)s the placeholders.
VALUES_SQL = rf"""
(SELECT coalesce(jsonb_object_agg(n.name, v.value), '{{}}')
   FROM unnest(%(names)s::text[]) AS n(name), LATERAL (
        SELECT coalesce(
          nullif(btrim(CASE n.name WHEN 'name' THEN r.name ELSE r.fields ->> n.name END, E' \t\r\n'), ''),
          CASE WHEN n.name = 'first_name' AND r.kind NOT IN {sql_list(GROUP_KINDS)}
               THEN substring(r.name FROM '\S+') END, '')) AS v(value)
  WHERE v.value <> '')
"""  # noqa: S608
