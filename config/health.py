"""Probes for load balancers and for people: is the process up, and could a reminder go out?

They are answered before Django, because they are public and a busy web server must still answer them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable

from django.db import DatabaseError, connection

from config.problems import migrations_left, version_problem
from config.web import App, Receive, Scope, Send, answer, light
from fanout.ops.heartbeat import beating_drivers, silent_clusters

log = logging.getLogger("crier.health")

FRESH_SECONDS = 1.0
#: A check that takes longer counts as failed.
PATIENCE_SECONDS = 5.0
SILENT = "the database does not answer"


class Probes:
    """ASGI layer that answers `/healthz` and `/readyz`."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.check: asyncio.Task[dict[str, str]] | None = None
        self.fresh_until = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path == "/healthz":
            await answer(send, 200, json.dumps({"status": "ok"}), "application/json")
        elif path == "/readyz":
            verdicts = await self.readiness()
            ready = all(verdict == "ok" for verdict in verdicts.values())
            text = json.dumps({"status": "ok" if ready else "not ready", "checks": verdicts})
            await answer(send, 200 if ready else 503, text, "application/json")
        else:
            await self.app(scope, receive, send)

    async def readiness(self) -> dict[str, str]:
        """Return the result of one check for all requests of the same moment and of the second after it."""
        if self.check is None or (self.check.done() and time.monotonic() >= self.fresh_until):
            self.check = asyncio.create_task(self._check())
        try:
            return await asyncio.wait_for(asyncio.shield(self.check), PATIENCE_SECONDS)
        except TimeoutError:
            return {"database": SILENT}

    async def _check(self) -> dict[str, str]:
        try:
            return await light.run(readiness)
        finally:
            self.fresh_until = time.monotonic() + FRESH_SECONDS


def readiness() -> dict[str, str]:
    """Return the checks up to the first that fails, each with "ok" or what is wrong."""
    verdicts: dict[str, str] = {}
    for check in (database, migrations, clusters, drivers):
        verdicts[check.__name__] = _ask(check)
        if verdicts[check.__name__] != "ok":
            break  # without a database the other answers would only repeat it
    return verdicts


def _ask(check: Callable[[], str]) -> str:
    try:
        return check()
    except DatabaseError as error:
        # The probe is public: PostgreSQL's own words, with its address and user, go to the log only.
        log.warning("not ready: %s", error)
        return SILENT


def database() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return "ok"


def migrations() -> str:
    if problem := version_problem():
        return problem
    left = migrations_left()
    return "ok" if not left else f"{left} migrations are not applied: run manage.py migrate"


def clusters() -> str:
    silent = silent_clusters()
    return "ok" if not silent else f"no live cluster: {', '.join(silent)}"


def drivers() -> str:
    """Check that a driver runs: those of a live cluster may be unable to take their locks."""
    return "ok" if beating_drivers() else "no driver is running: see manage.py doctor"
