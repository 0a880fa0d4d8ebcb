"""Meta's message templates: approved texts, by which an account reaches people who have not written for a day. Pure.

Pages below developers.facebook.com/documentation/business-messaging/whatsapp: templates/components has the shapes,
templates/overview the limits, reference/whatsapp-business-account/template-api the list of an account's templates.

A reminder keeps a template as it was chosen, with a value for each of its variables (`Template.as_part`). Line breaks,
tabs and long runs of spaces are refused in what an operator writes, because the layout would be lost without notice.
In personal words, which come from lists of recipients, they become one space.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from accounts.channels.cloud.channel import CHANNEL
from accounts.channels.http import as_text, dig

WINDOW_CLOSED = (
    "This person has not written to the account within 24 hours: only a template reaches them, and this part has none."
)
#: Characters, with the values in it.
MOST_BODY = 1024
MOST_HEADER = 60
FILES = ("image", "video", "document")
#: Buttons that need nothing but the template; one with a link may have a variable at its end.
PLAIN_BUTTONS = ("QUICK_REPLY", "PHONE_NUMBER", "URL", "VOICE_CALL")
WHY_NOT = {
    "PENDING": "Meta has not approved it yet",
    "IN_APPEAL": "Meta has not approved it yet",
    "REJECTED": "Meta has rejected it",
    "PAUSED": "Meta has paused it, because people blocked or reported it",
    "DISABLED": "Meta has disabled it, because people blocked or reported it",
}

VARIABLE = re.compile(r"\{\{\s*+(\w++)\s*+\}\}")
# Meta counts each of them as a line break or a tab.
BREAKS = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]++")
SPACES = re.compile(r" {5,}+")


class Unfit(ValueError):
    """Raised for values that Meta would not take; the sentence says which and why."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a template, to be filled by a reminder."""

    #: "body.1", "body.first_name", "header.1", or "button.0" for the end of the first button's link
    key: str
    name: str
    example: str = ""

    def __str__(self) -> str:
        where = self.key.partition(".")[0]
        return (
            f"the link of button {int(self.name) + 1}" if where == "button" else f"{{{{{self.name}}}}} in the {where}"
        )


@dataclass(frozen=True, slots=True)
class Button:
    kind: str
    text: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Template:
    """A template as Meta lists it."""

    name: str
    language: str
    status: str = "APPROVED"
    category: str = ""
    #: Whether its variables have names; otherwise they are numbered.
    named: bool = False
    #: "text", a kind of file, another kind that Crier does not send, or empty.
    header: str = ""
    header_text: str = ""
    body: str = ""
    footer: str = ""
    buttons: tuple[Button, ...] = ()
    #: Meta's examples by the keys of the variables.
    examples: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name} ({self.language})"

    @property
    def file(self) -> str:
        """Return the kind of file that its header takes, or ""."""
        return self.header if self.header in FILES else ""

    def variables(self) -> list[Variable]:
        """Return its variables in the order in which Meta takes their values."""
        header = [("header", name) for name in names_in(self.header_text)]
        body = [("body", name) for name in names_in(self.body)]
        links = [("button", str(n)) for n, button in enumerate(self.buttons) if names_in(button.url)]
        keys = [(f"{where}.{name}", name) for where, name in header + body + links]
        return [Variable(key, name, self.examples.get(key, "")) for key, name in keys]

    def unusable(self) -> str:
        """Return why a reminder cannot use it, in a sentence, or ""."""
        if self.status != "APPROVED":
            return f"The template {self} cannot be used: {WHY_NOT.get(self.status, f'Meta says {self.status}')}."
        if self.header not in ("", "text", *FILES):
            return f"The template {self} has a header that Crier does not send: {self.header}."
        strange = next((button for button in self.buttons if button.kind not in PLAIN_BUTTONS), None)
        return f"The template {self} has a button that Crier does not send: {strange.kind}." if strange else ""

    def as_part(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Return the template with its values in plain JSON, as a reminder's part keeps it."""
        kept = {variable.key for variable in self.variables()}
        return asdict(self) | {"values": {key: value for key, value in values.items() if key in kept}}


# -- an account's own template, for texts that have none --------------------------------------------------


def own_template(config: Mapping[str, Any], listed: Mapping[str, Any] | None) -> Template | None:
    """Return the template that an account's settings name for texts, or None. Its words are known once the account's
    templates have been read."""
    if not config.get("template"):
        return None
    if listed is not None:
        return template_in(listed)
    return Template(config["template"], config.get("template_language") or "en", body="{{1}}")


def with_text(template: Template, text: str) -> dict[str, str]:
    """Return the values with which a text goes by its account's template. Raises Unfit for a template that has no place
    for it, or needs more."""
    variables = template.variables()
    if len(variables) != 1 or not variables[0].key.startswith("body.") or template.file:
        raise Unfit(
            f"Texts cannot go by the account's template {template}: it must have one variable, in its body, and no "
            "file. Name another one among the account's settings, or choose a template for each part."
        )
    return {variables[0].key: collapsed(text)}


# -- reading ----------------------------------------------------------------------------------------------


def names_in(text: str) -> list[str]:
    """Return the variables of a text, each once: numbers in their order, names as they appear."""
    names = list(dict.fromkeys(VARIABLE.findall(text)))
    return sorted(names, key=int) if all(name.isdecimal() for name in names) else names


def template_of(item: Any) -> Template | None:
    """Return an item of Meta's list; None for one without a name."""
    name, language = as_text(dig(item, "name")), as_text(dig(item, "language"))
    if not name or not language:
        return None
    parts = {as_text(dig(part, "type")).upper(): part for part in _list(item, "components")}
    header, body = parts.get("HEADER"), parts.get("BODY")
    kind = as_text(dig(header, "format")).lower()
    return Template(
        name=name,
        language=language,
        status=as_text(dig(item, "status")).upper(),
        category=as_text(dig(item, "category")).upper(),
        named=as_text(dig(item, "parameter_format")).upper() == "NAMED",
        header=kind or ("text" if header else ""),
        header_text=as_text(dig(header, "text")) if kind in ("", "text") else "",
        body=as_text(dig(body, "text")),
        footer=as_text(dig(parts.get("FOOTER"), "text")),
        buttons=tuple(_button(button) for button in _list(parts.get("BUTTONS"), "buttons")),
        examples=dict(_examples(parts)),
    )


def template_in(part: Mapping[str, Any]) -> Template:
    """Return the template that a reminder's part keeps (`Template.as_part`)."""
    known = {name: part[name] for name in Template.__dataclass_fields__ if name in part}
    return Template(**known | {"buttons": tuple(Button(**button) for button in part.get("buttons", ()))})


def _list(item: Any, name: str) -> list[Any]:
    items = dig(item, name)
    return items if isinstance(items, list) else []


def _button(item: Any) -> Button:
    return Button(as_text(dig(item, "type")).upper(), as_text(dig(item, "text")), as_text(dig(item, "url")))


def _examples(parts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for where in ("header", "body"):
        shown = dig(parts.get(where.upper()), "example")
        for one in _list(shown, f"{where}_text_named_params"):
            yield f"{where}.{as_text(dig(one, 'param_name'))}", as_text(dig(one, "example"))
        numbered = _list(shown, f"{where}_text")
        # The body's are a list of lists: one for each translation that was submitted.
        values = numbered[0] if numbered and isinstance(numbered[0], list) else numbered
        yield from ((f"{where}.{n}", as_text(value)) for n, value in enumerate(values, 1))
    for n, button in enumerate(_list(parts.get("BUTTONS"), "buttons")):
        yield from ((f"button.{n}", as_text(value)) for value in _list(button, "example")[:1])


# -- before saving ----------------------------------------------------------------------------------------


def problems(template: Template, values: Mapping[str, str], file: str = "") -> list[str]:
    """Return what Meta would refuse, in sentences for the operator.

    `values` are as written, or as rendered for one person; `file` is the kind of the part's file, or "".
    """
    found = [template.unusable(), _file_problem(template, file)]
    for variable in template.variables():
        value = values.get(variable.key, "")
        if not value.strip():
            found.append(f"Fill in {variable}.")
        elif BREAKS.search(value) or SPACES.search(value):
            found.append(
                f"Write {variable} on one line: Meta takes no line breaks, tabs or more than four spaces in a row "
                "there. Line breaks belong into the template itself."
            )
    return [*filter(None, found), *_too_long(template, values)]


def _file_problem(template: Template, file: str) -> str:
    if template.file == file:
        return ""
    if template.file:
        article = "an" if template.file == "image" else "a"
        return f"The template {template} starts with {article} {template.file}: add one to this part."
    return f"The template {template} carries no {file}: choose one with such a header, or take the file out."


def _too_long(template: Template, values: Mapping[str, str]) -> Iterator[str]:
    for where, text, most in (("body", template.body, MOST_BODY), ("header", template.header_text, MOST_HEADER)):
        length = len(_filled(text, where, values))
        if length > most:
            yield f"The {where} has {length:,} characters with its values; Meta takes at most {most:,}. Shorten them."


def preview(template: Template, values: Mapping[str, str]) -> str:
    """Return the message as a person will see it. Variables without a value stay as they are."""
    header = f"[{template.header}]" if template.header not in ("", "text") else template.header_text
    buttons = " ".join(f"[{button.text}]" for button in template.buttons)
    pieces = [_filled(header, "header", values), _filled(template.body, "body", values), template.footer, buttons]
    return "\n\n".join(filter(None, pieces))


def _filled(text: str, where: str, values: Mapping[str, str]) -> str:
    return VARIABLE.sub(lambda found: collapsed(values.get(f"{where}.{found[1]}", "")) or found[0], text)


def collapsed(value: str) -> str:
    """Return a value as Meta takes it: line breaks, tabs and more than four spaces in a row become one space."""
    return SPACES.sub(" ", BREAKS.sub(" ", value)).strip()


# -- sending ----------------------------------------------------------------------------------------------


class Way(enum.Enum):
    FREE = "free"
    TEMPLATE = "template"
    NONE = "none"  # WINDOW_CLOSED says why


def way_to(last_wrote_at: datetime | None, has_template: bool, now: datetime) -> Way:
    """Return how a part may reach a person who last wrote to the account at `last_wrote_at`; None: never."""
    since = CHANNEL.free_since(now)
    if since is None or (last_wrote_at is not None and last_wrote_at > since):
        return Way.FREE
    return Way.TEMPLATE if has_template else Way.NONE


def content(template: Template, values: Mapping[str, str], file: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the content of a message with this template; `file` goes into its header. Raises Unfit."""
    finished = {variable.key: collapsed(values.get(variable.key, "")) for variable in template.variables()}
    empty = next((variable for variable in template.variables() if not finished[variable.key]), None)
    if empty:
        raise Unfit(f"The template {template} has no value for {empty}.")
    if template.file and not file:
        raise Unfit(_file_problem(template, ""))
    for sentence in _too_long(template, finished):
        raise Unfit(sentence)
    components = list(_components(template, finished, file))
    body = {"name": template.name, "language": {"code": template.language}}
    return {"type": "template", "template": body | ({"components": components} if components else {})}


def _components(template: Template, values: Mapping[str, str], file: Mapping[str, Any] | None) -> Iterator[Any]:
    """Yield the parameters of the header, the body and the buttons; what has none is left out."""
    if template.file:
        yield {"type": "header", "parameters": [{"type": template.file, template.file: dict(file or {})}]}
    for where in ("header", "body"):
        variables = [variable for variable in template.variables() if variable.key.startswith(f"{where}.")]
        named = [{"parameter_name": variable.name} if template.named else {} for variable in variables]
        texts = [name | {"type": "text", "text": values[variable.key]} for name, variable in zip(named, variables)]
        if texts:
            yield {"type": where, "parameters": texts}
    for variable in template.variables():
        if variable.key.startswith("button."):
            text = {"type": "text", "text": values[variable.key]}
            yield {"type": "button", "sub_type": "url", "index": variable.name, "parameters": [text]}
