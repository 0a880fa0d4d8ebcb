"""Transport of the Gmail API, by a service account that acts for one mailbox (domain-wide delegation).

`messages.send` has no idempotency key: a repeat is a second mail. So the rule is strict. A 4xx is a refusal, because
Gmail rejects before it accepts. A 5xx, a redirect or no answer at all, once the body has left, is `Unknown`, the
documented "backendError, try again" included: Gmail may have sent it, and the scope `gmail.send` does not allow a look.
"""

from __future__ import annotations

import asyncio
import base64
import time
from datetime import UTC, datetime

import aiohttp

from accounts.channels.base import (
    LONGEST_TIMEOUT,
    AccountConfig,
    CheckFailed,
    Kind,
    NotSent,
    Outcome,
    Part,
    Refused,
    Transport,
)
from accounts.channels.gmail.channel import CHANNEL
from accounts.channels.gmail.google_api import (
    GRANT,
    ServiceAccount,
    Token,
    TokenKey,
    forget,
    outcome_of,
    reasons,
    refusal,
    token_for,
    token_of,
)
from accounts.channels.http import FAILURES, Answer, Body, Sending, client, lost, read, went_stale, words_of
from accounts.channels.mail import BadContent, BadHeader, Envelope, not_writable

FREE_DOMAINS = ("gmail.com", "googlemail.com")


class GmailTransport(Transport):
    channel = CHANNEL

    def __init__(self, account: AccountConfig) -> None:
        super().__init__(account)
        values = CHANNEL.read_settings(account.config)
        self.base: str = values["base_url"].rstrip("/")
        self.timeout = min(values["timeout"], LONGEST_TIMEOUT)
        self.subject: str = values["subject"] or account.address
        self.envelope = Envelope(account)
        self._session: aiohttp.ClientSession | None = None

    async def check(self) -> str:
        """Sign in. A token proves the delegation; the mailbox's profile proves that the API is switched on."""
        if self.subject.rpartition("@")[2].lower() in FREE_DOMAINS:
            raise CheckFailed(
                Kind.AUTH,
                f"{self.subject} is a free mailbox. A service account acts only for mailboxes of Google Workspace: use "
                "the channel SMTP with an app password for this one.",
            )
        try:
            self.envelope.full_id("check")
            token = await self._token()
            answer = await self._get("/gmail/v1/users/me/profile", token)
        except Refused as error:
            raise CheckFailed(error.reason.kind, error.reason.detail) from None
        except BadHeader as error:
            raise CheckFailed(Kind.AUTH, str(error)) from None
        except FAILURES as error:
            raise CheckFailed(Kind.NETWORK, words_of(error)) from None
        return self._introduction(answer)

    def _introduction(self, answer: Answer) -> str:
        # The scope for sending does not open the profile: that refusal proves as much as the profile.
        may_only_send = answer.status == 403 and reasons(answer) & {
            "insufficientPermissions",
            "ACCESS_TOKEN_SCOPE_INSUFFICIENT",
        }
        if answer.status != 200 and not may_only_send:
            reason = refusal(answer, now())
            raise CheckFailed(reason.kind, reason.detail)
        return f"Gmail as {answer.body.get('emailAddress') or self.subject}"

    async def send(self, address: str, part: Part, message_id: str) -> Outcome:
        sending = Sending()
        try:
            # One limit for writing, token and send: the lane's own limit would not know whether the body had left.
            async with asyncio.timeout(self.timeout):
                sending.content = await self._content(address, part, message_id)
                return outcome_of(await self._post_signed_in(sending), now())
        except Refused as error:
            return error.reason
        except FAILURES as error:
            return lost(sending.body, error)

    async def _content(self, address: str, part: Part, message_id: str) -> bytes:
        try:
            headers = self.envelope.headers(address, message_id)
            encoded = await self.envelope.encode(part)
        except (BadHeader, BadContent, OSError) as error:
            raise Refused(not_writable(error)) from error
        raw = encoded.fixed + headers + b"\r\n" + encoded.body
        return b'{"raw":"%b"}' % base64.urlsafe_b64encode(raw)

    async def _post_signed_in(self, sending: Sending) -> Answer:
        token = await self._token()
        answer = await self._post(sending, token)
        if answer.status != 401:
            return answer
        # A token that Google no longer takes: nothing was sent, so a new one is not a second try.
        forget(self._key(), token)
        token = await self._token()
        return await self._post(sending, token)

    async def _post(self, sending: Sending, token: str) -> Answer:
        try:
            return await self._post_once(sending.fresh(), token)
        except aiohttp.ClientConnectionError as error:
            # The kept connection was dead before anything was written to it.
            if not went_stale(error):
                raise
            return await self._post_once(sending.fresh(), token)

    async def _post_once(self, body: Body, token: str) -> Answer:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        url = f"{self.base}/gmail/v1/users/me/messages/send"
        # A redirect could make the body leave twice: never followed.
        async with self._open().post(url, data=body, headers=headers, allow_redirects=False) as response:
            return await read(response)

    async def _get(self, path: str, token: str) -> Answer:
        headers = {"Authorization": f"Bearer {token}"}
        async with self._open().get(f"{self.base}{path}", headers=headers, allow_redirects=False) as response:
            return await read(response)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = client(self.timeout, max(1, self.account.concurrency))
        return self._session

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # -- the token ----------------------------------------------------------------------------------------

    def _key(self) -> TokenKey:
        return ServiceAccount.of(self.account).key(self.subject)

    async def _token(self) -> str:
        service = ServiceAccount.of(self.account)
        return await token_for(service.key(self.subject), lambda: self._fetch_token(service))

    async def _fetch_token(self, service: ServiceAccount) -> Token:
        form = {"grant_type": GRANT, "assertion": service.assertion(self.subject, time.time())}
        try:
            async with self._open().post(service.token_url, data=form, allow_redirects=False) as response:
                answer = await read(response)
        except FAILURES as error:
            raise Refused(NotSent(Kind.NETWORK, f"No token: {words_of(error)}")) from error
        return token_of(answer, time.time())


def now() -> datetime:
    return datetime.now(UTC)
