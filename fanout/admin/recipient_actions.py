"""Actions on many recipients at once: tag, untag, suppress, delete and erase. Each asks first, with numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from accounts.inputs import counted
from fanout.admin.list_actions import Question, asking_action, do_each
from fanout.models import RunTarget
from fanout.models.trail import note
from fanout.ops import list_changes
from fanout.runs import corrections
from fanout.runs.erasing import erase
from reminders import imports, suppressions, targets
from reminders.models import Recipient, Suppression

MOST_ERASED = 100
MOST_DETAIL = 500
ADDRESSES_AT_ONCE = 1_000  # suppressed in one transaction: lanes wait for it


class TagForm(forms.Form):
    # Without `max_length`, which becomes an attribute with which browsers cut off what is pasted, without a word.
    tag = forms.CharField(widget=forms.TextInput(attrs={"list": "tags", "autofocus": True}))

    def clean_tag(self) -> str:
        tag: str = self.cleaned_data["tag"]
        if len(tag) > imports.MOST_TAG:
            raise forms.ValidationError(f"A tag has at most {imports.MOST_TAG} characters; this one has {len(tag):,}.")
        if imports.TAG_SEPARATOR.search(tag):
            raise forms.ValidationError("One tag at a time: a tag has no comma or semicolon in it.")
        return tag


class UntagForm(forms.Form):
    tag = forms.ChoiceField(widget=forms.RadioSelect)

    def __init__(self, data: Any, counts: dict[str, int]) -> None:
        super().__init__(data)
        self.fields["tag"].choices = [(tag, f"{tag} ({n:,})") for tag, n in counts.items()]  # type: ignore[attr-defined]


class SuppressForm(forms.Form):
    detail = forms.CharField(max_length=MOST_DETAIL, required=False, label="Why")


def _ask(
    model_admin: Any, request: HttpRequest, queryset: QuerySet[Recipient], page: dict[str, Any]
) -> TemplateResponse:
    """Return the page with the question; its form calls the same action again for the same selection."""
    context = model_admin.admin_site.each_context(request) | {
        "opts": model_admin.opts,
        "action": request.POST["action"],
        "selected": request.POST.getlist(ACTION_CHECKBOX_NAME),
        "select_across": request.POST.get("select_across", "0"),
        "counted": counted(queryset.count(), "recipient"),
    }
    return TemplateResponse(request, "admin/reminders/recipient/bulk.html", context | page)


def _asked(request: HttpRequest) -> Any:
    """Return the data entered on the question's page; None on the way from the list, which has fields of its own."""
    return request.POST if request.POST.get("confirmed") else None


def _tell(request: HttpRequest, verb: str, words: str) -> None:
    note(verb, None, request.user, timezone.now(), words)
    messages.success(request, f"{verb.capitalize()}: {words}.")


@admin.action(description="Add a tag…", permissions=["change"])
def tag_selected(model_admin: Any, request: HttpRequest, queryset: QuerySet[Recipient]) -> HttpResponse | None:
    form = TagForm(_asked(request))
    if not form.is_valid():
        known = targets.tag_counts(model_admin.get_queryset(request))
        return _ask(model_admin, request, queryset, {"title": "Add a tag", "form": form, "tags": known, "verb": "Tag"})
    with transaction.atomic():
        _tell(request, "tagged", counted(targets.add_tag(queryset, form.cleaned_data["tag"]), "recipient"))
    return None


@admin.action(description="Remove a tag…", permissions=["change"])
def untag_selected(model_admin: Any, request: HttpRequest, queryset: QuerySet[Recipient]) -> HttpResponse | None:
    counts = targets.tag_counts(queryset)
    if not counts:
        messages.warning(request, "None of them has a tag.")
        return None
    form = UntagForm(_asked(request), counts)
    if not form.is_valid():
        return _ask(model_admin, request, queryset, {"title": "Remove a tag", "form": form, "verb": "Untag"})
    with transaction.atomic():
        _tell(request, "untagged", counted(targets.remove_tag(queryset, form.cleaned_data["tag"]), "recipient"))
    return None


@admin.action(description="Suppress the selected recipients…", permissions=["suppress"])
def suppress_selected(model_admin: Any, request: HttpRequest, queryset: QuerySet[Recipient]) -> HttpResponse | None:
    form = SuppressForm(_asked(request))
    if not form.is_valid():
        page = {"title": "Suppress recipients", "form": form, "verb": "Suppress", "danger": True, "words": SUPPRESSING}
        return _ask(model_admin, request, queryset, page)
    new = _suppression(request.user.pk, form.cleaned_data["detail"], timezone.now())
    addresses = queryset.order_by().values_list("address", flat=True).iterator(chunk_size=ADDRESSES_AT_ONCE)
    changed = 0
    while chunk := [new(address) for address in islice(addresses, ADDRESSES_AT_ONCE)]:
        # Each chunk has its own transaction and audit trail entry, and stays if a later one fails.
        changed += list_changes.suppress(chunk, request.user, timezone.now())
    messages.success(request, f"Suppressed: {counted(changed, 'address')}.")
    return None


SUPPRESSING = (
    "These addresses get no more messages, from any account and any operator. Pending messages to them are skipped. "
    "Only an administrator can take an address off the list again."
)


def _suppression(user: Any, detail: str, now: datetime) -> Callable[[str], suppressions.NewSuppression]:
    reason, source = Suppression.Reason.MANUAL.value, Suppression.Source.OPERATOR.value
    return lambda address: suppressions.NewSuppression(address, reason, source, detail, now, None, user)


@admin.action(description="Erase the selected recipients…", permissions=["delete"])
def erase_selected(model_admin: Any, request: HttpRequest, queryset: QuerySet[Recipient]) -> HttpResponse | None:
    """Ask first: erasing cannot be undone."""
    if request.POST.get("confirmed"):
        now = timezone.now()
        do_each(request, queryset, lambda recipient: erase(recipient.address, request.user, now), "Erased")
        return None
    recipients = list(queryset[: MOST_ERASED + 1])
    if len(recipients) > MOST_ERASED:
        messages.warning(request, f"Choose at most {MOST_ERASED} recipients at a time.")
        return None
    context = model_admin.admin_site.each_context(request) | {
        "title": "Erase recipients",
        "opts": model_admin.opts,
        "recipients": recipients,
        "everywhere": request.user.is_superuser,
    }
    return TemplateResponse(request, "admin/reminders/recipient/erase.html", context)


def about_removing(recipients: Sequence[Recipient], now: datetime) -> Question:
    sent = RunTarget.objects.filter(recipient=OuterRef("pk"))
    kept = Recipient.objects.filter(Exists(sent), pk__in=[recipient.pk for recipient in recipients]).count()
    sentences = ["They are taken out of all reminders. To make a person disappear everywhere, erase them instead."]
    if kept:
        sentences.append(f"{counted(kept, 'recipient')} with deliveries will be archived instead of deleted.")
    title = f"Delete {counted(len(recipients), 'recipient')}?"
    return Question(title, sentences, title.rstrip("?"), [(str(one), one.address) for one in recipients], danger=True)


remove_selected = asking_action(
    "remove",
    "Delete the selected recipients",
    "Deleted or archived",
    about_removing,
    corrections.remove_recipient,
    permission="delete",
)
