"""Recipients from a file or a pasted list: choose columns, preview the result, then import.

Between the two steps the signed rows travel in the page itself: a list that is never imported leaves nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import phonenumbers
from django import forms
from django.contrib import messages
from django.contrib.auth.models import Group
from django.core import signing
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode

from accounts.inputs import counted
from fanout.admin.model_admin import choosable
from fanout.ops import list_changes
from reminders import erasure, imports, suppressions, tables, targets
from reminders.excel import MB, MOST_ROWS, UnusableFile
from reminders.models import Recipient, Suppression

SALT = "crier.import"
#: seconds after which the file must be uploaded again
KEPT = 3_600
#: characters of the signed rows: they come back in a form (DATA_UPLOAD_MAX_MEMORY_SIZE)
MOST_SIGNED = 6_000_000
ROWS_SHOWN, PROBLEMS_SHOWN = 8, 50
TEMPLATE = "admin/reminders/recipient/import.html"
USES = [
    (imports.ADDRESS, "Address"),
    (imports.NAME, "Name"),
    (imports.TAGS, "Tags"),
    (imports.KIND, "Kind"),
    (imports.FIELD, "Own field"),
    (imports.NOTHING, "Not imported"),
]


class UploadForm(forms.Form):
    file = forms.FileField(
        required=False,
        help_text=f"CSV or Excel (.xlsx), up to {MOST_ROWS:,} rows and {tables.MOST_BYTES // MB} MB.",
    )
    paste = forms.CharField(
        required=False,
        label="Or paste rows",
        widget=forms.Textarea(attrs={"rows": 6}),
        help_text="From a spreadsheet, or an address per line.",
    )

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if not data.get("file") and not data.get("paste"):
            raise forms.ValidationError("Choose a file, or paste some rows.")
        if data.get("file") and data.get("paste"):
            raise forms.ValidationError("Choose a file or paste rows, not both: import them one after the other.")
        try:
            data["table"] = _table(data)
        except UnusableFile as problem:
            self.add_error("file" if data.get("file") else "paste", str(problem))
        return data


def _table(data: dict[str, Any]) -> tables.Table:
    if not data.get("file"):
        return tables.read_text(data["paste"])
    # One byte more than allowed shows that the file is too large.
    return tables.read(data["file"].read(tables.MOST_BYTES + 1))


class ColumnsForm(forms.Form):
    """The meaning of each column, and values for all rows."""

    tags = forms.CharField(required=False, label="Tags for all of them", help_text="Separated by commas.")
    tag_present = forms.BooleanField(
        required=False, initial=True, label="Also put the tags on recipients who are in your list already"
    )
    region = forms.ChoiceField(
        required=False,
        label="Country",
        help_text="Of phone numbers that are written without a country code.",
    )
    team = forms.ModelChoiceField(
        queryset=Group.objects.none(), required=False, label="Share with", empty_label="no team: only you see them"
    )
    header = forms.BooleanField(required=False, label="The first row is a header")

    def __init__(self, user: Any, table: tables.Table, layout: imports.Layout, data: Any = None) -> None:
        super().__init__(data, initial={"header": layout.header})
        self.table, self.layout = table, layout
        self.fields["team"].queryset = choosable(user, Recipient._meta.get_field("team"))  # type: ignore[attr-defined]
        self.fields["region"].choices = _countries()  # type: ignore[attr-defined]
        for n, use in enumerate(layout.uses):
            self.fields[f"column-{n}"] = forms.ChoiceField(choices=USES, required=False, initial=use)

    def clean_tags(self) -> list[str]:
        names = [tag.strip() for tag in self.cleaned_data["tags"].split(",") if tag.strip()]
        if any(len(name) > imports.MOST_TAG for name in names):
            raise forms.ValidationError(f"A tag has at most {imports.MOST_TAG} characters.")
        if len(names) > imports.MOST_TAGS:
            raise forms.ValidationError(f"Name at most {imports.MOST_TAGS} tags.")
        return names

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        uses = tuple(data.get(f"column-{n}", "") for n in range(self.table.width))
        if uses.count(imports.ADDRESS) != 1:
            raise forms.ValidationError("Choose exactly one column that is the address.")
        self.layout = imports.Layout(data["header"], uses)
        return data

    def listed(self) -> imports.RecipientList:
        """Return the entries that result from these choices, or from the guess before any were made."""
        data = self.cleaned_data if self.is_bound else {}
        defaults = imports.Defaults(None, data.get("region") or None, data.get("tags") or ())
        return erasure.refuse(imports.read_table(self.table, self.layout, defaults))

    def choices_made(self) -> str:
        """Return a text that identifies the choices, to recognise a preview with other ones."""
        data = self.cleaned_data if self.is_bound else {}
        return repr((self.layout, data.get("region") or "", data.get("tags") or []))

    def for_all(self) -> list[forms.BoundField]:
        return [self[name] for name in ("tags", "tag_present", "region", "team")]

    def columns(self) -> list[dict[str, Any]]:
        """Return each column with its heading, first cells and placeholder, for the page."""
        rows = [row for _, row in self.table.filled()][self.layout.header :][:3]
        heads, keys = imports.column_headings(self.table, self.layout), imports.column_keys(self.table, self.layout)
        return [
            {
                "field": self[f"column-{n}"],
                "heading": heads[n],
                "cells": [row[n] for row in rows if n < len(row)],
                "placeholder": keys[n] if self.layout.uses[n] == imports.FIELD else "",
            }
            for n in range(self.table.width)
        ]


def _countries() -> list[tuple[str, str]]:
    codes = sorted(phonenumbers.SUPPORTED_REGIONS)
    return [("", "–"), *((code, f"{code} (+{phonenumbers.country_code_for_region(code)})") for code in codes)]


@dataclass(frozen=True, slots=True)
class Preview:
    listed: imports.RecipientList
    present: int
    suppressed: int

    @property
    def counts(self) -> dict[str, str]:
        listed = self.listed
        numbers = {
            "new": len(listed.entries) - self.present,
            "present": self.present,
            "repeated": listed.repeated,
            "unusable": len(listed.problems),
            "suppressed": self.suppressed,
        }
        return {name: f"{n:,}" for name, n in numbers.items()}

    @property
    def counted(self) -> str:
        return counted(len(self.listed.entries), "recipient")

    @property
    def first_entries(self) -> list[imports.Entry]:
        return self.listed.entries[:ROWS_SHOWN]

    @property
    def first_problems(self) -> list[str]:
        return imports.first_problems(self.listed.problems, PROBLEMS_SHOWN)


def preview(listed: imports.RecipientList, user: Any) -> Preview:
    addresses = [entry.address for entry in listed.entries]
    in_force = Suppression.objects.filter(suppressions.in_force(timezone.now()), address__in=addresses)
    return Preview(listed, _present(user, addresses).count(), in_force.count())


def _present(user: Any, addresses: list[str]) -> Any:
    return Recipient.objects.filter(owner=user, address__in=addresses)


# --- the page -----------------------------------------------------------------------------------------------


def import_page(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    if "rows" in request.POST:
        return _second_step(request, context)
    form = UploadForm(request.POST or None, request.FILES or None)
    if request.method != "POST" or not form.is_valid():
        return TemplateResponse(request, TEMPLATE, context | {"form": form})
    table = form.cleaned_data["table"]
    signed = signing.dumps({"user": request.user.pk, "rows": table.rows}, salt=SALT, compress=True)
    if len(signed) > MOST_SIGNED:
        form.add_error(None, "The list is too long for one import: split it.")
        return TemplateResponse(request, TEMPLATE, context | {"form": form})
    choices = ColumnsForm(request.user, table, imports.guess_layout(table))
    return _shown(request, context, choices, signed)


def _second_step(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    signed = request.POST["rows"]
    table = _unpacked(signed, request.user)
    if table is None:
        messages.warning(request, "The preview has expired: choose the file again.")
        return HttpResponseRedirect(reverse("admin:reminders_recipient_import"))
    choices = ColumnsForm(request.user, table, imports.guess_layout(table), request.POST)
    if not choices.is_valid():
        return TemplateResponse(request, TEMPLATE, context | {"choices": choices, "rows": signed})
    if "import" in request.POST and request.POST.get("previewed") == choices.choices_made():
        return _imported(request, choices)
    return _shown(request, context, choices, signed)


def _unpacked(signed: str, user: Any) -> tables.Table | None:
    """Return the table; None unless it was signed here, for this person, within the last hour."""
    try:
        data = signing.loads(signed, salt=SALT, max_age=KEPT)
    except signing.BadSignature:
        return None
    return tables.Table(data["rows"]) if data["user"] == user.pk else None


def _shown(request: HttpRequest, context: dict[str, Any], choices: ColumnsForm, signed: str) -> HttpResponse:
    shown = preview(choices.listed(), request.user)
    page = {"choices": choices, "rows": signed, "preview": shown, "previewed": choices.choices_made()}
    # The choices were changed after the preview whose numbers the person saw.
    changed = {"changed": "import" in request.POST}
    return TemplateResponse(request, TEMPLATE, context | page | changed)


@transaction.atomic
def _imported(request: HttpRequest, choices: ColumnsForm) -> HttpResponse:
    listed, data = choices.listed(), choices.cleaned_data
    added = list_changes.import_recipients(listed.entries, request.user, request.user, timezone.now(), data["team"])
    present = _present(request.user, [entry.address for entry in listed.entries])
    for tag in data["tags"] if data["tag_present"] else ():
        targets.add_tag(present, tag)
    messages.success(request, _result(added, listed))
    query = urlencode({"tag": data["tags"][0]}) if data["tags"] else ""
    return HttpResponseRedirect(f"{reverse('admin:reminders_recipient_changelist')}?{query}".rstrip("?"))


def _result(added: int, listed: imports.RecipientList) -> str:
    present, unusable = len(listed.entries) - added, len(listed.problems)
    words = [f"{counted(added, 'recipient')} added."]
    if present:
        words.append(f"Already in your list: {present:,}.")
    if unusable:
        words.append(f"Left out because they cannot be used: {counted(unusable, 'row')}.")
    return " ".join(words)
