"""An account as its transport sees it: built here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from accounts import crypto
from accounts.channels.base import AccountConfig, Media
from accounts.channels.registry import channel


def config_of(
    row: Mapping[str, Any],
    concurrency: int = 1,
    unsubscribe_url: Callable[[str], str | None] = lambda address: None,
    media_url: Callable[[Media], str | None] = lambda media: None,
) -> AccountConfig:
    """From the account's columns by name: a row of a query, or `vars()` of a model instance.

    Raises CredentialError where no key opens the credentials.
    """
    return AccountConfig(
        id=row["id"],
        channel=row["channel"],
        label=row["label"],
        address=row["address"],
        config=channel(row["channel"]).defaults() | row["config"],
        credentials=_opened(row["credentials"]),
        concurrency=concurrency,
        unsubscribe_url=unsubscribe_url,
        media_url=media_url,
    )


def _opened(credentials: str | dict[str, Any]) -> dict[str, Any]:
    """A row has the encrypted token; an instance may have the credentials themselves."""
    if isinstance(credentials, str):
        return crypto.decrypt(credentials) if credentials else {}
    return credentials
