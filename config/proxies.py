"""Whose request it is, behind a proxy. What a client says about itself is not believed; what our proxy says is."""

from __future__ import annotations

from ipaddress import ip_address

from django.conf import settings
from django.http import HttpRequest


def client_address(request: HttpRequest) -> str:
    """The address that the request came from; for lockouts and for records of who did what."""
    return address_behind_proxies(request.META.get("REMOTE_ADDR", ""), request.headers.get("X-Forwarded-For", ""))


def address_behind_proxies(address: str, forwarded_for: str) -> str:
    """The client's address, from that of the connection and what X-Forwarded-For says.

    Each proxy adds the address it was asked from at the right. So, from the right: the first that is not one of our
    proxies is the client; everything left of it came from the client itself.
    """
    forwarded = forwarded_for.split(",")
    while _is_proxy(address) and forwarded and _is_address(before := forwarded.pop().strip()):
        address = before
    return address


def _is_proxy(address: str) -> bool:
    return _is_address(address) and any(ip_address(address) in network for network in settings.TRUSTED_PROXIES)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
