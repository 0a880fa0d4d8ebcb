"""The site's own opt-out phrases, and a box that says whether a message would opt its sender out."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from accounts.channels.reply_text import own_words
from fanout.admin.model_admin import CrierAdmin, ModelForm
from fanout.inbound.replies import decide
from reminders.models import OptOutPhrase

MOST_TRIED = 20_000


class PhraseForm(ModelForm):
    class Meta:
        model = OptOutPhrase
        fields = ("phrase", "opts_out", "note")


class TryForm(forms.Form):
    text = forms.CharField(
        max_length=MOST_TRIED,
        label="A message",
        widget=forms.Textarea(attrs={"rows": 6}),
        help_text="As it came, with what a mail quotes. It is not stored.",
    )


@admin.register(OptOutPhrase)
class OptOutPhraseAdmin(CrierAdmin):
    """All operators see the list, because it decides about their recipients too; administrators change it."""

    form = PhraseForm
    list_display = ("phrase", "opts_out", "note", "created_at")
    list_filter = ("opts_out",)
    search_fields = ("phrase", "note")
    sortable_by = ()
    change_list_template = "admin/reminders/optoutphrase/change_list.html"

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [path("try/", wrap(self.try_view), name="reminders_optoutphrase_try"), *super().get_urls()]

    def try_view(self, request: HttpRequest) -> HttpResponse:
        """Show the decision about a message, and why. By POST: a message does not belong into an address or a log."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        form = TryForm(request.POST or None)
        context: dict[str, Any] = {"title": "Would this opt out?", "form": form}
        if request.method == "POST" and form.is_valid():
            text = form.cleaned_data["text"]
            own = own_words(text)
            context |= {"decision": decide(own), "own": own if own != text.strip() else ""}
        page = "admin/reminders/optoutphrase/try.html"
        return TemplateResponse(request, page, self.admin_site.each_context(request) | context)
