"""A Brazilian number through each gateway that tells the id it used: the send, the memory, and the reply by that id."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.utils import timezone

from accounts.models import Account
from fanout.inbound import worker
from fanout.models import KnownId
from reminders.models import Recipient
from tests.gateways.process import GatewayServer
from tests.gateways.running import make_run
from tests.gateways.test_opt_outs import CASES, SECRET, Case, carry_out, listening

LISTED, ID = "+5531987654321", "+553187654321"


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.channel in ("waha", "cloud")], ids=lambda case: case.channel
)
def test_the_id_of_a_message_is_remembered(case: Case, tmp_path: Path) -> None:
    with GatewayServer(tmp_path, case.channel) as gateway, listening() as site:
        config = {"url": gateway.url, **case.config}
        run = make_run(case.channel, config, case.credentials, [("person", LISTED)], "message")
        account = Account.objects.get()
        gateway.set_hook(case.name, f"{site}/hooks/{case.channel}/{account.hook_token}", SECRET)
        carry_out(run)
        (delivery,) = gateway.book().deliveries()
        assert gateway.answer(delivery.to, "STOP") == 200
        while worker.step(timezone.now()):
            pass

    row = KnownId.objects.get()
    assert (row.account_id, row.known_as, row.address) == (account.pk, ID, LISTED)
    assert Recipient.objects.get().status == "opted_out"


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_a_member_of_linkedin_is_known_by_the_id_of_the_message(tmp_path: Path) -> None:
    """Where only the member's id is named. A reaction is no reply."""
    ann, bob = (f"linkedin.com/in/{name}" for name in ("ann-lee", "bob-fox"))
    credentials = {"api_key": "k", "webhook_secret": SECRET}
    with GatewayServer(tmp_path, "unipile") as gateway, listening() as site:
        config = {"url": gateway.url, "account_id": "a1"}
        run = make_run("unipile", config, credentials, [("profile", ann), ("profile", bob)], "message")
        account = Account.objects.get()
        gateway.set_hook("a1", f"{site}/hooks/unipile/{account.hook_token}", SECRET)
        carry_out(run)
        assert gateway.answer(ann, "STOP", "only the member's id") == 200
        assert gateway.react(bob, "👍") == 200
        while worker.step(timezone.now()):
            pass

    told = {one.address: (one.status, one.replied_at is not None) for one in Recipient.objects.all()}
    assert told == {ann: ("opted_out", True), bob: ("active", False)}
