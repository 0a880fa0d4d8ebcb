"""Recipients, suppressions and files."""

from __future__ import annotations

from django import forms
from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from accounts import access
from accounts.addresses import AddressError, guess_kind, normalise
from fanout.admin.answers import do_each
from fanout.admin.badges import badge
from fanout.admin.base import CrierAdmin, OwnedAdmin, OwnedForm
from fanout.admin.generics import ModelForm
from fanout.admin.reminders.own_fields import RowsField
from fanout.runs.erasing import erase
from reminders import erasure
from reminders.models import MediaFile, Recipient, Suppression

MOST_RESULTS = 20
MOST_ERASED = 100


class RecipientForm(OwnedForm):
    fields = RowsField(  # type: ignore[assignment]  # the name of the column
        label="Own fields",
        required=False,
        help_text="For placeholders: a field called flat is {flat} in a reminder's text. Empty a value to remove it.",
    )

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]  # not in the stubs
        if "address" in self.changed_data and not self.errors and erasure.erased([self.instance.address]):
            self.add_error("address", erasure.REFUSED)


@admin.action(description="Erase the selected recipients…", permissions=["delete"])
def erase_selected(
    model_admin: RecipientAdmin, request: HttpRequest, queryset: QuerySet[Recipient]
) -> HttpResponse | None:
    """Asks first: nothing brings them back."""
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


@admin.register(Recipient)
class RecipientAdmin(OwnedAdmin):
    form = RecipientForm
    actions = (erase_selected,)
    list_display = ("name_or_address", "address", "kind", "status_badge", "tag_list", "history")
    list_display_links = ("name_or_address",)
    list_filter = ("kind", "status")
    search_fields = ("name", "address")
    sortable_by = ()
    readonly_fields = ("follow_up_attempts", "cooldown_until", "replied_at")
    fieldsets = (
        (None, {"fields": ("kind", "address", "name", "fields", "tags", "status", "owner", "team")}),
        ("Follow-up", {"fields": ("follow_up_attempts", "cooldown_until", "replied_at")}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Recipient]:
        return erasure.present(super().get_queryset(request))

    def get_urls(self) -> list[URLPattern]:
        find = self.admin_site.admin_view(require_GET(self.find_view))
        return [path("find/", find, name="reminders_recipient_find"), *super().get_urls()]

    def find_view(self, request: HttpRequest) -> JsonResponse:
        """For the search in the reminder's form: the first few recipients that match by name, address or tag."""
        term = request.GET.get("q", "").strip()
        if not self.has_view_permission(request) or len(term) < 2:
            return JsonResponse({"recipients": []})
        rows = access.visible(request.user, Recipient.objects.filter(status=Recipient.Status.ACTIVE))
        rows = rows.filter(Q(name__icontains=term) | Q(address__startswith=term) | Q(tags__contains=[term]))
        return JsonResponse({"recipients": list(rows.order_by("name").values("name", "address")[:MOST_RESULTS])})

    @admin.display(description="recipient")
    def name_or_address(self, recipient: Recipient) -> str:
        return str(recipient)

    @admin.display(description="status")
    def status_badge(self, recipient: Recipient) -> SafeString:
        return badge(recipient)

    @admin.display(description="tags")
    def tag_list(self, recipient: Recipient) -> str:
        return ", ".join(recipient.tags) or "–"

    @admin.display(description="deliveries")
    def history(self, recipient: Recipient) -> SafeString:
        url = reverse("admin:fanout_runtarget_changelist")
        return format_html('<a href="{}?q={}">see</a>', url, recipient.address.replace("+", "%2B"))


class SuppressionForm(ModelForm):
    class Meta:
        model = Suppression
        fields = ("address", "reason", "detail")

    def clean_address(self) -> str:
        """The address in the spelling that a lane looks for."""
        raw: str = self.cleaned_data["address"]
        try:
            return normalise(guess_kind(raw), raw)
        except AddressError as error:
            raise forms.ValidationError(str(error)) from None


@admin.register(Suppression)
class SuppressionAdmin(CrierAdmin):
    """Suppressions apply to everybody: every operator may see and add them, only administrators remove them."""

    list_display = ("address", "reason", "detail", "created_at")
    list_filter = ("reason",)
    search_fields = ("address",)
    sortable_by = ()
    form = SuppressionForm

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


@admin.register(MediaFile)
class MediaFileAdmin(OwnedAdmin):
    list_display = ("filename", "mime", "size", "created_at", "view")
    search_fields = ("filename",)
    sortable_by = ()
    readonly_fields = ("filename", "mime", "size", "view")
    fields = ("filename", "mime", "size", "view", "owner", "team")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # uploaded with the part it belongs to

    @admin.display(description="file")
    def view(self, media: MediaFile) -> SafeString:
        return format_html('<a href="{}">open</a>', reverse("admin:media_file", args=[media.pk]))
