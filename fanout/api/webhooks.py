"""Webhook endpoints: added with a secret that is shown once, changed, rotated and deleted, and their log."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Field, Query, Router, Schema, Status

from accounts.inputs import LARGEST_ID
from fanout.api.conventions import Answer, Done, Id, Needs, PageQuery, Paging, Scope, Text, caller_of, page_of
from fanout.api.reminders import team_of
from fanout.models import WebhookDelivery, WebhookEndpoint
from fanout.ops import webhooks

router = Router()
READS = Needs(Scope.READ, "fanout.view_webhookendpoint")
READS_LOG = Needs(Scope.READ, "fanout.view_webhookdelivery")
ADDS = Needs(Scope.WEBHOOKS, "fanout.add_webhookendpoint")
CHANGES = Needs(Scope.WEBHOOKS, "fanout.change_webhookendpoint")
DELETES = Needs(Scope.WEBHOOKS, "fanout.delete_webhookendpoint")

Kind = Literal[
    "run.started",
    "run.paused",
    "run.finished",
    "target.failed",
    "target.unconfirmed",
    "reply",
    "opt_out",
    "account.suspended",
]
Kinds = Annotated[list[Kind], Field(min_length=1, max_length=len(WebhookEndpoint.Kind))]
Url = Annotated[Text, Field(min_length=1, max_length=500)]


class EndpointIn(Schema):
    url: Url = Field(examples=["https://example.com/crier"])
    kinds: Kinds
    team: Id | None = Field(
        None, description="Events of this team's things; default: the token's team, else your own things"
    )


class EndpointChange(Schema):
    url: Url | None = None
    kinds: Kinds | None = None
    enabled: bool | None = Field(None, description="One that was switched off starts anew")


class EndpointOut(Answer):
    id: int
    url: str
    kinds: list[str]
    team: int | None
    enabled: bool
    problem: str = Field(description="Why the last delivery was not taken, or why it was switched off")
    failing_since: datetime | None
    previous_until: datetime | None = Field(description="Until then the secret before the last one signs as well")
    created_at: datetime


class EndpointPage(Answer):
    items: list[EndpointOut]
    next: str | None


class WithSecret(EndpointOut):
    secret: str = Field(description="Signs the deliveries; it is shown only here")


def endpoint_out(endpoint: WebhookEndpoint) -> dict[str, Any]:
    same = [name for name in EndpointOut.model_fields if name not in ("id", "team")]
    return {"id": endpoint.pk, "team": endpoint.team_id, **{name: getattr(endpoint, name) for name in same}}


def find_endpoint(request: HttpRequest, pk: int) -> WebhookEndpoint:
    return caller_of(request).find(WebhookEndpoint.objects.all(), pk, "webhook")


@router.get("", response=EndpointPage, auth=READS)
def list_endpoints(request: HttpRequest, paging: Paging) -> Any:
    """List webhooks, newest first. Their secrets are not shown."""
    items, following = page_of(caller_of(request).visible(WebhookEndpoint.objects.all()), paging)
    return {"items": [endpoint_out(one) for one in items], "next": following}


@router.get("/{int:endpoint_id}", response=EndpointOut, auth=READS)
def get_endpoint(request: HttpRequest, endpoint_id: int) -> Any:
    """Return one webhook."""
    return endpoint_out(find_endpoint(request, endpoint_id))


@router.post("", response={201: WithSecret}, auth=ADDS)
def add_endpoint(request: HttpRequest, wish: EndpointIn) -> Any:
    """Add a webhook. The answer has its secret, which is not shown again."""
    caller = caller_of(request)
    kinds = list(dict.fromkeys(wish.kinds))
    endpoint = WebhookEndpoint(owner=caller.user, team=team_of(caller, wish.team), url=wish.url, kinds=kinds)
    secret = webhooks.add_endpoint(endpoint, caller.user, timezone.now())
    return Status(201, endpoint_out(endpoint) | {"secret": secret})


@router.put("/{int:endpoint_id}", response=EndpointOut, auth=CHANGES)
def change_endpoint(request: HttpRequest, endpoint_id: int, wish: EndpointChange) -> Any:
    """Change the address or the events of a webhook, or switch it on and off. What is left out stays."""
    endpoint = find_endpoint(request, endpoint_id)
    for name, value in wish.dict(exclude_none=True).items():
        setattr(endpoint, name, list(dict.fromkeys(value)) if name == "kinds" else value)
    webhooks.change_endpoint(endpoint, caller_of(request).user, timezone.now())
    return endpoint_out(find_endpoint(request, endpoint_id))


@router.post("/{int:endpoint_id}/rotate", response=WithSecret, auth=CHANGES)
def rotate(request: HttpRequest, endpoint_id: int) -> Any:
    """Make a new secret. For a day the old one signs as well, so that the receiver can change over."""
    endpoint = find_endpoint(request, endpoint_id)
    secret = webhooks.new_secret_for(endpoint, caller_of(request).user, timezone.now())
    return endpoint_out(find_endpoint(request, endpoint_id)) | {"secret": secret}


@router.delete("/{int:endpoint_id}", response=Done, auth=DELETES)
def delete_endpoint(request: HttpRequest, endpoint_id: int) -> Any:
    """Delete a webhook with its log."""
    endpoint = find_endpoint(request, endpoint_id)
    webhooks.delete_endpoint(endpoint, caller_of(request).user, timezone.now())
    return {"text": f"{endpoint.url} gets nothing any more."}


# --- the log ----------------------------------------------------------------------------------------------------


class DeliveryOut(Answer):
    id: int
    message_id: str = Field(description="`webhook-id` of every attempt")
    kind: str
    state: Literal["pending", "delivered", "failed"]
    attempts: int
    answer: str
    created_at: datetime
    next_attempt_at: datetime | None
    settled_at: datetime | None
    payload: dict[str, Any]


class DeliveryPage(Answer):
    items: list[DeliveryOut]
    next: str | None


class DeliveryQuery(PageQuery):
    state: Literal["pending", "delivered", "failed"] | None = None


def delivery_out(delivery: WebhookDelivery) -> dict[str, Any]:
    return {"id": delivery.pk, **{name: getattr(delivery, name) for name in DeliveryOut.model_fields if name != "id"}}


@router.get("/{int:endpoint_id}/deliveries", response=DeliveryPage, auth=READS_LOG)
def list_deliveries(request: HttpRequest, endpoint_id: int, query: Query[DeliveryQuery]) -> Any:
    """List the deliveries of the last 14 days, newest first."""
    rows = WebhookDelivery.objects.filter(endpoint=find_endpoint(request, endpoint_id))
    if query.state:
        rows = rows.filter(state=query.state)
    items, following = page_of(rows, query)
    return {"items": [delivery_out(one) for one in items], "next": following}


@router.post("/{int:endpoint_id}/deliveries/{int:delivery_id}/resend", response=DeliveryOut, auth=CHANGES)
def resend(request: HttpRequest, endpoint_id: int, delivery_id: int) -> Any:
    """Send a delivery again, with the same `webhook-id`."""
    rows = WebhookDelivery.objects.filter(endpoint=find_endpoint(request, endpoint_id))
    found = rows.filter(pk=delivery_id).first() if 0 < delivery_id <= LARGEST_ID else None
    if found is None:
        raise Http404(f"There is no delivery {delivery_id}.")
    webhooks.resend([found], caller_of(request).user, timezone.now())
    found.refresh_from_db()
    return delivery_out(found)
