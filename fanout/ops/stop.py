"""Asking all processes of a cluster to stop.

A running django-q2 task sees no signal, and a worker that has just handed over takes the next task from the queue. So
the main process leaves a word in memory that its forked children share: drivers look at it four times a second, and a
driver that starts after it ends at once.
"""

from __future__ import annotations

from multiprocessing.sharedctypes import RawValue

# Raw, without a lock: a killed process could leave a lock held. Made when this module is imported, before any fork.
_asked = RawValue("b", 0)


def ask() -> None:
    _asked.value = 1


def asked() -> bool:
    return bool(_asked.value)
