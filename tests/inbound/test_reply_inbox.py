"""The inbox of replies: who sees which, and what operators do with them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.utils import timezone

from accounts.access import NotYours
from accounts.fields import Sealed
from accounts.models import Account
from fanout.inbound import reply_inbox
from fanout.inbound.reply_inbox import ALL, HANDLED, OPEN, Wanted
from fanout.models import InboundEvent, RunTarget, TrailEntry
from fanout.runs.erasing import erase
from reminders.models import Recipient, Suppression
from tests.admin.conftest import colleague, operator, team, viewer  # noqa: F401 fixtures
from tests.factories import TEXT, AccountFactory, RunFactory, RunTargetFactory, UserFactory
from tests.inbound.people import person, phone, say

pytestmark = pytest.mark.django_db


@pytest.fixture
def account(operator: User, team: Group) -> Account:  # noqa: F811
    made: Account = AccountFactory.create(owner=operator, team=team, label="Events line")
    return made


def sent(account: Account, n: int = 0, **fields: Any) -> RunTarget:
    whom = Recipient.objects.filter(owner=account.owner, address=phone(n)).first() or person(
        account.owner, n, team=account.team
    )
    run = RunFactory.create(
        reminder__account=account, owner=account.owner, team=account.team, parts=[{**TEXT, "text": "Can you help?"}]
    )
    return RunTargetFactory.create(
        run=run,
        recipient=whom,
        **{"status": "sent", "parts_sent": 1, "claimed_at": timezone.now() - timedelta(hours=1)} | fields,
    )


def replied(account: Account, n: int = 0, text: str = "Yes, gladly") -> InboundEvent:
    sent(account, n)
    say(account, n, timezone.now(), text)
    return InboundEvent.objects.latest("pk")


def found(user: Any, **wanted: Any) -> list[int]:
    return [reply.event.pk for reply in reply_inbox.page(user, Wanted(**wanted), timezone.now())[0]]


def test_a_reply_is_shown_with_the_message_that_it_answers(account, operator):  # noqa: F811
    event = replied(account)
    ((reply,), earlier) = reply_inbox.page(operator, Wanted(), timezone.now())
    assert (reply.event, reply.text, reply.answered) == (event, "Yes, gladly", ["Can you help?"])
    assert reply.run is not None
    assert reply.person == Recipient.objects.get()
    assert earlier is None


def test_only_replies_to_our_messages_wait(account, operator):  # noqa: F811
    sent(account, 0)
    say(account, 1, timezone.now(), "a private word")  # to no message of ours
    say(account, 0, timezone.now(), "said in a group", group="120363000000000001@g.us")
    assert found(operator) == []


def test_an_opt_out_waits_for_no_one(account, operator):  # noqa: F811
    event = replied(account, text="STOP")
    assert found(operator) == []
    assert found(operator, state=HANDLED) == [event.pk]


def test_who_sees_which(account, operator, colleague, viewer):  # noqa: F811
    event = replied(account)
    assert found(operator) == found(viewer) == found(None) == [event.pk]
    assert found(colleague) == []
    assert reply_inbox.find(colleague, event.pk) is None


def test_a_run_that_is_not_shared_is_not_shown_with_its_reply(account, viewer):  # noqa: F811
    replied(account)
    RunTarget.objects.get().run.__class__.objects.update(team=None)
    ((reply,), _) = reply_inbox.page(viewer, Wanted(), timezone.now())
    assert (reply.run, reply.answered) == (None, [])
    assert found(viewer, run=RunTarget.objects.get().run_id) == []


def test_filters(account, operator, team):  # noqa: F811
    other = AccountFactory.create(owner=operator)
    first, second = replied(account, 0), replied(other, 1)
    reply_inbox.mark_handled(second, operator, timezone.now())
    Recipient.objects.filter(address=phone(1)).update(name="Devi Kumar")
    run = RunTarget.objects.get(recipient__address=phone(0)).run_id
    assert found(operator, state=ALL) == [second.pk, first.pk]
    assert found(operator, state=OPEN) == found(operator, account=account.pk) == found(operator, team=team.pk)
    assert found(operator, state=ALL, run=run) == [first.pk]
    assert found(operator, state=ALL, person="devi") == [second.pk]
    assert found(operator, state=ALL, person="+49 (151) 12345-000") == [first.pk]
    assert found(operator, state=ALL, person=phone(0)) == [first.pk]
    assert found(operator, state=ALL, person="of no one") == []
    assert found(operator, state=ALL, before=second.pk) == [first.pk]


def test_pages_by_key(account, operator):  # noqa: F811
    events = [replied(account, n).pk for n in range(5)]
    seen: list[int] = []
    before = None
    while True:
        shown, before = reply_inbox.page(operator, Wanted(before=before), timezone.now(), most=2)
        seen += [reply.event.pk for reply in shown]
        if before is None:
            break
    assert seen == events[::-1]


def test_of_two_operators_one_handles_it(account, operator):  # noqa: F811
    event, now = replied(account), timezone.now()
    jonas = UserFactory.create(username="jonas")
    jonas.groups.set(operator.groups.all())
    assert reply_inbox.mark_handled(event, operator, now).ok
    assert reply_inbox.mark_handled(event, jonas, now).text == "mei has handled it already."
    assert TrailEntry.objects.filter(verb="handled").count() == 1
    assert reply_inbox.reopen(event, jonas, now).ok
    assert not reply_inbox.reopen(event, jonas, now).ok
    assert found(operator) == [event.pk]


def test_a_person_is_opted_out_with_one_click(account, operator):  # noqa: F811
    event, now = replied(account, text="I moved away, this is not for me"), timezone.now()
    elsewhere = person(UserFactory.create())
    assert reply_inbox.opt_out(event, operator, now).ok
    assert set(Recipient.objects.values_list("status", flat=True)) == {"opted_out"}
    assert elsewhere.address == Suppression.objects.get().address
    assert Suppression.objects.get().source == "operator"
    assert RunTarget.objects.get().opted_out_at == event.happened_at
    assert found(operator) == []
    assert not reply_inbox.opt_out(event, operator, now).ok


def test_a_person_is_converted_in_the_lists_of_the_operator(account, operator):  # noqa: F811
    event, now = replied(account), timezone.now()
    elsewhere = person(UserFactory.create())
    assert reply_inbox.convert(event, operator, now).ok
    elsewhere.refresh_from_db()
    assert Recipient.objects.get(owner=operator).status == "converted"
    assert elsewhere.status == "active"
    assert found(operator) == []
    assert reply_inbox.convert(event, operator, now).text.endswith("is converted.")


def test_who_has_opted_out_is_not_converted(account, operator):  # noqa: F811
    event = replied(account)
    Recipient.objects.update(status="opted_out")
    assert not reply_inbox.convert(event, operator, timezone.now()).ok
    assert Recipient.objects.get().status == "opted_out"


@pytest.mark.parametrize("name", reply_inbox.CONTROLS)
def test_others_do_nothing(account, colleague, viewer, name):  # noqa: F811
    event = replied(account)
    for user in (colleague, viewer):
        with pytest.raises(NotYours):
            reply_inbox.CONTROLS[name](event, user, timezone.now())
    event.refresh_from_db()
    assert (event.handled_at, Recipient.objects.get().status) == (None, "active")


def test_an_erased_persons_reply_is_gone(account, operator):  # noqa: F811
    replied(account)
    assert erase(phone(0), None, timezone.now()).ok
    assert found(operator, state=ALL) == []


def test_a_text_that_no_key_opens_is_listed(account, operator):  # noqa: F811
    event = replied(account)
    InboundEvent.objects.filter(pk=event.pk).update(words=Sealed("lost"))
    ((reply,), _) = reply_inbox.page(operator, Wanted(), timezone.now())
    assert reply.text == reply_inbox.UNREADABLE


def test_the_number_in_the_header_reads_an_index_of_its_own(account, operator):  # noqa: F811
    now = timezone.now()
    InboundEvent.objects.bulk_create(
        InboundEvent(
            account=account,
            key=f"r{n}",
            kind="reply",
            address=phone(n),
            happened_at=now,
            came_at=now,
            state="done",
            handled_at=now,
            run_target_id=n + 1,
        )
        for n in range(2_000)
    )
    sql, parameters = reply_inbox.open_replies(operator).order_by().values("pk")[:100].query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE fanout_inboundevent")
        cursor.execute(f"EXPLAIN {sql}", parameters)
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "inbound_unhandled" in plan
