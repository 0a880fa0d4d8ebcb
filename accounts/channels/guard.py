"""The way out for everything that an operator can point somewhere: accounts' servers and webhooks.

The address is checked where the connection is made, so that a name cannot mean one thing when it is checked and
another when it is used. Private networks are reached only where an administrator's setting allows it
(ALLOW_PRIVATE_NETWORKS).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
#: IPv6 in which an IPv4 address is the last 32 bits: mapped addresses and NAT64
EMBEDDED = (ipaddress.IPv6Network("::ffff:0:0/96"), ipaddress.IPv6Network("64:ff9b::/96"))
#: not for hosts: tunnels into IPv4 (6to4, its relays, Teredo), and addresses of protocols
NOT_HOSTS = (
    ipaddress.IPv6Network("2002::/16"),
    ipaddress.IPv6Network("2001::/32"),
    ipaddress.IPv4Network("192.88.99.0/24"),
    ipaddress.IPv4Network("192.0.0.0/24"),
)
#: Azure's machines are told their secrets at a public address.
METADATA = ipaddress.IPv4Address("168.63.129.16")


class Forbidden(OSError):
    """An address that Crier may not connect to; the text says so."""


def allowed(address: str) -> bool:
    """May Crier connect to this IP address for an operator?"""
    # Here, because the sandbox's server reads the same descriptions of channels and runs without Django.
    from django.conf import settings

    ip = ipaddress.ip_address(address)
    return is_public(ip) or any(ip in network for network in settings.ALLOW_PRIVATE_NETWORKS)


def is_public(ip: Address) -> bool:
    if ip == METADATA or any(ip in network for network in NOT_HOSTS):
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return ip.is_global and not ip.is_multicast and not ip.is_reserved
    if any(ip in network for network in EMBEDDED):
        return is_public(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    return ip in GLOBAL_UNICAST and ip.is_global


def problem(host: str) -> str:
    """Why a host may not be used, for the person who enters it; nothing where it may. It is asked again when used."""
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return f"The host {host} has no address: check its spelling."
    return "" if all(map(allowed, addresses)) else f"{host} is in a private network, which Crier may not reach."


def checked_socket(entry: Any) -> socket.socket:
    """A socket for an entry of `getaddrinfo`; raises Forbidden."""
    family, kind, protocol, _, target = entry
    if not allowed(str(target[0])):
        raise Forbidden(f"{target[0]} is in a private network, which Crier may not reach")
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    return made


async def connect(host: str, port: int) -> socket.socket:
    """A connected socket, to the first address that answers. For HTTP there is `http.connector`."""
    loop = asyncio.get_running_loop()
    failure: OSError = Forbidden(f"{host} has no address")
    for entry in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            return await _connected(loop, entry)
        except OSError as error:
            failure = error
    raise failure


async def _connected(loop: asyncio.AbstractEventLoop, entry: Any) -> socket.socket:
    made = checked_socket(entry)
    try:
        await loop.sock_connect(made, entry[4])
    except BaseException:
        made.close()
        raise
    return made
