"""The operator's pages for reminders, their recipients and their files."""

from reminders.admin import people, reminder, targets

__all__ = ["people", "reminder", "targets"]
