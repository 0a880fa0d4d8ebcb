"""Credentials at rest: encrypted with keys of their own, so that a new SECRET_KEY does not lose them.

`CREDENTIAL_KEYS` lists the keys: the first encrypts, all of them decrypt. To rotate, put a new key in front,
run every token through `rotate`, then drop the old key. No error here carries a token, a key or plaintext,
neither in its message nor in its chain: errors end up in logs.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


class CredentialError(Exception):
    """Raised for stored credentials that cannot be read."""


def encrypt(credentials: dict[str, Any]) -> str:
    if not isinstance(credentials, dict):
        raise TypeError("Credentials must be a dict.")
    return _fernet().encrypt(json.dumps(credentials, separators=(",", ":")).encode()).decode()


def decrypt(token: str) -> dict[str, Any]:
    try:
        plain = _fernet().decrypt(token.encode())
    except InvalidToken:
        raise _no_key_fits() from None
    try:
        credentials = json.loads(plain)
    except ValueError:
        credentials = None
    if not isinstance(credentials, dict):
        raise CredentialError("These credentials were not written by this application.")
    return credentials


def rotate(token: str) -> str:
    """Return the same credentials, encrypted with the first key."""
    try:
        return _fernet().rotate(token.encode()).decode()
    except InvalidToken:
        raise _no_key_fits() from None


def _no_key_fits() -> CredentialError:
    return CredentialError(
        "No key in CREDENTIAL_KEYS opens these credentials: "
        "add the key they were stored with, or enter the credentials again."
    )


def _fernet() -> MultiFernet:
    return _fernet_of(tuple(settings.CREDENTIAL_KEYS))


@lru_cache(maxsize=4)
def _fernet_of(keys: tuple[str, ...]) -> MultiFernet:
    if not keys:
        raise ImproperlyConfigured("CREDENTIAL_KEYS is empty: credentials need at least one key.")
    return MultiFernet([_key(number, key) for number, key in enumerate(keys, start=1)])


def _key(number: int, key: str) -> Fernet:
    try:
        return Fernet(key)
    except ValueError:
        raise ImproperlyConfigured(f"Key {number} in CREDENTIAL_KEYS is not 32 bytes in URL-safe base64.") from None
