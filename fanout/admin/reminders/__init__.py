"""Reminders, their recipients and their files."""

from fanout.admin.reminders import admin, recipients, targets

__all__ = ["admin", "recipients", "targets"]
