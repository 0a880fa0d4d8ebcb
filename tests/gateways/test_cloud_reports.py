"""What Meta reports after a run, from the webhook to its effects: late limits, reactions, preferences."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from accounts.models import Account
from fanout.inbound import worker
from fanout.models import InboundEvent, LaneState
from reminders.models import Recipient, Suppression
from tests.gateways.process import GatewayServer
from tests.gateways.running import make_run
from tests.gateways.test_opt_outs import SECRET, carry_out, listening

LIMITED, REACTING, STOPPING, RESUMING = (f"+4917600000{n:03d}" for n in range(4))
PEOPLE = (LIMITED, REACTING, STOPPING, RESUMING)


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_a_limit_a_reaction_and_preferences(tmp_path: Path) -> None:
    credentials = {"access_token": "k", "app_secret": SECRET}
    with GatewayServer(tmp_path, "cloud") as gateway, listening() as site:
        config = {"url": gateway.url, "phone_number_id": "10200", "template": "news"}
        run = make_run("cloud", config, credentials, [("person", number) for number in PEOPLE], "message")
        account = Account.objects.get()
        gateway.set_hook("10200", f"{site}/hooks/cloud/{account.hook_token}", SECRET)
        carry_out(run)
        reports = (
            (LIMITED, "failed 131049"),
            (REACTING, "reaction"),
            (STOPPING, "stop"),
            (RESUMING, "stop"),
            (RESUMING, "resume"),
        )
        for number, report in reports:
            assert gateway.answer(number, "Meta's words", report) == 200
            while worker.step(timezone.now()):
                pass

    limited = run.targets.get(address=LIMITED)
    # Meta says for certain that it was not delivered, so it is tried again when the limit is over.
    assert limited.status == "pending"
    assert limited.next_attempt_at is not None
    assert limited.next_attempt_at > timezone.now() + timedelta(hours=23)
    # Only this person is limited: new chats of the account go on, and it is not paused.
    assert not LaneState.objects.filter(account=account, new_chats_after__isnull=False).exists()
    assert Account.objects.get().status == "active"
    assert not InboundEvent.objects.filter(kind="reply").exists()
    assert list(Suppression.objects.values_list("address", flat=True)) == [STOPPING]
    assert Recipient.objects.get(address=RESUMING).status == "active"


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        (131031, "suspended", "Meta has restricted the business account"),
        (131042, "suspended", "Meta has no valid means of payment"),
        (130429, "active", ""),
    ],
)
def test_what_meta_reports_late_means_the_same_as_at_once(tmp_path: Path, code: int, status: str, words: str) -> None:
    credentials = {"access_token": "k", "app_secret": SECRET}
    with GatewayServer(tmp_path, "cloud") as gateway, listening() as site:
        config = {"url": gateway.url, "phone_number_id": "10200", "template": "news"}
        run = make_run("cloud", config, credentials, [("person", number) for number in PEOPLE], "message")
        account = Account.objects.get()
        gateway.set_hook("10200", f"{site}/hooks/cloud/{account.hook_token}", SECRET)
        carry_out(run)
        assert gateway.answer(LIMITED, "Meta's words", f"failed {code}") == 200
        while worker.step(timezone.now()):
            pass

    account.refresh_from_db()
    assert account.status == status
    assert words in account.status_reason
    # It was not delivered, for the account's trouble: it goes again later.
    assert run.targets.get(address=LIMITED).status == "pending"
    lane = LaneState.objects.get(account=account)
    assert (lane.next_send_at is not None and lane.probing) is (status == "active")
