"""Every page that a person can open, on the demo data: for axe, and for screenshots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.test import RequestFactory
from django.urls import reverse

#: pages besides those of a model, by the name of their address
SINGLE = (
    "index",
    "my_notifications",
    "calendar",
    "calendar_feed",
    "my_timezone",
    "replies",
    "results",
    "results_compare",
    "my_tokens",
    "components",
    "second_factor",
    "confirm",
    "password_change",
    "reminders_recipient_import",
    "reminders_suppression_import",
    "reminders_optoutphrase_try",
)
#: of each model, where the person may
LISTS, THINGS = ("changelist", "add"), ("change", "history", "delete")
ERRORS = {"404": "/admin/no/such/page/"}


def every_page(user: Any) -> dict[str, str]:
    """By name: the lists, forms and confirmations of every model that has a row, the single pages and the errors."""
    pages = {name: reverse(f"admin:{name}") for name in SINGLE}
    for model_admin in admin.site._registry.values():
        pages.update(_of_model(model_admin, user))
    account = {"new SMTP account": f"{reverse('admin:accounts_account_add')}?channel=smtp"}
    account["invitation"] = reverse("admin:auth_user_invitation", args=[user.pk])
    return pages | account | dict(_of_runs()) | ERRORS


def _of_model(model_admin: Any, user: Any) -> Iterator[tuple[str, str]]:
    request = RequestFactory().get("/")
    request.user = user
    name = f"{model_admin.opts.app_label}_{model_admin.opts.model_name}"
    first = model_admin.get_queryset(request).first()
    for page in LISTS:
        if page != "add" or model_admin.has_add_permission(request):
            yield f"{name}_{page}", reverse(f"admin:{name}_{page}")
    for page in THINGS if first else ():
        if page != "delete" or model_admin.has_delete_permission(request, first):
            yield f"{name}_{page}", reverse(f"admin:{name}_{page}", args=[first.pk])


def _of_runs() -> Iterator[tuple[str, str]]:
    """A run in each status, because their pages differ."""
    from fanout.models import Run

    for run in Run.objects.order_by("status", "-pk").distinct("status"):
        yield f"run {run.status}", reverse("admin:fanout_run_change", args=[run.pk])
        if run.status == "paused":
            yield "offload", f"{reverse('admin:fanout_run_offload')}?runs={run.pk}"
