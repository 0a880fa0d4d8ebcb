"""The operators' guide can be followed literally, and its pictures are there."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from tests.browser.conftest import PATIENCE, Server, logged_in
from tests.browser.guide import DOCS, FORMS, GUIDE, MOST_BYTES, VIEW, deeds, follow, set_clocks, tasks


def test_every_task_says_what_to_do_and_ends_with_what_is_seen() -> None:
    assert len(tasks()) == 10
    assert [task.title for task in tasks() if not any(deed["see"] for deed in deeds(task))] == []
    assert [line for task in tasks() for line in task.steps if not FORMS.search(line)] == []


def test_its_pictures_exist_and_are_small() -> None:
    pictures = [DOCS / deed["picture"] for task in tasks() for deed in deeds(task) if deed["picture"]]
    assert pictures
    assert GUIDE.read_text().count("](img/guide/") == len(pictures)
    assert [path.name for path in pictures if not 0 < path.stat().st_size <= MOST_BYTES] == []


@pytest.mark.slow
def test_the_guide_can_be_followed(chromium: Any, server: Server, operator: User, complaints: Any) -> None:
    operator.delete()
    call_command("demo_data", verbosity=0, stdout=io.StringIO())
    set_clocks()
    context = chromium.new_context(viewport=VIEW)
    logged_in(context, server, User.objects.get(username="mei"))
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.on("dialog", lambda dialog: dialog.accept())
    complaints.watch(page, server)
    for task in tasks():
        follow(page, task, server.url())
