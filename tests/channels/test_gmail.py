"""Gmail against a local server that checks the signature and gives every documented answer."""

from __future__ import annotations

import asyncio
import base64
import email
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from email import policy
from email.message import EmailMessage
from typing import Any, TypeVar

import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import exceptions, jwt

from accounts.channels import registry
from accounts.channels.base import (
    LONGEST_TIMEOUT,
    AccountConfig,
    CheckFailed,
    Kind,
    Media,
    NotSent,
    Outcome,
    Refused,
    Sent,
    Transport,
    Unknown,
)
from accounts.channels.gmail import google_api
from accounts.channels.gmail.google_api import outcome_of, refusal, retry_moment, until_tomorrow, words
from accounts.channels.gmail.transport import GmailTransport
from accounts.channels.http import Answer
from fanout.engine.dispatcher import SEND_LIMIT
from tests.channels.contract import TEXT, Received, Rig, TransportContract

T = TypeVar("T")
WHO = "someone@example.org"
ROBOT = "robot@project.iam.gserviceaccount.com"
NOW = datetime(2026, 7, 1, 18, 0, tzinfo=UTC)

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PRIVATE = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()
PUBLIC = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def error(code: int, reason: str = "", message: str = "No", **more: Any) -> dict[str, Any]:
    """An error as the API words it."""
    errors = [{"domain": "global", "reason": reason, "message": message}] if reason else []
    return {"error": {"code": code, "message": message, "errors": errors, **more}}


class Google:
    """The token endpoint and the mailbox, on a port of their own, in a thread of their own."""

    def __init__(self) -> None:
        self.answer: tuple[int, dict[str, Any], dict[str, str]] | None = None
        self.token_answer: tuple[int, dict[str, Any]] | None = None
        self.profile: tuple[int, dict[str, Any]] = (200, {"emailAddress": "mailer@example.com"})
        self.drop = self.silent = False
        self.expires_in = 3600
        self.token_delay = 0.0
        self.tokens: list[str] = []
        self.revoked: set[str] = set()
        self.mails: list[tuple[str, EmailMessage]] = []
        self.requests = 0
        self.connections: set[Any] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Google:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(5)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        app = web.Application(client_max_size=50_000_000)
        app.router.add_post("/token", self._token)
        app.router.add_post("/gmail/v1/users/me/messages/send", self._send)
        app.router.add_get("/gmail/v1/users/me/profile", self._profile)
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        await asyncio.sleep(self.token_delay)
        if self.token_answer is not None:
            status, said = self.token_answer
            return web.json_response(said, status=status, headers={"Location": "/elsewhere"})
        try:
            claims = jwt.decode(str(form["assertion"]), certs=PUBLIC, audience=f"{self.url}/token")
        except (ValueError, exceptions.GoogleAuthError) as problem:
            words = {"error": "invalid_grant", "error_description": str(problem)}
            return web.json_response(words, status=400)
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        assert claims["iss"] == ROBOT
        assert claims["sub"] == "mailer@example.com"
        assert claims["scope"] == "https://www.googleapis.com/auth/gmail.send"
        self.tokens.append(f"token-{len(self.tokens)}")
        return web.json_response({"access_token": self.tokens[-1], "expires_in": self.expires_in})

    async def _send(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        self.connections.add(request.transport)
        raw = base64.urlsafe_b64decode((await request.json())["raw"])
        if not self._signed_in(request):
            return web.json_response(error(401, "authError", "Invalid Credentials"), status=401)
        if self.answer is not None:
            status, body, headers = self.answer
            return web.json_response(body, status=status, headers=headers)
        message = email.message_from_bytes(raw, policy=policy.default)
        assert isinstance(message, EmailMessage)
        self.mails.append((message["To"], message))
        if self.silent:
            await asyncio.sleep(3600)
        if self.drop:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response({"id": f"g{len(self.mails)}", "threadId": "t", "labelIds": ["SENT"]})

    async def _profile(self, request: web.Request) -> web.Response:
        if not self._signed_in(request):
            return web.json_response(error(401, "authError", "Invalid Credentials"), status=401)
        return web.json_response(self.profile[1], status=self.profile[0], headers={"Location": "/elsewhere"})

    def _signed_in(self, request: web.Request) -> bool:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return token in self.tokens and token not in self.revoked


@pytest.fixture
def google() -> Iterator[Google]:
    google_api._tokens.clear()
    with Google() as running:
        yield running


def account(google: Google, key: str = PRIVATE, **config: Any) -> AccountConfig:
    info = {
        "client_email": ROBOT,
        "private_key_id": "k1",
        "private_key": key,
        "token_uri": f"{google.url}/token",
    }
    given = {"subject": "mailer@example.com", "base_url": google.url, **config}
    return AccountConfig(1, "gmail", "Mailer", "mailer@example.com", given, {"service_account": info}, concurrency=3)


def with_transport(config: AccountConfig, work: Callable[[GmailTransport], Awaitable[T]]) -> T:
    async def go() -> T:
        transport = GmailTransport(config)
        try:
            return await work(transport)
        finally:
            await transport.close()

    return asyncio.run(go())


def send(google: Google, **config: Any) -> Outcome:
    return with_transport(account(google, **config), lambda transport: transport.send(WHO, TEXT, "m-1"))


# -- the contract -----------------------------------------------------------------------------------------

REFUSALS: dict[Kind, tuple[int, dict[str, Any]]] = {
    Kind.HARD_BOUNCE: (400, error(400, "invalidArgument", "Invalid To header")),
    Kind.AUTH: (403, error(403, "domainPolicy", "The domain administrators have disabled Gmail apps.")),
    Kind.RATE_LIMITED: (403, error(403, "userRateLimitExceeded", "User Rate Limit Exceeded")),
    Kind.CONTENT_REJECTED: (400, error(400, "badRequest", "Bad Request")),
}


class GmailRig(Rig):
    def __init__(self, google: Google) -> None:
        self.google = google

    def transport(self, timeout: float = 5) -> Transport:
        return registry.transport_for(account(self.google, timeout=timeout))

    def fail(self, kind: Kind) -> None:
        self.google.answer = (*REFUSALS[kind], {})

    def drop_after_accept(self) -> None:
        self.google.drop = True

    def stay_silent(self) -> None:
        self.google.silent = True

    def go_down(self) -> None:
        self.google.__exit__()

    def refuse_login(self, words: str) -> None:
        self.google.token_answer = (400, {"error": "invalid_grant", "error_description": words})

    def received(self) -> list[Received]:
        return [
            Received(to, text_of(message), message["Message-ID"].strip("<>").split("@")[0])
            for to, message in self.google.mails
        ]


def text_of(message: EmailMessage) -> str:
    body = message.get_body(("plain",))
    assert body is not None
    return str(body.get_content())


class TestGmailContract(TransportContract):
    kinds = tuple(REFUSALS)

    @pytest.fixture
    def rig(self, google: Google) -> Rig:
        return GmailRig(google)


# -- what the answers mean --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "kind", "wait"),
    [
        pytest.param(400, error(400, "invalidArgument", "Invalid To header"), "hard_bounce", None, id="bad To"),
        pytest.param(
            400,
            error(400, "invalidArgument", "Recipient address required"),
            "hard_bounce",
            None,
            id="no recipient",
        ),
        pytest.param(400, error(400, "failedPrecondition", "Mail service not enabled"), "auth", None, id="no mailbox"),
        pytest.param(
            400,
            error(400, message="Precondition", status="FAILED_PRECONDITION"),
            "auth",
            None,
            id="by status",
        ),
        pytest.param(
            400,
            error(400, "badRequest", "Invalid value for ByteString"),
            "content_rejected",
            None,
            id="bad raw",
        ),
        pytest.param(401, error(401, "authError", "Invalid Credentials"), "auth", None, id="token refused"),
        pytest.param(403, error(403, "rateLimitExceeded"), "rate_limited", None, id="project's rate"),
        pytest.param(403, error(403, "userRateLimitExceeded"), "rate_limited", None, id="mailbox's rate"),
        pytest.param(
            403,
            error(403, "userRateLimitExceeded", "Rate exceeded.  Retry after 2026-07-01T18:02:30.500Z"),
            "rate_limited",
            150.5,
            id="time in the message",
        ),
        pytest.param(403, error(403, "dailyLimitExceeded"), "rate_limited", 13 * 3600, id="until Google's day ends"),
        pytest.param(403, error(403, "insufficientPermissions"), "auth", None, id="scope"),
        pytest.param(403, error(403, "accessNotConfigured"), "auth", None, id="API off"),
        pytest.param(403, error(403, "domainPolicy"), "auth", None, id="domain's policy"),
        pytest.param(403, error(403, "delegationDenied"), "auth", None, id="delegation"),
        pytest.param(
            403,
            error(403, details=[{"reason": "SERVICE_DISABLED"}], status="PERMISSION_DENIED"),
            "auth",
            None,
            id="new form of an error",
        ),
        pytest.param(404, error(404, "notFound"), "auth", None, id="no such mailbox"),
        pytest.param(408, {}, "network", None, id="body came too slowly"),
        pytest.param(413, error(413, "uploadTooLarge"), "content_rejected", None, id="too large"),
        pytest.param(429, error(429, "rateLimitExceeded"), "rate_limited", None, id="429"),
        pytest.param(429, {}, "rate_limited", None, id="429 without a word"),
        pytest.param(
            429,
            error(429, "rateLimitExceeded", "Mail sending limit. Retry after 2026-07-01T17:00:00Z"),
            "rate_limited",
            0.0,
            id="a time that is over",
        ),
    ],
)
def test_refusals(status: int, body: dict[str, Any], kind: str, wait: float | None) -> None:
    outcome = outcome_of(Answer(status, body), NOW)

    assert isinstance(outcome, NotSent)
    assert outcome.kind == kind
    assert outcome.retry_after == wait
    assert outcome.detail.startswith(f"HTTP {status}")


@pytest.mark.parametrize(
    ("status", "body", "header", "kind", "wait"),
    [
        (403, error(403, "quotaExceeded"), "", Kind.RATE_LIMITED, None),
        (403, error(403, "concurrentLimitExceeded"), "", Kind.RATE_LIMITED, None),
        (403, error(403, "dailyLimitExceededUnreg"), "", Kind.RATE_LIMITED, 13 * 3600),
        (403, error(403, "dailyLimitExceeded"), "90", Kind.RATE_LIMITED, 90),
        (400, error(400, "rateLimitExceeded"), "", Kind.RATE_LIMITED, None),
        (500, error(500), "30", Kind.UNAVAILABLE, 30),
        (503, {}, "", Kind.UNAVAILABLE, None),
        (499, {}, "", Kind.CONTENT_REJECTED, None),
        (409, error(409, "x", "Invalid recipient"), "", Kind.HARD_BOUNCE, None),
        (400, error(400, "x", "Invalid Cc header"), "", Kind.HARD_BOUNCE, None),
        (302, {}, "", Kind.CONTENT_REJECTED, None),
    ],
    ids=[
        "quota",
        "at once",
        "unregistered",
        "a day with a header",
        "a rate in a 400",
        "their fault",
        "down",
        "the last 4xx",
        "a recipient in any 4xx",
        "Cc",
        "a redirect",
    ],
)
def test_what_certainly_means_nothing_was_sent(
    status: int, body: dict[str, Any], header: str, kind: Kind, wait: float | None
) -> None:
    refused = refusal(Answer(status, body, header), NOW)

    assert (refused.kind, refused.retry_after) == (kind, wait)
    assert refused.detail.startswith(f"HTTP {status}")


@pytest.mark.parametrize(
    ("status", "expected"), [(399, Unknown), (400, NotSent), (499, NotSent), (500, Unknown), (201, Unknown)]
)
def test_only_a_4xx_is_certain(status: int, expected: type) -> None:
    assert isinstance(outcome_of(Answer(status, {"id": "g1"}), NOW), expected)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (error(403, "b", "No"), "HTTP 403 b: No"),
        (error(403, "", "No"), "HTTP 403 No"),
        (error(403, "b", ""), "HTTP 403 b"),
        (error(403, "b", "No", details=[{"reason": "A"}, {"reason": ""}, "x"]), "HTTP 403 A, b: No"),
        ({"error": "invalid_grant", "error_description": "Expired"}, "HTTP 403 Expired"),
        ({"error": "invalid_grant"}, "HTTP 403 invalid_grant"),
        ({}, "HTTP 403"),
    ],
    ids=["both", "a message", "a reason", "two reasons", "a description", "a name", "nothing"],
)
def test_googles_own_words(body: dict[str, Any], said: str) -> None:
    assert words(Answer(403, body)) == said


@pytest.mark.parametrize(
    ("header", "message", "moment"),
    [
        ("", "Retry after 2026-07-01T18:02:30Z", datetime(2026, 7, 1, 18, 2, 30, tzinfo=UTC)),
        ("", "retry after 2026-07-01T20:02:30+02:00", datetime(2026, 7, 1, 18, 2, 30, tzinfo=UTC)),
        ("", "Retry after 2026-99-01T18:02:30Z", None),
        ("Wed, 01 Jul 2026 18:01:00 GMT", "", datetime(2026, 7, 1, 18, 1, tzinfo=UTC)),
        ("Wed, 01 Jul 2026 18:01:00 -0000", "", datetime(2026, 7, 1, 18, 1, tzinfo=UTC)),
        ("90", "", None),
        ("", "", None),
    ],
    ids=["UTC", "an offset", "no date", "a header", "a header without a zone", "seconds", "nothing"],
)
def test_the_moment_that_google_names(header: str, message: str, moment: datetime | None) -> None:
    assert retry_moment(Answer(429, error(429, "", message), header)) == moment


@pytest.mark.parametrize("status", [500, 502, 503, 504, 307])
def test_no_clear_answer_is_unknown(status: int) -> None:
    assert isinstance(outcome_of(Answer(status, error(status, "backendError")), NOW), Unknown)


@pytest.mark.parametrize(
    ("header", "expected"),
    [("7", 7.0), ("Wed, 01 Jul 2026 18:01:00 GMT", 60.0), ("soon", None), ("", None)],
)
def test_the_retry_header(header: str, expected: float | None) -> None:
    outcome = outcome_of(Answer(429, {}, header), NOW)

    assert isinstance(outcome, NotSent)
    assert outcome.retry_after == expected


def test_a_yes_without_an_id_is_unknown() -> None:
    assert isinstance(outcome_of(Answer(200, {}), NOW), Unknown)


@pytest.mark.parametrize(
    ("at", "hours"),
    [
        (datetime(2026, 7, 1, 7, 0, tzinfo=UTC), 24),
        (datetime(2026, 7, 2, 6, 0, tzinfo=UTC), 1),
        # The day on which the clocks go back has 25 hours.
        (datetime(2026, 11, 1, 7, 0, tzinfo=UTC), 24),
    ],
)
def test_until_tomorrow(at: datetime, hours: float) -> None:
    assert until_tomorrow(at) == hours * 3600


@pytest.mark.parametrize("garbage", [{"error": "text"}, {"error": {"errors": "x", "details": [1]}}, {"error": None}])
def test_garbage_still_has_a_meaning(garbage: dict[str, Any]) -> None:
    assert isinstance(outcome_of(Answer(403, garbage), NOW), NotSent)


# -- over the wire ----------------------------------------------------------------------------------------


def test_a_mail_arrives_with_its_id(google: Google) -> None:
    assert send(google) == Sent("g1")

    ((to, message),) = google.mails
    assert to == WHO
    assert message["From"] == "mailer@example.com"
    assert message["Message-ID"] == "<m-1@example.com>"
    assert text_of(message).strip() == TEXT.text


def test_a_5xx_is_unknown_and_not_tried_again(google: Google) -> None:
    google.answer = (503, error(503, "backendError", "Backend Error"), {})

    assert isinstance(send(google), Unknown)
    assert google.requests == 1


def test_the_retry_header_comes_through(google: Google) -> None:
    google.answer = (429, error(429, "rateLimitExceeded"), {"Retry-After": "90"})

    outcome = send(google)

    assert isinstance(outcome, NotSent)
    assert outcome.retry_after == 90


def test_a_redirect_is_not_followed(google: Google) -> None:
    google.answer = (307, {}, {"Location": f"{google.url}/gmail/v1/users/me/messages/send"})

    assert isinstance(send(google), Unknown)
    assert google.requests == 1


def test_a_connection_that_died_while_idle_is_replaced_and_the_mail_goes_once(google: Google) -> None:
    async def twice(transport: Transport) -> list[Outcome]:
        first = await transport.send(WHO, TEXT, "m-1")
        for connection in google.connections:
            connection.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        return [first, await transport.send(WHO, TEXT, "m-2")]

    assert with_transport(replace(account(google), concurrency=1), twice) == [Sent("g1"), Sent("g2")]
    assert [message["Message-ID"] for _, message in google.mails] == ["<m-1@example.com>", "<m-2@example.com>"]


# -- tokens -----------------------------------------------------------------------------------------------


async def many(transport: Transport, count: int = 20) -> list[Outcome]:
    return await asyncio.gather(*(transport.send(WHO, TEXT, f"m-{n}") for n in range(count)))


def test_many_sends_fetch_one_token(google: Google) -> None:
    google.token_delay = 0.05

    found = with_transport(account(google), many)

    assert all(isinstance(outcome, Sent) for outcome in found)
    assert len(google.tokens) == 1


def test_a_token_serves_the_next_slice_too(google: Google) -> None:
    """Another transport, another event loop, the same process."""
    send(google)
    send(google)

    assert len(google.tokens) == 1


def test_a_token_is_renewed_early(google: Google) -> None:
    google.expires_in = 299
    send(google)
    google.expires_in = 3600
    send(google)
    send(google)

    assert len(google.tokens) == 2


def test_the_old_token_serves_while_no_new_one_is_to_be_had(google: Google) -> None:
    google.expires_in = 200
    send(google)
    google.token_answer = (503, {"error": "unavailable"})

    assert isinstance(send(google), Sent)


def test_a_revoked_token_is_renewed_once(google: Google) -> None:
    send(google)
    google.revoked.add("token-0")

    assert isinstance(send(google), Sent)
    assert google.tokens == ["token-0", "token-1"]
    assert google.requests == 3


def test_a_mailbox_that_refuses_every_token_is_an_auth_failure(google: Google) -> None:
    google.revoked.update(f"token-{n}" for n in range(9))

    outcome = send(google)

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.AUTH
    assert "Invalid Credentials" in outcome.detail
    assert google.requests == 2


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": "invalid_grant", "error_description": "Invalid email or User ID"}, Kind.AUTH),
        (401, {"error": "unauthorized_client", "error_description": "Client is unauthorized"}, Kind.AUTH),
        (500, {"error": "internal_failure"}, Kind.UNAVAILABLE),
        (429, {"error": "rate_limit_exceeded"}, Kind.UNAVAILABLE),
        (200, {"token": "?"}, Kind.AUTH),
    ],
)
def test_no_token(google: Google, status: int, body: dict[str, Any], kind: Kind) -> None:
    google.token_answer = (status, body)

    outcome = send(google)

    assert isinstance(outcome, NotSent)
    assert outcome.kind is kind
    assert str(body.get("error_description", "")) in outcome.detail
    assert google.requests == 0


def test_a_wrong_key_is_refused_by_its_signature(google: Google) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )

    outcome = send(google, key=other.decode())

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.AUTH
    assert google.tokens == []


@pytest.mark.parametrize("mailbox", ["ann@gmail.com", "Ann@GoogleMail.com"])
def test_a_free_mailbox_is_told_apart_before_google_is_asked(mailbox: str) -> None:
    info = {"client_email": ROBOT, "private_key": PRIVATE}
    config = AccountConfig(1, "gmail", "M", "mailer@example.com", {"subject": mailbox}, {"service_account": info})

    with pytest.raises(CheckFailed, match="free mailbox") as caught:
        with_transport(config, lambda transport: transport.check())
    assert caught.value.kind is Kind.AUTH


@pytest.mark.parametrize("info", [None, {}, "not json", {"client_email": ROBOT, "private_key": "garbage"}, []])
def test_an_unreadable_key_is_told_without_its_text(google: Google, info: Any) -> None:
    config = AccountConfig(1, "gmail", "M", "mailer@example.com", {}, {"service_account": info})

    with pytest.raises(CheckFailed) as caught:
        with_transport(config, lambda transport: transport.check())
    assert caught.value.kind is Kind.AUTH
    assert "garbage" not in str(caught.value)


def test_the_key_may_be_pasted_as_text(google: Google) -> None:
    config = account(google)
    config.credentials["service_account"] = json.dumps(config.credentials["service_account"])

    assert isinstance(with_transport(config, lambda t: t.send(WHO, TEXT, "m-1")), Sent)


def test_token_and_send_share_one_time_out(google: Google) -> None:
    google.token_delay = 3600
    began = time.monotonic()

    outcome = send(google, timeout=0.3)

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.NETWORK
    assert time.monotonic() - began < 30


def test_writing_counts_for_the_time_out_too(google: Google) -> None:
    def read() -> bytes:
        time.sleep(0.5)
        return b"x"

    part = replace(TEXT, kind="video", media=Media("0" * 64, "video.mp4", "video/mp4", 0, read))
    outcome = with_transport(account(google, timeout=0.2), lambda transport: transport.send(WHO, part, "m-1"))

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.NETWORK
    assert google.tokens == []


def test_no_time_out_is_above_the_lanes(google: Google) -> None:
    assert GmailTransport(account(google, timeout=60)).timeout == LONGEST_TIMEOUT < SEND_LIMIT


def held(value: str, seconds: float) -> google_api.Token:
    return google_api.Token(value, time.time() + seconds)


def asked_for(key: Any, fetched: Any) -> tuple[str, int]:
    """The token that was had, and how often another one was fetched."""
    calls = []

    async def fetch() -> google_api.Token:
        calls.append(1)
        if isinstance(fetched, Exception):
            raise fetched
        found: google_api.Token = fetched
        return found

    return asyncio.run(google_api.token_for(key, fetch)), len(calls)


WHOSE = (ROBOT, "k1", "mailer@example.com", "https://oauth2.googleapis.com/token")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(400, ("old", 0)), (310, ("old", 0)), (290, ("new", 1)), (-10, ("new", 1)), (None, ("new", 1))],
    ids=["long", "long enough", "soon over", "over", "none"],
)
def test_a_token_is_good_until_five_minutes_before_its_end(seconds: float | None, expected: tuple[str, int]) -> None:
    google_api._tokens.clear()
    if seconds is not None:
        google_api._tokens[WHOSE] = held("old", seconds)

    assert asked_for(WHOSE, held("new", 3600)) == expected
    assert asked_for(WHOSE, held("newer", 3600)) == (expected[0], 0)


@pytest.mark.parametrize(
    ("seconds", "kind", "served"),
    [
        (200, Kind.NETWORK, True),
        (200, Kind.UNAVAILABLE, True),
        (200, Kind.AUTH, False),
        (-1, Kind.NETWORK, False),
        (None, Kind.NETWORK, False),
    ],
    ids=["no network", "Google is down", "signed out", "it has ended", "there is none"],
)
def test_an_old_token_serves_only_while_the_trouble_passes(seconds: float | None, kind: Kind, served: bool) -> None:
    google_api._tokens.clear()
    if seconds is not None:
        google_api._tokens[WHOSE] = held("old", seconds)
    if served:
        assert asked_for(WHOSE, Refused(NotSent(kind)))[0] == "old"
    else:
        with pytest.raises(Refused):
            asked_for(WHOSE, Refused(NotSent(kind)))


@pytest.mark.parametrize(("value", "kept"), [("old", False), ("older", True)], ids=["this one", "an older one"])
def test_only_the_token_that_was_refused_is_forgotten(value: str, kept: bool) -> None:
    google_api._tokens.clear()
    google_api.forget(WHOSE, "old")  # there is none
    google_api._tokens[WHOSE] = held("old", 3600)
    google_api.forget(WHOSE, value)

    assert (WHOSE in google_api._tokens) is kept


@pytest.mark.parametrize(
    ("body", "ends"),
    [({"expires_in": 60}, 160.0), ({"expires_in": 0.5}, 100.5), ({}, 3700.0)],
    ids=["said", "half a second", "not said"],
)
def test_when_a_token_ends(body: dict[str, Any], ends: float) -> None:
    assert google_api.token_of(Answer(200, {"access_token": "t", **body}), 100.0) == google_api.Token("t", ends)


@pytest.mark.parametrize(
    ("status", "body", "header", "refused"),
    [
        (200, {"access_token": 7}, "", NotSent(Kind.AUTH, "No token: HTTP 200")),
        (200, {"access_token": "t", "expires_in": "soon"}, "", NotSent(Kind.AUTH, "No token: HTTP 200")),
        (201, {"access_token": "t"}, "", NotSent(Kind.AUTH, "No token: HTTP 201")),
        (429, {}, "7", NotSent(Kind.UNAVAILABLE, "No token: HTTP 429", 7.0)),
        (500, {}, "", NotSent(Kind.UNAVAILABLE, "No token: HTTP 500")),
        (499, {}, "7", NotSent(Kind.AUTH, "No token: HTTP 499")),
        (429, {}, "Thu, 01 Jan 1970 00:02:00 GMT", NotSent(Kind.UNAVAILABLE, "No token: HTTP 429", 20.0)),
    ],
    ids=["no text", "no seconds", "some other 2xx", "a wait", "their fault", "ours", "until a moment"],
)
def test_an_answer_without_a_token(status: int, body: dict[str, Any], header: str, refused: NotSent) -> None:
    with pytest.raises(Refused) as caught:
        google_api.token_of(Answer(status, body, header), 100.0)
    assert caught.value.reason == refused


def test_an_assertion_holds_for_an_hour(google: Google) -> None:
    service = google_api.ServiceAccount.of(account(google))
    claims = jwt.decode(service.assertion("mailer@example.com", 1_000.7), verify=False)

    assert (claims["iat"], claims["exp"], claims["aud"]) == (1000, 4600, f"{google.url}/token")
    assert service.key("a@b.org") == (ROBOT, "k1", "a@b.org", f"{google.url}/token")


@pytest.mark.parametrize(
    ("setting", "in_the_key", "url"),
    [
        (None, None, "https://oauth2.googleapis.com/token"),
        (None, "https://x.googleapis.com/t", "https://x.googleapis.com/t"),
        ("https://y.googleapis.com/t", "https://x.googleapis.com/t", "https://y.googleapis.com/t"),
        (None, "https://evil.example/t", None),
    ],
    ids=["Google's own", "the key's", "the account's", "not Google's"],
)
def test_where_a_token_is_asked_for(google: Google, setting: Any, in_the_key: Any, url: str | None) -> None:
    config = account(google, token_url=setting)
    config.credentials["service_account"]["token_uri"] = in_the_key
    if url:
        assert google_api.ServiceAccount.of(config).token_url == url
    else:
        with pytest.raises(Refused) as caught:
            google_api.ServiceAccount.of(config)
        assert caught.value.reason.kind is Kind.AUTH
        assert "token_url" in caught.value.reason.detail


def test_a_key_is_read_once(google: Google) -> None:
    first, second = (google_api.ServiceAccount.of(account(google)) for _ in range(2))

    assert first.signer is second.signer


def test_a_token_is_told_without_its_value() -> None:
    assert repr(google_api.Token("s3cret", 100.4)) == "<Token until 100>"


@pytest.mark.parametrize("broken", ["token", "mail"])
def test_a_redirect_of_either_is_not_followed(google: Google, broken: str) -> None:
    if broken == "token":
        google.token_answer = (307, {"access_token": "t"})
    else:
        google.profile = (307, {"emailAddress": "x@y.org"})

    with pytest.raises(CheckFailed, match="HTTP 307"):
        check(google)


# -- check ------------------------------------------------------------------------------------------------


def check(google: Google) -> str:
    return with_transport(account(google), lambda transport: transport.check())


def test_check_names_the_mailbox(google: Google) -> None:
    assert check(google) == "Gmail as mailer@example.com"


def test_check_is_content_with_a_token_that_may_only_send(google: Google) -> None:
    google.profile = (403, error(403, "insufficientPermissions", "Insufficient Permission"))

    assert check(google) == "Gmail as mailer@example.com"


def test_check_tells_that_the_api_is_off(google: Google) -> None:
    google.profile = (403, error(403, "accessNotConfigured", "Gmail API has not been used in project 7"))

    with pytest.raises(CheckFailed, match="has not been used"):
        check(google)


def test_nothing_secret_is_printed(google: Google) -> None:
    config = account(google)

    assert "PRIVATE KEY" not in repr(config)
    with_transport(config, lambda transport: transport.send(WHO, TEXT, "m-1"))
    assert "token-0" not in repr(google_api._tokens)


@pytest.mark.parametrize("body", [{}, {"id": ""}, {"id": 7}, {"id": None}])
def test_a_yes_without_an_id_is_no_certain_delivery(body: dict[str, Any]) -> None:
    assert outcome_of(Answer(200, body), datetime.now(UTC)) == Unknown("accepted without an id")
    assert outcome_of(Answer(200, {"id": "18c"}), datetime.now(UTC)) == Sent("18c")


# -- more of a check --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ((200, {"emailAddress": "office@example.com"}), "Gmail as office@example.com"),
        ((200, {}), "Gmail as mailer@example.com"),
        ((403, error(403, details=[{"reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT"}])), "Gmail as mailer@example.com"),
    ],
    ids=["Google's name", "ours", "may only send"],
)
def test_who_it_is(google: Google, profile: tuple[int, dict[str, Any]], words: str) -> None:
    google.profile = profile

    assert check(google) == words


@pytest.mark.parametrize(
    ("profile", "kind"),
    [
        ((401, error(401, "insufficientPermissions")), Kind.AUTH),
        ((201, {"emailAddress": "x@y.org"}), Kind.CONTENT_REJECTED),
        ((429, error(429, "x", "Retry after 2026-07-01T18:02:30Z")), Kind.RATE_LIMITED),
        ((503, {}), Kind.UNAVAILABLE),
    ],
    ids=["not signed in", "no 200", "too fast", "down"],
)
def test_a_check_without_a_clear_yes_has_failed(
    google: Google, profile: tuple[int, dict[str, Any]], kind: Kind
) -> None:
    google.profile = profile

    with pytest.raises(CheckFailed) as caught:
        check(google)
    assert caught.value.kind is kind


def test_an_account_without_a_mailbox_of_its_own_acts_for_its_address(google: Google) -> None:
    assert GmailTransport(account(google, subject="")).subject == "mailer@example.com"
    assert GmailTransport(account(google, subject="a@b.org")).subject == "a@b.org"
    assert (
        GmailTransport(account(google, base_url="https://gmail.googleapis.com/")).base == "https://gmail.googleapis.com"
    )


def test_an_address_that_no_mail_may_come_from_is_told_by_the_check(google: Google) -> None:
    config = replace(account(google), address="żółw <x>")

    with pytest.raises(CheckFailed) as caught:
        with_transport(config, lambda transport: transport.check())
    assert caught.value.kind is Kind.AUTH
    assert google.tokens == []


@pytest.mark.parametrize("concurrency", [0, 2])
def test_never_more_connections_than_the_accounts_concurrency(google: Google, concurrency: int) -> None:
    with_transport(replace(account(google), concurrency=concurrency), lambda transport: many(transport, 8))

    assert len(google.connections) <= max(1, concurrency)
    assert len(google.mails) == 8


def test_a_limit_that_google_names_by_its_moment_comes_through(google: Google) -> None:
    google.answer = (403, error(403, "dailyLimitExceeded"), {})

    outcome = send(google)

    assert isinstance(outcome, NotSent)
    assert outcome.retry_after is not None
    assert 0 < outcome.retry_after <= 86_400
