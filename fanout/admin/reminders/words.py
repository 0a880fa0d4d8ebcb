"""The texts of the reminder's form as it stands: checked and shown before saving, as some recipients will read them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from accounts import access
from accounts.inputs import as_ids
from reminders import wording
from reminders.models import Recipient, length_problems
from reminders.wording import Audience, Text

PART = re.compile(r"(?P<prefix>(?P<set>messages|reply_parts)-(?P<number>\d{1,4}))-text")
SET_IN_WORDS = {"messages": "part", "reply_parts": "part of Message 2,"}


@dataclass(slots=True)
class Words:
    parts: list[dict[str, Any]]
    texts: list[Text]
    audience: Callable[[], Audience]
    everybody: Audience
    #: which text is too long, in a sentence; empty where none is
    too_long: str

    @classmethod
    def posted(cls, request: HttpRequest, audience: Callable[[], Audience]) -> Words:
        form = request.POST
        subject, parts = form.get("subject", ""), list(_parts(form))
        texts = [("the subject", subject)]
        for part in parts:
            texts += [(part["where"], part["text"]), (f"the HTML of {part['where']}", part["html"])]
        message_1 = [{"subject": subject, "text": part["text"]} for part in parts if part["set"] == "messages"]
        everybody = Audience(access.visible(request.user, Recipient.objects.all()))
        too_long = [
            f"In {part['where']}: {problem}"
            for part in parts
            for problem in length_problems(part["text"], part["html"]).values()
        ]
        return cls(message_1, texts, audience, everybody, next(iter(too_long), ""))

    def problem(self) -> str:
        return wording.problem(self.texts, self.audience, self.everybody)

    def preview(self) -> dict[str, Any]:
        """Return for the form what is wrong with the placeholders, or how the parts will be sent.

        Where they go out exactly as they were written, there is nothing to show.
        """
        if problem := self.too_long or self.problem():
            return {"wording": problem, "examples": []}
        shown = wording.preview(self.parts, self.audience().some())
        written = [{name: text for name, text in part.items() if text} for part in self.parts]
        return {"wording": "", "examples": [example for example in shown if example["parts"] != written]}


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
