"""How pages look, measured: sentences with times, space between cards, and buttons below what they depend on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from fanout.models import ClusterBeat, Driver, Event, Run, TrailEntry
from tests.browser.conftest import Server
from tests.factories import AccountFactory, RunFactory, UserFactory

MOST_SPACE = 60  # pixels between two cards of a column, and below the last line of a card
#: Each paragraph with two clocks that ends below the line on which its second clock ends.
TORN = """
[...document.querySelectorAll("#container p")].filter(p => {
  const zone = p.querySelector(".zone"), end = p.lastChild;
  if (!zone || end.nodeType !== Node.TEXT_NODE || !/^[.,;]/.test(end.data.trim())) return false;
  const range = document.createRange();
  range.selectNodeContents(end);
  const rects = [...range.getClientRects()].filter(rect => rect.width), clock = [...zone.getClientRects()].at(-1);
  return rects.length > 0 && rects[0].top > clock.bottom - 2;
}).map(p => p.innerText)
"""
CLOCKS = "document.querySelectorAll('#container p .zone').length"
#: The free space below each card of the run's page, and in it below its last line.
SPACES = """
[...document.querySelectorAll(".columns > div")].flatMap(column => {
  const cards = [...column.children].filter(card => card.offsetHeight);
  return cards.flatMap((card, n) => {
    const box = card.getBoundingClientRect(), last = [...card.children].filter(inner => inner.offsetHeight).at(-1);
    const below = n + 1 < cards.length ? cards[n + 1].getBoundingClientRect().top - box.bottom : 0;
    return [below, last ? box.bottom - last.getBoundingClientRect().bottom : 0];
  });
})
"""


@pytest.fixture
def paused(operator: User) -> Run:
    """A run of another timezone than the browser's, which goes on by itself."""
    now = timezone.now()
    account = AccountFactory.create(owner=operator, label="Community line", timezone="Asia/Kuala_Lumpur")
    run: Run = RunFactory.create(
        reminder__owner=operator,
        reminder__account=account,
        timezone="Asia/Kuala_Lumpur",
        status="paused",
        pause_reason="window_closed",
        resume_at=now + timedelta(hours=3),
        first_attempt_at=now - timedelta(hours=2),
        targets={"sent": 5, "failed": 2, "skipped": 1, "pending": 3},
    )
    for n in range(12):
        Event.objects.create(run=run, at=now - timedelta(minutes=n), verb="paused", detail="By its window.")
    return run


@pytest.mark.parametrize("width", [1280, 820, 390])
def test_a_sentence_with_two_clocks_is_not_torn(paused: Run, server: Server, page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    for path in (reverse("admin:fanout_run_change", args=[paused.pk]), reverse("admin:index")):
        page.goto(server.url(path))
        assert page.evaluate(TORN) == []
    page.goto(server.url(reverse("admin:fanout_run_change", args=[paused.pk])))
    assert page.evaluate(CLOCKS) >= 1


def test_the_run_page_has_no_empty_space(paused: Run, server: Server, page: Any) -> None:
    page.goto(server.url(reverse("admin:fanout_run_change", args=[paused.pk])))
    spaces = page.evaluate(SPACES)
    assert len(spaces) >= 8
    assert max(spaces) <= MOST_SPACE


def test_words_agree_with_their_numbers(paused: Run, operator: User, server: Server, page: Any) -> None:
    """What Crier did itself has no actor, and nothing is “by Crier”; counts and nouns agree."""
    User.objects.filter(pk=operator.pk).update(is_superuser=True)
    now = timezone.now()
    for cluster in ("main", "drivers"):
        ClusterBeat.objects.create(cluster=cluster, host="crier", pid=1, beat_at=now)
    Driver.objects.create(
        slot=0, token="crier:1", host="crier", pid=1, backend_pid=1, lanes=1, started_at=now, beat_at=now
    )
    said = {}
    for name, path in {
        "run": reverse("admin:fanout_run_change", args=[paused.pk]),
        "overview": reverse("admin:index"),
        "trail": reverse("admin:fanout_trailentry_changelist"),
        "reminder": reverse("admin:reminders_reminder_add"),
    }.items():
        page.goto(server.url(path))
        said[name] = page.locator("#container").inner_text()
    assert "All well: 1 driver, 1 account sending." in said["overview"]
    entries = TrailEntry.objects.count()
    assert f"{entries} entr{'y' if entries == 1 else 'ies'}" in said["trail"]
    assert "audit trail" not in said["trail"]
    for words in said.values():
        for odd in ("by Crier", "for who replies", "1 lanes"):
            assert odd not in words


def test_buttons_stand_beside_what_they_belong_to(operator: User, server: Server, page: Any) -> None:
    """The list of actions is not as wide as its longest choice, and a person's own line is below the focus."""
    AccountFactory.create(owner=operator, label="Community line")
    User.objects.filter(pk=operator.pk).update(is_superuser=True)
    for width in (1280, 820):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(server.url(reverse("admin:accounts_account_changelist")))
        choice, go = (page.locator(f"#changelist .actions {one}").bounding_box() for one in ("select", "button"))
        assert 0 <= go["x"] - (choice["x"] + choice["width"]) <= MOST_SPACE, f"at {width} px"
        assert abs(go["y"] - choice["y"]) <= choice["height"] / 2, f"at {width} px"
    jonas = UserFactory.create(username="jonas")
    page.goto(server.url(reverse("admin:auth_user_delete", args=[jonas.pk])))
    delete, cancel = (page.locator(f".actions .{one}").bounding_box() for one in ("danger", "cancel-link"))
    assert abs(delete["height"] - cancel["height"]) <= 3
    page.goto(server.url(reverse("admin:auth_user_add")))
    field, words = (page.locator(f".field-username {one}").bounding_box() for one in ("input", ".help"))
    assert words["y"] - (field["y"] + field["height"]) >= 4
