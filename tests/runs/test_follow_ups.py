from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from fanout.engine import commit
from fanout.inbound.replies import END_WAITING
from fanout.lanes import account_limits
from fanout.models import Run, RunTarget, Tally
from fanout.rules.follow_up_limits import Limits, Prospect, after_attempt, after_reply, refusal
from fanout.runs import corrections, firing, follow_ups
from reminders.models import Recipient, Reminder
from tests.factories import (
    AccountFactory,
    LaneStateFactory,
    RecipientFactory,
    ReminderFactory,
    ReminderTargetFactory,
    RunFactory,
    RunTargetFactory,
    SuppressionFactory,
    UserFactory,
)

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
LIMITS = Limits()

PEOPLE = [
    Prospect(status, attempts, reset_at, cooldown_until, None, limited)
    for status, attempts, reset_at, cooldown_until, limited in product(
        Recipient.Status.values,
        (0, 1, 2, 3),
        (None, NOON - HOUR, NOON, NOON + HOUR),
        (None, NOON - HOUR, NOON, NOON + HOUR),
        (False, True),
    )
]


def targets_of(run: Run) -> list[RunTarget]:
    """One person in each state."""
    recipients = Recipient.objects.bulk_create(
        Recipient(owner=run.owner, kind="person", address=f"6012{n:07}", **asdict(person))
        for n, person in enumerate(PEOPLE)
    )
    return RunTarget.objects.bulk_create(
        RunTarget(run=run, account=run.account, recipient=recipient, address=recipient.address, position=n)
        for n, recipient in enumerate(recipients)
    )


def person_of(pk: int) -> Prospect:
    return Prospect(**Recipient.objects.values(*asdict(Prospect())).get(pk=pk))


def claimed(targets: list[RunTarget], at: datetime) -> set[int]:
    ids = [target.pk for target in targets]
    with connection.cursor() as cursor:
        accounts = [target.account_id for target in targets]
        sent = dict(RunTarget.objects.filter(pk__in=ids).values_list("pk", "parts_sent"))
        next_parts = [sent[pk] for pk in ids]
        cursor.execute(
            commit.CLAIM, [ids, accounts, [1] * len(ids), [at] * len(ids), next_parts, [0] * len(ids), LIMITS.attempts]
        )
        return {row[0] for row in cursor.fetchall()}


@pytest.mark.parametrize("follow_up", [False, True])
def test_the_claim_says_what_the_rules_say(follow_up: bool) -> None:
    account = AccountFactory.create()
    LaneStateFactory.create(account=account, epoch=1)
    run = RunFactory.create(
        account=account, status="running", follow_up=follow_up, window_closes_at=NOON + 5 * HOUR, scheduled_for=NOON
    )
    targets = targets_of(run)
    granted = claimed(targets, NOON)
    assert 0 < len(granted) < len(PEOPLE)
    for target, person in zip(targets, PEOPLE, strict=True):
        assert (target.pk in granted) == (refusal(person, follow_up, LIMITS, NOON) == ""), person


@pytest.mark.parametrize(
    ("other", "granted"),
    [
        ({"status": "sending"}, False),
        ({"status": "pending", "parts_sent": 1}, False),
        ({"status": "pending"}, True),
        ({"status": "sent"}, True),
        ({"status": "unconfirmed"}, True),
    ],
)
def test_one_follow_up_at_a_time(other: dict[str, Any], granted: bool) -> None:
    """To the same person through another account, from another operator's list."""
    mine, yours = (RunFactory.create(follow_up=True, status="running") for _ in range(2))
    LaneStateFactory.create(account=mine.account, epoch=1)
    target = RunTargetFactory.create(run=mine)
    same = RecipientFactory.create(address=target.address)
    RunTargetFactory.create(run=yours, recipient=same, **other)
    assert bool(claimed([target], timezone.now())) == granted
    RunTarget.objects.filter(pk=target.pk).update(status="pending", parts_sent=1)
    assert claimed([target], timezone.now()), "what has begun goes on"


def went_out(targets: list[RunTarget], at: datetime) -> None:
    """Record a send as the ledger does: claimed at `at`, and the provider took it."""
    RunTarget.objects.filter(pk__in=[t.pk for t in targets]).update(status="sending", claim_epoch=1, claimed_at=at)
    n = len(targets)
    columns: list[list[Any]] = [
        [t.pk for t in targets],
        [1] * n,
        [at] * n,
        ["sent"] * n,
        [1] * n,
        [1] * n,
        [None] * n,
        [at] * n,
        [5] * n,
        ["id"] * n,
        [""] * n,
        [""] * n,
        [t.account_id for t in targets],
        ["message"] * n,
        [0] * n,
        ["sent"] * n,
    ]
    with connection.cursor() as cursor:
        cursor.execute(commit.RECORD_FOLLOW_UPS, [*columns, *follow_ups.limits_in_sql()])


def test_an_attempt_changes_what_the_rules_say() -> None:
    run = RunFactory.create(follow_up=True, status="running")
    targets = targets_of(run)
    went_out(targets, NOON)
    for target, person in zip(targets, PEOPLE):
        assert person_of(target.recipient_id) == after_attempt(person, LIMITS, NOON), person
    began = sum(
        after_attempt(p, LIMITS, NOON).follow_up_attempts >= 3
        and after_attempt(p, LIMITS, NOON).cooldown_until == NOON + LIMITS.cooldown
        and (p.cooldown_until is None or p.cooldown_until <= NOON)
        for p in PEOPLE
    )
    assert Tally.objects.get(account=run.account, what="cooldowns").n == began
    assert Tally.objects.get(account=run.account, what="attempts").n == len(targets)


def test_a_reply_changes_what_the_rules_say() -> None:
    """For people whose attempts all went out before it."""
    owner = UserFactory.create()
    people = [replace(person, replied_at=at) for person in PEOPLE for at in (None, NOON - HOUR, NOON, NOON + HOUR)]
    recipients = Recipient.objects.bulk_create(
        Recipient(owner=owner, kind="person", address=f"6012{n:07}", **asdict(person))
        for n, person in enumerate(people)
    )
    with connection.cursor() as cursor:
        # Statistics of an empty table make a plan that compares all of these people with each other.
        cursor.execute("ANALYZE reminders_recipient, fanout_runtarget")
        cursor.execute(END_WAITING, {"people": [recipient.pk for recipient in recipients], "at": NOON})
    stored = Recipient.objects.in_bulk([recipient.pk for recipient in recipients])
    for recipient, person in zip(recipients, people, strict=True):
        now = stored[recipient.pk]
        assert Prospect(**{name: getattr(now, name) for name in asdict(person)}) == after_reply(person, NOON), person


def test_an_ordinary_reminder_is_no_attempt() -> None:
    run = RunFactory.create(status="running")
    target = RunTargetFactory.create(run=run, account=run.account)
    went_out([target], NOON)
    assert person_of(target.recipient_id) == Prospect()


def test_two_operators_write_to_one_address() -> None:
    """Attempts count for the person, in all lists; and two at once count as two."""
    first = RecipientFactory.create(address="60123456789", kind="person")
    second = RecipientFactory.create(address="60123456789", kind="person")
    mine, yours = (RunFactory.create(follow_up=True, status="running") for _ in range(2))
    went_out(
        [
            RunTargetFactory.create(run=mine, account=mine.account, recipient=first),
            RunTargetFactory.create(run=yours, account=yours.account, recipient=second),
        ],
        NOON,
    )
    assert person_of(first.pk) == person_of(second.pk) == Prospect(follow_up_attempts=2)
    third = RunFactory.create(follow_up=True, status="running")
    went_out([RunTargetFactory.create(run=third, account=third.account, recipient=first)], NOON + HOUR)
    limited = Prospect("not_interested", 3, None, NOON + 49 * HOUR, limited=True)
    assert person_of(first.pk) == person_of(second.pk) == limited
    assert Tally.objects.get(account=third.account, what="cooldowns").n == 1, "one person, however often listed"
    newcomer = RecipientFactory.create(address="60123456789", kind="person")
    assert person_of(newcomer.pk) == limited


def test_a_newcomer_with_a_status_of_its_own_keeps_it() -> None:
    """Imported as not interested: the end of the cooldown must not make that one active."""
    known = RecipientFactory.create(address="60123456789", kind="person")
    Recipient.objects.filter(pk=known.pk).update(**asdict(Prospect("not_interested", 3, None, NOON, limited=True)))
    newcomer = RecipientFactory.create(address="60123456789", kind="person", status="not_interested")
    assert person_of(newcomer.pk) == Prospect("not_interested", 3, None, NOON, limited=False)


@pytest.mark.parametrize(("parts", "attempts"), [(1, 1), (2, 0)])
def test_was_delivered_counts_when_the_last_part_is_settled(parts: int, attempts: int) -> None:
    run = RunFactory.create(
        follow_up=True, status="paused", pause_reason="operator", parts=[{"kind": "text", "text": "Hi"}] * parts
    )
    target = RunTargetFactory.create(run=run, account=run.account, status="unconfirmed", claimed_at=NOON)
    corrections.settle(run, [target.pk], True, None, NOON + HOUR)
    assert person_of(target.recipient_id).follow_up_attempts == attempts
    corrections.settle(run, [target.pk], True, None, NOON + HOUR)
    assert person_of(target.recipient_id).follow_up_attempts == attempts, "once per target"


def test_send_again_is_no_attempt_yet() -> None:
    run = RunFactory.create(follow_up=True, status="paused", pause_reason="operator")
    target = RunTargetFactory.create(run=run, account=run.account, status="unconfirmed", claimed_at=NOON)
    corrections.settle(run, [target.pk], False, None, NOON + HOUR)
    assert person_of(target.recipient_id).follow_up_attempts == 0


# --- when the run is made -------------------------------------------------------------------------------


def reminder_to(people: list[Prospect], **fields: object) -> Reminder:
    reminder = ReminderFactory.create(**fields)
    recipients = [RecipientFactory.create(owner=reminder.owner) for _ in people]
    for position, (recipient, person) in enumerate(zip(recipients, people)):
        Recipient.objects.filter(pk=recipient.pk).update(**asdict(person))
        ReminderTargetFactory.create(reminder=reminder, recipient=recipient, position=position)
    return reminder


def made(reminder: Reminder) -> Run:
    run = firing.make_run(reminder, NOON, NOON)
    assert run is not None
    return run


def errors(run: Run) -> list[str]:
    return list(run.targets.order_by("position").values_list("error", flat=True))


COOLING = Prospect("not_interested", 3, None, NOON + 11 * HOUR + timedelta(minutes=1), limited=True)


def test_who_may_not_get_it_is_skipped_when_the_run_is_made() -> None:
    people = [
        Prospect(),
        COOLING,
        Prospect("opted_out"),
        Prospect(follow_up_attempts=3),
        Prospect("converted"),
    ]
    run = made(reminder_to(people, follow_up=True, urgency="low"))
    assert (run.follow_up, run.urgency) == (True, "low")
    assert errors(run) == ["", "cooldown_active_12h", "opted_out", "max_attempts_reached_3", "converted"]
    assert (run.total, run.pending, run.skipped) == (5, 1, 4)
    line = run.events.get(verb="skipped at once").detail
    assert line == "1 converted, 1 no reply to several follow-ups, 1 opted out, 1 still in the cooldown"
    refused = dict(Tally.objects.filter(what="refused").values_list("why", "n"))
    assert refused == {"converted": 1, "cooldown_active": 1, "max_attempts_reached": 1, "opted_out": 1}


def test_an_ordinary_reminder_goes_to_a_person_cooling_down() -> None:
    people = [
        COOLING,
        Prospect("opted_out"),
        Prospect("do_not_disturb"),
        Prospect("blacklisted"),
        Prospect("closed"),
    ]
    run = made(reminder_to(people))
    assert errors(run) == ["", "opted_out", "do_not_disturb", "blacklisted", ""]
    assert not Tally.objects.exists()


def test_a_suppressed_address_is_skipped_when_the_run_is_made() -> None:
    reminder = reminder_to([Prospect(), Prospect(), Prospect()])
    first, second, _ = reminder.recipients.order_by("pk")
    SuppressionFactory.create(address=first.address, reason="complaint")
    SuppressionFactory.create(address=second.address, reason="soft_bounces", expires_at=NOON)
    assert errors(made(reminder)) == ["suppressed: complaint", "", ""]


@pytest.fixture
def short_queue(settings: Any) -> None:
    settings.BOT_BACKPRESSURE_THRESHOLD, settings.BOT_QUEUE_MAX = 2, 5


def test_backpressure_admits_only_what_is_urgent(short_queue: None) -> None:
    account = AccountFactory.create()
    first = made(reminder_to([Prospect()] * 5, account=account, follow_up=True))
    assert errors(first) == ["", "", "", "backpressure_2", "backpressure_2"], "above the threshold, not at it"
    urgent = made(reminder_to([Prospect()] * 4, account=account, follow_up=True, urgency="high"))
    assert errors(urgent) == ["", "", "queue_full_5", "queue_full_5"]
    late = made(reminder_to([Prospect()] * 1, account=account, follow_up=True, urgency="low"))
    assert errors(late) == ["queue_full_5"]
    assert account_limits.queued([account.pk], 100) == {account.pk: 5}
    assert Tally.objects.get(account=account, what="backpressure").n == 3
    counted = dict(Tally.objects.filter(account=account, what="refused").values_list("why", "n"))
    assert counted == {"backpressure": 2, "queue_full": 3}


def test_backpressure_is_about_follow_ups_of_that_account(short_queue: None) -> None:
    """Ordinary reminders neither fill the queue nor wait for it, and other accounts have their own."""
    account = AccountFactory.create()
    assert errors(made(reminder_to([Prospect()] * 6, account=account))) == [""] * 6
    assert errors(made(reminder_to([Prospect()] * 3, account=account, follow_up=True))) == [""] * 3
    assert errors(made(reminder_to([Prospect()] * 3, follow_up=True))) == [""] * 3


def test_what_is_paused_waits_in_the_queue_too(short_queue: None) -> None:
    """Resumed, all of it goes out at once."""
    account = AccountFactory.create()
    first = made(reminder_to([Prospect()] * 3, account=account, follow_up=True))
    Run.objects.filter(pk=first.pk).update(status="paused", pause_reason="operator")
    assert errors(made(reminder_to([Prospect()], account=account, follow_up=True))) == ["backpressure_2"]


def test_a_queue_that_has_drained_takes_more(short_queue: None) -> None:
    account = AccountFactory.create()
    first = made(reminder_to([Prospect()] * 3, account=account, follow_up=True))
    first.targets.update(status="sent")
    assert errors(made(reminder_to([Prospect()] * 2, account=account, follow_up=True))) == ["", ""]


def test_a_follow_up_with_an_unreachable_recipient_is_fired() -> None:
    account = AccountFactory.create(channel="smtp", address="office@example.com", config={"host": "mail.example.com"})
    reminder = ReminderFactory.create(account=account, follow_up=True, subject="Rent", targets=1)
    mailbox = RecipientFactory.create(owner=reminder.owner, kind="mailbox", address="ann@example.com")
    ReminderTargetFactory.create(reminder=reminder, recipient=mailbox, position=9)
    run = firing.make_run(reminder, NOON, NOON)
    assert run is not None
    assert (run.pending, run.skipped) == (1, 1)
    assert Tally.objects.filter(account=account, what=Tally.What.REFUSED).count() == 1


case = pytest.param


def test_tallies_are_added_up(django_assert_num_queries: Any) -> None:
    account = AccountFactory.create()
    follow_ups.tally({(account.pk, "refused", "x" * 50): 2, (account.pk, "removed", ""): 1})
    follow_ups.tally({(account.pk, "refused", "x" * 50): 3})
    assert set(Tally.objects.values_list("what", "why", "n")) == {("refused", "x" * 40, 5), ("removed", "", 1)}
    with django_assert_num_queries(0):
        follow_ups.tally({})


@pytest.mark.parametrize(
    ("run", "target", "attempts"),
    [
        case({}, {}, 1, id="settled-as-sent"),
        case({"follow_up": False}, {}, 0, id="no-follow-up"),
        case({}, {"status": "unconfirmed"}, 0, id="still-in-doubt"),
        case({}, {"claimed_at": None}, 0, id="never-claimed"),
    ],
)
def test_what_counts_as_an_attempt_when_it_is_settled(
    run: dict[str, Any], target: dict[str, Any], attempts: int
) -> None:
    made = RunFactory.create(**{"follow_up": True, "status": "running"} | run)
    settled, beside = (
        RunTargetFactory.create(run=made, **{"status": "sent", "claimed_at": NOON} | target) for _ in range(2)
    )
    follow_ups.settled_as_sent([settled.pk], [settled.address])
    assert person_of(settled.recipient_id).follow_up_attempts == attempts
    assert person_of(beside.recipient_id) == Prospect()


def test_the_limits_come_from_the_settings(settings: Any) -> None:
    settings.BOT_FOLLOW_UP_MAX_ATTEMPTS, settings.BOT_FOLLOW_UP_COOLDOWN_HOURS = 5, 2
    assert follow_ups.limits() == Limits(5, 2 * HOUR)
    assert follow_ups.limits_in_sql() == ["5", "7200 seconds"]


@pytest.mark.parametrize(
    ("mine", "theirs", "granted"),
    [
        case({}, {"status": "sending"}, False, id="one-in-flight"),
        case({}, {"status": "sending", "run": "paused"}, False, id="in-flight-though-paused"),
        case({}, {"parts_sent": 1}, False, id="between-two-parts"),
        case({}, {"parts_sent": 1, "run": "paused"}, True, id="between-two-parts-and-paused"),
        case({}, {"status": "sending", "run": "no follow-up"}, True, id="an-ordinary-reminder"),
        case({"parts_sent": 1}, {"status": "sending"}, True, id="begun-before"),
    ],
)
def test_who_gets_another_follow_up_meanwhile(mine: dict[str, Any], theirs: dict[str, Any], granted: bool) -> None:
    run = RunFactory.create(follow_up=True, status="running")
    kind = theirs.pop("run", "running")
    state = {"status": "paused", "pause_reason": "operator"} if kind == "paused" else {"status": "running"}
    other = RunFactory.create(follow_up=kind != "no follow-up", **state)
    LaneStateFactory.create(account=run.account, epoch=1)
    target = RunTargetFactory.create(run=run, **mine)
    RunTargetFactory.create(run=other, recipient=RecipientFactory.create(address=target.address), **theirs)
    RunTargetFactory.create(run=other, status="sending")
    assert bool(claimed([target], timezone.now())) is granted
