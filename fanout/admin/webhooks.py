"""Webhooks out: where a team's events go, the secret that signs them, and the log of deliveries."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.cache import never_cache

from accounts import access
from accounts.inputs import counted
from fanout.admin.login import sensitive
from fanout.admin.model_admin import OwnedAdmin, OwnedForm
from fanout.models import WebhookDelivery, WebhookEndpoint
from fanout.ops import webhooks

MOST_RESENT = 500
TONES = {"delivered": "good", "pending": "busy", "failed": "bad"}


class EndpointForm(OwnedForm):
    kinds = forms.MultipleChoiceField(
        choices=WebhookEndpoint.Kind.choices, widget=forms.CheckboxSelectMultiple, label="Events"
    )
    url = forms.URLField(max_length=500, assume_scheme="https", label="Address")

    def clean_url(self) -> str:
        url: str = self.cleaned_data["url"]
        if problem := webhooks.url_problem(url):
            raise forms.ValidationError(problem)
        return url

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]
        if not self.errors:
            try:
                webhooks.check_endpoint(self.instance)
            except forms.ValidationError as problem:
                self.add_error(None, problem)


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(OwnedAdmin):
    form = EndpointForm
    list_display = ("address", "team", "events", "state")
    sortable_by = ()
    fields = ("url", "kinds", "enabled", "owner", "team")
    change_form_template = "admin/fanout/webhookendpoint/change_form.html"

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        names = [name for name in self.fields or () if name != "owner" or request.user.is_superuser]
        return [(None, {"fields": names})]

    @admin.display(description="address")
    def address(self, endpoint: WebhookEndpoint) -> str:
        return endpoint.url

    @admin.display(description="events")
    def events(self, endpoint: WebhookEndpoint) -> str:
        labels = dict(WebhookEndpoint.Kind.choices)
        return ", ".join(labels.get(kind, kind) for kind in endpoint.kinds)

    @admin.display(description="state")
    def state(self, endpoint: WebhookEndpoint) -> SafeString:
        if not endpoint.enabled:
            return format_html('<span class="badge mute">off</span> {}', endpoint.problem)
        if endpoint.failing_since:
            return format_html('<span class="badge warn">failing</span> {}', endpoint.problem)
        return format_html('<span class="badge good">{}</span>', "on")

    def save_model(self, request: HttpRequest, obj: WebhookEndpoint, form: Any, change: bool) -> None:
        if change and "enabled" in form.changed_data:
            webhooks.start_anew(obj)
        super().save_model(request, obj, form, change)
        if not change:
            secret = webhooks.rotate(obj, timezone.now())
            transaction.on_commit(webhooks.enqueue_posting)
            messages.warning(request, f"Copy the secret now, it is not shown again: {secret}")

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """The log of a webhook is deleted with it, although its rows are not deleted one by one."""
        endpoints = list(objs)
        log = WebhookDelivery.objects.filter(endpoint__in=endpoints).count()
        counts = {"webhooks": len(endpoints)} | ({"webhook deliveries": log} if log else {})
        return [str(endpoint) for endpoint in endpoints], counts, set(), []

    def get_urls(self) -> list[Any]:
        rotate = never_cache(self.admin_site.admin_view(sensitive(self.rotate_view)))
        return [path("<int:pk>/rotate/", rotate, name="fanout_webhookendpoint_rotate"), *super().get_urls()]

    def rotate_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Make a new secret and show it once; the old one is valid for another day."""
        endpoint = self.get_queryset(request).filter(pk=pk).first()
        if endpoint is None or not self.has_change_permission(request, endpoint):
            raise Http404
        now, secret = timezone.now(), ""
        if request.method == "POST":
            secret = webhooks.new_secret_for(endpoint, request.user, now)
        context = self.admin_site.each_context(request) | {
            "title": "Secret of a webhook",
            "opts": self.opts,
            "endpoint": endpoint,
            "secret": secret,
        }
        return TemplateResponse(request, "admin/fanout/webhookendpoint/rotate.html", context)


@admin.action(description="Send again", permissions=["resend"])
def send_again(model_admin: Any, request: HttpRequest, queryset: QuerySet[WebhookDelivery]) -> None:
    count = webhooks.resend(list(queryset[:MOST_RESENT]), request.user, timezone.now())
    messages.success(request, f"{counted(count, 'webhook')} will be sent again.")


class EventFilter(admin.SimpleListFilter):
    """Offers the known events: reading them from the log would go through all of it."""

    title = "event"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(value), str(label)) for value, label in WebhookEndpoint.Kind.choices]

    def queryset(self, request: HttpRequest, queryset: QuerySet[WebhookDelivery]) -> QuerySet[WebhookDelivery]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(OwnedAdmin):
    """The log: nothing is added or changed here."""

    owned_by = "endpoint"

    list_display = ("kind", "to", "state_badge", "attempts", "answer", "created_at", "message_id")
    list_display_links = ("kind",)
    list_filter = ("state", EventFilter, ("endpoint", admin.RelatedOnlyFieldListFilter))
    sortable_by = ()
    actions = (send_again,)
    fields = ("kind", "message_id", "to", "state", "attempts", "answer", "created_at", "settled_at", "payload")
    readonly_fields = fields

    def has_resend_permission(self, request: HttpRequest) -> bool:
        return access.may_do(request.user, "fanout.change_webhookendpoint")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.display(description="to")
    def to(self, delivery: WebhookDelivery) -> str:
        return delivery.endpoint.url

    @admin.display(description="state")
    def state_badge(self, delivery: WebhookDelivery) -> SafeString:
        return format_html('<span class="badge {}">{}</span>', TONES[delivery.state], delivery.state)
