"""A reminder from the first word to the run: parts, people, time, forecast, test and fire."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import expect

from fanout.models import Run
from reminders.models import Reminder
from tests.browser.conftest import Server
from tests.browser.test_stories import crier, provider  # noqa: F401 - fixtures
from tests.factories import AccountFactory, RecipientFactory, ReminderFactory
from tests.reminders.test_tables import excel
from tests.sandbox_server import SandboxServer

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000" + "1f15c4890000000d49444154789c6360f8cf50"
    "0f0003860180" + "5a347d6b0000000049454e44ae426082"
)
ME = "120363999999999999@g.us"


def shown_parts(page: Any) -> Any:
    return page.locator("#preview .bubble")


@pytest.mark.processes
def test_write_move_preview_forecast_save_test_and_fire(
    operator: User,
    provider: SandboxServer,  # noqa: F811
    crier: None,  # noqa: F811
    server: Server,
    page: Any,
    tmp_path: Path,
) -> None:
    AccountFactory.create(
        owner=operator, label="Community line", max_send_per_minute=600, config={"url": provider.url, "account": "a"}
    )
    RecipientFactory.create_batch(3, owner=operator, tags=["north"])
    RecipientFactory.create(owner=operator, name="Harbour choir")
    picture = tmp_path / "poster.png"
    picture.write_bytes(PNG)
    page.on("dialog", lambda dialog: dialog.accept())

    page.goto(server.url(reverse("admin:reminders_reminder_add")))
    # The only account is chosen; it sends no mail, so there is no subject.
    expect(page.locator("#id_account option:checked")).to_have_text("Community line")
    expect(page.locator(".field-subject")).to_be_hidden()
    page.fill("#id_title", "Town hall")
    page.fill("#id_messages-0-text", "See *you* there")
    page.click("#messages-group [data-add=text]")
    page.set_input_files("#id_messages-1-upload", str(picture))
    page.fill("#id_messages-1-text", "The poster")
    expect(page.locator("#id_messages-1-kind")).to_have_value("image")
    expect(shown_parts(page)).to_have_count(2)
    expect(shown_parts(page).first.locator("strong")).to_have_text("you")
    expect(shown_parts(page).last.locator("img")).to_have_attribute("alt", "poster.png")
    # By keyboard: the picture comes first.
    page.locator("#messages-1 [data-up]").focus()
    page.keyboard.press("Enter")
    expect(shown_parts(page).first).to_contain_text("The poster")
    expect(page.locator("#id_messages-1-order")).to_have_value("1")

    # One recipient by name, all with a tag, and a list with an unreadable line.
    page.fill("#people-search", "harb")
    expect(page.locator("#people-results [role=option]")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".chip", has_text="Harbour choir")).to_be_visible()
    page.click(".chip.tag:has-text('north')")
    page.fill("#id_paste", f"nonsense\n{ME}")
    expect(page.locator("ul.lines .problem")).to_contain_text("Line 1 (nonsense)")
    page.fill("#id_paste", ME)
    expect(page.locator("ul.lines .problem")).to_have_count(0)

    # It says what is missing, and what would send nothing.
    expect(page.locator("[data-missing]")).to_have_text("It has no time yet.")
    page.select_option("#id_schedule", "cron")
    expect(page.locator("#id_cron")).to_have_value("0 9 * * 1-5")
    page.fill("#id_cron", "0 19 * * *")
    expect(page.locator("[data-late]")).to_contain_text("after the delivery window has closed at 18:00")
    expect(page.locator(".field-even_if_late")).to_be_visible()
    page.fill("#id_delivery_window_start_hour", "0")
    page.fill("#id_delivery_window_end_hour", "24")
    expect(page.locator("[data-window]")).to_have_text("00:00–24:00, 24 hours a day")
    expect(page.locator("[data-review]")).to_contain_text("To 5 groups through Community line, every day at 19:00")
    expect(page.locator("[data-forecast]")).to_contain_text("5 groups at 600/min: done about")
    expect(page.locator("[data-lanes] tbody tr")).to_have_count(1)
    expect(page.locator(".field-even_if_late")).to_be_hidden()

    page.click("input[name=_continue]")
    expect(page.locator(".messagelist")).to_contain_text("5 targets added.")
    reminder = Reminder.objects.get()
    assert [part.kind for part in reminder.messages.all()] == ["image", "text"]
    assert reminder.enabled

    # A test, and what became of it without a reload.
    page.fill("#my-address", ME)
    page.click("text=Send a test to me")
    expect(page.locator("#test-state")).to_contain_text(f"The test to {ME} was sent at")
    page.click("text=Fire now")
    expect(page.locator(".messagelist")).to_contain_text("Fired: 5 groups queued.")
    run = Run.objects.get(is_test=False)
    expect(page.locator("#live .head .badge").first).to_have_text("Success")
    assert run.parts[0]["kind"] == "image"
    page.goto(server.url(reverse("admin:reminders_reminder_change", args=[reminder.pk])))
    asked = page.locator("button", has_text="Fire now").get_attribute("data-confirm")
    assert "It went out" in asked
    assert "5 of 5 sent" in asked


def test_an_unfinished_reminder_becomes_a_draft_with_one_click(operator: User, server: Server, page: Any) -> None:
    AccountFactory.create(owner=operator, label="Community line")
    page.goto(server.url(reverse("admin:reminders_reminder_add")))
    page.fill("#id_title", "Some day")
    page.click("input[name=_save]")
    lacks = "It has no message, no recipients and no time yet."
    expect(page.locator(".errorlist.nonfield")).to_contain_text(lacks)
    page.get_by_role("button", name="Keep it as a draft").click()
    expect(page.locator(".card.head .badge")).to_have_text("draft")
    assert not Reminder.objects.get().enabled


def add_file(page: Any, path: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.click("#messages-group [data-add=image]")
    chooser.value.set_files(str(path))


def test_a_chosen_file_outlives_a_wrong_date(operator: User, server: Server, page: Any, tmp_path: Path) -> None:
    AccountFactory.create(owner=operator, label="Community line")
    picture = tmp_path / "poster.png"
    picture.write_bytes(PNG)
    page.goto(server.url(reverse("admin:reminders_reminder_add")))
    page.fill("#id_title", "Town hall")
    page.fill("#id_messages-0-text", "See you there")
    add_file(page, picture)
    page.fill("#id_paste", ME)
    page.fill("#id_fire_at", "2020-01-01T09:00")
    page.click("input[name=_continue]")
    expect(page.locator(".field-fire_at .errorlist")).to_contain_text("This time has passed")

    # The box for the file is empty, as browsers have it; the file is still there.
    expect(page.locator("#id_messages-1-kind")).to_have_value("image")
    expect(page.locator("#messages-1 .field-upload .help")).to_contain_text("Empty: keeps poster.png.")
    shown = shown_parts(page).last.locator("img")
    expect(shown).to_have_attribute("alt", "poster.png")
    expect(shown).to_have_js_property("naturalWidth", 1)
    page.select_option("#id_schedule", "cron")
    expect(page.locator("#id_cron")).to_have_value("0 9 * * 1-5")
    page.click("input[name=_continue]")
    expect(page.locator(".messagelist")).to_contain_text("1 target added.")
    parts = [(part.kind, part.media and part.media.filename) for part in Reminder.objects.get().messages.all()]
    assert parts == [("text", None), ("image", "poster.png")]


def test_a_part_does_not_disappear_with_the_file_that_was_too_large(
    operator: User, server: Server, page: Any, tmp_path: Path
) -> None:
    AccountFactory.create(owner=operator, label="Community line")
    large = tmp_path / "poster.png"
    large.write_bytes(PNG + b"0" * 17 * 1024 * 1024)
    page.goto(server.url(reverse("admin:reminders_reminder_add")))
    page.fill("#id_title", "Town hall")
    page.fill("#id_messages-0-text", "See you there")
    add_file(page, large)
    expect(page.locator("#messages-1 .problem")).to_have_text("poster.png has 17.0 MB; the limit is 16 MB.")
    page.fill("#id_paste", ME)
    page.select_option("#id_schedule", "cron")
    page.click("input[name=_continue]")
    expect(page.locator("#messages-1 .errorlist")).to_have_text("Choose a file, or remove this part.")
    assert not Reminder.objects.exists()
    large.write_bytes(PNG)
    page.set_input_files("#id_messages-1-upload", str(large))
    page.click("input[name=_continue]")
    expect(page.locator(".messagelist")).to_contain_text("1 target added.")
    assert [part.kind for part in Reminder.objects.get().messages.all()] == ["text", "image"]


def test_parts_are_dragged_and_on_a_phone_the_forecast_is_above_save(operator: User, server: Server, page: Any) -> None:
    AccountFactory.create(owner=operator, label="Community line")
    page.goto(server.url(reverse("admin:reminders_reminder_add")))
    page.fill("#id_messages-0-text", "first")
    page.click("#messages-group [data-add=text]")
    page.fill("#id_messages-1-text", "second")
    page.locator("#messages-1 .grip").drag_to(page.locator("#messages-0 h3"), target_position={"x": 5, "y": 2})
    expect(shown_parts(page)).to_have_text(["second", "first"])
    # A part that was never saved goes, and the others keep their numbers and their order.
    page.click("#messages-group [data-add=text]")
    page.locator("#messages-2 .inline-deletelink").click()
    expect(page.locator("#id_messages-TOTAL_FORMS")).to_have_value("2")
    expect(page.locator("#id_messages-1-text")).to_have_value("second")
    expect(shown_parts(page)).to_have_text(["second", "first"])
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator("#review #forecast")).to_have_count(1)
    above = page.evaluate(
        "document.querySelector('#forecast').getBoundingClientRect().bottom"
        " <= document.querySelector('.submit-row').getBoundingClientRect().top"
    )
    assert above


def test_the_review_says_what_is_wrong_and_a_refused_form_leads_to_it(
    operator: User, server: Server, page: Any
) -> None:
    AccountFactory.create(owner=operator, label="Community line")
    page.goto(server.url(reverse("admin:reminders_reminder_add")))
    page.fill("#id_title", "Town hall")
    page.fill("#id_messages-0-text", "See you there, {town}")
    page.fill("#id_paste", f"nonsense\n{ME}")
    page.fill("#id_fire_at", "2020-01-01T09:00")
    # While typing: beside the field, and all of it in the review.
    expect(page.locator(".field-fire_at [data-passed]")).to_contain_text("This time has passed.")
    expect(page.locator("[data-review]")).to_have_text("To 1 group through Community line, 1 message each.")
    expect(page.locator("[data-wrong] li")).to_have_count(3)
    expect(page.locator("[data-wrong]")).to_contain_text("there is no {town}")
    expect(page.locator("[data-wrong]")).to_contain_text("Line 1 (nonsense)")
    page.fill("#id_delivery_window_end_hour", "3")
    expect(page.locator("[data-wrong] li").first).to_contain_text("window")
    expect(page.locator("[data-review]")).to_contain_text("To 1 group")
    page.fill("#id_delivery_window_end_hour", "18")
    page.fill("#id_messages-0-text", "See you there")
    page.fill("#id_paste", ME)
    expect(page.locator("[data-wrong] li")).to_have_count(1)
    page.click("input[name=_save]")
    expect(page.locator("#id_fire_at")).to_be_focused()
    expect(page.locator(".field-fire_at .errorlist")).to_contain_text("This time has passed.")
    expect(page.locator("[data-wrong] li")).to_have_count(1)
    expect(page.locator("[data-passed]")).to_be_hidden()


def test_the_forecast_is_green_only_when_everything_fits(operator: User, server: Server, page: Any) -> None:
    AccountFactory.create(owner=operator, label="Community line")
    mail = AccountFactory.create(owner=operator, label="Office", channel="smtp", address="office@example.com")
    page.goto(server.url(reverse("admin:reminders_reminder_add")))
    page.fill("#id_delivery_window_start_hour", "0")
    page.fill("#id_delivery_window_end_hour", "24")
    line = page.locator("#forecast [data-forecast]")
    page.select_option("#id_account", "")
    expect(line).to_have_text("Choose an account to see when it will be done.")
    expect(line).to_have_class("forecast quiet")
    page.fill("#id_messages-0-text", "See you there")
    page.fill("#id_paste", ME)
    page.select_option("#id_account", str(mail.pk))
    expect(line).to_contain_text("No recipient can be reached: Office (smtp) sends to mailboxes only.")
    expect(line).to_have_class("forecast warn")
    page.select_option("#id_account", label="Community line")
    expect(line).to_contain_text("fits.")
    expect(line).to_have_class("forecast good")


def test_an_excel_list_is_read_into_the_box_and_its_fields_are_offered(
    operator: User, server: Server, page: Any, tmp_path: Path
) -> None:
    AccountFactory.create(owner=operator, label="Community line")
    people = tmp_path / "people.xlsx"
    people.write_bytes(excel(("Name", "Phone", "Home town"), ("Ann", "+49 176 12345678", "Bonn")))
    page.goto(server.url(reverse("admin:reminders_reminder_add")))
    page.fill("#id_title", "Town hall")
    page.set_input_files("#id_list_file", str(people))
    expect(page.locator("#id_paste")).to_have_value("address,name,home_town\n+49 176 12345678,Ann,Bonn")
    page.get_by_role("button", name="Insert {home_town}").click()
    expect(page.locator("#id_messages-0-text")).to_have_value("{home_town}")
    expect(page.locator("#examples .bubble")).to_have_text("Bonn")
    # A file that cannot be read says so at once, and stays where it was chosen.
    people.write_bytes(b"\x00\x01")
    page.set_input_files("#id_list_file", str(people))
    expect(page.locator(".field-list_file .problem")).to_contain_text("neither text nor an Excel file")
    page.set_input_files("#id_list_file", [])
    page.click("input[name=_draft]")
    # Saved: the form says to whom it goes.
    expect(page.locator(".field-goes_to")).to_contain_text("1 person: Ann. See them all")
    page.click("text=See them all")
    expect(page.locator("#result_list tbody tr")).to_have_count(1)


def test_the_window_and_the_accounts_limits_have_a_switch_each(operator: User, server: Server, page: Any) -> None:
    reminder = ReminderFactory.create(
        owner=operator, account__owner=operator, targets=2, schedule="cron", cron="0 9 * * *"
    )
    page.goto(server.url(reverse("admin:reminders_reminder_change", args=[reminder.pk])))
    window = page.get_by_label("If the delivery hours end first, go on by itself the next day")
    limit = page.get_by_label("If the account reaches its daily cap first, go on by itself when it may send again")
    expect(window).not_to_be_checked()
    limit.check()
    page.click("input[name=_continue]")
    expect(page.locator(".messagelist")).to_contain_text("was changed successfully")
    expect(limit).to_be_checked()
    expect(window).not_to_be_checked()
    reminder.refresh_from_db()
    assert (reminder.auto_resume, reminder.resume_after_limit) == (False, True)
    page.on("dialog", lambda dialog: dialog.accept())
    page.locator("button", has_text="Fire").first.click()
    expect(page.locator("#live")).to_contain_text("after the account's limits")
    assert Run.objects.get().resume_after_limit


def test_a_reminder_that_has_fired_is_changed_without_a_new_time(operator: User, server: Server, page: Any) -> None:
    account = AccountFactory.create(owner=operator, label="Community line")
    fired_at = timezone.now().replace(microsecond=0) - timedelta(days=1, seconds=7)
    reminder = ReminderFactory.create(
        owner=operator, account=account, title="Town hal", schedule="once", fire_at=fired_at, targets=2
    )
    page.goto(server.url(reverse("admin:reminders_reminder_change", args=[reminder.pk])))
    expect(page.locator("[data-review]")).to_contain_text("To 2 groups through Community line")
    expect(page.locator("[data-passed]")).to_be_hidden()
    expect(page.locator("[data-wrong]")).to_be_hidden()
    page.fill("#id_title", "Town hall")
    page.click("input[name=_save]")
    page.wait_for_url("**/reminder/")
    reminder.refresh_from_db()
    assert (reminder.title, reminder.fire_at) == ("Town hall", fired_at)
