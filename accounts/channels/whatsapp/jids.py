"""WhatsApp's spelling of an address and ours. Pure."""

from __future__ import annotations

from typing import NamedTuple

from accounts.addresses import GROUP, PERSON, AddressError, normalise

PEOPLE = "s.whatsapp.net"
GROUPS = "g.us"
HIDDEN = "lid"


class Jid(NamedTuple):
    """Whom WhatsApp means. Without its server an id of a group would go to a person, silently."""

    user: str
    server: str

    def __str__(self) -> str:
        return f"{self.user}@{self.server}"

    @property
    def is_group(self) -> bool:
        return self.server == GROUPS


def jid_of(address: str) -> Jid:
    """From the stored spelling: "+4917612345678" or "120363025246125486@g.us"."""
    user, at, server = address.partition("@")
    return Jid(user, server) if at else Jid(user.removeprefix("+"), PEOPLE)


def address_of(jid: Jid) -> str:
    """The stored spelling; of a hidden id, which carries no number, the id itself."""
    try:
        return normalise(GROUP if jid.is_group else PERSON, str(jid))
    except AddressError:
        return str(jid)
