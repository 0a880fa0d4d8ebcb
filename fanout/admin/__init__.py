"""The operators' pages, one file per page; importing them registers them with the admin site."""

from fanout.admin import (
    account_admin,
    audit_trail,
    inbound_events,
    login,
    lost_claims,
    media_files,
    notifications,
    opt_out_phrases,
    recipient_admin,
    reminder_admin,
    reminder_targets,
    run_admin,
    run_targets,
    suppression_admin,
    users,
    webhooks,
)

__all__ = [
    "account_admin",
    "audit_trail",
    "inbound_events",
    "login",
    "lost_claims",
    "media_files",
    "notifications",
    "opt_out_phrases",
    "recipient_admin",
    "reminder_admin",
    "reminder_targets",
    "run_admin",
    "run_targets",
    "suppression_admin",
    "users",
    "webhooks",
]
