"""The reminder's form: parts, files, recipients, schedule, senders and forecast."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import time_machine
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from accounts.models import Account
from fanout.admin.reminder_form import channel_facts
from fanout.models import Event, KnownChat, LaneState, Run, RunTarget
from fanout.runs import self_test
from reminders.models import MediaFile, Recipient, Reminder, ReminderMessage
from tests.admin.conftest import login
from tests.admin.forms import MAIL, ONE, PNG, filled, parts, save
from tests.commands import calling
from tests.factories import AccountFactory, RecipientFactory, ReminderFactory, RunFactory, SuppressionFactory
from tests.reminders.test_tables import excel


@pytest.fixture
def account(operator):
    return AccountFactory.create(owner=operator)


def test_a_reminder_is_saved_with_its_next_firing(operator, account):
    assert save(operator, filled(account)).status_code == 302
    reminder = Reminder.objects.get()
    assert reminder.owner == operator
    assert reminder.next_fire_at is not None
    local = reminder.next_fire_at.astimezone(ZoneInfo("Asia/Kuala_Lumpur"))
    assert (local.hour, local.minute) == (9, 0)
    assert LogEntry.objects.filter(user=operator, object_id=reminder.pk).exists()
    assert (reminder.follow_up, reminder.urgency) == (False, "medium")


def test_a_follow_up_is_frozen_with_its_urgency_and_shown(operator, account):
    RecipientFactory.create(owner=operator, tags=["choir"])
    save(operator, filled(account, tag="choir", follow_up="on", urgency="high"))
    reminder = Reminder.objects.get()
    assert (reminder.follow_up, reminder.urgency) == (True, "high")
    login(operator).post(reverse("admin:reminders_reminder_fire", args=[reminder.pk]), {"confirmed": "yes"})
    run = Run.objects.get()
    assert (run.follow_up, run.urgency) == (True, "high")
    page = login(operator).get(reverse("admin:fanout_run_change", args=[run.pk])).content.decode()
    assert "yes, urgency high" in page


def test_a_tag_adds_no_recipients_who_get_nothing(operator, account):
    for status in Recipient.Status.values:
        RecipientFactory.create(owner=operator, tags=["choir"], status=status)
    save(operator, filled(account, tag="choir"))
    added = set(Reminder.objects.get().recipients.values_list("status", flat=True))
    assert added == {"active", "not_interested", "converted", "closed"}


def test_a_status_set_by_an_operator_is_not_the_follow_up_limits(operator):
    """The end of a cooldown must not take back what a person said."""
    person = RecipientFactory.create(owner=operator, limited=True, status="active")
    data = {"kind": person.kind, "address": person.address, "name": "Ann", "tags": "", "status": "not_interested"}
    login(operator).post(reverse("admin:reminders_recipient_change", args=[person.pk]), data)
    person.refresh_from_db()
    assert (person.name, person.status, person.limited) == ("Ann", "not_interested", False)


def test_the_time_is_the_reminders_own(operator, account):
    zone = ZoneInfo("Asia/Kuala_Lumpur")
    local = (timezone.now() + timedelta(days=2)).astimezone(zone).replace(hour=9, minute=30, second=0, microsecond=0)
    data = filled(account, schedule="once", cron="", fire_at=local.strftime("%Y-%m-%dT%H:%M"))
    assert save(operator, data).status_code == 302
    reminder = Reminder.objects.get()
    assert reminder.fire_at == local
    page = login(operator).get(reverse("admin:reminders_reminder_change", args=[reminder.pk])).content.decode()
    assert f'value="{local:%Y-%m-%dT%H:%M}"' in page


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        pytest.param(
            {"schedule": "once", "cron": "", "fire_at": "2020-01-01T09:00"}, "This time has passed", id="past"
        ),
        pytest.param({"delivery_window_end_hour": 5}, "over midnight", id="midnight"),
        pytest.param({"cron": "every day"}, "cron expression", id="cron"),
        pytest.param({"cron": "0 19 * * *"}, "It would fire always after the delivery window", id="late-cron"),
        pytest.param(
            {"schedule": "once", "cron": "", "fire_at": "2034-01-02T20:00"}, "for example Mon 02 Jan", id="late"
        ),
        pytest.param({"timezone": "Mars/Base"}, "is not a timezone", id="timezone"),
        pytest.param({"paste": "not an address"}, "Line 1", id="line"),
        pytest.param({"messages-0-text": " "}, "It has no message yet.", id="blank-text"),
        pytest.param({"messages-0-text": ""}, "It has no message yet. Add what is missing", id="no-text"),
        pytest.param(
            {"messages-0-text": " {" * 40_000 + "x"},
            "The text has 80,000 characters; at most 65,536 are sent. Shorten it or add another part.",
            id="long-text",
        ),
        pytest.param({"paste": ""}, "It has no recipients yet.", id="nobody"),
        pytest.param({"schedule": "once", "cron": ""}, "It has no time yet.", id="no-time"),
    ],
)
def test_a_wrong_form_says_so_in_a_sentence(operator, account, changes, sentence):
    answer = save(operator, filled(account, **changes))
    assert answer.status_code == 200
    assert sentence in answer.content.decode()
    assert not Reminder.objects.exists()


def test_a_long_list_takes_as_many_queries_as_a_short_one(operator, account):
    def queries(people: int, **changes: Any) -> int:
        begin = 10_000 * Reminder.objects.count()
        paste = "\n".join(f"P{n}, +4917{n:08d}" for n in range(begin, begin + people))
        with CaptureQueriesContext(connection) as asked:
            assert save(operator, filled(account, paste=paste, **changes)).status_code == 302
        assert Reminder.objects.latest("pk").targets.count() == people
        return len(asked)

    queries(1)  # what is asked once per process
    personal = {"messages-0-text": "Hi {name}"}
    assert queries(5_000) == queries(100)
    assert queries(5_000, **personal) == queries(100, **personal)


def test_a_late_firing_can_be_confirmed(operator, account):
    assert save(operator, filled(account, cron="0 19 * * *", even_if_late="on")).status_code == 302
    assert save(operator, filled(account, cron="0 9,19 * * *")).status_code == 302
    assert Reminder.objects.count() == 2


def test_the_action_of_mail_ignores_the_posted_one(operator):
    office = AccountFactory.create(owner=operator, channel="smtp", label="Office", address="office@example.com")
    assert (
        "Give the reminder a subject: Office sends mail." in save(operator, filled(office, paste=MAIL)).content.decode()
    )
    assert save(operator, filled(office, action="message", subject="Rehearsal", paste=MAIL)).status_code == 302
    assert Reminder.objects.get().action == "email"
    page = login(operator).get(reverse("admin:reminders_reminder_add")).content.decode()
    assert "id_action" not in page


@pytest.mark.parametrize("read", [False, True])
def test_message_2_without_a_way_to_receive_replies_warns(operator, account, settings, read):
    settings.BOUNCE_IMAP_PASSWORD = "sesame" if read else ""
    office = AccountFactory.create(owner=operator, channel="smtp", label="Office", address="office@example.com")
    client = login(operator)
    path = reverse("admin:reminders_reminder_add")
    page = client.post(path, filled(office, subject="Rent", paste=MAIL, follow_up="on", urgency="low"), follow=True)
    assert ("Crier receives none for Office" in page.content.decode()) != read
    page = client.post(path, filled(account, follow_up="on", urgency="low"), follow=True)
    assert "Crier receives none" not in page.content.decode()


def test_several_senders_are_kept_shown_and_forecast(operator, account, colleague):
    other, foreign = AccountFactory.create(owner=operator), AccountFactory.create(owner=colleague)
    pasted = "\n".join(f"{n}@g.us" for n in range(100000000, 100000080))
    data = filled(account, further=[other.pk], paste=pasted)
    answer = login(operator).post(reverse("admin:reminders_reminder_forecast"), data).json()
    assert answer["forecast"].startswith("80 groups through 2 accounts: done about")
    assert save(operator, data).status_code == 302
    reminder = Reminder.objects.get()
    assert reminder.senders == [account, other]
    page = login(operator).get(reverse("admin:reminders_reminder_change", args=[reminder.pk])).content.decode()
    assert f'<option value="{other.pk}" data-channel="sandbox" selected>' in page
    assert save(operator, filled(account, further=[foreign.pk])).status_code == 200
    login(operator).post(reverse("admin:reminders_reminder_duplicate", args=[reminder.pk]))
    assert Reminder.objects.exclude(pk=reminder.pk).get().senders == [account, other]


def test_senders_must_reach_the_targets_that_stay(operator, account):
    office = AccountFactory.create(owner=operator, channel="smtp", label="Office", address="office@example.com")
    reminder = ReminderFactory.create(account=account, targets=2)
    row = reminder.messages.get()
    kept = {"messages-INITIAL_FORMS": 1, "messages-0-id": row.pk, "messages-0-reminder": reminder.pk}
    changed = filled(office, subject="Rehearsal", paste=MAIL) | kept
    assert "None of the senders reaches the groups" in save(operator, changed, reminder.pk).content.decode()
    assert save(operator, changed | {"clear": "on"}, reminder.pk).status_code == 302
    assert save(operator, filled(office, subject="") | kept, reminder.pk).status_code == 200


def test_targets_come_from_a_pasted_list_and_a_tag(operator, account, colleague):
    tagged = RecipientFactory.create_batch(3, owner=operator, tags=["choir"])
    RecipientFactory.create(owner=colleague, tags=["choir"])
    known = RecipientFactory.create(owner=operator, kind="person", address="+4917612345678")
    pasted = "+49 176 12345678\nAnn, 120363025246125486@g.us\n120363025246125486@g.us\n"
    assert save(operator, filled(account, paste=pasted, tag="choir")).status_code == 302
    reminder = Reminder.objects.get()
    new = Recipient.objects.get(address="120363025246125486@g.us")
    assert set(reminder.recipients.all()) == {*tagged, known, new}
    assert (new.name, new.owner, new.kind) == ("Ann", operator, "group")


def test_a_tag_adds_only_whom_the_account_can_reach(operator):
    office = AccountFactory.create(owner=operator, channel="smtp", label="Office", address="office@example.com")
    RecipientFactory.create(owner=operator, kind="group", tags=["choir"])
    ann = RecipientFactory.create(owner=operator, kind="mailbox", address="ann@example.com", tags=["choir"])
    answer = save(operator, filled(office, tag="choir", subject="Rehearsal", paste=""))
    assert list(Reminder.objects.get().recipients.all()) == [ann]
    said = [str(message) for message in get_messages(answer.wsgi_request)]
    assert "1 with the tag “choir” left out: Office (smtp) sends to mailboxes only." in said


def test_parts_go_out_in_the_order_given(operator, account):
    data = filled(account) | parts("second", "first", "third") | {"messages-0-order": 2, "messages-1-order": 1}
    assert save(operator, data).status_code == 302
    reminder = Reminder.objects.get()
    assert list(reminder.messages.values_list("text", flat=True)) == ["first", "second", "third"]
    rows = list(reminder.messages.all())
    edited = filled(account) | parts(*(row.text for row in rows)) | {"messages-INITIAL_FORMS": 3}
    for number, row in enumerate(rows):
        edited |= {
            f"messages-{number}-id": row.pk,
            f"messages-{number}-reminder": reminder.pk,
            f"messages-{number}-order": 3 - number,
        }
    assert save(operator, edited, reminder.pk).status_code == 302
    assert list(reminder.messages.values_list("text", flat=True)) == ["third", "second", "first"]


def upload(name: str, content: bytes, kind: str) -> dict[str, Any]:
    return {
        "messages-0-kind": kind,
        "messages-0-text": "caption",
        "messages-0-upload": SimpleUploadedFile(name, content),
    }


def test_a_picture_is_kept_once_and_shown_only_to_its_people(operator, account, colleague):
    for _ in range(2):
        assert save(operator, filled(account) | upload("a.png", PNG, "image")).status_code == 302
    media = MediaFile.objects.get()
    assert ReminderMessage.objects.filter(media=media).count() == 2
    shown = login(operator).get(reverse("admin:media_file", args=[media.pk]))
    assert shown["Content-Type"] == "image/png"
    assert shown["Content-Disposition"] == 'inline; filename="a.png"'
    assert shown.getvalue() == PNG
    assert login(colleague).get(reverse("admin:media_file", args=[media.pk])).status_code == 404


@pytest.mark.parametrize(
    ("name", "content", "kind", "sentence"),
    [
        pytest.param("a.pdf", b"%PDF", "image", "this part takes", id="type"),
        pytest.param("a.png", b"<html>", "image", "is not a valid png", id="disguised"),
        pytest.param("a.html", b"<html>", "document", "this part takes", id="html"),
        *(
            pytest.param(f"a.{end}", b"MZ", "document", "are not sent", id=end)
            for end in (
                *(
                    "bat",
                    "hta",
                    "scr",
                    "lnk",
                    "vbs",
                    "EXE.",
                    "exe.pdf",
                    "apk",
                    "mht",
                    "chm",
                    "xll",
                    "img",
                    "vhdx",
                    "msix",
                ),
                *("jnlp", "docm", "xlsm", "psm1", "sct", "inf", "command", "appref-ms", "library-ms"),
            )
        ),
    ],
)
def test_a_wrong_file_is_refused(operator, account, name, content, kind, sentence):
    answer = save(operator, filled(account) | upload(name, content, kind))
    assert answer.status_code == 200
    assert sentence in answer.content.decode()
    assert not MediaFile.objects.exists()


def test_a_part_with_a_file_is_of_the_kind_of_its_file(operator, account):
    assert save(operator, filled(account) | upload("a.png", PNG, "text")).status_code == 302
    assert ReminderMessage.objects.get().kind == "image"


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        pytest.param(upload("a.png", b"<html>", "image"), ["a.png is not a valid png file."], id="wrong-file"),
        pytest.param({"messages-0-kind": "image"}, ["Choose a file, or remove this part."], id="no-file"),
        pytest.param({"delivery_window_end_hour": 5}, ["A window over midnight (6 to 5)"], id="hours"),
    ],
)
def test_one_cause_has_one_error(operator, account, changes, errors):
    page = save(operator, filled(account) | changes).content.decode()
    said = re.findall(r'<ul class="errorlist[^>]*>(.*?)</ul>', page, re.DOTALL)
    assert len(said) == len(errors)
    assert all(error in html.unescape(one) for error, one in zip(errors, said))


def test_the_page_knows_which_channels_connect_and_which_have_inmails():
    facts = channel_facts()
    assert {key for key, fact in facts.items() if fact["connects"]} == {"unipile"}
    assert {key for key, fact in facts.items() if fact["inmails"]} == {"unipile"}


def test_the_file_limits_of_the_channel_are_said_before_and_hold(operator):
    cloud = AccountFactory.create(owner=operator, channel="cloud", config={"phone_number_id": "1"})
    page = login(operator).get(reverse("admin:reminders_reminder_add")).content.decode()
    assert "Image up to 16 MB (png, jpeg, gif, webp), video up to 64 MB" in page
    large = upload("a.png", PNG + b"0" * 6 * 1024 * 1024, "image")
    assert "5 MB is the limit" in save(operator, filled(cloud) | large).content.decode()


def test_a_reminder_from_the_shell_can_be_saved_unchanged(operator, account, tmp_path):
    listed = tmp_path / "list.txt"
    listed.write_text(f"{ONE}\n")
    calling.text("reminder", "add", "--account", str(account.pk), "--text", "Hello", "--to", str(listed))
    reminder = Reminder.objects.get()
    part = {
        "messages-INITIAL_FORMS": 1,
        "messages-0-id": reminder.messages.get().pk,
        "messages-0-reminder": reminder.pk,
    }
    unchanged = filled(account, paste="", schedule="once", cron="") | part
    assert save(operator, unchanged, pk=reminder.pk).status_code == 302
    reminder.refresh_from_db()
    assert (reminder.enabled, reminder.messages.count()) == (False, 1)


def test_a_text_that_the_channel_would_not_send_with_its_file_is_refused(operator, account):
    cloud = AccountFactory.create(owner=operator, channel="cloud", config={"phone_number_id": "1"})

    def saved(sender: Account, text: str) -> Any:
        return save(operator, filled(sender) | upload("a.mp3", b"ID3", "audio") | {"messages-0-text": text})

    assert "WhatsApp Cloud API sends audio without a text" in saved(cloud, "Listen").content.decode()
    assert saved(cloud, "").status_code == 302
    assert saved(account, "Listen").status_code == 302


@pytest.mark.parametrize(
    ("enabled", "word"),
    [pytest.param(False, "set aside", id="set-aside"), pytest.param(True, "not fired", id="tried-again")],
)
def test_a_firing_problem_is_shown_until_the_reminder_is_switched_on(operator, account, enabled, word):
    save(operator, filled(account))
    reminder = Reminder.objects.get()
    Reminder.objects.update(enabled=enabled, firing_attempts=2, firing_problem="It stopped the worker.")
    client = login(operator)
    listed = client.get(reverse("admin:reminders_reminder_changelist")).content.decode()
    assert f'title="It stopped the worker.">{word}</span>' in listed
    page = client.get(reverse("admin:reminders_reminder_change", args=[reminder.pk])).content.decode()
    assert '<p class="problem">It stopped the worker.</p>' in page
    assert ('<span class="badge bad">set aside</span>' in page) is not enabled
    written = reminder.messages.get()
    kept = {"messages-INITIAL_FORMS": 1, "messages-0-id": written.pk, "messages-0-reminder": reminder.pk}
    save(operator, filled(account, **kept, **({} if enabled else {"_draft": "x"})), reminder.pk)
    reminder.refresh_from_db()
    assert (reminder.firing_problem == "") is enabled  # one that stays off has not been switched on again
    save(operator, filled(account, **kept, **({} if enabled else {"_on": "x"})), reminder.pk)
    reminder.refresh_from_db()
    assert (reminder.enabled, reminder.firing_attempts, reminder.firing_problem) == (True, 0, "")
    assert word not in client.get(reverse("admin:reminders_reminder_changelist")).content.decode()


def test_a_complete_reminder_that_is_not_on_is_off_in_every_place(operator, account):
    client = login(operator)
    page = client.post(
        reverse("admin:reminders_reminder_add"), filled(account, _draft="x"), follow=True
    ).content.decode()
    assert "is off: it does not fire by itself." in page
    assert '<span class="badge mute">off</span>' in page
    rows = reverse("admin:reminders_reminder_changelist")
    assert '<span class="badge mute">off</span>' in client.get(rows, {"state": "off"}).content.decode()
    assert "Nothing matches." in client.get(rows, {"state": "on"}).content.decode()
    copied = client.post(reverse("admin:reminders_reminder_duplicate", args=[Reminder.objects.get().pk]), follow=True)
    assert "The copy is off: check it, then switch it on." in copied.content.decode()


def test_an_unfinished_reminder_is_kept_as_a_draft(operator, account):
    bare = filled(account, paste="", schedule="once", cron="") | {"messages-0-text": ""}
    refused = save(operator, bare).content.decode()
    assert "It has no message, no recipients and no time yet." in html.unescape(refused)
    assert 'name="_draft"' in refused
    assert not Reminder.objects.exists()
    answer = save(operator, bare | {"_draft": "Keep as a draft"})
    reminder = Reminder.objects.get()
    assert answer.url == reverse("admin:reminders_reminder_change", args=[reminder.pk])
    assert (reminder.enabled, reminder.messages.count(), reminder.targets.count()) == (False, 0, 0)
    assert ">draft<" in login(operator).get(reverse("admin:reminders_reminder_changelist")).content.decode()
    # Switched on it must be whole.
    assert save(operator, bare | {"_on": "x"}, reminder.pk).status_code == 200
    assert save(operator, filled(account, _on="x"), reminder.pk).status_code == 302
    reminder.refresh_from_db()
    assert reminder.enabled
    assert "enabled" in LogEntry.objects.filter(object_id=reminder.pk).latest("pk").change_message


def test_people_are_found_listed_and_tagged_and_count_once(operator, account):
    ann = RecipientFactory.create(owner=operator, tags=["north", "choir"], name="Ann")
    out = RecipientFactory.create(owner=operator, tags=["north"], status="opted_out")
    SuppressionFactory.create(address="120363025246125499@g.us")
    data = filled(
        account,
        tag="north, choir",
        chosen=[f"Ann, {ann.address}", f"Bob, {out.address}"],
        paste=f"{ONE}\n{ann.address}\nnobody\n120363025246125499@g.us\n{ONE}",
    )
    shown = login(operator).post(reverse("admin:reminders_reminder_forecast"), data).json()
    assert shown["review"].startswith(f"To 2 groups through {account}, every weekday at 09:00")
    assert shown["nothing"] == "2 more will get nothing: 1 opted out or blocked, 1 suppressed."
    assert shown["tags"] == {"north": 1, "choir": 1}
    assert (shown["lines"]["good"], shown["lines"]["repeated"]) == (3, 1)
    assert "line 3 (nobody)" in shown["lines"]["problems"][0]
    assert save(operator, data | {"paste": ONE}).status_code == 302
    assert Reminder.objects.get().targets.count() == 3


def test_a_list_comes_from_a_file(operator, account):
    listed = SimpleUploadedFile("list.csv", f"address,name\n{ONE},Choir\n".encode())
    assert save(operator, filled(account, paste="", list_file=listed)).status_code == 302
    assert Reminder.objects.get().recipients.get().name == "Choir"
    sheet = SimpleUploadedFile("list.xlsx", excel(("Name", "Phone", "City"), ("Ann", "+49 176 12345678", "Bonn")))
    assert save(operator, filled(account, title="Sheet", paste="", list_file=sheet)).status_code == 302
    assert Reminder.objects.get(title="Sheet").recipients.get().fields == {"city": "Bonn"}
    wrong = SimpleUploadedFile("list.xlsx", b"PK\x03\x04\xff")
    assert "list.xlsx: " in save(operator, filled(account, list_file=wrong)).content.decode()


def test_the_forecast_names_what_will_send_nothing(operator, account):
    ask = reverse("admin:reminders_reminder_forecast")
    late = login(operator).post(ask, filled(account, cron="0 19 * * *")).json()
    assert "It would fire always after the delivery window" in late["late"]
    assert (late["fits"], "nothing would be sent" in late["forecast"]) == (False, True)
    some = login(operator).post(ask, filled(account, cron="0 9,19 * * *")).json()
    assert some["late"] == ""
    assert {firing["late"] for firing in some["firings"]} == {True, False}
    bare = login(operator).post(ask, filled(account, cron="", paste="")).json()
    assert bare["missing"] == "It has no recipients and no time yet."


def test_the_forecast_knows_the_budget_of_new_chats(operator, account):
    Account.objects.filter(pk=account.pk).update(new_chats_per_day=5)
    KnownChat.objects.create(account=account, address="+4917600000000")
    stored = RecipientFactory.create(owner=operator, kind="person", address="+4917600000001", tags=["choir"])
    assert stored.pk
    pasted = "\n".join(["100000001@g.us", *(f"+49176000000{n:02d}" for n in (0, *range(2, 13)))])
    data = filled(account, paste=pasted, tag="choir")
    answer = login(operator).post(reverse("admin:reminders_reminder_forecast"), data).json()
    assert answer["forecast"].startswith("14 recipients: 7 fit today. 5 new chats a day: 7 more wait for the following")
    assert answer["fits"] is False
    assert answer["lanes"][0]["fits"] is False


def test_the_review_says_what_saving_would_refuse(operator):
    """A mailbox and a phone through an account that sends mail, without a subject."""
    mail = AccountFactory.create(owner=operator, channel="smtp", label="Office", address="office@example.com")
    data = filled(mail, paste="ann@example.com\n+4917600000001")
    client = login(operator)
    answer = client.post(reverse("admin:reminders_reminder_forecast"), data).json()
    assert answer["missing"].startswith(
        "Give the reminder a subject: Office sends mail. 1 recipient cannot be reached: "
    )
    errors = client.post(reverse("admin:reminders_reminder_add"), data).context["adminform"].form.errors
    assert {*errors} == {"subject", "paste"}
    none = client.post(reverse("admin:reminders_reminder_forecast"), filled(mail, paste="+4917600000001")).json()
    assert (none["fits"], none["forecast"]) == (
        False,
        "No recipient can be reached: Office (smtp) sends to mailboxes only.",
    )
    whole = filled(mail, paste="ann@example.com", subject="Choir")
    assert client.post(reverse("admin:reminders_reminder_forecast"), whole).json()["missing"] == ""


def test_each_account_has_its_line_in_the_forecast(operator, account):
    other = AccountFactory.create(owner=operator, label="Second line")
    busy = RunFactory.create(reminder__account=other, status="running", targets={"pending": 7})
    assert busy.pending == 7
    pasted = "\n".join(f"{n}@g.us" for n in range(100000000, 100000031))
    data = filled(account, further=[other.pk], paste=pasted, schedule="once", delivery_window_start_hour=0)
    data["delivery_window_end_hour"] = 24  # fired now, while that is still pending
    lanes = login(operator).post(reverse("admin:reminders_reminder_forecast"), data).json()["lanes"]
    assert [(lane["sender"], lane["ahead"], lane["share"]) for lane in lanes] == [
        (str(account), "0", "16"),
        ("Second line", "7", "15"),
    ]


@pytest.mark.parametrize(("fires", "ahead"), [("10:05", "50"), ("10:30", "25"), ("17:50", "0")])
def test_the_queue_in_the_forecast_is_that_of_the_firing(operator, account, fires, ahead):
    """55 messages at one a minute, asked at ten."""
    Account.objects.filter(pk=account.pk).update(max_send_per_minute=1, send_burst=1)
    ten = datetime(2026, 1, 5, 10, tzinfo=UTC)
    RunFactory.create(reminder__account=account, status="running", scheduled_for=ten, targets={"pending": 55})
    when = {"schedule": "once", "fire_at": f"2026-01-05T{fires}", "timezone": "UTC"}
    data = filled(account, paste="100000001@g.us", **when)
    with time_machine.travel(ten, tick=False):
        answer = login(operator).post(reverse("admin:reminders_reminder_forecast"), data).json()
    assert [lane["ahead"] for lane in answer["lanes"]] == [ahead], answer


def test_firing_by_hand_is_asked_with_what_went_out(operator, account):
    reminder = ReminderFactory.create(account=account, title="Town hall", targets=3)
    listing, page = (
        reverse("admin:reminders_reminder_changelist"),
        reverse("admin:reminders_reminder_change", args=[reminder.pk]),
    )
    RunFactory.create(reminder=reminder, status="running", targets={"sent": 1, "pending": 2})
    for path in (listing, page):
        shown = login(operator).get(path).content.decode()
        assert "Send “Town hall” to 3 groups now? It is running already, 1 of 3 sent" in shown
    reminder.targets.all().delete()
    for path in (listing, page):
        assert "Send “Town hall”" not in login(operator).get(path).content.decode()


def test_a_test_is_followed_on_the_reminders_page(operator, account):
    reminder = ReminderFactory.create(account=account, targets=1)
    page = reverse("admin:reminders_reminder_change", args=[reminder.pk])
    sent = login(operator).post(reverse("admin:reminders_reminder_test", args=[reminder.pk]), {"address": ONE})
    assert sent["Location"] == page
    assert f"The test to {ONE} is on its way" in login(operator).get(page).content.decode()
    RunTarget.objects.update(status="sent")
    fresh = login(operator).get(reverse("admin:reminders_reminder_tested", args=[reminder.pk])).content.decode()
    assert f"The test to {ONE} was sent" in fresh
    assert f'value="{ONE}"' in login(operator).get(page).content.decode()
    assert reminder.runs.get().is_test


def test_a_large_file_is_refused(operator, account, settings):
    settings.MEDIA_MAX_MB = 1
    answer = save(operator, filled(account) | upload("a.png", PNG + b"0" * 1024 * 1024, "image"))
    assert "1 MB is the limit" in answer.content.decode()


def test_the_forecast_follows_the_form(operator, account):
    data = filled(account, paste="\n".join(f"{n}@g.us" for n in range(100000000, 100000100)))
    answer = login(operator).post(reverse("admin:reminders_reminder_forecast"), data).json()
    assert answer["forecast"].startswith("100 groups at 40/min: done about")
    assert answer["words"] == "every weekday at 09:00"
    assert len(answer["firings"]) == 5
    assert all("09:00 (Asia/Kuala_Lumpur)" in firing["text"] for firing in answer["firings"])


def test_a_forecast_is_bounded_by_messages(operator, account):
    data = filled(account, paste="\n".join(f"{n}@g.us" for n in range(100000000, 100001000))) | parts(*["Hello"] * 101)
    answer = login(operator).post(reverse("admin:reminders_reminder_forecast"), data).json()
    assert answer["forecast"] == "More than 100,000 messages: no forecast."


@pytest.mark.parametrize(
    "number", ["²", "9" * 30, "9" * 5000, "-1", "1e3", "\x00"], ids=["²", "30", "5000", "-1", "1e3", "NUL"]
)
def test_absurd_numbers_cause_no_server_error(operator, account, number):
    client, forecast = login(operator), reverse("admin:reminders_reminder_forecast")
    refused = {400} if "\0" in number else set()  # a request with a NUL is refused as a whole
    for name in ("account", "reminder", "delivery_window_start_hour"):
        assert client.post(forecast, filled(account) | {name: number}).status_code in (refused or {200})
    for name, query in (("fanout_runtarget", "run__id__exact"), ("reminders_remindertarget", "reminder__id__exact")):
        answer = client.get(reverse(f"admin:{name}_changelist"), {query: number})
        assert answer.status_code in (refused or {200, 302})


def test_the_forecast_says_what_is_missing(operator, account):
    answer = login(operator).post(reverse("admin:reminders_reminder_forecast"), filled(account, cron="x")).json()
    assert "five fields" in answer["problem"]


def test_a_test_goes_through_the_lane(operator, account):
    reminder = ReminderFactory.create(account=account, targets=5)
    done = self_test.send_test(reminder, "+49 176 12345678", operator, timezone.now())
    run = Run.objects.get()
    assert done.ok
    assert (run.total, run.title) == (1, f"Test: {reminder.title}")
    assert LaneState.objects.get(account=account).due_at is not None
    assert Event.objects.get(run=run).actor == operator


def test_message_2_is_saved_and_shown(operator, account):
    assert save(operator, filled(account, **parts("Thanks", "More", prefix="reply_parts"))).status_code == 302
    reminder = Reminder.objects.get()
    assert list(reminder.reply_parts.values_list("text", flat=True)) == ["Thanks", "More"]
    assert reminder.messages.get().text == "Hello"
    page = login(operator).get(reverse("admin:reminders_reminder_change", args=[reminder.pk])).content.decode()
    assert "Message 2: sent to people who reply within 24 hours" in page


def test_a_copy_is_switched_off_and_complete(operator, account):
    reminder = ReminderFactory.create(account=account, targets=3, parts=("a", "b"), follow_up=True, urgency="low")
    reminder.reply_parts.create(text="Thanks")
    login(operator).post(reverse("admin:reminders_reminder_duplicate", args=[reminder.pk]))
    copy = Reminder.objects.exclude(pk=reminder.pk).get()
    assert (copy.enabled, copy.targets.count(), copy.messages.count()) == (False, 3, 2)
    assert (copy.follow_up, copy.urgency) == (True, "low")
    assert reminder.messages.count() == 2
    assert [part.text for part in copy.reply_parts.all()] == [part.text for part in reminder.reply_parts.all()]


def test_search_finds_recipients_of_ones_own(operator, colleague):
    RecipientFactory.create(owner=operator, name="Harbour choir")
    RecipientFactory.create(owner=colleague, name="Harbour secret")
    answer = login(operator).get(reverse("admin:reminders_recipient_find"), {"q": "harbour"}).json()
    assert [one["name"] for one in answer["recipients"]] == ["Harbour choir"]
