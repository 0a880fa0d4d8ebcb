"""Message templates of a reminder's parts: which can be chosen, what the provider would refuse, and what arrives.

Some providers take a free text only for a day after the person's own message, and a template at any other time. A part
therefore may have both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from accounts import message_templates
from accounts.channels import templates
from accounts.channels.templates import Template
from accounts.models import Account
from reminders.models import Reminder
from reminders.placeholders import Malformed, placeholders, render

TEXT = "text"
NO_TEMPLATE = (
    "People who have not written to the account within 24 hours get nothing of this reminder: {where} has no template. "
    "Choose one for it."
)
NOT_NEEDED = "These accounts send without templates."
NOT_LISTED = "The provider does not list the template {name} for {accounts}: choose another one."
FLATTENED = "Line breaks become spaces in the account's template. To keep them, choose a template that has them."


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """A part as it stands in the form, or as it is stored."""

    where: str
    kind: str
    text: str
    #: `key_of` its template; empty: none
    template: str = ""
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return "" if self.kind == TEXT else self.kind


def key_of(template: Template) -> str:
    return f"{template.name}:{template.language}"


def stored_key(part: Mapping[str, Any] | None) -> str:
    """Return the key of the template that a stored part has, or ""."""
    return f"{part['name']}:{part['language']}" if part else ""


def stored_parts(reminder: Reminder) -> list[WrittenPart]:
    """Return the parts of Message 1 as they are stored."""
    return [
        WrittenPart(
            f"part {n}", part.kind, part.text, stored_key(part.template), (part.template or {}).get("values") or {}
        )
        for n, part in enumerate(reminder.messages.all(), 1)
    ]


def who_is_outside(outside: int, people: int, exact: bool) -> str:
    """Return how many people need a template, in words."""
    lead = "" if exact or not outside else "Up to "
    return f"{lead}{outside:,} of {people:,} people will not have written within 24 hours before it goes out."


def who_gets_nothing(outside: int, people: int, exact: bool) -> str:
    """Return how many people get nothing, because a part cannot reach them, in words."""
    lead = "" if exact else "Up to "
    return (
        f"{lead}{outside:,} of {people:,} people get nothing: they will not have written within 24 hours, and not "
        "every part can reach them then."
    )


class Choice:
    """The templates of a reminder's senders, read once."""

    def __init__(self, senders: Sequence[Account]) -> None:
        self.accounts = message_templates.needing_templates(senders)
        self._listed = message_templates.templates_of(self.accounts)

    @property
    def needed(self) -> bool:
        return bool(self.accounts)

    def usable(self) -> list[Template]:
        """Return the templates that can be chosen, by name."""
        return [template for _, template in sorted(self._listed.items()) if not template.unusable()]

    def described(self) -> list[dict[str, Any]]:
        """Return the templates that can be chosen with their variables and words, for programs."""
        return [
            {
                "template": key_of(template),
                "variables": [variable.key for variable in template.variables()],
                "file": template.file,
                "text": templates.preview(template, {}),
            }
            for template in self.usable()
        ]

    def get(self, key: str) -> Template | None:
        name, _, language = key.rpartition(":")
        return self._listed.get((name, language))

    def typed(self, part: WrittenPart) -> WrittenPart:
        """Return a part whose template a person or a program has named, with the keys of the template and its
        variables. The language may be missing where there is only one, and so may “body.” before a variable. Raises
        ValueError with a sentence for what cannot be sent."""
        if not self.needed:
            raise ValueError(NOT_NEEDED)
        usable = self.usable()
        found = [template for template in usable if part.template in (key_of(template), template.name)]
        if len(found) != 1:
            names = ", ".join(key_of(template) for template in found or usable)
            raise ValueError(f"{part.template}: choose one of {names}." if names else f"{part.template}: {self.note()}")
        template = found[0]
        keys = [variable.key for variable in template.variables()]
        values = {}
        for name, value in part.values.items():
            key = next((key for key in (name, f"body.{name}") if key in keys), None)
            if key is None:
                known = ", ".join(keys) or "none"
                raise ValueError(f"There is no variable {name}; the variables of {key_of(template)} are {known}.")
            values[key] = value
        chosen = replace(part, template=key_of(template), values=values)
        if problems := self.problems(chosen):
            raise ValueError(f"{key_of(template)}: {' '.join(problems)}")
        return chosen

    def note(self) -> str:
        """Return why there is no template to choose from, or "" where there is one."""
        if not self.accounts or self.usable():
            return ""
        problems = [account.templates_problem for account in self.accounts if account.templates_problem]
        if problems:
            return problems[0]
        if any(account.templates_read_at is None for account in self.accounts):
            return "The templates were not read yet. Testing the account reads them."
        return "The provider lists no approved template that all senders have."

    def without(self) -> str:
        """Return what a text goes by that has no template of its own; "" where that is nothing."""
        defaults = [message_templates.default_template(account) for account in self.accounts]
        return f"none: texts go by the account's template {defaults[0]}" if defaults and all(defaults) else ""

    def problems(self, part: WrittenPart) -> list[str]:
        """Return what the provider would refuse about the part's template, in sentences."""
        if not part.template or not self.needed:
            return []
        template = self.get(part.template)
        if template is None:
            name = part.template.rpartition(":")[0]
            return [NOT_LISTED.format(name=name, accounts=" and ".join(map(str, self.accounts)))]
        return templates.problems(template, part.values, part.file)

    def as_part(self, part: WrittenPart) -> dict[str, Any] | None:
        """Return the template with its values as a part keeps it; None without one."""
        template = self.get(part.template) if part.template else None
        return template.as_part(part.values) if template else None

    def words(self, part: WrittenPart) -> str:
        """Return the template's words with the values as written, for a part without a text of its own."""
        template = self.get(part.template)
        return templates.preview(template, part.values) if template else ""

    def fate(self, part: WrittenPart, person: Mapping[str, str]) -> dict[str, str]:
        """Return what happens to the part for people who have not written for a day: `way` in words, the `text` that
        arrives, and the `problem` where none does. `person` has the values of the placeholders of one recipient."""
        problem = " ".join(self.problems(part))
        if template := self.get(part.template) if part.template else None:
            values = {key: _filled(text, person) for key, text in part.values.items()}
            return _fate(part, f"by the template {template}", templates.preview(template, values), problem)
        if problem:
            return _fate(part, "", "", problem)
        defaults = [message_templates.default_template(account) for account in self.accounts]
        own, text = [template for template in defaults if template], _filled(part.text, person)
        if part.kind != TEXT or not own or len(own) < len(defaults):
            return _fate(part, "", "", NO_TEMPLATE.format(where=part.where))
        try:
            filled = [templates.with_text(template, text) for template in own]
        except templates.Unfit as reason:
            return _fate(part, "", "", str(reason))
        found = [sentence for one in zip(own, filled) for sentence in templates.problems(*one)]
        words, problem = templates.preview(own[0], filled[0]), " ".join(dict.fromkeys(found))
        arrives = _fate(part, f"by the account's template {own[0]}", words, problem)
        return arrives | {"note": FLATTENED if templates.collapsed(text) != text.strip() else ""}


def _fate(part: WrittenPart, way: str, text: str, problem: str) -> dict[str, str]:
    return {"where": part.where, "way": way, "text": text, "problem": problem, "note": ""}


def _filled(text: str, person: Mapping[str, str]) -> str:
    try:
        return render(text, person) if placeholders(text) else text
    except Malformed:
        return text
