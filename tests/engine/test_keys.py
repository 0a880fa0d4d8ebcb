"""New keys for the credentials while messages go out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.management import call_command

from accounts.channels.sandbox.script import Script
from accounts.models import Account
from fanout.models import Run
from fanout.runs import controls
from tests.engine.stage import Stage

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

KEY = "the provider's key"


@pytest.fixture
def sending(stage: Stage) -> tuple[Stage, Run]:
    stage.provider.set_script(Script({"*": {"latency_ms": [80, 200], "key": KEY}}))
    account = stage.account(credentials={"key": KEY}, max_send_per_minute=60)
    return stage, stage.fire(stage.reminder(account, groups=60))


def outcome(stage: Stage, run: Run) -> tuple[str, int, int, dict[Any, int]]:
    run.refresh_from_db()
    return run.status, run.sent, len(stage.book.refused()), stage.book.duplicates("to", "part")


def test_keys_are_rotated_while_a_run_goes_out(sending, settings):
    """As docs/operations.md says: the new key in front, rotate, the old one away."""
    stage, run = sending
    old, new = settings.CREDENTIAL_KEYS, [Fernet.generate_key().decode()]

    def with_keys(keys: list[str]) -> Any:
        return lambda now: setattr(settings, "CREDENTIAL_KEYS", keys)

    stage.play(
        happenings=[
            (stage.now + timedelta(seconds=10), with_keys(new + old)),
            (stage.now + timedelta(seconds=15), lambda now: call_command("rotate_keys")),
            (stage.now + timedelta(seconds=30), with_keys(new)),
        ]
    )
    assert outcome(stage, run) == ("success", 60, 0, {})


def test_a_process_without_the_new_key_fails_no_recipient(sending, settings):
    """Rotated before every process was restarted with both keys."""
    stage, run = sending
    old, new = settings.CREDENTIAL_KEYS, [Fernet.generate_key().decode()]

    def rotate_elsewhere(now: Any) -> None:
        settings.CREDENTIAL_KEYS = new + old
        call_command("rotate_keys")
        settings.CREDENTIAL_KEYS = old

    stage.play(seconds=300, happenings=[(stage.now + timedelta(seconds=10), rotate_elsewhere)])
    assert outcome(stage, run)[1:] == (run.sent, 0, {})
    assert (run.failed, run.skipped, run.unconfirmed) == (0, 0, 0)
    assert 0 < run.sent < 60
    account = Account.objects.get()
    assert (account.status, run.status) == (Account.Status.SUSPENDED, Run.Status.PAUSED)
    assert "CREDENTIAL_KEYS" in account.status_reason
    settings.CREDENTIAL_KEYS = new
    assert controls.reactivate(account, stage.user, stage.now).ok
    assert controls.resume(run, stage.user, stage.now).ok
    stage.play()
    assert outcome(stage, run) == ("success", 60, 0, {})
