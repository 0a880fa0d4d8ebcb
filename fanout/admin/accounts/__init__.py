"""Accounts and their caps."""

from fanout.admin.accounts import admin

__all__ = ["admin"]
