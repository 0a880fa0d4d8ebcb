"""Erasing from the list of recipients, and what the forms say of an address that was erased."""

from __future__ import annotations

import pytest
from django.contrib.messages import get_messages
from django.urls import reverse
from django.utils import timezone

from reminders import erasure
from reminders.models import Recipient
from tests.admin.conftest import login
from tests.admin.forms import filled, save
from tests.factories import AccountFactory, RecipientFactory, RunTargetFactory

pytestmark = pytest.mark.django_db
LIST = "admin:reminders_recipient_changelist"


def test_it_asks_first_and_then_erases(operator):
    ann = RecipientFactory.create(owner=operator, kind="mailbox", address="ann@example.com", name="Ann")
    RunTargetFactory.create(recipient=ann, status="sent")
    client, asked = login(operator), {"action": "erase_selected", "_selected_action": [ann.pk]}
    page = client.post(reverse(LIST), asked).content.decode()
    assert "This cannot be undone" in page
    assert "ann@example.com" in page
    assert "Only what you can see is erased" in page
    assert Recipient.objects.filter(address="ann@example.com").exists()
    answer = client.post(reverse(LIST), asked | {"confirmed": "yes"})
    assert [str(message) for message in get_messages(answer.wsgi_request)] == ["Erased: 1 of 1."]
    assert "erased-" not in client.get(reverse(LIST)).content.decode()
    assert Recipient.objects.get().address == f"erased-{ann.pk}"


def test_an_administrator_is_told_that_it_is_everywhere(admin_user):
    ann = RecipientFactory.create()
    page = login(admin_user).post(reverse(LIST), {"action": "erase_selected", "_selected_action": [ann.pk]})
    assert "of <b>all operators</b>" in page.content.decode()


def test_a_hundred_at_a_time(operator):
    ids = [RecipientFactory.create(owner=operator).pk for _ in range(101)]
    answer = login(operator).post(reverse(LIST), {"action": "erase_selected", "_selected_action": ids})
    assert "at most 100" in str(next(iter(get_messages(answer.wsgi_request))))


def test_forms_refuse_an_address_that_must_not_come_back(operator):
    erasure.remember("ann@example.com", timezone.now())
    data = {"kind": "mailbox", "address": "Ann@example.com", "name": "", "tags": "", "status": "active"}
    page = login(operator).post(reverse("admin:reminders_recipient_add"), data)
    assert erasure.REFUSED in page.content.decode()
    account = AccountFactory.create(owner=operator, channel="smtp")
    page = save(operator, filled(account, paste="bob@example.com\nann@example.com"))
    assert f"Line 2: {erasure.REFUSED}" in page.content.decode()
    assert not Recipient.objects.exists()
