"""The operators' pages, one folder per subject; importing them registers them with the admin site."""

from fanout.admin import accounts, inbound, notifications, reminders, runs, security

__all__ = ["accounts", "inbound", "notifications", "reminders", "runs", "security"]
