"""`manage.py`, but by a clock that the test sets: its first argument is a file with seconds to add to the time.

Only the wall's time: monotonic clocks go on, as they do on a machine whose clock is set.
"""

from __future__ import annotations

import os
import socket
import sys
from datetime import datetime, timedelta
from pathlib import Path

from django.core.management import execute_from_command_line
from django.utils import timezone

from fanout.engine.clock import SystemClock

# Two machines of a test may be this one. Before the modules that ask for the name are loaded.
if name := os.environ.get("TEST_HOST_NAME"):
    socket.gethostname = lambda named=name: named  # type: ignore[misc]
OFFSET = Path(sys.argv[1])
real_now = timezone.now


def now() -> datetime:
    return real_now() + timedelta(seconds=float(OFFSET.read_text()))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    timezone.now = now
    SystemClock.now = lambda self: now()  # type: ignore[method-assign]
    execute_from_command_line(["manage.py", *sys.argv[2:]])
