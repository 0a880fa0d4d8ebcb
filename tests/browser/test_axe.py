"""Run axe-core on every page in light, in dark and on a phone; none is wider than a desktop, a tablet or a phone."""

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
from tests.browser.conftest import PATIENCE, Server, logged_in
from tests.browser.pages import every_page
from tests.factories import UserFactory

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
DESKTOP, TABLET, PHONE = ({"width": width, "height": 900} for width in (1280, 820, 390))
SIZES = {"phone": PHONE, "tablet": TABLET}
# All rules, the best practices too, and the size of targets, which is off by default.
EVERYTHING = {"resultTypes": ["violations"], "rules": {"target-size": {"enabled": True}}}
# The dark theme changes nothing but colours.
COLORS = {"resultTypes": ["violations"], "runOnly": ["color-contrast"]}
LOOKS: dict[str, dict[str, Any]] = {"light": EVERYTHING, "tablet": {}, "phone": EVERYTHING, "dark": COLORS}
# Django's own templates, with other words for each model: one model's stand for all in the further looks.
ALIKE = ("_history", "_delete")


@pytest.fixture
def boss(operator: User) -> User:
    boss: User = UserFactory.create(username="boss", first_name="Boss", is_superuser=True)
    return boss


def faults(tab: Any, options: dict[str, Any]) -> Iterator[str]:
    """Run axe on the open page and yield a line for each element that it complains about."""
    if not tab.evaluate("() => Boolean(window.axe)"):
        tab.evaluate(AXE)
    for violation in tab.evaluate(f"async () => (await axe.run(document, {json.dumps(options)})).violations"):
        for node in violation["nodes"]:
            yield f"{violation['id']} at {' '.join(map(str, node['target']))}: {node['html'][:160]}"


def open_page(tab: Any, server: Server, path: str) -> None:
    tab.goto(server.url(path))


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


def operations(tab: Any, server: Server) -> None:
    """The documentation of the API, with every operation opened."""
    tab.goto(server.url(reverse("api:openapi-view")))
    tab.locator("summary").first.click()
    tab.wait_for_selector("details[open] p")
    tab.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")


#: pages that one comes to only by doing something
STEPS: dict[str, Callable[[Any, Server], None]] = {
    "operations of the API": operations,
    "import preview": import_preview,
    "keys": keys,
    **{
        action: partial(question, action=action)
        for action in ("tag_selected", "untag_selected", "suppress_selected", "erase_selected", "remove")
    },
}


PIECES = 2  # so that two workers share the pages; each piece makes the demo data, which takes as long as ten pages
# Colours on their way from one theme to the other belong to neither.
AT_ONCE = """
const style = new CSSStyleSheet();
style.replaceSync("*, *::before, *::after { transition: none !important }");
document.adoptedStyleSheets = [...document.adoptedStyleSheets, style];
"""


@pytest.mark.parametrize("piece", range(PIECES))
def test_axe_finds_nothing(boss: User, server: Server, chromium: Any, piece: int) -> None:
    screenshots.set_the_scene()
    context = chromium.new_context()
    logged_in(context, server, boss)
    tab = context.new_page()
    tab.set_default_timeout(PATIENCE * 1000)
    tab.add_init_script(AT_ONCE)
    pages: dict[str, Callable[[Any, Server], None]] = {
        **{name: partial(open_page, path=path) for name, path in every_page(boss).items()},
        **STEPS,
    }
    shown_in_all = {kind: next(name for name in pages if name.endswith(kind)) for kind in ALIKE}
    wrong: list[str] = []
    for name, come_to in list(pages.items())[piece::PIECES]:
        look_at(tab, "light")
        come_to(tab, server)
        stands_for_itself = not name.endswith(ALIKE) or name in shown_in_all.values()
        for look, options in LOOKS.items() if stands_for_itself else [("light", EVERYTHING)]:
            look_at(tab, look)
            wrong += [
                f"{name}, {look}: {fault}" for fault in [*too_wide(tab), *(faults(tab, options) if options else [])]
            ]
    tab.context.close()
    assert not wrong, "\n".join(wrong)


def look_at(tab: Any, look: str) -> None:
    """Change the open page's look; loading it once for each would take three times as long."""
    tab.emulate_media(color_scheme="dark" if look == "dark" else "light")
    tab.set_viewport_size(SIZES.get(look, DESKTOP))


#: What is cut at the left edge of its card: no scrolling leads there. What is out of the flow is hidden on purpose.
CUT = """
[...document.querySelectorAll("#content :is(.card, .module) *")].filter(one => {
  const box = one.getBoundingClientRect(), card = one.closest(".card, .module").getBoundingClientRect();
  const out = [one, one.offsetParent].some(each => each && getComputedStyle(each).position === "absolute");
  return box.width > 1 && box.height > 1 && !out && box.left < card.left - 1 && !one.closest(".wide, table");
}).slice(0, 3).map(one => one.outerHTML.slice(0, 100))
"""


def too_wide(tab: Any) -> Iterator[str]:
    wide = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if wide > 1:
        yield f"{wide} px too wide"
    yield from (f"cut at the left: {one}" for one in tab.evaluate(CUT))
    moving = "document.getAnimations().filter(animation => animation instanceof CSSTransition).length"
    assert tab.evaluate(moving) == 0
