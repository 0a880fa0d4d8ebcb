"""The page of replies, its buttons, and the number in the header."""

from __future__ import annotations

import pytest
from django.urls import reverse
from django.utils import timezone

from fanout.models import InboundEvent
from reminders.models import Recipient
from tests.admin.conftest import login
from tests.inbound.test_reply_inbox import account, replied  # noqa: F401 a fixture

PAGE = "admin:replies"


def test_the_page_and_its_buttons(account, operator):  # noqa: F811
    event = replied(account, text="Yes <script>alert(1)</script>")
    client = login(operator)
    html = client.get(reverse(PAGE)).content.decode()
    assert "Yes &lt;script&gt;" in html
    assert "Can you help?" in html
    assert '<span class="count" data-replies aria-label="1 not handled">1</span>' in html
    answer = client.post(reverse("admin:reply_do", args=[event.pk]), {"do": "converted"}, follow=True)
    assert "is marked as converted" in answer.content.decode()
    assert "Nothing waits for you." in answer.content.decode()
    assert Recipient.objects.get().status == "converted"
    assert '<span class="count" data-replies hidden></span>' in answer.content.decode()
    handled = client.get(reverse(PAGE), {"state": "handled"}).content.decode()
    assert "Handled by mei" in handled


def test_a_viewer_has_no_buttons_and_a_stranger_no_reply(account, viewer, colleague):  # noqa: F811
    event = replied(account)
    html = login(viewer).get(reverse(PAGE)).content.decode()
    assert "Yes, gladly" in html
    assert 'name="do"' not in html
    assert "Yes, gladly" not in login(colleague).get(reverse(PAGE), {"state": "all"}).content.decode()
    for user, status in ((viewer, 403), (colleague, 404)):
        assert login(user).post(reverse("admin:reply_do", args=[event.pk])).status_code == status
    event.refresh_from_db()
    assert event.handled_at is None


def test_the_number_in_the_header_is_the_readers(account, operator, colleague):  # noqa: F811
    replied(account)
    index = reverse("admin:index")
    assert "1 not handled" in login(operator).get(index).content.decode()
    assert "not handled" not in login(colleague).get(index).content.decode()
    InboundEvent.objects.update(handled_at=timezone.now())
    assert "not handled" not in login(operator).get(index).content.decode()


@pytest.mark.parametrize("run", ["0", "12", str(2**63), "9" * 25])
def test_a_run_that_does_not_exist_has_no_replies(account, operator, run):  # noqa: F811
    replied(account)
    html = login(operator).get(reverse(PAGE), {"run": run}).content.decode()
    assert "Nothing matches." in html
    assert f'name="run" value="{run}"' in html
    assert "Yes, gladly" not in html


def test_an_unknown_button_is_not_found(account, operator):  # noqa: F811
    event = replied(account)
    assert login(operator).post(reverse("admin:reply_do", args=[event.pk]), {"do": "delete"}).status_code == 404
