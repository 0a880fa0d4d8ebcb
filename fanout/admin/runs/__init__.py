"""Runs and their targets."""

from fanout.admin.runs import admin, targets

__all__ = ["admin", "targets"]
