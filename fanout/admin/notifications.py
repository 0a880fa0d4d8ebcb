"""An operator's notifications, and how they come: by the bell, mail and webhook."""

from __future__ import annotations

from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from fanout.admin.base import CrierAdmin
from fanout.admin.generics import ModelForm
from fanout.models import Notification, Subscription
from fanout.ops import passing_on
from fanout.templatetags.crier import when


@admin.action(description="Mark the selected notifications as read")
def mark_read(model_admin: NotificationAdmin, request: HttpRequest, queryset: QuerySet[Notification]) -> None:
    queryset.filter(read_at=None).update(read_at=timezone.now())


@admin.register(Notification)
class NotificationAdmin(CrierAdmin):
    """Everybody sees only their own, including administrators."""

    list_display = ("what", "body", "at")
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

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

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

    @admin.display(description="when")
    def at(self, item: Notification) -> str:
        return when(item.created_at)


class SubscriptionForm(ModelForm):
    class Meta:
        model = Subscription
        fields = ("bell", "team", "email", "webhook", "only_problems")
        field_classes = {"webhook": partial(forms.URLField, assume_scheme="https")}

    def clean_webhook(self) -> str:
        url: str = self.cleaned_data["webhook"]
        if url and (problem := passing_on.webhook_error(url)):
            raise forms.ValidationError(problem)
        return url


def try_out(request: HttpRequest, wish: Subscription) -> None:
    if not (wish.email or wish.webhook):
        messages.warning(request, "There is nothing to try out: enter a mail address or a webhook.")
    elif problems := passing_on.try_out(wish, timezone.now()):
        messages.warning(request, " ".join(problems))
    else:
        messages.success(request, "A trial was sent. If nothing arrives, look at the address once more.")


def my_notifications(request: HttpRequest) -> HttpResponse:
    """The form for one's own bell, mail address and webhook."""
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
    context = admin.site.each_context(request) | {"title": "How you are told", "form": form}
    return TemplateResponse(request, "crier/my_notifications.html", context)
