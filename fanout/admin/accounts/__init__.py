"""Accounts and their limits."""

from fanout.admin.accounts import admin

__all__ = ["admin"]
