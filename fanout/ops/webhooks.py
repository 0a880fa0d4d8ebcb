"""Webhooks out: what happened to a team's things is posted to its endpoints, signed, at least once, in order per run.

Triggers write events (fanout/migrations/version_1_0/webhooks.py). A task turns them into deliveries and posts those;
one that is not taken is tried again for a day. Signatures follow the Standard Webhooks specification: `webhook-id`,
`webhook-timestamp` and `webhook-signature`, with two valid secrets while they are rotated.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction
from django.db.models import F, Q
from django.urls import reverse
from django.utils import timezone
from django_q.tasks import async_task

from accounts import access
from accounts.channels.http import FAILURES, client, host_problem, words_of
from accounts.inputs import counted
from accounts.models import Account
from fanout.database import execute
from fanout.models import (
    InboundEvent,
    Notification,
    Run,
    RunTarget,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookEvent,
)
from fanout.models.trail import note

log = logging.getLogger("crier.webhooks")

T = TypeVar("T")

Kind = WebhookEndpoint.Kind
State = WebhookDelivery.State
PREFIX = "whsec_"
#: endpoints that a person may have: each event is stored once for each of them
MOST_ENDPOINTS = 50
ROTATES_FOR = timedelta(hours=24)
TIMEOUT = 10.0
AT_ONCE = 100
#: deliveries of one endpoint at the same time, so that a slow one leaves room for the others
EACH = 5
#: subjects of one endpoint that a search for due deliveries looks at: some hundredths of a second
LOOKS = 2_000
RETRIED_FOR = timedelta(hours=24)
WARNED_AFTER = timedelta(hours=12)
#: waits before the second, third … attempt, in seconds; the last one repeats
WAITS = (5, 30, 120, 600, 1800, 3600, 7200, 14400)
KEPT_FOR = timedelta(days=14)
BATCH = 500
LOOK_EVERY = 2.0
LOCK = 0x435250  # "CRP": the advisory lock of the one task that posts
WARNING = "Webhook is failing"
SWITCHED_OFF = "Webhook switched off"


# --- endpoints --------------------------------------------------------------------------------------------------


@transaction.atomic
def add_endpoint(endpoint: WebhookEndpoint, user: Any, now: datetime) -> str:
    """Save a new endpoint; return its secret, which is shown once. Raises ValidationError."""
    check_endpoint(endpoint)
    endpoint.full_clean(exclude=["secrets"])
    endpoint.save()
    note("added", endpoint, user, now)
    transaction.on_commit(enqueue_posting)
    return rotate(endpoint, now)


def enqueue_posting() -> None:
    """Start the task that posts. Twice does no harm: of two tasks one ends at once."""
    async_task("fanout.ops.tasks.post_webhooks", cluster="main", task_name="webhooks")


def check_endpoint(endpoint: WebhookEndpoint) -> None:
    """Raise ValidationError for an address that may not be called, and for one endpoint too many."""
    if problem := url_problem(endpoint.url):
        raise ValidationError({"url": problem})
    others = WebhookEndpoint.objects.filter(owner=endpoint.owner_id).exclude(pk=endpoint.pk)
    if endpoint.pk is None and others.count() >= MOST_ENDPOINTS:
        raise ValidationError(f"You have {MOST_ENDPOINTS} webhooks: delete those that are no longer used.")


@transaction.atomic
def change_endpoint(endpoint: WebhookEndpoint, user: Any, now: datetime) -> None:
    """Save the address, events and state of an endpoint. One that was off starts anew. Raises ValidationError."""
    access.require(user, endpoint)
    check_endpoint(endpoint)
    endpoint.full_clean(exclude=["secrets"])
    before = WebhookEndpoint.objects.select_for_update(of=("self",)).get(pk=endpoint.pk)
    if before.enabled != endpoint.enabled:
        start_anew(endpoint)
    endpoint.save(update_fields=["url", "kinds", "enabled", "failing_since", "warned_at", "problem"])
    changed = [name for name in ("url", "kinds", "enabled") if getattr(before, name) != getattr(endpoint, name)]
    note("changed", endpoint, user, now, ", ".join(changed))


def start_anew(endpoint: WebhookEndpoint) -> None:
    """Forget how an endpoint failed, before it is saved: it was switched on or off."""
    endpoint.failing_since, endpoint.warned_at, endpoint.problem = None, None, ""
    transaction.on_commit(enqueue_posting)


@transaction.atomic
def new_secret_for(endpoint: WebhookEndpoint, user: Any, now: datetime) -> str:
    """Rotate the secret of an endpoint for a person; return the new one, which is shown once."""
    access.require(user, endpoint)
    note("rotated a webhook's secret", endpoint, user, now)
    return rotate(endpoint, now)


@transaction.atomic
def delete_endpoint(endpoint: WebhookEndpoint, user: Any, now: datetime) -> None:
    """Delete an endpoint with its log."""
    access.require(user, endpoint)
    note("deleted", endpoint, user, now)
    endpoint.delete()


# --- secrets and signatures -------------------------------------------------------------------------------------


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def rotate(endpoint: WebhookEndpoint, now: datetime) -> str:
    """Give the endpoint a new secret and return it. For a day both sign, so that the receiver can change over."""
    secret, known = new_secret(), dict(endpoint.secrets)
    endpoint.secrets = {"current": secret} | ({"previous": known["current"]} if known.get("current") else {})
    endpoint.previous_until = now + ROTATES_FOR if known.get("current") else None
    endpoint.save(update_fields=["secrets", "previous_until"])
    return secret


def signature(secret: str, message_id: str, at: int, body: bytes) -> str:
    """Return the signature as the specification has it: the key is what follows the prefix, in base64."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        key = secret.encode()
    signed = hmac.new(key, f"{message_id}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"


def headers(endpoint: WebhookEndpoint, message_id: str, body: bytes, now: datetime) -> dict[str, str]:
    at, known = int(now.timestamp()), dict(endpoint.secrets)
    rotating = endpoint.previous_until is not None and now < endpoint.previous_until
    valid = [known.get("current", ""), known.get("previous", "") if rotating else ""]
    return {
        "content-type": "application/json",
        "user-agent": "Crier",
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(signature(secret, message_id, at, body) for secret in valid if secret),
    }


def url_problem(url: str) -> str:
    """Return why a webhook is not allowed; empty if it is. It must not reach the server's own network."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    return host_problem(parts.hostname or "") if usable else "The address of a webhook starts with https://."


# --- events become deliveries -----------------------------------------------------------------------------------


def fan_out(now: datetime) -> int:
    """Turn a batch of events into deliveries for the endpoints that want them. Returns how many events there were."""
    with transaction.atomic():
        rows = WebhookEvent.objects.order_by("pk").select_for_update(skip_locked=True)
        events = list(rows[:BATCH])
        if not events:
            return 0
        switch_off_of_leavers(now)
        endpoints = list(WebhookEndpoint.objects.filter(enabled=True))
        described = _Described(events)
        deliveries = [
            WebhookDelivery(
                endpoint=endpoint,
                message_id=f"msg_{uuid4().hex}",
                kind=event.kind,
                payload=described.payload(event),
                subject=described.subject(event),
                created_at=now,
            )
            for event in events
            if not described.is_only_a_turn(event)
            for endpoint in endpoints
            if _wants(endpoint, event)
        ]
        WebhookDelivery.objects.bulk_create(deliveries, batch_size=BATCH)
        WebhookEvent.objects.filter(pk__in=[event.pk for event in events]).delete()
    return len(events)


def _wants(endpoint: WebhookEndpoint, event: WebhookEvent) -> bool:
    if event.kind not in endpoint.kinds:
        return False
    mine = endpoint.team_id is None and endpoint.owner_id == event.owner_id
    return mine or (endpoint.team_id is not None and endpoint.team_id == event.team_id)


class _Described:
    """Reads what a batch of events is about, in a handful of queries, and puts each into words."""

    def __init__(self, events: Sequence[WebhookEvent]) -> None:
        inbound = InboundEvent.objects.in_bulk([one.inbound_id for one in events if one.inbound_id])
        targets = {one.target_id for one in events} | {one.run_target_id for one in inbound.values()}
        self.inbound = inbound
        self.targets = RunTarget.objects.in_bulk([pk for pk in targets if pk])
        runs = {one.run_id for one in events if one.run_id} | {one.run_id for one in self.targets.values()}
        self.runs = Run.objects.defer("parts", "reply_parts").in_bulk(list(runs))
        accounts = {one.account_id for one in events if one.account_id}
        accounts |= {run.account_id for run in self.runs.values()}
        self.accounts = Account.objects.in_bulk(list(accounts))

    def subject(self, event: WebhookEvent) -> str:
        """Return the run that the event belongs to, also that of a reply; without one, the account."""
        target = self.targets.get(event.target_id or 0)
        run = event.run_id or (target.run_id if target else None)
        return f"run {run}" if run else f"account {event.account_id}"

    def is_only_a_turn(self, event: WebhookEvent) -> bool:
        """Return whether a run of Message 2 begins or ends its turn: it does so with every reply."""
        run = self.runs.get(event.run_id or 0)
        return event.kind in (Kind.RUN_STARTED, Kind.RUN_FINISHED) and run is not None and run.answers_id is not None

    def payload(self, event: WebhookEvent) -> dict[str, Any]:
        about = self._about(event)
        text = about.pop("text")
        data = {"type": event.kind, "timestamp": event.at, "text": text, "data": about | event.facts}
        plain: dict[str, Any] = json.loads(json.dumps(data, cls=DjangoJSONEncoder))
        return plain

    def _about(self, event: WebhookEvent) -> dict[str, Any]:
        """Return what the event is about, with a `text` that chat programs show."""
        if event.inbound_id:
            return self._of_inbound(event)
        account = self.accounts.get(event.account_id or 0)
        if event.kind == Kind.ACCOUNT_SUSPENDED:
            label = account.label if account else ""
            why = event.facts.get("reason") or event.facts.get("status")
            return {"account": event.account_id, "label": label, "text": f"{label} is {event.facts['status']}: {why}"}
        run = self.runs.get(event.run_id or 0)
        title = run.title if run else ""
        about: dict[str, Any] = {"run": event.run_id, "title": title, "reminder": run.reminder_id if run else None}
        about["url"] = settings.SITE_URL + reverse("admin:fanout_run_change", args=[event.run_id])
        if event.target_id is None:
            # Only that of the event: the run may have gone on since.
            summary = run.error_summary if run and run.status == event.facts["status"] else ""
            return about | {"summary": summary, "text": f"{title}: {event.facts['status']}. {summary}".rstrip()}
        target = self.targets.get(event.target_id)
        who: dict[str, Any] = {"target": event.target_id, "account": event.account_id}
        who |= {"recipient": target.recipient_id if target else None, "address": target.address if target else ""}
        text = f"{title}: {who['address']} {event.facts['status']}. {event.facts.get('error', '')}".rstrip()
        return about | who | {"text": text}

    def _of_inbound(self, event: WebhookEvent) -> dict[str, Any]:
        said = self.inbound.get(event.inbound_id or 0)
        if said is None:  # erased meanwhile
            return {"account": event.account_id, "address": "", "message": "", "run": None, "text": event.kind}
        target = self.targets.get(said.run_target_id or 0)
        words = said.text if said.kind == InboundEvent.Kind.REPLY else said.kind
        return {
            "account": event.account_id,
            "address": said.address,
            "message": words,
            "happened_at": said.happened_at,
            "run": target.run_id if target else None,
            "target": said.run_target_id,
            "text": f"{said.address}: {words}",
        }


# --- posting ----------------------------------------------------------------------------------------------------


# Of each endpoint that has room, the first pending delivery of some subjects, where it is due: one that waits for
# another attempt holds back those behind it. The subjects are taken in turn, like a ring, from the one after the last
# that was posted (`after`). Each step is a look into the index, and there are so many at most (`looks`): the last row
# of a longer ring is not ready, and says where to go on.
NEXT = """
SELECT e.id AS endpoint_id, head.id, head.subject, head.ready
  FROM (SELECT id, coalesce(%(after)s::jsonb ->> id::text, '') AS after FROM fanout_webhookendpoint
         WHERE enabled AND id <> ALL(%(full)s::bigint[])) AS e
 CROSS JOIN LATERAL (
  WITH RECURSIVE ring AS (
    SELECT 0 AS n, false AS around, NULL::bigint AS id, e.after::text AS subject, NULL::timestamptz AS due
     UNION ALL
    SELECT r.n + 1, next.around, next.id, next.subject, next.due
      FROM ring r
     CROSS JOIN LATERAL (
        (SELECT r.around AS around, d.id, d.subject::text, coalesce(d.next_attempt_at, d.created_at) AS due
           FROM fanout_webhookdelivery d
          WHERE d.endpoint_id = e.id AND d.state = 'pending' AND d.subject > r.subject
            AND (NOT r.around OR d.subject <= e.after)
          ORDER BY d.subject, d.id LIMIT 1)
         UNION ALL
        (SELECT true, d.id, d.subject::text, coalesce(d.next_attempt_at, d.created_at)
           FROM fanout_webhookdelivery d
          WHERE d.endpoint_id = e.id AND d.state = 'pending' AND d.subject <= e.after AND NOT r.around
          ORDER BY d.subject, d.id LIMIT 1)
         ORDER BY around LIMIT 1) AS next
     WHERE r.n < %(looks)s)
  SELECT n, id, subject, due <= %(now)s AND id <> ALL(%(busy)s::bigint[]) AS ready FROM ring
   WHERE n > 0 AND (due <= %(now)s AND id <> ALL(%(busy)s::bigint[]) OR n = %(looks)s)
   LIMIT %(each)s) AS head
 ORDER BY head.n, e.id
"""


def post_due(now: datetime) -> int:
    """Post the deliveries whose turn it is, and wait for all answers. Returns how many were tried."""
    with Poster() as poster:
        count = poster.start(now)
        while poster.under_way:
            poster.record(TIMEOUT, now)
    return count


Answer = tuple[bool, str, bool]  # taken, in words, and whether the receiver wants no more


class Poster:
    """Posts on a thread of its own and keeps what is under way: a few deliveries of each endpoint and one of each
    subject, so that a receiver that answers late or never holds up no other."""

    def __init__(self) -> None:
        self.under_way: dict[Future[Answer], WebhookDelivery] = {}
        #: by endpoint: the subject whose turn was last
        self.after: dict[int, str] = {}
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self) -> Poster:
        self.thread.start()
        self.session = self._call(_session()).result()
        return self

    def __exit__(self, *args: object) -> None:
        self._call(self.session.close()).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def start(self, now: datetime) -> int:
        """Begin to post the deliveries whose turn it is. Returns how many."""
        busy = [delivery.pk for delivery in self.under_way.values()]
        each = Counter(delivery.endpoint_id for delivery in self.under_way.values())
        full = [endpoint for endpoint, count in each.items() if count >= EACH]
        chosen: list[int] = []
        turns = {"after": json.dumps(self.after), "each": EACH, "looks": LOOKS}
        for row in execute(NEXT, {"now": now, "busy": busy, "full": full} | turns):
            endpoint = row["endpoint_id"]
            if each[endpoint] >= EACH or len(busy) + len(chosen) >= AT_ONCE:
                continue
            self.after[endpoint] = row["subject"]
            if row["ready"]:
                each[endpoint] += 1
                chosen.append(row["id"])
        for delivery in WebhookDelivery.objects.filter(pk__in=chosen).select_related("endpoint__owner"):
            self.under_way[self._call(_post(self.session, delivery, now))] = delivery
        return len(chosen)

    def record(self, seconds: float, now: datetime | None = None) -> int:
        """Wait for an answer, for some seconds, and store those that are there. Returns how many."""
        done, _ = wait(self.under_way, seconds, FIRST_COMPLETED)
        for future in done:
            _record(self.under_way.pop(future), *future.result(), now or timezone.now())
        return len(done)


async def _session() -> aiohttp.ClientSession:
    return client(TIMEOUT)


async def _post(session: aiohttp.ClientSession, delivery: WebhookDelivery, now: datetime) -> Answer:
    """Post one delivery. Redirects are not followed, and the answer's body is not read."""
    endpoint, body = delivery.endpoint, json.dumps(delivery.payload).encode()
    try:
        signed = headers(endpoint, delivery.message_id, body, now)
        async with session.post(endpoint.url, data=body, headers=signed, allow_redirects=False) as response:
            status = response.status
    except TimeoutError:
        return False, f"no answer within {TIMEOUT:.0f} seconds", False
    except (*FAILURES, ValueError) as failure:
        return False, f"not reached: {words_of(failure)}"[:300], False
    return 200 <= status < 300, f"answered {status}", status == 410


def _record(delivery: WebhookDelivery, ok: bool, answer: str, gone: bool, now: datetime) -> None:
    attempts = delivery.attempts + 1
    row = WebhookDelivery.objects.filter(pk=delivery.pk, state=State.PENDING)
    endpoints = WebhookEndpoint.objects.filter(pk=delivery.endpoint_id)
    if ok:
        row.update(state=State.DELIVERED, attempts=attempts, settled_at=now, answer=answer, next_attempt_at=None)
        endpoints.exclude(failing_since=None).update(failing_since=None, warned_at=None, problem="")
        return
    again = now + timedelta(seconds=WAITS[min(attempts, len(WAITS)) - 1])
    if again > delivery.created_at + RETRIED_FOR:
        row.update(state=State.FAILED, attempts=attempts, settled_at=now, answer=answer, next_attempt_at=None)
    else:
        row.update(attempts=attempts, next_attempt_at=again, answer=answer)
    log.warning("a webhook was not taken: %s", answer, extra={"endpoint": delivery.endpoint_id})
    endpoints.filter(failing_since=None).update(failing_since=now)
    endpoints.update(problem=answer)
    if gone:
        _switch_off(delivery.endpoint, "Its receiver answered 410: it wants no more.", now)


@transaction.atomic
def resend(deliveries: Sequence[WebhookDelivery], user: Any, now: datetime) -> int:
    """Post deliveries again, with the same ids, ahead of their next attempts. Returns how many."""
    chosen = WebhookDelivery.objects.filter(pk__in=[delivery.pk for delivery in deliveries])
    count = chosen.update(state=State.PENDING, next_attempt_at=None, settled_at=None, created_at=now, attempts=0)
    note("sent webhooks again", None, user, now, counted(count, "webhook"))
    return count


# --- endpoints that fail ----------------------------------------------------------------------------------------


def look_after(now: datetime) -> None:
    """Warn the owners of endpoints that fail, switch those off that failed for a day or whose owner has left, and
    delete old deliveries."""
    switch_off_of_leavers(now)
    failing = WebhookEndpoint.objects.filter(enabled=True, failing_since__lte=now - WARNED_AFTER)
    for endpoint in failing.select_related("owner"):
        assert endpoint.failing_since is not None
        if endpoint.failing_since <= now - RETRIED_FOR:
            _switch_off(endpoint, f"Nothing was taken for a day ({endpoint.problem}).", now)
        elif WebhookEndpoint.objects.filter(pk=endpoint.pk, warned_at=None).update(warned_at=now):
            off = endpoint.failing_since + RETRIED_FOR
            words = f"{endpoint.url}: {endpoint.problem}. It is switched off at {off:%H:%M} UTC unless it takes one."
            _tell(endpoint, WARNING, words, now)
    old = Q(state=State.PENDING, created_at__lt=now - RETRIED_FOR)
    WebhookDelivery.objects.filter(old).update(state=State.FAILED, settled_at=now, next_attempt_at=None)
    gone = WebhookDelivery.objects.filter(settled_at__lt=now - KEPT_FOR).values_list("pk", flat=True)[:50_000]
    WebhookDelivery.objects.filter(pk__in=list(gone)).delete()


def switch_off_of_leavers(now: datetime) -> None:
    """Switch off endpoints whose owner may not see webhooks or log in any more, or has left their team: replies and
    addresses must not reach former members. Its page says why; the owner, who gets nothing more, is not told."""
    may = User.objects.with_perm("fanout.view_webhookendpoint", backend="django.contrib.auth.backends.ModelBackend")
    readers = set(may.filter(is_staff=True).values_list("pk", flat=True))
    left = Q(team__isnull=False, owner__is_superuser=False) & ~Q(team__user=F("owner"))
    for endpoint in WebhookEndpoint.objects.filter(~Q(owner__in=readers) | left, enabled=True).select_related("owner"):
        lacks = "is no longer in the team" if endpoint.owner_id in readers else "may not use webhooks any more"
        why = f"{endpoint.owner} {lacks}. Give it another owner, then switch it on again."
        WebhookEndpoint.objects.filter(pk=endpoint.pk).update(enabled=False, problem=why[:300])
        note("switched off", endpoint, None, now, why)


def _switch_off(endpoint: WebhookEndpoint, why: str, now: datetime) -> None:
    if WebhookEndpoint.objects.filter(pk=endpoint.pk, enabled=True).update(enabled=False, problem=why[:300]):
        _tell(endpoint, SWITCHED_OFF, f"{endpoint.url}: {why} Repair it, then switch it on again.", now)


def _tell(endpoint: WebhookEndpoint, title: str, body: str, now: datetime) -> None:
    Notification.objects.create(user=endpoint.owner, title=title, body=body, level="warning", created_at=now)


# --- the task ---------------------------------------------------------------------------------------------------


def work(seconds: float, stopping: Any = lambda: False) -> bool:
    """Post what comes, for some seconds. Returns False if another task does it already: one at a time keeps the
    order."""
    if not execute("SELECT pg_try_advisory_lock(%(lock)s) AS mine", {"lock": LOCK})[0]["mine"]:
        return False
    try:
        until = time.monotonic() + seconds
        look_after(timezone.now())
        with Poster() as poster:
            while time.monotonic() < until and not stopping():
                now = timezone.now()
                worked = fan_out(now) + poster.start(now)
                if poster.under_way:
                    worked += poster.record(LOOK_EVERY)
                elif not worked and not WebhookEndpoint.objects.filter(enabled=True).exists():
                    break
                elif not worked:
                    time.sleep(LOOK_EVERY)
            while poster.under_way:  # posted already: an answer that is not stored would mean to post it again
                poster.record(TIMEOUT)
    finally:
        execute("SELECT pg_advisory_unlock(%(lock)s)", {"lock": LOCK})
    return True


def step(now: datetime) -> bool:
    """Fan out a batch of events and post a round of deliveries. Returns whether there was work."""
    events, posted = fan_out(now), post_due(now)
    return bool(events or posted)
