"""No page has a fault that axe-core knows of, in light, in dark and on a phone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from tests.browser import screenshots
from tests.browser.conftest import PASSWORD, PATIENCE, Server, log_in
from tests.browser.pages import every_page
from tests.factories import UserFactory

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
# All rules, the best practices too, and the size of targets, which is off by default.
OPTIONS = {"resultTypes": ["violations"], "rules": {"target-size": {"enabled": True}}}
RUN = f"async () => (await axe.run(document, {json.dumps(OPTIONS)})).violations"


@pytest.fixture
def boss(operator: User) -> User:
    user = UserFactory.create(username="boss", first_name="Boss", is_superuser=True)
    user.set_password(PASSWORD)
    user.save()
    return user


def faults(tab: Any) -> Iterator[str]:
    """What axe says of the page that is open, a line for each element."""
    tab.evaluate(AXE)
    for violation in tab.evaluate(RUN):
        for node in violation["nodes"]:
            yield f"{violation['id']} at {' '.join(map(str, node['target']))}: {node['html'][:160]}"


def import_preview(tab: Any, server: Server) -> None:
    tab.goto(server.url(reverse("admin:reminders_recipient_import")))
    tab.fill("#id_paste", "Name\tPhone\tFlat\nAnn\t+49 176 12345678\t12 B\nBob\tnonsense")
    tab.click("button:has-text('Preview')")
    tab.wait_for_selector("#preview")


def question(tab: Any, server: Server, action: str) -> None:
    """Before something is done with many recipients."""
    tab.goto(server.url(f"{reverse('admin:reminders_recipient_changelist')}?kind__exact=group"))
    tab.locator(".action-select").first.check()
    tab.select_option("select[name=action]", action)
    tab.click("button[name=index]")
    tab.wait_for_selector("[name=confirmed]", state="attached")


def keys(tab: Any, server: Server) -> None:
    tab.goto(server.url())
    tab.keyboard.press("?")
    tab.wait_for_selector("#keys[open]")


#: pages that one comes to only by doing something
STEPS: dict[str, Callable[[Any, Server], None]] = {
    "import preview": import_preview,
    "keys": keys,
    **{
        action: partial(question, action=action)
        for action in ("tag_selected", "untag_selected", "suppress_selected", "erase_selected", "remove")
    },
}


@pytest.mark.parametrize("look", screenshots.LOOKS.values(), ids=["light", "dark", "phone"])
def test_axe_finds_nothing(boss: User, server: Server, chromium: Any, look: dict[str, Any]) -> None:
    screenshots.set_the_scene()
    tab = chromium.new_context(**look).new_page()
    tab.set_default_timeout(PATIENCE * 1000)
    log_in(tab, server, "boss", PASSWORD)
    wrong: list[str] = []
    for name, path in every_page(boss).items():
        tab.goto(server.url(path))
        wrong += [f"{name}: {fault}" for fault in faults(tab)]
    for name, step in STEPS.items():
        step(tab, server)
        wrong += [f"{name}: {fault}" for fault in faults(tab)]
    tab.context.close()
    assert not wrong, "\n".join(wrong)
