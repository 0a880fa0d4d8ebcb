"""Transport of mail through Unipile, from a mailbox that is connected there."""

from __future__ import annotations

import html
import json

from accounts.channels.base import Outcome, Part
from accounts.channels.gateway import Call
from accounts.channels.http import Answer, multipart
from accounts.channels.unipile.transport import Unipile, attachments, outcome_of
from accounts.channels.unipile_mail.channel import CHANNEL


class UnipileMailTransport(Unipile):
    channel = CHANNEL

    async def message(self, address: str, part: Part, message_id: str) -> Call:
        to = json.dumps([{"display_name": address, "identifier": address}])
        fields = [("account_id", self.account_id), ("to", to), ("subject", part.subject), ("body", body_of(part))]
        return Call("/api/v1/emails", *multipart(fields, await attachments(part.media)))

    def outcome_of(self, answer: Answer, part: Part) -> Outcome:
        return outcome_of(answer, "tracking_id", "provider_id")


def body_of(part: Part) -> str:
    """Return the body as HTML, which is all that Unipile takes: a plain text keeps its lines."""
    return part.html or html.escape(part.text, quote=False).replace("\n", "<br>\n")
