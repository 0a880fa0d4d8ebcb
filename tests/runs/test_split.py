"""Who sends what is left, before and after an offload."""

from __future__ import annotations

import pytest

from fanout.runs import controls, split
from tests.factories import AccountFactory, RunFactory

pytestmark = pytest.mark.django_db


def test_what_may_have_gone_out_stays_where_it_is():
    office, community = AccountFactory.create(label="Office line"), AccountFactory.create(label="Community line")
    run = RunFactory.create(
        reminder__account=community, status="paused", pause_reason="account_capacity", targets={"pending": 5, "sent": 1}
    )
    first, second = run.targets.filter(status="pending")[:2]
    type(first).objects.filter(pk=first.pk).update(parts_sent=1)
    type(first).objects.filter(pk=second.pk).update(in_doubt=True)
    shares = split.shares([run])
    assert split.in_words(split.now(shares)) == "5 via Community line"
    foretold = split.in_words(split.after_offload(shares, office))
    assert foretold == "3 via Office line, 2 via Community line"
    answer = controls.offload(run, office, None, run.scheduled_for, and_resume=True)
    assert f"Left to send: {foretold}." in answer.text
    assert "Resumed: 5 still to send." in answer.text
    run.refresh_from_db()
    assert (run.status, set(run.lanes)) == ("queued", {office.pk, community.pk})


def test_an_account_of_another_channel_takes_nothing():
    run = RunFactory.create(reminder__account__label="Community line", status="running", targets={"pending": 2})
    mail = AccountFactory.create(label="Mailbox", channel="smtp")
    assert split.in_words(split.after_offload(split.shares([run]), mail)) == "2 via Community line"
