"""A test to oneself goes only where the account's channel can."""

from __future__ import annotations

import pytest
from django.utils import timezone

from fanout.models import Run
from fanout.runs.self_test import send_account_test
from tests.factories import AccountFactory

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("channel", "address", "ok", "action"),
    [
        pytest.param("smtp", "ann@example.com", True, "email", id="mail"),
        pytest.param("smtp", "120363025246125486@g.us", False, "", id="mail to a group"),
        pytest.param("sandbox", "120363025246125486@g.us", True, "message", id="message"),
    ],
)
def test_whom_a_test_reaches(channel: str, address: str, ok: bool, action: str) -> None:
    account = AccountFactory.create(label="Line", channel=channel, address="line@example.com")

    done = send_account_test(account, address, timezone.now())

    assert done.ok is ok
    assert list(Run.objects.values_list("action", flat=True)) == ([action] if ok else [])
    assert ok or done.text == f"Line (smtp) cannot reach {address}."
