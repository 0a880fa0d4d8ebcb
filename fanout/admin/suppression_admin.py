"""Suppressions: the list, adding one by hand, import and export."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from accounts.addresses import AddressError, guess_kind, normalise
from accounts.inputs import counted
from fanout.admin.model_admin import CrierAdmin, ModelForm
from fanout.models.trail import note
from fanout.ops import exports, list_changes
from fanout.templatetags.crier import when
from reminders import imports, suppressions
from reminders.excel import MB, MOST_ROWS
from reminders.models import Suppression
from reminders.tables import MOST_BYTES, has_more_lines

PROBLEMS_SHOWN = 20


class SuppressionForm(ModelForm):
    class Meta:
        model = Suppression
        fields = ("address", "reason", "detail", "expires_at")

    def clean_address(self) -> str:
        """Return the address in its normal form, which lanes look up."""
        raw: str = self.cleaned_data["address"]
        try:
            address = normalise(guess_kind(raw), raw)
        except AddressError as error:
            raise forms.ValidationError(str(error)) from None
        self._replace_expired(address)
        return address

    def _replace_expired(self, address: str) -> None:
        """Reuse the row of an expired suppression of this address."""
        expired = Suppression.objects.filter(address=address).exclude(suppressions.in_force(timezone.now())).first()
        if self.instance.pk is None and expired is not None:
            self.instance.pk, self.instance.created_at = expired.pk, timezone.now()
            self.instance._state.adding = False

    def clean_expires_at(self) -> datetime | None:
        until: datetime | None = self.cleaned_data["expires_at"]
        if until is not None and until <= timezone.now():
            raise forms.ValidationError("This moment has passed. Leave it empty for a suppression that never expires.")
        if until is not None and (problem := suppressions.expiry_error(until)):
            raise forms.ValidationError(problem)
        return until


class ImportForm(forms.Form):
    file = forms.FileField(
        help_text="An address per line, or CSV with the columns address, reason, detail and expires_at."
    )
    skip_invalid = forms.BooleanField(required=False, label="Skip unusable lines and import the rest")

    def clean_file(self) -> str:
        file = self.cleaned_data["file"]
        if file.size > MOST_BYTES:
            raise forms.ValidationError(f"The file is larger than {MOST_BYTES // MB} MB; split it.")
        try:
            text: str = file.read().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise forms.ValidationError("The file is not UTF-8 text: save it in that encoding.") from None
        if has_more_lines(text, MOST_ROWS):
            raise forms.ValidationError(f"The file has more than {MOST_ROWS:,} lines; split it.")
        return text

    def listed(self, user: Any, now: datetime) -> suppressions.SuppressionList:
        """Return the entries of the file; its problems become errors of the form."""
        listed = suppressions.read_list(self.cleaned_data["file"], user.pk, now)
        if listed.problems and not self.cleaned_data["skip_invalid"]:
            shown = imports.first_problems(listed.problems, PROBLEMS_SHOWN)
            self.add_error("file", [f"{counted(len(listed.problems), 'unusable line')}; nothing was imported.", *shown])
        return listed


class HoldingFilter(admin.SimpleListFilter):
    title = "in force"
    parameter_name = "holding"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "In force"), ("no", "Expired")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Suppression]) -> QuerySet[Suppression]:
        in_force = suppressions.in_force(timezone.now())
        return {"yes": queryset.filter(in_force), "no": queryset.exclude(in_force)}.get(self.value() or "", queryset)


@admin.register(Suppression)
class SuppressionAdmin(CrierAdmin):
    """Suppressions apply to all operators: each may see and add them, only administrators remove them."""

    list_display = ("address", "reason", "source", "detail", "added_by", "since", "expires")
    list_filter = (HoldingFilter, "reason", "source")
    list_select_related = ("added_by",)
    search_fields = ("address",)
    search_help_text = "Search by the whole address, in any spelling"
    sortable_by = ()
    form = SuppressionForm
    change_list_template = "admin/reminders/suppression/change_list.html"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Suppression], search_term: str
    ) -> tuple[QuerySet[Suppression], bool]:
        """Find by the whole address, in any spelling: the list is long and shared."""
        if not search_term:
            return queryset, False
        try:
            return queryset.filter(address=normalise(guess_kind(search_term), search_term)), False
        except AddressError:
            return queryset.none(), False

    @admin.display(description="since")
    def since(self, suppression: Suppression) -> SafeString | str:
        return when(suppression.created_at)

    @admin.display(description="until")
    def expires(self, suppression: Suppression) -> SafeString | str:
        if suppression.expires_at is None:
            return "for ever"
        expired = suppression.expires_at <= timezone.now()
        mark = '<span class="badge">expired</span> {}' if expired else "{}"
        return format_html(mark, when(suppression.expires_at))

    def save_model(self, request: HttpRequest, obj: Suppression, form: Any, change: bool) -> None:
        if not change:
            obj.source, obj.added_by_id = Suppression.Source.OPERATOR, request.user.pk
        super().save_model(request, obj, form, change)

    # --- lists in and out ---------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("export/", wrap(require_GET(self.export_view)), name="reminders_suppression_export"),
            path("import/", wrap(self.import_view), name="reminders_suppression_import"),
            *super().get_urls(),
        ]

    def export_view(self, request: HttpRequest) -> StreamingHttpResponse:
        """Download all suppressions as CSV, oldest first."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        note("exported the suppressions", None, request.user, timezone.now())
        return exports.csv_download(request, exports.suppression_lines(), "suppressions.csv")

    def import_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = ImportForm(request.POST or None, request.FILES or None)
        if request.method == "POST" and form.is_valid() and self._imported(request, form):
            return HttpResponseRedirect(reverse("admin:reminders_suppression_changelist"))
        context = self.admin_site.each_context(request) | {"title": "Import suppressions", "form": form}
        return TemplateResponse(request, "admin/reminders/suppression/import.html", context)

    @transaction.atomic
    def _imported(self, request: HttpRequest, form: ImportForm) -> bool:
        now = timezone.now()
        listed = form.listed(request.user, now)
        if form.errors:
            return False
        added = list_changes.import_suppressions(listed.entries, request.user, now)
        words = f"{counted(added, 'address')} suppressed. Already suppressed: {len(listed.entries) - added:,}."
        messages.success(request, words)
        for problem in imports.first_problems(listed.problems, PROBLEMS_SHOWN):
            messages.warning(request, f"Skipped: {problem}")
        return True
