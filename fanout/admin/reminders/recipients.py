"""Recipients and files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from accounts import access
from fanout.admin.answers import do_each
from fanout.admin.archiving import ArchivedFilter, archive_actions
from fanout.admin.asking import Question, asking_action, counted
from fanout.admin.badges import badge
from fanout.admin.base import OwnedAdmin, OwnedForm
from fanout.admin.reminders.conversation import conversation
from fanout.admin.reminders.own_fields import RowsField
from fanout.models import RunTarget
from fanout.runs import archiving
from fanout.runs.erasing import erase
from reminders import erasure
from reminders.models import MediaFile, Membership, Recipient

MOST_RESULTS = 20
MOST_ERASED = 100


class RecipientForm(OwnedForm):
    fields = RowsField(  # type: ignore[assignment]  # a declared field of that name; the form keeps its own apart
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


def about_removing(recipients: Sequence[Recipient], now: datetime) -> Question:
    sent = RunTarget.objects.filter(recipient=OuterRef("pk"))
    kept = Recipient.objects.filter(Exists(sent), pk__in=[recipient.pk for recipient in recipients]).count()
    sentences = ["They are taken out of all reminders. To make a person disappear everywhere, erase them instead."]
    if kept:
        sentences.append(f"{counted(kept, 'recipient')} with deliveries will be archived instead of deleted.")
    title = f"Delete {counted(len(recipients), 'recipient')}?"
    return Question(title, sentences, title.rstrip("?"), [(str(one), one.address) for one in recipients], danger=True)


class GoneFilter(admin.SimpleListFilter):
    title = "group"
    parameter_name = "group"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("gone", "no account is in it any more")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Recipient]) -> QuerySet[Recipient]:
        if self.value() != "gone":
            return queryset
        listed = Membership.objects.filter(recipient=OuterRef("pk"))
        return queryset.filter(Exists(listed), ~Exists(listed.filter(gone_at=None)))


@admin.register(Recipient)
class RecipientAdmin(OwnedAdmin):
    form = RecipientForm
    actions = (
        asking_action(
            "remove",
            "Delete the selected recipients",
            "Deleted or archived",
            about_removing,
            archiving.remove_recipient,
            permission="delete",
        ),
        erase_selected,
        *archive_actions(archiving.archive_recipient, archiving.restore_recipient, "recipients"),
    )
    list_display = ("name_or_address", "address", "kind", "members", "status_badge", "tag_list", "history")
    list_display_links = ("name_or_address",)
    list_filter = ("kind", "status", GoneFilter, ArchivedFilter)
    search_fields = ("name", "address")
    sortable_by = ()
    readonly_fields = ("follow_up_attempts", "attempts_reset_at", "cooldown_until", "replied_at")
    fieldsets = (
        (None, {"fields": ("kind", "address", "name", "fields", "tags", "status", "owner", "team")}),
        ("Follow-up", {"fields": ("follow_up_attempts", "attempts_reset_at", "cooldown_until", "replied_at")}),
    )

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only whom nothing was ever sent to: deliveries prove what was."""
        return super().has_delete_permission(request, obj) and (obj is None or not obj.run_targets.exists())

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Without Django's own deleting of many, which gives up where one of them has deliveries: there is `remove`."""
        actions: dict[str, Any] = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        recipient = self.get_object(request, object_id)
        context: dict[str, Any] = {}
        if recipient is not None and self.has_view_permission(request, recipient):
            context["conversation"] = conversation(recipient, request.user)
        return super().change_view(request, object_id, form_url, context | (extra_context or {}))

    def get_urls(self) -> list[URLPattern]:
        find = self.admin_site.admin_view(require_GET(self.find_view))
        return [path("find/", find, name="reminders_recipient_find"), *super().get_urls()]

    def find_view(self, request: HttpRequest) -> JsonResponse:
        """For the search in the reminder's form: the first few recipients that match by name, address or tag."""
        term = request.GET.get("q", "").strip()
        if not self.has_view_permission(request) or len(term) < 2:
            return JsonResponse({"recipients": []})
        rows = access.visible(
            request.user, Recipient.objects.filter(archived=False).exclude(status__in=Recipient.GETS_NOTHING)
        )
        rows = rows.filter(Q(name__icontains=term) | Q(address__startswith=term) | Q(tags__contains=[term]))
        return JsonResponse({"recipients": list(rows.order_by("name").values("name", "address")[:MOST_RESULTS])})

    def save_model(self, request: HttpRequest, obj: Recipient, form: forms.ModelForm[Recipient], change: bool) -> None:
        if "status" in form.changed_data:
            obj.limited = False  # it is what this person says now, and no longer the follow-up limit's
        super().save_model(request, obj, form, change)

    @admin.display(description="recipient")
    def name_or_address(self, recipient: Recipient) -> str:
        return str(recipient)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Recipient]:
        return erasure.present(super().get_queryset(request)).prefetch_related("memberships")

    @admin.display(description="members")
    def members(self, recipient: Recipient) -> str:
        """Of a group that was synchronised: its size, or since when no account is in it."""
        memberships = list(recipient.memberships.all())
        present = [membership for membership in memberships if membership.gone_at is None]
        if present or not memberships:
            return str(max((membership.size or 0 for membership in present), default=0) or "–")
        return f"gone since {max(m.gone_at for m in memberships if m.gone_at):%d %b %Y}"

    @admin.display(description="status")
    def status_badge(self, recipient: Recipient) -> SafeString:
        if recipient.archived:
            return format_html('{} <span class="badge mute">archived</span>', badge(recipient))
        return badge(recipient)

    @admin.display(description="tags")
    def tag_list(self, recipient: Recipient) -> str:
        return ", ".join(recipient.tags) or "–"

    @admin.display(description="deliveries")
    def history(self, recipient: Recipient) -> SafeString:
        url = reverse("admin:fanout_runtarget_changelist")
        return format_html('<a href="{}?q={}">see</a>', url, recipient.address.replace("+", "%2B"))


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
