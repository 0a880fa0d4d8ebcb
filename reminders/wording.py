"""Check a reminder's placeholders against its recipients, and preview its texts for some of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from django.conf import settings
from django.db.models import Count, Func, Q, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform

from accounts.addresses import GROUP_KINDS
from reminders.models import MessagePart, Recipient, Reminder
from reminders.placeholders import (
    ALWAYS,
    DOUBLED,
    TEXTS,
    UNSUBSCRIBE,
    Malformed,
    Person,
    Placeholder,
    frozen,
    placeholders,
    render,
    value_of,
    values_for,
    values_in,
)

EXAMPLES = 3
EVERYONE = "everyone"
NAMES_LISTED = 20
#: different placeholders of one reminder: each is counted among all of its recipients
MOST_NAMES = 50
WRITTEN = r"\S"

Text = tuple[str, str]  # where it stands, in words, and the text


@dataclass(slots=True)
class Audience:
    """The recipients of a reminder: stored ones, and new ones that will be stored with it. `seen`: those whose names
    and fields may be shown, where that is not all of them."""

    stored: QuerySet[Recipient]
    new: Sequence[Person] = ()
    seen: QuerySet[Recipient] | None = None

    @property
    def shown(self) -> QuerySet[Recipient]:
        return self.stored if self.seen is None else self.seen

    def counts(self, names: Sequence[str]) -> tuple[int, Counter[str]]:
        """Return the number of recipients, and how many of them have a value for each name."""
        if self.stored.query.is_empty():  # Django would still build the statement
            return len(self.new), Counter(name for name in names for person in self.new if value_of(person, name))
        own = {f"own_{n}": KeyTextTransform(name, "fields") for n, name in enumerate(names)}
        having = {f"having_{n}": Count("pk", filter=_has(n, name)) for n, name in enumerate(names)}
        counted = self.stored.order_by().alias(**own).aggregate(total=Count("pk"), **having)
        have = Counter({name: counted[f"having_{n}"] for n, name in enumerate(names)})
        have.update(name for name in names for person in self.new if value_of(person, name))
        return counted["total"] + len(self.new), have

    def fields(self, most_read: int | None = None) -> list[str]:
        """Return the names of fields that any of them has, or any of so many stored ones."""
        keys = Func("fields", function="jsonb_object_keys", output_field=TextField())
        rows = self.shown.order_by()
        if most_read is not None:
            rows = Recipient.objects.filter(pk__in=rows.values("pk")[:most_read]).order_by()
        stored = rows.annotate(key=keys).values_list("key", flat=True).distinct()
        return sorted({*stored[:NAMES_LISTED], *(name for person in self.new for name in person.fields)})

    def some(self) -> list[Person]:
        return [*self.new[:EXAMPLES], *self.shown.order_by("pk")[:EXAMPLES]][:EXAMPLES]


def _has(n: int, name: str) -> Q:
    if name == "name":
        return Q(name__regex=WRITTEN)
    own = Q(**{f"own_{n}__regex": WRITTEN})
    return own | (Q(name__regex=WRITTEN) & ~Q(kind__in=GROUP_KINDS)) if name == "first_name" else own


# --- what is wrong --------------------------------------------------------------------------------------------


def problem(texts: Iterable[Text], to: Callable[[], Audience], fallback: Audience) -> str:
    """Return what is wrong with the placeholders, in a sentence, or nothing.

    `to` is called only if there are placeholders, because reading a long list takes a while. Before a reminder has
    targets, any field of `fallback` may be named.
    """
    texts = list(texts)
    try:
        used = [(where, one) for where, text in texts for one in _placeholders(where, text)]
    except Malformed as mistake:
        return str(mistake)
    if no_link := next((_no_link(where) for where, one in used if one.name == UNSUBSCRIBE), ""):
        return no_link
    used = [(where, one) for where, one in used if one.name != UNSUBSCRIBE]
    doubled = [(where, match) for where, text in texts for match in DOUBLED.finditer(text)]
    if not used and not doubled:
        return ""
    names = sorted({one.name for _, one in used} | {match["name"].lower() for _, match in doubled})
    if len(names) > MOST_NAMES:
        return f"There are {len(names):,} different placeholders: use at most {MOST_NAMES}."
    audience = to()
    total, have = audience.counts(names)
    if not total:
        audience, (_, have) = fallback, fallback.counts(names)
    # Lazily, because the first sentence is enough and a sentence about an unknown name asks the database.
    about_used = (_unknown(where, one, have, audience) or _lacking(where, one, total, have) for where, one in used)
    about_doubled = (_doubled(where, match, have) for where, match in doubled)
    return next(filter(None, chain(about_used, about_doubled)), "")


def _no_link(where: str) -> str:
    if settings.PUBLIC_URL:
        return ""
    return (
        f"In {where}: {{{UNSUBSCRIBE}}} needs an address that recipients reach: ask an administrator to set PUBLIC_URL."
    )


def _placeholders(where: str, text: str) -> list[Placeholder]:
    try:
        return placeholders(text)
    except Malformed as mistake:
        raise Malformed(f"In {where}: {mistake}") from None


def _unknown(where: str, one: Placeholder, have: Counter[str], audience: Audience) -> str:
    if one.name in ALWAYS or have[one.name]:
        return ""
    names = ", ".join(f"{{{name}}}" for name in (*ALWAYS, *(set(audience.fields()) - {*ALWAYS})))
    return f"In {where}: there is no {{{one.name}}}. The recipients have {names}. To write a brace, double it."


def _doubled(where: str, match: re.Match[str], have: Counter[str]) -> str:
    """Refuse {{name}} where recipients have that value: other tools write placeholders like this."""
    if match["name"].lower() not in (*ALWAYS, UNSUBSCRIBE) and not have[match["name"].lower()]:
        return ""
    single = match["placeholder"]
    return f"In {where}: write {single} with one brace on each side. {match[0]} would go out as {single} to everyone."


def _lacking(where: str, one: Placeholder, total: int, have: Counter[str]) -> str:
    lacking = total - have[one.name]
    if one.default is not None or lacking <= 0:
        return ""
    who = f"{lacking:,} of {total:,} recipients have" if total > 1 else "the recipient has"
    return f"In {where}: {who} no value for {{{one.name}}}. Give a default, such as {{{one.name}|…}}."


def reminder_problem(reminder: Reminder, audience: Audience) -> str:
    own = Audience(Recipient.objects.filter(owner=reminder.owner_id))
    return problem(texts_of(reminder), lambda: audience, own)


def texts_of(reminder: Reminder) -> list[Text]:
    rows: list[tuple[str, MessagePart]] = [("part", part) for part in reminder.messages.all()]
    rows += [("part of Message 2,", part) for part in reminder.reply_parts.all()]
    rows += [("part of the follow-ups,", part) for part in reminder.follow_up_parts.all()]
    texts = [("the subject", reminder.subject)]
    for word, part in rows:
        texts += [(f"{word} {part.position + 1}", part.text), (f"the HTML of {word} {part.position + 1}", part.html)]
        texts += [(f"the template of {word} {part.position + 1}", text) for text in values_in(part.template).values()]
    return texts


def texts_in(parts: Sequence[Mapping[str, Any]]) -> list[Text]:
    """Return the texts of parts as a run has them; all have the same subject."""
    texts = [("the subject", part["subject"]) for part in parts[:1] if part.get("subject")]
    for number, part in enumerate(parts, 1):
        texts += [(f"part {number}", part["text"]), (f"the HTML of part {number}", part.get("html", ""))]
        texts += [(f"the template of part {number}", text) for text in values_in(part.get("template")).values()]
    return texts


# --- how it reads ---------------------------------------------------------------------------------------------


def preview(parts: Sequence[dict[str, Any]], people: Iterable[Person]) -> list[dict[str, Any]]:
    """Return the parts as they will be sent: for each of these people, or once where all get the same.

    The parts are those of the reminder, as they were written: they are frozen here, once, as a run does it.
    """
    templates = [frozen(part) for part in parts]
    if not any(part.get("personal") for part in templates):
        return [{"to": EVERYONE, "parts": [_texts(part, {}) for part in templates]}]
    link = {UNSUBSCRIBE: f"{settings.PUBLIC_URL}/unsubscribe/…"}
    return [
        {"to": str(person), "parts": [_texts(part, (values_for(person, templates) or {}) | link) for part in templates]}
        for person in people
    ]


def _texts(part: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, str]:
    written = {name: part[name] for name in TEXTS if part.get(name)}
    return {name: render(text, values) for name, text in written.items()} if part.get("personal") else written
