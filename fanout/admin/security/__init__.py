"""Logging in and proving who one is: second factor, confirmation before sensitive changes, users, the audit trail."""

from fanout.admin.security import confirming, logins, second_factor, trail, users

__all__ = ["confirming", "logins", "second_factor", "trail", "users"]
