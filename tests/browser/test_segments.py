"""A segment from its conditions to a run that reaches who is in it now."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import expect

from fanout.models import Run
from reminders.models import Recipient, Segment
from tests.browser.conftest import Server
from tests.factories import AccountFactory, RecipientFactory


def test_a_segment_is_written_counted_used_and_fired(operator: User, server: Server, page: Any) -> None:
    AccountFactory.create(owner=operator, label="Community line")
    for name, city in (("Harbour choir", "Penang"), ("Hill choir", "Ipoh"), ("Old town choir", "penang")):
        RecipientFactory.create(owner=operator, name=name, tags=["choir"], fields={"city": city})
    page.on("dialog", lambda dialog: dialog.accept())

    # The number follows the conditions while they are written.
    page.goto(server.url(reverse("admin:reminders_segment_add")))
    page.fill("#id_name", "Choirs of Penang")
    page.fill("#id_tags", "choir")
    expect(page.locator("[data-members]")).to_contain_text("3 groups now, such as Harbour choir")
    page.fill("#id_fields", "Penang")
    expect(page.locator("[data-members]")).to_contain_text("as a comparison")
    page.fill("#id_fields", "city = Penang")
    expect(page.locator("[data-members]")).to_have_text("2 groups now, such as Harbour choir and Old town choir")
    page.click("input[name=_continue]")
    assert Segment.objects.get().words == "tagged choir, city is Penang"

    # A reminder to it.
    page.click("text=New reminder to this segment")
    expect(page.locator("#id_segment option:checked")).to_have_text("Choirs of Penang")
    page.fill("#id_title", "Rehearsal")
    page.fill("#id_messages-0-text", "At 7 today.")
    page.fill("#id_delivery_window_start_hour", "0")
    page.fill("#id_delivery_window_end_hour", "24")
    expect(page.locator("[data-segment]")).to_contain_text("2 groups now")
    expect(page.locator("[data-forecast]")).to_contain_text("2 groups")
    page.click("input[name=_draft]")
    expect(page.locator(".field-goes_to")).to_contain_text("everyone in Choirs of Penang")

    # A new member is reached, and one who has moved away is not.
    RecipientFactory.create(owner=operator, name="Bay choir", tags=["choir"], fields={"city": "Penang"})
    Recipient.objects.filter(name="Harbour choir").update(fields={"city": "Ipoh"})
    page.click("text=Fire now")
    expect(page.locator(".messagelist")).to_contain_text("Fired: 2 groups queued.")
    names = Run.objects.get().targets.values_list("recipient__name", flat=True)
    assert sorted(names) == ["Bay choir", "Old town choir"]
