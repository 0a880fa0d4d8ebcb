"""The texts of the reminder's form as it stands, and the people they would go to: checked and shown before saving."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.http import HttpRequest

from accounts import access
from accounts.models import Account
from accounts.numbers import as_ids
from reminders import imports, wording
from reminders.models import Recipient, Reminder
from reminders.targets import tagged
from reminders.wording import Audience, Text

PART = re.compile(r"(?P<prefix>(?P<set>messages|reply_parts)-(?P<number>\d+))-text")
SET_IN_WORDS = {"messages": "part", "reply_parts": "part of Message 2,"}


@dataclass(slots=True)
class Words:
    parts: list[dict[str, Any]]
    texts: list[Text]
    audience: Audience
    everybody: Audience

    @classmethod
    def posted(cls, request: HttpRequest) -> Words:
        form = request.POST
        subject, parts = form.get("subject", ""), list(_parts(form))
        texts = [("the subject", subject)]
        for part in parts:
            texts += [(part["where"], part["text"]), (f"the HTML of {part['where']}", part["html"])]
        message_1 = [{"subject": subject, "text": part["text"]} for part in parts if part["set"] == "messages"]
        everybody = Audience(access.visible(request.user, Recipient.objects.all()))
        return cls(message_1, texts, _audience(request), everybody)

    def problem(self) -> str:
        return wording.problem(self.texts, self.audience, self.everybody)

    def preview(self) -> dict[str, Any]:
        """For the form: what is wrong with the placeholders, or how the parts read for some recipients."""
        if problem := self.problem():
            return {"wording": problem, "examples": []}
        return {"wording": "", "examples": wording.examples(self.parts, self.audience.some())}


def _parts(form: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """In the order in which they will be sent."""
    matches = [match for name in form if (match := PART.fullmatch(name))]
    for match in sorted(matches, key=lambda match: (match["set"], _order(form, match["prefix"]), int(match["number"]))):
        prefix = match["prefix"]
        if not form.get(f"{prefix}-DELETE"):
            where = f"{SET_IN_WORDS[match['set']]} {int(match['number']) + 1}"
            text, markup = form.get(f"{prefix}-text", ""), form.get(f"{prefix}-html", "")
            yield {"set": match["set"], "where": where, "text": text, "html": markup}


def _order(form: Mapping[str, str], prefix: str) -> int:
    order = as_ids([form.get(f"{prefix}-order", "")])
    return order[0] if order else 10_000


def _audience(request: HttpRequest) -> Audience:
    """Whom the reminder has, unless they are about to be removed, with whom the form adds."""
    form, user = request.POST, request.user
    reminders = access.visible(user, Reminder.objects.filter(pk__in=as_ids([form.get("reminder", "")])))
    chosen = Q(pk__in=[])
    if not form.get("clear"):
        chosen |= Q(reminders__in=reminders.values("pk"))
    if tag := form.get("tag", "").strip():
        accounts = access.visible(user, Account.objects.all()).in_bulk(
            as_ids([form.get("account", ""), *form.getlist("further")])
        )
        chosen |= Q(pk__in=tagged(user, tag, list(accounts.values())).values("pk"))
    pasted = _pasted(user, form.get("paste", ""))
    ids = Recipient.objects.filter(chosen).exclude(address__in=[person.address for person in pasted])
    return Audience(Recipient.objects.filter(pk__in=ids.values("pk")), pasted)


def _pasted(user: Any, text: str) -> list[Recipient]:
    """As they will be once the form is saved: who is there keeps their name, and gets the fields of the list."""
    entries = imports.read(text).entries
    stored = access.visible(user, Recipient.objects.filter(address__in=[entry.address for entry in entries]))
    there = {recipient.address: recipient for recipient in stored}
    return [_with(there.get(entry.address), entry, user) for entry in entries]


def _with(recipient: Recipient | None, entry: imports.Entry, user: Any) -> Recipient:
    if recipient is None:
        return Recipient(kind=entry.kind, address=entry.address, name=entry.name, fields=entry.fields)
    if recipient.owner_id == user.pk:
        recipient.fields = recipient.fields | entry.fields
    return recipient
