"""`manage.py rotate_keys`: credentials and replies move to the first key."""

from __future__ import annotations

import pytest
from cryptography.fernet import Fernet

from accounts.models import Account
from tests.commands.calling import bad_input, data, not_done
from tests.factories import (
    AccountFactory,
    InboundEventFactory,
)

pytestmark = pytest.mark.django_db


def test_replies_get_the_new_key_too(settings):
    event = InboundEventFactory.create(words={"text": "yes"})
    settings.CREDENTIAL_KEYS = [Fernet.generate_key().decode(), *settings.CREDENTIAL_KEYS]
    assert data("rotate_keys")["rotated"] >= 1
    settings.CREDENTIAL_KEYS = settings.CREDENTIAL_KEYS[:1]
    event.refresh_from_db()
    assert event.text == "yes"


# --- keys ---------------------------------------------------------------------------------------------------


def test_credentials_move_to_the_first_key(settings):
    accounts = [AccountFactory.create(credentials={"key": f"s{n}"}) for n in range(3)]
    new = Fernet.generate_key().decode()
    settings.CREDENTIAL_KEYS = [new, *settings.CREDENTIAL_KEYS]
    assert data("rotate_keys", "--dry-run")["rotated"] == 3
    assert data("rotate_keys", "--batch", "2") == {
        "rotated": 3,
        "current": 0,
        "unreadable": 0,
        "changed": 0,
        "dry_run": False,
    }
    settings.CREDENTIAL_KEYS = [new]
    assert [dict(Account.objects.get(pk=a.pk).credentials) for a in accounts] == [{"key": f"s{n}"} for n in range(3)]
    assert data("rotate_keys")["current"] == 3


def test_credentials_under_a_lost_key_are_told(settings):
    AccountFactory(credentials={"key": "x"})
    settings.CREDENTIAL_KEYS = [Fernet.generate_key().decode()]
    assert "fit none of the keys" in not_done("rotate_keys")


def test_a_new_key_is_usable():
    Fernet(data("rotate_keys", "--generate")["key"])
    assert "--batch" in bad_input("rotate_keys", "--batch", "0")
