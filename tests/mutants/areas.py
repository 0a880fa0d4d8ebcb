"""Which modules make an area: a sample takes turns among them.

A mutant is shown to the tests that reach it (choosing.py). Where nearly every test does, because statements are reached
by name, the area names the tests that were written for them: they come first.
"""

from __future__ import annotations

from fnmatch import fnmatch
from typing import NamedTuple

STATEMENTS = ("tests/engine/test_statements.py", "tests/engine/test_side_by_side.py")
RUNS = (
    "tests/runs/test_transition_statements.py",
    "tests/runs/test_transitions.py",
    "tests/runs/test_models.py",
    "tests/commands/test_controls.py",
)


class Area(NamedTuple):
    modules: tuple[str, ...]
    tests: tuple[str, ...] = ()


AREAS: dict[str, Area] = {
    "sql": Area(
        ("fanout/engine/commit.py", "fanout/engine/holding.py", "fanout/engine/loading.py"),
        (
            *STATEMENTS,
            "tests/engine/test_holding.py",
            "tests/engine/test_new_chats.py",
            "tests/engine/test_lane_loop.py",
        ),
    ),
    "follow-ups": Area(
        ("fanout/runs/follow_ups.py",),
        (
            STATEMENTS[0],
            "tests/runs/test_follow_ups.py",
            "tests/runs/test_hygiene.py",
            "tests/runs/test_erasing.py",
            "tests/engine/test_follow_ups.py",
        ),
    ),
    "engine": Area(("fanout/engine/[!s]*.py",)),
    "rules": Area(("fanout/rules/*.py",)),
    "transitions": Area(("fanout/runs/transitions.py",), (*RUNS, *STATEMENTS)),
    "lanes": Area(("fanout/lanes/*.py", "fanout/database.py")),
    "books": Area(
        ("fanout/migrations/version_1_0/counters.py", "fanout/migrations/version_1_0/senders.py"),
        (
            *RUNS,
            STATEMENTS[0],
            "tests/engine/test_counters.py",
            "tests/lanes/test_deleting.py",
            "tests/security/test_trail.py",
        ),
    ),
    "controls": Area(
        (
            "fanout/runs/controls.py",
            "fanout/runs/corrections.py",
        )
    ),
    "firing": Area(("fanout/runs/firing.py", "fanout/runs/freezing.py", "fanout/runs/hygiene.py")),
    "planning": Area(("fanout/plans/*.py",)),
    "inbound": Area(("fanout/inbound/*.py",)),
    "people": Area(
        (
            "fanout/runs/message_2.py",
            "fanout/runs/erasing.py",
            "fanout/runs/se[qr]*.py",
            "fanout/runs/single_messages.py",
            "fanout/runs/[rtw]*.py",
            "fanout/runs/p[lr]*.py",
        )
    ),
    "window": Area(("reminders/window.py", "reminders/schedule.py")),
    "reminders": Area(("reminders/*.py",)),
    "access": Area(("accounts/access.py",)),
    "accounts": Area(("accounts/*.py",)),
    "forms": Area(
        (
            "fanout/admin/*_form.py",
            "fanout/admin/*_import.py",
            "fanout/admin/reminder_*.py",
            "fanout/admin/users.py",
            "fanout/admin/tokens.py",
            "fanout/admin/webhooks.py",
            "fanout/admin/segment_admin.py",
        )
    ),
    "pages": Area(("fanout/admin/*.py", "fanout/templatetags/*.py")),
    "commands": Area(
        ("fanout/management/*.py", "fanout/management/commands/[!ds]*.py", "fanout/management/commands/s[eiuy]*.py")
    ),
    "ops": Area(("fanout/ops/*.py",)),
    "api": Area(("fanout/api/*.py",)),
    "models": Area(("fanout/models/*.py",)),
    "site": Area(("config/*.py",)),
    "bridge": Area(
        (
            "fanout/bridge.py",
            "accounts/channels/whatsapp/*.py",
            "accounts/channels/whatsapp/bridge/[!s]*.py",
            "accounts/channels/whatsapp/bridge/se*.py",
        )
    ),
    "channels": Area(
        (
            "accounts/channels/*.py",
            "accounts/channels/[!sw]*/*.py",
            "accounts/channels/sm*/*.py",
            "accounts/channels/wa*/*.py",
        )
    ),
}


def area_of(file: str) -> str | None:
    """The first that names the module."""
    for name, area in AREAS.items():
        if any(fnmatch(file, pattern) and file.count("/") == pattern.count("/") for pattern in area.modules):
            return name
    return None
