"""What Meta reports after a run, from the webhook to its effects: late limits, reactions, preferences."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from accounts.models import Account
from fanout.inbound import worker
from fanout.models import InboundEvent, LaneState, Run
from reminders.models import Recipient, Suppression
from tests.commands.calling import text
from tests.factories import AccountFactory
from tests.gateways.process import GatewayServer
from tests.gateways.running import make_run
from tests.gateways.test_opt_outs import SECRET, carry_out, listening

LIMITED, REACTING, STOPPING, RESUMING = (f"+4917600000{n:03d}" for n in range(4))
PEOPLE = (LIMITED, REACTING, STOPPING, RESUMING)


CREDENTIALS = {"access_token": "k", "app_secret": SECRET}


def run_with_reports(tmp_path: Path, *reports: tuple[str, str]) -> Run:
    """A run to all people, after which Meta reports about each of these numbers, one after the other."""
    with GatewayServer(tmp_path, "cloud") as gateway, listening() as site:
        config = {"url": gateway.url, "phone_number_id": "10200", "template": "news"}
        run = make_run("cloud", config, CREDENTIALS, [("person", number) for number in PEOPLE], "message")
        gateway.set_hook("10200", f"{site}/hooks/cloud/{run.account.hook_token}", SECRET)
        carry_out(run)
        for number, report in reports:
            assert gateway.answer(number, "Meta's words", report) == 200
            while worker.step(timezone.now()):
                pass
    return run


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_a_limit_a_reaction_and_preferences(tmp_path: Path) -> None:
    run = run_with_reports(
        tmp_path,
        (LIMITED, "failed 131049"),
        (REACTING, "reaction"),
        (STOPPING, "stop"),
        (RESUMING, "stop"),
        (RESUMING, "resume"),
    )

    limited = run.targets.get(address=LIMITED)
    # Meta says for certain that it was not delivered, so it is tried again when the limit is over.
    assert limited.status == "pending"
    assert limited.next_attempt_at is not None
    assert limited.next_attempt_at > timezone.now() + timedelta(hours=23)
    # Only this person is limited: new chats of the account go on, and it is not paused.
    assert not LaneState.objects.filter(account=run.account, new_chats_after__isnull=False).exists()
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
    run = run_with_reports(tmp_path, (LIMITED, f"failed {code}"))

    account = Account.objects.get()
    assert account.status == status
    assert words in account.status_reason
    # It was not delivered, for the account's trouble: it goes again later.
    assert run.targets.get(address=LIMITED).status == "pending"
    lane = LaneState.objects.get(account=account)
    assert (lane.next_send_at is not None and lane.probing) is (status == "active")


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_a_test_of_the_account_learns_its_business_account(tmp_path: Path) -> None:
    with GatewayServer(tmp_path, "cloud") as gateway:
        account = AccountFactory.create(
            label="Line",
            channel="cloud",
            config={"url": gateway.url, "phone_number_id": "10200"},
            credentials=CREDENTIALS,
        )
        said = text("account_check", "Line")

    account.refresh_from_db()
    assert account.config["business_account_id"] == "20400"
    assert said.startswith("Line: WhatsApp Cloud API v23.0 as Choir")
    assert "of them can be used" in said
