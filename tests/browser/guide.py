"""Follow docs/operators.md literally, in a browser, and take its pictures: `python -m tests.browser.guide`.

A step says what to do in a few fixed forms (`FORMS`); other words are for people. An image belongs to the page as it is
after the step above it.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.browser import screenshots

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
GUIDE = DOCS / "operators.md"
FORMS = re.compile(
    r"Open \*\*(?P<open>[^*]+)\*\*"
    r"|Press \*\*(?P<press>[^*]+)\*\*"
    r"|Write (?P<values>`[^`]+`(?: and below it `[^`]+`)*) into \*\*(?P<into>[^*]+)\*\*"
    r"|Choose `(?P<choice>[^`]+)` in \*\*(?P<of>[^*]+)\*\*"
    r"|You see “(?P<see>[^”]+)”"
    r"|!\[[^]]+\]\((?P<picture>img/guide/[^)]+)\)"
)
STEP = re.compile(r"\d+\. |   !\[|!\[")
VIEW: Any = {"width": 1100, "height": 700}
MOST_BYTES = 60_000
#: the demo's run that its window has stopped
CLOSED = "Water works"


@dataclass(frozen=True, slots=True)
class Task:
    title: str
    steps: list[str]


def set_clocks() -> None:
    """Make the guide's steps true at any hour and however soon after the start of the demo they are followed. The
    demo's runs get timezones in which the window of one has closed, and were fired long enough ago not to be asked
    about before they are fired again."""
    from django.utils import timezone

    from fanout.models import Run
    from fanout.runs.controls import JUST_NOW

    now = timezone.now()
    hour = now.hour
    Run.objects.update(created_at=now - 2 * JUST_NOW)
    Run.objects.exclude(title=CLOSED).update(timezone=_zone_at(hour, 11))
    Run.objects.filter(title=CLOSED).update(timezone=_zone_at(hour, 20))


def _zone_at(hour: int, wanted: int) -> str:
    """Return a timezone whose clock shows the wanted hour when it is `hour` in UTC."""
    ahead = (wanted - hour + 11) % 24 - 11
    return f"Etc/GMT{-ahead:+d}" if ahead else "Etc/UTC"


def tasks() -> list[Task]:
    """Return the tasks of the guide, each with the lines that say what to do."""
    heads = re.split(r"^## ", GUIDE.read_text(), flags=re.MULTILINE)[1:]
    return [Task(text.splitlines()[0], [line for line in text.splitlines()[1:] if STEP.match(line)]) for text in heads]


def deeds(task: Task) -> Iterator[re.Match[str]]:
    for step in task.steps:
        yield from FORMS.finditer(step)


def follow(page: Any, task: Task, start: str, pictures: bool = False) -> None:
    """Do what the task says, from the overview on."""
    from playwright.sync_api import expect

    page.goto(start)
    for deed in deeds(task):
        if name := deed["open"]:
            page.locator(".top-nav").get_by_role("link", name=name, exact=True).click()
        elif name := deed["press"]:
            button = page.get_by_role("button", name=name, exact=True)
            button.or_(page.get_by_role("link", name=name, exact=True)).locator("visible=true").first.click()
        elif deed["values"]:
            labelled(page, deed["into"]).fill("\n".join(re.findall("`([^`]+)`", deed["values"])))
        elif deed["choice"]:
            labelled(page, deed["of"]).select_option(label=deed["choice"])
        elif deed["see"]:
            expect(page.locator("#container")).to_contain_text(deed["see"])
        elif pictures:
            take(page, DOCS / deed["picture"])


def labelled(page: Any, label: str) -> Any:
    return page.get_by_label(label).locator("visible=true").first


def take(page: Any, path: Path) -> None:
    screenshots.settle(page)
    answer = page.context.new_cdp_session(page).send("Page.captureScreenshot", {"format": "webp", "quality": 55})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(answer["data"]))
    sys.stdout.write(f"{path.name}: {path.stat().st_size:,} bytes\n")


def main() -> None:
    with screenshots.scene():
        from playwright.sync_api import sync_playwright

        from tests.browser.conftest import CHROMIUM, FLAGS, Server, log_in

        with Server() as server, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
            page = browser.new_context(viewport=VIEW).new_page()
            page.on("dialog", lambda dialog: dialog.accept())
            log_in(page, server, "mei", "crier-mei")
            set_clocks()
            for task in tasks():
                screenshots.beat()
                follow(page, task, server.url(), pictures=True)
            browser.close()


if __name__ == "__main__":
    main()
