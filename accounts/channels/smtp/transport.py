"""Transport of SMTP: a few long-lived connections per account, and a definite outcome for every message."""

from __future__ import annotations

import asyncio
import time

from accounts.channels.base import AccountConfig, CheckFailed, Kind, Outcome, Part, Refused, Transport
from accounts.channels.mail import BadContent, BadHeader, Envelope, not_writable
from accounts.channels.smtp.channel import CHANNEL, SmtpSettings
from accounts.channels.smtp.connection import Connection, OutgoingMail, Pool

#: With less time left the dot is not written: the answer would come too late and count as unknown.
TIME_FOR_AN_ANSWER = 0.1  # of the time-out
LONGEST_LOCAL_PART = 64  # RFC 5321, 4.5.3.1.1


class SmtpTransport(Transport):
    channel = CHANNEL

    def __init__(self, account: AccountConfig) -> None:
        super().__init__(account)
        self.envelope = Envelope(account)
        self.pool = Pool(account)

    async def check(self) -> str:
        try:
            settings = SmtpSettings.of(self.account)
            self.envelope.full_id("check")
            async with asyncio.timeout(settings.timeout):
                connection = await Connection.open(settings)
                try:
                    return connection.introduction()
                finally:
                    await connection.quit()
        except Refused as error:
            raise CheckFailed(error.reason.kind, error.reason.detail) from None
        except BadHeader as error:
            raise CheckFailed(Kind.AUTH, str(error)) from None
        except TimeoutError:
            raise CheckFailed(Kind.NETWORK, f"no answer from {settings.host} in time") from None

    async def send(self, address: str, part: Part, message_id: str) -> Outcome:
        mail = OutgoingMail(self.envelope.sender, address, message_id=message_id)
        try:
            settings = self.pool.settings()
            mail.sender = return_path(settings.return_path, message_id) or mail.sender
            mail.deadline = time.monotonic() + settings.timeout
            mail.reserve = settings.timeout * TIME_FOR_AN_ANSWER
            # One limit for writing and sending: the lane's own limit would not know whether the dot had left.
            async with asyncio.timeout(settings.timeout):
                await self._fill(mail, part, message_id)
                return await self.pool.deliver(mail)
        except Refused as error:
            return error.reason
        except TimeoutError as error:
            return mail.lost(str(error) or "no answer in time")

    async def _fill(self, mail: OutgoingMail, part: Part, message_id: str) -> None:
        try:
            mail.headers = self.envelope.headers(mail.address, message_id)
            mail.encoded = await self.envelope.encode(part)
        except (BadHeader, BadContent, OSError) as error:
            raise Refused(not_writable(error)) from error

    async def close(self) -> None:
        await self.pool.close()


def return_path(base: str, message_id: str) -> str:
    """Return the envelope sender of one message (VERP): the local part, a plus sign and the id. Where that is longer
    than a local part may be, the address as it is."""
    local, _, domain = base.rpartition("@")
    extended = f"{local}+{message_id}"
    return f"{extended}@{domain}" if local and len(extended) <= LONGEST_LOCAL_PART else base
