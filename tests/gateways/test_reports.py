"""What gateways report about people who did not answer, from the report to the follow-up that they still get."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.utils import timezone

from accounts.models import Account
from fanout.inbound import worker
from fanout.models import InboundEvent
from reminders.models import Recipient
from tests.gateways.process import GatewayServer
from tests.gateways.running import make_run
from tests.gateways.test_opt_outs import CASES, SECRET, Case, carry_out, follow_up, listening

REACTS, REFUSED, ANSWERS = "+4917600000001", "+4917600000002", "+4917600000003"


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.channel)
def test_a_reaction_is_no_answer_and_a_late_refusal_no_delivery(case: Case, tmp_path: Path) -> None:
    recipients = [("person", number) for number in (REACTS, REFUSED, ANSWERS)]

    with GatewayServer(tmp_path, case.channel) as gateway, listening() as site:
        run = make_run(case.channel, {"url": gateway.url, **case.config}, case.credentials, recipients, "message")
        account = Account.objects.get()
        gateway.set_hook(case.name, f"{site}/hooks/{case.channel}/{account.hook_token}", SECRET)
        carry_out(run)
        queued = follow_up(run)
        assert gateway.react(REACTS, "👍") == 200
        assert gateway.answer(ANSWERS, "Yes") == 200
        process_inbound()
        carry_out(queued)
        assert gateway.refuse_late(REFUSED) == 200
        process_inbound()

        delivered = [delivery.to for delivery in gateway.book().deliveries()]

    assert InboundEvent.objects.filter(state="done").count() == 2
    assert set(Recipient.objects.exclude(replied_at=None).values_list("address", flat=True)) == {ANSWERS}
    assert delivered.count(REACTS) == 2
    assert delivered.count(ANSWERS) == 1
    assert [target.status == "sent" for target in (queued.targets.get(address=who) for who in (REACTS, REFUSED))] == [
        True,
        False,
    ]


def process_inbound() -> None:
    while worker.step(timezone.now()):
        pass
