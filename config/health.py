"""Probes for load balancers and for people: is the process up, and could a reminder go out?"""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse

from config.problems import migrations_left
from fanout.ops.heartbeat import beating_drivers, silent_clusters

log = logging.getLogger("crier.health")


def healthz(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> JsonResponse:
    checks = {"database": database, "migrations": migrations, "clusters": clusters, "drivers": drivers}
    verdicts: dict[str, str] = {}
    for name, check in checks.items():
        verdicts[name] = _ask(check)
        if verdicts[name] != "ok":
            break  # without a database the other answers would only repeat it
    ready = len(verdicts) == len(checks) and all(verdict == "ok" for verdict in verdicts.values())
    return JsonResponse({"status": "ok" if ready else "not ready", "checks": verdicts}, status=200 if ready else 503)


def _ask(check: Callable[[], str]) -> str:
    try:
        return check()
    except DatabaseError as error:
        # Anybody may ask: the server's own words, with its address and user, are for the log.
        log.warning("not ready: %s", error)
        return "the database does not answer"


def database() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return "ok"


def migrations() -> str:
    left = migrations_left()
    return "ok" if not left else f"{left} migrations are not applied: run manage.py migrate"


def clusters() -> str:
    silent = silent_clusters()
    return "ok" if not silent else f"no live cluster: {', '.join(silent)}"


def drivers() -> str:
    """A live cluster is not enough: its drivers may be unable to take their locks."""
    return "ok" if beating_drivers() else "no driver is running: see manage.py doctor"
