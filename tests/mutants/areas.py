"""Which tests belong to which modules: a mutant is shown to these and to no others.

Tests that start processes or browsers are left out: a mutant lives in one process.
"""

from __future__ import annotations

from fnmatch import fnmatch
from typing import NamedTuple

ENGINE = (
    "tests/engine/test_statements.py",
    "tests/engine/test_side_by_side.py",
    "tests/engine/test_holders.py",
    "tests/engine/test_new_chats.py",
    "tests/engine/test_lane.py",
    "tests/engine/test_corners.py",
    "tests/engine/test_protection.py",
    "tests/engine/test_follow_ups.py",
    "tests/engine/test_bounces.py",
    "tests/engine/test_pressure.py",
)
RUNS = (
    "tests/runs/test_conditions.py",
    "tests/runs/test_transitions.py",
    "tests/runs/test_models.py",
    "tests/commands/test_controls.py",
)


class Area(NamedTuple):
    modules: tuple[str, ...]
    tests: tuple[str, ...]


AREAS: dict[str, Area] = {
    "sql": Area(("fanout/engine/sql.py",), ENGINE[:5]),
    "follow-ups": Area(
        ("fanout/runs/follow_ups.py",),
        (
            ENGINE[0],
            "tests/runs/test_follow_ups.py",
            "tests/runs/test_hygiene.py",
            "tests/runs/test_erasing.py",
            "tests/engine/test_follow_ups.py",
        ),
    ),
    "engine": Area(("fanout/engine/[!s]*.py", "fanout/engine/sender.py"), ENGINE),
    "rules": Area(("fanout/rules/*.py",), ("tests/rules",)),
    "transitions": Area(("fanout/runs/transitions.py",), (*RUNS, *ENGINE[:2])),
    "lanes": Area(
        ("fanout/lanes/*.py",),
        (
            *RUNS,
            "tests/lanes",
            "tests/commands/test_tune.py",
            "tests/engine/test_lock_order.py",
            *ENGINE[:2],
            ENGINE[3],
        ),
    ),
    "books": Area(
        ("fanout/migrations/0002_triggers.py",),
        (*RUNS, "tests/engine/test_statements.py", "tests/lanes/test_deleting.py", "tests/security/test_trail.py"),
    ),
    "controls": Area(
        ("fanout/runs/controls.py",),
        (
            *RUNS,
            "tests/runs/test_split.py",
            "tests/runs/test_controls_refuse.py",
            "tests/admin/test_moving.py",
            "tests/runs/test_message_2.py",
        ),
    ),
    "firing": Area(
        ("fanout/runs/firing.py", "fanout/runs/admission.py", "fanout/runs/hygiene.py", "fanout/runs/preparing.py"),
        (
            "tests/runs/test_firing.py",
            "tests/runs/test_hygiene.py",
            "tests/runs/test_follow_ups.py",
            "tests/runs/test_large_runs.py",
        ),
    ),
    "planning": Area(
        ("fanout/runs/planning.py", "fanout/runs/forecast.py", "fanout/runs/queue.py", "fanout/runs/replanning.py"),
        (
            "tests/runs/test_planning.py",
            "tests/runs/test_forecast.py",
            "tests/runs/test_forecast_new_chats.py",
            "tests/runs/test_properties.py",
        ),
    ),
    "inbound": Area(("fanout/inbound/*.py",), ("tests/inbound",)),
    "window": Area(
        ("reminders/window.py", "reminders/schedule.py"),
        ("tests/reminders/test_window.py", "tests/reminders/test_schedule.py"),
    ),
    "access": Area(
        ("accounts/access.py", "accounts/roles.py"),
        ("tests/accounts", "tests/security/test_permission_matrix.py", "tests/admin/test_permissions.py"),
    ),
    "channels": Area(
        (
            "accounts/channels/*.py",
            "accounts/channels/[!sw]*/*.py",
            "accounts/channels/sm*/*.py",
            "accounts/channels/wa*/*.py",
        ),
        ("tests/channels",),
    ),
}


def area_of(file: str) -> str | None:
    """The first that names the module."""
    for name, area in AREAS.items():
        if any(fnmatch(file, pattern) and file.count("/") == pattern.count("/") for pattern in area.modules):
            return name
    return None
