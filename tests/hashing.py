"""Passwords in tests: the hash that Django makes by default, of one round instead of a million."""

from __future__ import annotations

from django.contrib.auth.hashers import PBKDF2PasswordHasher


class OneRound(PBKDF2PasswordHasher):
    """A process with the real settings accepts it too: the number of rounds is written into the hash."""

    iterations = 1
