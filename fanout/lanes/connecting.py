"""How to open a session with PostgreSQL besides Django's."""

from __future__ import annotations

from typing import Any

from psycopg.conninfo import make_conninfo


def conninfo(settings: dict[str, Any]) -> str:
    """libpq's words for Django's database settings."""
    options = {k: v for k, v in settings.get("OPTIONS", {}).items() if isinstance(v, (str, int)) and k != "pool"}
    named = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    chosen = {word: settings[key] for word, key in named.items() if settings.get(key)}
    return make_conninfo("", **options, **chosen)
