"""Reminders, their recipients and their files."""

from fanout.admin.reminders import admin, recipients, suppressions, targets

__all__ = ["admin", "recipients", "suppressions", "targets"]
