"""Elements of every page: navigation, plain titles, empty lists, and cells for phones."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.contrib import admin
from django.urls import reverse
from django.utils.safestring import mark_safe

from accounts.inputs import counted
from fanout.templatetags.crier import labelled
from tests.admin.conftest import login
from tests.factories import RecipientFactory, RunFactory

JARGON = ("Fanout", "Axes", "Django", "administration", "Site")


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page.split("<body", 1)[1]).split())


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "current"),
    [
        ("index", "Overview"),
        ("fanout_run_changelist", "Activity"),
        ("fanout_runtarget_changelist", "Activity"),
        ("reminders_reminder_add", "Reminders"),
        ("accounts_account_changelist", "Accounts"),
        ("reminders_recipient_import", "Recipients"),
    ],
)
def test_the_navigation_says_where_one_is(operator: Any, name: str, current: str) -> None:
    page = login(operator).get(reverse(f"admin:{name}")).content.decode()
    assert re.findall(r'aria-current="page">([^<]*)</a>', page) == [current]


@pytest.mark.django_db
def test_pages_are_named_without_jargon(boss: Any) -> None:
    run = RunFactory.create(targets={"sent": 1})
    ann = RecipientFactory.create(name="Ann")
    paths = [
        reverse("admin:fanout_runtarget_changelist"),
        reverse("admin:fanout_runtarget_change", args=[run.targets.get().pk]),
        reverse("admin:reminders_recipient_delete", args=[ann.pk]),
        reverse("admin:reminders_recipient_history", args=[ann.pk]),
        reverse("admin:app_list", args=["fanout"]),
        reverse("admin:app_list", args=["axes"]),
    ]
    for path in paths:
        page = login(boss).get(path).content.decode()
        crumbs = text_of("<body" + page.split('class="breadcrumbs"', 1)[1].split("</nav>", 1)[0])
        title = re.findall("<title>(.*?)</title>", page, re.DOTALL)[0]
        assert [word for word in JARGON if word in crumbs or word in title] == [], (path, crumbs, title)


@pytest.mark.django_db
def test_every_choice_of_every_filter_works(boss: Any) -> None:
    client, chosen = login(boss), 0
    for model_admin in admin.site._registry.values():
        path = reverse(f"admin:{model_admin.opts.app_label}_{model_admin.opts.model_name}_changelist")
        bar = re.findall(r'<details class="filter">(.*?)</details>', client.get(path).content.decode(), re.DOTALL)
        for query in re.findall(r'href="(\?[^"]*)"', "".join(bar)):
            chosen += 1
            assert client.get(path + html.unescape(query)).status_code == 200, (path, query)
    assert chosen > 40


@pytest.mark.django_db
def test_an_empty_list_says_so(operator: Any) -> None:
    path = reverse("admin:reminders_recipient_changelist")
    page = login(operator).get(path).content.decode()
    assert "There is nothing here yet." in page
    assert 'name="action"' not in page, "nothing can be selected"
    assert "Nothing matches." in login(operator).get(path, {"q": "nobody"}).content.decode()


def test_cells_carry_the_name_of_their_column() -> None:
    cells = [
        '<td class="action-checkbox">x</td>',
        '<td class="field-a">1</td>',
        '<td class="field-b">–</td>',
        "<td>f</td>",
    ]
    headers: list[dict[str, Any]] = [{"text": mark_safe("<input>")}, {"text": 'a "b" <c>'}, {"text": "tags"}]
    assert list(labelled([mark_safe(cell) for cell in cells], headers)) == [
        cells[0],
        '<td data-label="A &quot;b&quot; &lt;c&gt;" class="field-a">1</td>',
        '<td data-label="Tags" class="nothing field-b">–</td>',
        cells[3],
    ]


@pytest.mark.parametrize(
    ("n", "noun", "words"),
    [
        (0, "row", "0 rows"),
        (1, "row", "1 row"),
        (5_000, "address", "5,000 addresses"),
        (1, "address", "1 address"),
        (2, "delivery", "2 deliveries"),
        (2, "day", "2 days"),
    ],
)
def test_one_and_many(n: int, noun: str, words: str) -> None:
    assert counted(n, noun) == words
