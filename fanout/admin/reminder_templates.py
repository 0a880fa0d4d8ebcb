"""Message templates in the reminder's form: the choice per part, and what the provider does with each part."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django import forms
from django.http import HttpRequest

from accounts.addresses import NEW_CHAT_KINDS
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.admin.reminder_draft import MOST_VALUES, Chosen, posted_parts, template_values
from reminders.part_templates import Choice, WrittenPart, key_of, stored_key, who_gets_nothing, who_is_outside
from reminders.placeholders import ALWAYS, values_of

NO_TEMPLATE = ("", "none: only people who wrote within 24 hours get it")


class TemplateKey(forms.CharField):
    """The chosen template by name and language. The page's script fills in the choices of the chosen account."""

    def __init__(self) -> None:
        super().__init__(label="Template", required=False, widget=forms.Select(choices=[NO_TEMPLATE]))


class TemplateValues(forms.CharField):
    """The values of the template's variables, as JSON. The page's script shows an input for each."""

    def __init__(self) -> None:
        super().__init__(required=False, max_length=MOST_VALUES, widget=forms.HiddenInput(attrs={"data-values": "yes"}))

    def to_python(self, value: Any) -> dict[str, str]:  # type: ignore[override]
        return template_values(super().to_python(value) or "")

    def has_changed(self, initial: Any, data: Any) -> bool:
        return template_values(initial or "") != template_values(data or "")

    def prepare_value(self, value: Any) -> Any:
        return value if isinstance(value, str) else json.dumps(value or {})


def offer(form: forms.ModelForm[Any], choice: Choice) -> None:
    """Fill in the choices of a part's form and what it has now."""
    kept = form.instance.template
    form.initial["template_key"] = stored_key(kept)
    form.initial["template_values"] = json.dumps((kept or {}).get("values") or {})
    options = [(key_of(template), str(template)) for template in choice.usable()]
    if kept and stored_key(kept) not in dict(options):
        options.append((stored_key(kept), f"{kept['name']} ({kept['language']}), no longer usable"))
    form.fields["template_key"].widget.choices = [NO_TEMPLATE, *options]


def take_template(form: forms.ModelForm[Any], choice: Choice) -> None:
    """Check the chosen template and store it with the part. A part without a text gets the template's words."""
    cleaned = form.cleaned_data
    if not choice.needed:
        form.instance.template = None
        return
    part = WrittenPart(
        "this part",
        cleaned.get("kind") or "text",
        cleaned.get("text") or "",
        cleaned.get("template_key") or "",
        cleaned.get("template_values") or {},
    )
    for problem in choice.problems(part):
        form.add_error("template_key", problem)
    form.instance.template = choice.as_part(part)
    if part.template and part.kind == "text" and not part.text.strip():
        cleaned["text"] = choice.words(part)


# --- while the form is being written --------------------------------------------------------------------------


def outlook(request: HttpRequest, chosen: Chosen, people: int, at: datetime, now: datetime) -> dict[str, Any]:
    """Return the choices, and what happens to each part for people who have not written for a day when it goes out.

    `people` counts those who get it and are persons, not groups.
    """
    choice = Choice(chosen.accounts)
    if not choice.needed:
        return {"templates": None, "unreached": ""}
    person = next(iter(chosen.audience.some()), None)
    values = values_of(person, [*ALWAYS, *person.fields]) if person is not None else {}
    fates = [choice.fate(part, values) for part in _written(request.POST)]
    stops = any(fate["problem"] for fate in fates)
    outside, exact = _outside(chosen, choice.accounts, people, at, now), len(choice.accounts) == 1
    return {
        "templates": {
            "choices": [_described(template) for template in choice.usable()],
            "none": choice.without() or NO_TEMPLATE[1],
            "note": choice.note(),
            "who": who_is_outside(outside, people, exact) if people else "",
            "stops": stops,
            "parts": fates,
        },
        "unreached": who_gets_nothing(outside, people, exact) if stops and outside else "",
    }


def _described(template: Any) -> dict[str, Any]:
    variables = [
        {"key": variable.key, "label": str(variable), "example": variable.example} for variable in template.variables()
    ]
    return {"key": key_of(template), "label": str(template), "file": template.file, "variables": variables}


def _outside(chosen: Chosen, accounts: Sequence[Account], people: int, at: datetime, now: datetime) -> int:
    """Return how many people will not have written for a day when it goes out."""
    if not people:
        return 0
    wrote = [
        chosen.wrote_since(account.pk, since, now)
        for account in accounts
        if (since := channel(account.channel).free_since(at)) is not None
    ]
    return people - min(wrote, default=0)


def _written(form: Mapping[str, str]) -> list[WrittenPart]:
    """Return the parts of Message 1 that say something. Message 2 follows a reply, so that it needs no template."""
    return [
        WrittenPart(part["where"], part["kind"], part["text"], part["template"], part["values"])
        for part in posted_parts(form)
        if part["set"] == "messages" and (part["text"].strip() or part["template"] or part["kind"] != "text")
    ]


def persons(kinds: Mapping[str, int]) -> int:
    return sum(n for kind, n in kinds.items() if kind in NEW_CHAT_KINDS)
