"""An operator's notifications: the bell in the header, their list, and how they are passed on (bell, mail)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.contrib.postgres.expressions import ArraySubquery
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET, require_POST

from accounts import access
from accounts.inputs import as_ids
from fanout.admin.model_admin import ModelForm, ReadOnlyAdmin
from fanout.admin.run_status import Button, buttons_for
from fanout.admin.widgets import capped_number
from fanout.inbound.reply_inbox import open_replies
from fanout.models import InboundEvent, Notification, Run, Subscription
from fanout.ops import passing_on
from fanout.templatetags.crier import when


@admin.action(description="Mark the selected notifications as read")
def mark_read(model_admin: NotificationAdmin, request: HttpRequest, queryset: QuerySet[Notification]) -> None:
    queryset.filter(read_at=None).update(read_at=timezone.now())


@admin.register(Notification)
class NotificationAdmin(ReadOnlyAdmin):
    """Each person sees only their own notifications, including administrators."""

    fields = ("title", "body", "run", "account", "reminder", "created_at")
    list_display = ("what", "text", "at")
    list_display_links = None
    sortable_by = ()
    actions = (mark_read,)
    change_list_template = "admin/fanout/notification/change_list.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Notification]:
        return super().get_queryset(request).filter(user=request.user)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and request.user.is_staff)

    def has_view_permission(self, request: HttpRequest, obj: Notification | None = None) -> bool:
        return self.has_module_permission(request) and (obj is None or obj.user_id == request.user.pk)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        return super().changelist_view(request, {"title": "Notifications"} | (extra_context or {}))

    @admin.display(description="notification")
    def what(self, item: Notification) -> SafeString:
        tone = {"warning": "warn", "error": "bad"}.get(item.level, "good")
        mark = "" if item.read_at else " unread"
        link = format_html(
            '<a class="row-title{}" href="{}" data-notification="{}">{}</a>',
            mark,
            item.get_absolute_url(),
            item.pk,
            item.title,
        )
        return format_html('<span class="badge {}">{}</span> {}', tone, item.level, link)

    @admin.display(description="text")
    def text(self, item: Notification) -> str:
        return item.body

    @admin.display(description="when")
    def at(self, item: Notification) -> str:
        return when(item.created_at)


class SubscriptionForm(ModelForm):
    class Meta:
        model = Subscription
        fields = ("bell", "team", "email", "only_problems")
        labels = {"email": "Mail address"}


def try_out(request: HttpRequest, wish: Subscription) -> None:
    if not wish.email:
        messages.warning(request, "There is nothing to try out: enter a mail address.")
    elif problems := passing_on.try_out(wish, timezone.now()):
        messages.warning(request, " ".join(problems))
    else:
        messages.success(request, "A test was sent. If nothing arrives, look at the address once more.")


def my_notifications(request: HttpRequest) -> HttpResponse:
    """Show and save the person's own bell and mail address."""
    if not request.user.is_staff:
        raise PermissionDenied
    if request.method == "POST":
        Subscription.objects.get_or_create(user=request.user)
    wish = Subscription.objects.filter(user=request.user).first() or Subscription(user=request.user)
    form = SubscriptionForm(request.POST or None, instance=wish)
    if request.method == "POST" and form.is_valid():
        form.save()
        messages.success(request, "Saved.")
        if "try_out" in request.POST:
            try_out(request, wish)
        return HttpResponseRedirect(reverse("admin:my_notifications"))
    context = admin.site.each_context(request) | {"title": "Notification settings", "form": form}
    return TemplateResponse(request, "crier/my_notifications.html", context)


# --- the bell ---------------------------------------------------------------------------------------------

UNREAD_CAP = 99
RESUME_BUTTONS = ("resume", "resume_when_open")


def bell_state(user: Any) -> dict[str, Any]:
    """Return the number on the bell, the notification after which the stream continues, and how many replies wait.
    One query per page."""
    mine = Notification.objects.filter(user=OuterRef("pk")).order_by("-id").values("pk")
    numbers = (
        ArraySubquery(mine.filter(read_at=None)[: UNREAD_CAP + 1]),
        Subquery(mine[:1]),
        ArraySubquery(_waiting(user)),
    )
    ids, last, replies = get_user_model().objects.filter(pk=user.pk).values_list(*numbers).get()
    return {
        "unread": len(ids),
        "last": last or 0,
        "shown": capped_number(len(ids), UNREAD_CAP),
        "replies": _shown(len(replies or ())),  # none without a role
    }


def waiting_replies(users: Collection[int]) -> dict[int, str]:
    """Return how many replies wait for each of these people, as the header shows it; empty if none does."""
    people = get_user_model().objects.filter(pk__in=users, is_active=True)
    return {user.pk: _shown(_waiting(user).count()) for user in people}


def _waiting(user: Any) -> QuerySet[Any, Any]:
    """Return the replies that a person sees and no one has handled, up to the number that the header tells apart."""
    rows = open_replies(user) if user.has_perm("fanout.view_inboundevent") else InboundEvent.objects.none()
    return rows.order_by().values("pk")[: UNREAD_CAP + 1]


def _shown(replies: int) -> str:
    return capped_number(replies, UNREAD_CAP) if replies else ""


def newest_notifications(user: Any, most: int = 12) -> QuerySet[Notification]:
    return Notification.objects.filter(user=user).order_by("-id")[:most]


def with_buttons(
    user: Any, notifications: Sequence[Notification], now: datetime
) -> list[tuple[Notification, Run | None, list[Button]]]:
    """Return each notification with its run and the button that resumes it, if the person may press it."""
    runs = _resumable(user, {item.run_id for item in notifications if item.run_id})
    return [(item, run, _resume_buttons(run, now)) for item in notifications for run in [runs.get(item.run_id or 0)]]


def _resumable(user: Any, ids: set[int]) -> dict[int, Run]:
    if not ids or not access.may_do(user, "fanout.change_run"):
        return {}
    paused = Run.objects.filter(pk__in=ids, status=Run.Status.PAUSED).defer("parts", "reply_parts")
    return {run.pk: run for run in access.visible(user, paused)}


def _resume_buttons(run: Run | None, now: datetime) -> list[Button]:
    return [button for button in buttons_for(run, now) if button.name in RESUME_BUTTONS] if run else []


def mark_as_read(user: Any, now: datetime, ids: list[int] | None = None) -> int:
    unread = Notification.objects.filter(user=user, read_at=None)
    return (unread if ids is None else unread.filter(pk__in=ids)).update(read_at=now)


@require_GET
def bell_history(request: HttpRequest) -> HttpResponse:
    items = with_buttons(request.user, list(newest_notifications(request.user)), timezone.now())
    return TemplateResponse(request, "crier/bell_history.html", {"items": items})


@require_GET
def bell_buttons(request: HttpRequest, pk: int) -> HttpResponse:
    """Return the buttons of one notification, for its toast."""
    notification = get_object_or_404(Notification, pk=pk, user=request.user)
    ((_, run, buttons),) = with_buttons(request.user, [notification], timezone.now())
    return TemplateResponse(request, "crier/bell_buttons.html", {"run": run, "buttons": buttons})


@require_POST
def bell_read(request: HttpRequest) -> HttpResponse:
    """Mark the named notifications as read, or all. Returns the new number on the bell."""
    named = request.POST.getlist("id")
    mark_as_read(request.user, timezone.now(), as_ids(named) if named else None)
    if "from_list" in request.POST:
        return HttpResponseRedirect(reverse("admin:fanout_notification_changelist"))
    return JsonResponse(bell_state(request.user))
