"""The page with messages that a fail-over has lost, and the button with which sending goes on."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command
from django.urls import reverse

from fanout.models import KnownServer, LostClaim, TrailEntry
from fanout.ops import diagnosis
from fanout.runs.why import why_account
from tests.admin.conftest import login
from tests.engine.stage import MONDAY
from tests.factories import AccountFactory

pytestmark = pytest.mark.django_db

LIST, CONFIRM = reverse("admin:fanout_lostclaim_changelist"), reverse("admin:fanout_lostclaim_confirm")


def lost(operator: Any) -> LostClaim:
    KnownServer.objects.create(
        pk=1,
        timeline=1,
        new_timeline=2,
        new_system_identifier=5,
        held=True,
        why="a had claimed 1.",
        machines={},
        noticed_at=MONDAY,
    )
    return LostClaim.objects.create(
        account=AccountFactory.create(owner=operator),
        target_id=1,
        run_id=1,
        reminder_id=1,
        scheduled_for=MONDAY,
        address="+4915112345678",
        part=0,
        claimed_at=MONDAY,
        host="a",
        target_found=False,
        noticed_at=MONDAY,
    )


def test_an_operator_sees_it_everywhere_and_confirms(operator: Any) -> None:
    claim = lost(operator)
    client = login(operator)
    assert "Sending is stopped" in client.get(reverse("admin:index")).content.decode()
    page = client.get(LIST).content.decode()
    assert "+4915112345678" in page
    assert "its run is lost" in page
    assert "send_again" not in page
    assert diagnosis.server_history().state == diagnosis.FAILED
    assert "an operator has to confirm" in why_account(claim.account, MONDAY).text
    client.post(CONFIRM, {"keep": ""})
    known = KnownServer.objects.get()
    assert (known.held, known.timeline, known.system_identifier, known.confirmed_by) == (False, 2, 5, operator)
    assert TrailEntry.objects.filter(verb="confirmed lost commits", actor_id=operator.pk).exists()
    assert "Sending is stopped" not in client.get(reverse("admin:index")).content.decode()
    assert diagnosis.server_history().state == diagnosis.OK


@pytest.mark.parametrize("words", [{"keep": ""}, {"send_again": ""}])
def test_a_viewer_confirms_nothing_and_only_an_administrator_has_all_sent_again(
    operator: Any, viewer: Any, boss: Any, words: dict[str, str]
) -> None:
    lost(operator)
    assert login(viewer).post(CONFIRM, words).status_code == 403
    assert login(operator).get(CONFIRM).status_code == 403
    if "send_again" in words:
        assert login(operator).post(CONFIRM, words).status_code == 403
    assert KnownServer.objects.get().held
    login(boss).post(CONFIRM, words)
    assert not KnownServer.objects.get().held


def test_another_operators_messages_are_not_listed(operator: Any, colleague: Any) -> None:
    lost(operator)
    page = login(colleague).get(LIST).content.decode()
    assert "+4915112345678" not in page
    assert "Go on sending" in page


def test_the_command_lists_and_confirms(operator: Any, capsys: Any) -> None:
    lost(operator)
    call_command("lost_commits")
    assert "+4915112345678" in capsys.readouterr().out
    call_command("lost_commits", "--confirm")
    assert "Sending goes on" in capsys.readouterr().out
    call_command("lost_commits", "--json")
    assert '"held": false' in capsys.readouterr().out
