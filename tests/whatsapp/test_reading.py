"""Which message a reply quotes, in the client's words."""

from __future__ import annotations

import pytest

from accounts.channels.whatsapp.bridge import reading, shapes

CONTEXT = shapes.ContextInfo(stanzaID="3EB0QQ")
QUOTING = {
    "text": shapes.Content(extendedTextMessage=shapes.ExtendedTextMessage(text="yes", contextInfo=CONTEXT)),
    "picture": shapes.Content(imageMessage=shapes.ImageMessage(caption="yes", contextInfo=CONTEXT)),
    "voice": shapes.Content(audioMessage=shapes.AudioMessage(contextInfo=CONTEXT)),
}


@pytest.mark.parametrize("name", QUOTING)
def test_the_message_that_it_quotes(name: str) -> None:
    assert reading.quoted(QUOTING[name]) == "3EB0QQ"


def test_most_only_follow() -> None:
    """Not the reply's own id: no message of ours has that."""
    event = shapes.EVENTS["Message"](Info=shapes.MessageInfo(ID="A1"), Message=shapes.Content(conversation="yes"))
    reply = reading.reply(event, reading.plain(shapes.JID(User="4917612345678", Server="s.whatsapp.net")))
    assert reply is not None
    assert (reply.key, reply.provider_id) == ("message:A1", "")
