"""WhatsApp's own names for chats (JIDs) and the spelling in which Crier stores addresses. Pure.

+4917612345678              4917612345678@s.whatsapp.net, and 4917612345678@c.us at some gateways
120363025246125486@g.us     the same
"""

from __future__ import annotations

from typing import Any

from accounts.addresses import GROUP, GROUP_SUFFIX, PERSON, AddressError, normalise


def is_group(jid: Any) -> bool:
    return isinstance(jid, str) and jid.endswith(GROUP_SUFFIX)


def digits(address: str) -> str:
    """A person's number as gateways take it: international, without the plus."""
    return address.removeprefix("+")


def chat_id(address: str, suffix: str) -> str:
    """The chat of a stored address: a group as it is, a person with the gateway's suffix."""
    return address if is_group(address) else digits(address) + suffix


def address_of(jid: Any) -> str:
    """The stored spelling of a JID or a number; nothing for a hidden id (@lid), which carries no number."""
    if not isinstance(jid, str):
        return ""
    try:
        return normalise(GROUP if is_group(jid) else PERSON, jid if "@" in jid else f"+{digits(jid)}")
    except AddressError:
        return ""
