"""`manage.py replies`: the list, its JSON, and marking."""

from __future__ import annotations

import pytest

from fanout.inbound.reply_inbox import CONTROLS
from fanout.management.base import BadInput, NotDone
from fanout.models import InboundEvent
from tests.admin.conftest import colleague, operator, team  # noqa: F401 fixtures
from tests.commands.calling import data, text
from tests.inbound.test_reply_inbox import account, replied  # noqa: F401 a fixture

pytestmark = pytest.mark.django_db


def test_the_list_and_its_json(account):  # noqa: F811
    event = replied(account)
    assert "Yes, gladly" in text("replies")
    (reply,) = data("replies", "--account", "Events line")["replies"]
    assert (reply["reply"], reply["text"], reply["answers"]) == (event.pk, "Yes, gladly", ["Can you help?"])
    assert data("replies", "--state", "handled") == {"replies": [], "earlier": None}
    replied(account, 1)
    newest = data("replies", "--limit", "1")
    assert data("replies", "--before", str(newest["earlier"]))["replies"] == [reply]


def test_of_one_team(account, team):  # noqa: F811
    event = replied(account)
    assert [reply["reply"] for reply in data("replies", "--team", team.name)["replies"]] == [event.pk]
    account.team = None
    account.save(update_fields=["team"])
    assert data("replies", "--team", str(team.pk))["replies"] == []


def test_marking(account, colleague):  # noqa: F811
    event = replied(account)
    with pytest.raises(NotDone, match="belongs to another operator"):
        text("replies", str(event.pk), "--mark", "handled", "--as", "noor")
    assert text("replies", str(event.pk), "--mark", "handled") == "Marked as handled.\n"
    assert InboundEvent.objects.get(pk=event.pk).handled_by.startswith("shell (")
    with pytest.raises(NotDone, match="already"):
        text("replies", str(event.pk), "--mark", "handled")
    assert set(CONTROLS) == {"handled", "open", "opted_out", "converted"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["7"],
        ["--mark", "handled"],
        ["7", "--mark", "handled"],
        ["--limit", "0"],
        ["--account", "none"],
        ["--team", "none"],
        ["--run", "x"],
    ],
)
def test_bad_input(arguments):
    with pytest.raises(BadInput):
        text("replies", *arguments)
