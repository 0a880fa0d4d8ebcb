"""Contents of incoming WhatsApp messages, as gateways pass them on (WAHA, Evolution). Pure.

A message is an object with one field for its kind: {"conversation": "Yes"} or {"imageMessage": {"caption": "Yes"}}.
The fields are those of WhatsApp's own protocol. Phones also use it to tell that a person reacted, edited or voted: such
a message is not a reply, but an edit may say STOP. Kinds that are not known here count as replies, because a person
probably wrote them.
"""

from __future__ import annotations

import json
from typing import Any

from accounts.channels.http import as_text, dig

#: Kinds that contain another message: one that disappears, is seen once, or has a caption.
ENVELOPES = (
    "ephemeralMessage",
    "viewOnceMessage",
    "viewOnceMessageV2",
    "viewOnceMessageV2Extension",
    "documentWithCaptionMessage",
    "associatedChildMessage",
    "groupMentionedMessage",
    "lottieStickerMessage",
)
MOST_ENVELOPES = 5
#: Fields beside the content: encryption keys and properties of the chat.
BESIDE = frozenset({"messageContextInfo", "senderKeyDistributionMessage"})
NOT_REPLIES = frozenset(
    {
        "reactionMessage",
        "encReactionMessage",
        "editedMessage",
        # Edits, deletions, settings of the chat and synchronisation between devices.
        "protocolMessage",
        "secretEncryptedMessage",
        "pollUpdateMessage",
        "encEventResponseMessage",
        "keepInChatMessage",
        "pinInChatMessage",
        "call",
        "callLogMesssage",  # spelled like this in the protocol
        "bcallMessage",
        # The pictures of an album follow as messages of their own.
        "albumMessage",
        # In place of a message that cannot be shown.
        "placeholderMessage",
        "statusMentionMessage",
    }
)
#: Places of the text, by kind. GOWS has the chosen button under a field with the name of Go's interface.
TEXTS = (
    ("conversation",),
    ("extendedTextMessage", "text"),
    ("imageMessage", "caption"),
    ("videoMessage", "caption"),
    ("documentMessage", "caption"),
    ("buttonsResponseMessage", "selectedDisplayText"),
    ("buttonsResponseMessage", "Response", "SelectedDisplayText"),
    ("templateButtonReplyMessage", "selectedDisplayText"),
    ("listResponseMessage", "title"),
    ("interactiveResponseMessage", "body", "text"),
)
FLOW = ("interactiveResponseMessage", "nativeFlowResponseMessage", "paramsJson")
#: Kinds in which a person chose one of our answers instead of writing.
CHOICES = (
    "buttonsResponseMessage",
    "templateButtonReplyMessage",
    "listResponseMessage",
    "interactiveResponseMessage",
)


def content_of(message: Any) -> dict[str, Any]:
    """Return the innermost content of a message; {} where there is none, for example before it can be decrypted."""
    for _ in range(MOST_ENVELOPES):
        inner = next((inside for name in ENVELOPES if (inside := dig(message, name, "message"))), None)
        if inner is None:
            break
        message = inner
    if not isinstance(message, dict):
        return {}
    return {name: value for name, value in message.items() if name not in BESIDE and value is not None}


def is_reply(content: dict[str, Any]) -> bool:
    """Return whether a person wrote, sent or chose something.

    A message without content is not a reply: its decrypted copy comes later under the same id and must not count as a
    repetition.
    """
    return not content.keys() <= NOT_REPLIES


def edited_text(content: dict[str, Any]) -> str:
    """Return what a person changed an earlier message to; empty where it is not an edit."""
    change = dig(content, "editedMessage", "message", "protocolMessage") or content.get("protocolMessage")
    return text_of(content_of(dig(change, "editedMessage")))


def text_of(content: dict[str, Any]) -> str:
    texts = (as_text(dig(content, *place)) for place in TEXTS)
    return next(filter(None, texts), "") or _chosen_in_flow(content)


def is_choice(content: dict[str, Any]) -> bool:
    """Return whether a person chose one of the answers that a message offered."""
    return any(name in content for name in CHOICES)


def quoted_in(content: dict[str, Any]) -> str:
    """Return the id of the message that it quotes, or ""."""
    contexts = [dig(value, "contextInfo") for value in content.values()]
    quoted = [dig(context, name) for context in contexts for name in ("stanzaId", "stanzaID")]
    return next(filter(None, map(as_text, quoted)), "")


def _chosen_in_flow(content: dict[str, Any]) -> str:
    try:
        chosen = json.loads(as_text(dig(content, *FLOW)))
    except (ValueError, RecursionError):
        return ""
    return as_text(dig(chosen, "display_text"))
