"""Each mistake is one clear sentence and changes nothing. (For the environment: config/test_env.py.)"""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError

from accounts.models import Account
from reminders.models import Recipient, Reminder
from tests.factories import AccountFactory, RecipientFactory, ReminderFactory, UserFactory

pytestmark = pytest.mark.django_db

FIVE_SPELLINGS = (
    "+4917612345678",
    "0049 176 1234-5678",
    "+49 (176) 12345678",
    "4917612345678@s.whatsapp.net",
    "4917612345678:12@s.whatsapp.net",
)


def sentences(thing: Account | Reminder | Recipient) -> list[str]:
    """What the person reads who saves this in a form."""
    with pytest.raises(ValidationError) as caught:
        thing.full_clean()
    return caught.value.messages


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        pytest.param({"timezone": "Mars/Olympus"}, "'Mars/Olympus' is not a timezone", id="unknown timezone"),
        pytest.param({"timezone": "europe/paris"}, "is not a timezone", id="timezone in lower case"),
        pytest.param({"delivery_window_start_hour": 22, "delivery_window_end_hour": 6}, "midnight", id="window 22-06"),
        pytest.param({"delivery_window_end_hour": 25}, "24", id="end 25"),
        pytest.param({"schedule": "cron", "cron": "whenever"}, "five fields", id="cron nonsense"),
        pytest.param({"schedule": "cron", "cron": "99 * * * *"}, "The minute field", id="cron out of range"),
        pytest.param({"schedule": "cron", "cron": "0 0 30 2 *"}, "never fires", id="cron that never fires"),
    ],
)
def test_a_wrong_reminder_is_one_sentence(fields, says):
    reminder = ReminderFactory.create()
    for name, value in fields.items():
        setattr(reminder, name, value)
    said = sentences(reminder)
    assert any(says in sentence for sentence in said), said
    assert all(sentence.endswith((".", "”.")) for sentence in said), said
    stored = Reminder.objects.get(pk=reminder.pk)
    assert all(getattr(stored, name) != value for name, value in fields.items() if name != "schedule")


@pytest.mark.parametrize("spelling", FIVE_SPELLINGS)
def test_one_number_in_five_spellings_is_one_recipient(spelling):
    owner = UserFactory.create()
    RecipientFactory(owner=owner, kind="person", address=FIVE_SPELLINGS[0])
    again = Recipient(owner=owner, kind="person", address=spelling)
    (said,) = sentences(again)
    assert said == "This recipient is already in your list, perhaps in another spelling."
    assert Recipient.objects.count() == 1


@pytest.mark.parametrize(
    ("kind", "address", "says"),
    [
        pytest.param("person", "0176 12345678", "needs its country code", id="no country code"),
        pytest.param("person", "120363025246125486@g.us", "is a group, not a person", id="group for a person"),
        pytest.param("group", "49176123@s.whatsapp.net", "is a person, not a group", id="person for a group"),
        pytest.param("mailbox", "ann.example.com", "needs an @", id="no at sign"),
        pytest.param("mailbox", "ann@example.com\nBcc: all@example.com", "line break", id="header injection"),
    ],
)
def test_a_wrong_address_is_one_sentence(kind, address, says):
    (said,) = sentences(Recipient(owner=UserFactory.create(), kind=kind, address=address))
    assert says in said
    assert not Recipient.objects.exists()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        pytest.param({"channel": "pigeon"}, "Unknown channel 'pigeon'", id="channel"),
        pytest.param({"channel": "smtp"}, "give the account its own mail address", id="mail without a sender"),
        pytest.param({"config": ["host"]}, "are a JSON object", id="settings that are a list"),
        pytest.param({"timezone": "UTC+8"}, "is not a timezone", id="timezone"),
        pytest.param({"send_burst": 0}, "between 1 and", id="knob below its range"),
        pytest.param({"hours_start": 9}, "both business hours or neither", id="half of the hours"),
        pytest.param({"send_days": [0, 8]}, "1 (Monday) to 7 (Sunday)", id="days"),
        pytest.param({"min_gap_seconds": 60}, "is above max_gap_seconds", id="gap turned round"),
    ],
)
def test_a_wrong_account_is_one_sentence(fields, says):
    account = AccountFactory.create()
    for name, value in fields.items():
        setattr(account, name, value)
    assert any(says in sentence for sentence in sentences(account))
    stored = Account.objects.get(pk=account.pk)
    assert all(getattr(stored, name) != value for name, value in fields.items())
