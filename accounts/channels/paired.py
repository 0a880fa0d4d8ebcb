"""Paired WhatsApp numbers: the description that their gateways start from, the reasons for which WhatsApp ends a
session, and WhatsApp's ids of chats (JIDs).

Crier's address             WhatsApp's id
+4917612345678              4917612345678@s.whatsapp.net, and 4917612345678@c.us at some gateways
120363025246125486@g.us     the same
"""

from __future__ import annotations

from typing import Any, NamedTuple

from accounts.actions import Action
from accounts.addresses import GROUP, GROUP_SUFFIX, PERSON, AddressError, normalise
from accounts.channels.base import TIMEOUT, CaptionedAudio, Channel
from accounts.channels.provider_events import SessionState

PAIRED = Channel(
    key="paired",
    label="WhatsApp",
    kinds=frozenset({GROUP, PERSON}),
    actions=(Action.MESSAGE,),
    # One message every 3 s and one at a time: WhatsApp bans paired numbers that send like a machine,
    # and blocks new chats of numbers that write to many strangers.
    knobs={"max_send_per_minute": 20, "send_burst": 1, "group_concurrency": 1, "new_chats_per_day": 30},
    delay=(2, 10),
    captioned_audio=CaptionedAudio.AS_DOCUMENT,
    receipts=True,
    inbound=True,
    lists_groups=True,
    own_kind=PERSON,
    fields=(TIMEOUT,),
)


def version_warning(gateway: str, version: str, tested: str) -> str:
    """Return a warning about a version outside the tested range ("2026", "2.3") as a further sentence, or ""."""
    if not version or f"{version}.".startswith(f"{tested}."):
        return ""
    return f". Crier is tested with {gateway} {tested}; what {_named(version)} answers may be misread."


def _named(version: str) -> str:
    return version if version.startswith("v") else f"version {version}"


# -- ends of a session ------------------------------------------------------------------------------------


class Ending(NamedTuple):
    """The end of a session: what becomes of the account, and what happened and what to do in a sentence."""

    state: SessionState
    words: str


#: By the code with which WhatsApp closes the connection, whichever program keeps the session. WhatsApp Web calls 403
#: "locked" and 406 "banned"; whatsmeow still has their old names "main device gone" and "unknown logout"
#: (types/events/events.go), Baileys passes the codes on (`lastDisconnect.error.output.statusCode`).
ENDINGS = {
    401: Ending(SessionState.UNPAIRED, "The device was removed on the phone: pair the number again."),
    402: Ending(SessionState.BANNED, "WhatsApp has banned this number for a while."),
    403: Ending(
        SessionState.BANNED,
        "WhatsApp has locked this account. Open WhatsApp on the phone and do what it asks for, then pair the number "
        "again and reactivate the account.",
    ),
    406: Ending(
        SessionState.BANNED,
        "WhatsApp has banned this number. Ask for a review in WhatsApp on the phone. Once the ban is lifted, pair the "
        "number again and reactivate the account.",
    ),
}


# -- ids of chats -----------------------------------------------------------------------------------------


PEOPLE = "s.whatsapp.net"
GROUPS = "g.us"
HIDDEN = "lid"
#: Prefixes of message ids that linked devices give, such as gateways; a phone's ids look different.
DEVICES = ("3EB0", "BAE5")


class Jid(NamedTuple):
    """A WhatsApp id. Without its server, the id of a group would silently go to a person."""

    user: str
    server: str

    def __str__(self) -> str:
        return f"{self.user}@{self.server}"

    @property
    def is_group(self) -> bool:
        return self.server == GROUPS

    @property
    def address(self) -> str:
        """Return the stored spelling; for a hidden id, which carries no number, the id itself; "" without a user."""
        return address_of(str(self)) or (str(self) if self.user else "")


def jid_of(address: str) -> Jid:
    """Return the id of a stored address: "+4917612345678" or "120363025246125486@g.us"."""
    user, at, server = address.partition("@")
    return Jid(user, server) if at else Jid(digits(user), PEOPLE)


def is_group(jid: Any) -> bool:
    return isinstance(jid, str) and jid.endswith(GROUP_SUFFIX)


def is_hidden(jid: Any) -> bool:
    return isinstance(jid, str) and jid.endswith(f"@{HIDDEN}")


def digits(address: str) -> str:
    """Return a person's number as gateways take it: international, without the plus."""
    return address.removeprefix("+")


def chat_id(address: str, suffix: str) -> str:
    """Return the chat of a stored address: a group as it is, a person with the gateway's suffix."""
    return address if is_group(address) else digits(address) + suffix


def number_of(jid: Any, *beside: Any) -> str:
    """Return a person's number in the stored spelling; empty where it is not given.

    WhatsApp often names a person by a hidden id, and gateways give the number in other fields beside it. Those count
    only then: beside a status update or a channel's post they name its author, who did not write to this account. The
    digits of the hidden id are not a number, even where a gateway puts them into a field for one.
    """
    if not is_hidden(jid):
        return "" if is_group(jid) else address_of(jid)
    hidden = jid.partition("@")[0].partition(":")[0]
    addresses = (address_of(other) for other in beside if not is_group(other))
    return next((address for address in addresses if address and digits(address) != hidden), "")


def address_of(jid: Any) -> str:
    """Return the stored spelling of a JID or a number; "" for a hidden id (@lid), which carries no number."""
    if not isinstance(jid, str):
        return ""
    try:
        return normalise(GROUP if is_group(jid) else PERSON, jid if "@" in jid else f"+{digits(jid)}")
    except AddressError:
        return ""
