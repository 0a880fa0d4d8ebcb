"""`manage.py reminder`: reminders from a script."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.channels.templates import Template
from accounts.models import MessageTemplate
from fanout.models import Run
from reminders.models import MediaFile, Recipient, Reminder
from tests.commands.calling import bad_input, data, text
from tests.factories import AccountFactory

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 50
pytestmark = pytest.mark.django_db


@pytest.fixture
def to(tmp_path):
    path = tmp_path / "to.txt"
    path.write_text("120363025246125486@g.us\n120363025246125487@g.us\n")
    return str(path)


# --- reminders ----------------------------------------------------------------------------------------------


def test_add_with_parts_in_their_order(to, tmp_path):
    AccountFactory(label="Line", timezone="Asia/Kuala_Lumpur")
    (tmp_path / "poster.png").write_bytes(PNG)
    words = (
        "--account",
        "Line",
        "--text",
        "First",
        "--media",
        f"{tmp_path}/poster.png",
        "--caption",
        "See",
        "--text",
        "Last",
    )
    found = data("reminder", "add", *words, "--to", to, "--window", "0-24", "--cron", "0 9 * * 1")
    assert (found["targets"], found["parts"], found["title"]) == (2, 3, "First")
    reminder = Reminder.objects.get(pk=found["reminder"])
    parts = [(part.kind, part.text) for part in reminder.messages.all()]
    assert parts == [("text", "First"), ("image", "See"), ("text", "Last")]
    assert (reminder.timezone, reminder.next_fire_at is not None) == ("Asia/Kuala_Lumpur", True)
    assert reminder.targets.all()[0].recipient.address == "120363025246125486@g.us"


def test_add_with_message_2(to, tmp_path):
    AccountFactory(label="Line")
    (tmp_path / "map.png").write_bytes(PNG)
    words = ("--text", "Open at 8.", "--reply-text", "Thanks", "--reply-media", f"{tmp_path}/map.png")
    answer = data("reminder", "add", "--account", "Line", "--to", to, *words, "--reply-caption", "The way")
    assert (answer["parts"], answer["reply_parts"]) == (1, 2)
    parts = [(part.kind, part.text) for part in Reminder.objects.get().reply_parts.all()]
    assert parts == [("text", "Thanks"), ("image", "The way")]


def test_a_caption_that_the_channel_would_not_send_is_refused(to, tmp_path):
    AccountFactory(label="Line", channel="cloud", config={"phone_number_id": "1"})
    (tmp_path / "song.mp3").write_bytes(b"ID3")
    words = (
        "reminder",
        "add",
        "--account",
        "Line",
        "--to",
        to,
        "--media",
        f"{tmp_path}/song.mp3",
        "--caption",
        "Listen",
    )
    assert "sends audio without a text" in bad_input(*words)
    assert not Reminder.objects.exists()


def test_a_reminder_through_several_accounts(tmp_path):
    office = AccountFactory.create(label="Office", channel="smtp", address="office@example.com")
    line = AccountFactory.create(label="Line", owner=office.owner)
    AccountFactory(label="Foreign")
    (tmp_path / "all.txt").write_text("ann@example.com\n120363025246125486@g.us\n")
    words = ["reminder", "add", "--account", "Office", "--subject", "Hello", "--text", "x"]
    words += ["--to", str(tmp_path / "all.txt"), "--account"]
    assert "belongs to another operator" in bad_input(*words, "Foreign")
    text(*words, "Line")
    assert Reminder.objects.get().senders == [office, line]
    assert data("reminder", "list")["reminders"][0]["account"] == "Office, Line"


@pytest.mark.parametrize(("words", "urgency"), [((), "medium"), (("--urgency", "high"), "high")])
def test_a_follow_up(to, words, urgency):
    AccountFactory(label="Line")
    data("reminder", "add", "--account", "Line", "--text", "x", "--to", to, "--follow-up", *words)
    reminder = Reminder.objects.get()
    assert (reminder.follow_up, reminder.urgency) == (True, urgency)
    assert data("reminder", "list")["reminders"][0]["follow_up"] == urgency


def test_a_reminder_that_always_fires_late_wants_a_word(to):
    AccountFactory(label="Line")
    words = ("reminder", "add", "--account", "Line", "--text", "x", "--to", to, "--cron", "0 19 * * *")
    assert "use --even-if-late" in bad_input(*words)
    text(*words, "--even-if-late")
    assert Reminder.objects.get().cron == "0 19 * * *"


def test_a_long_list_takes_as_many_queries_as_a_short_one(tmp_path):
    AccountFactory(label="Line")

    def queries(people: int) -> int:
        path = tmp_path / "to.csv"
        path.write_text("address,flat\n" + "".join(f"+4917{n:08d},{n}\n" for n in range(people)))
        with CaptureQueriesContext(connection) as asked:
            assert data("reminder", "add", "--account", "Line", "--text", "x", "--to", str(path))["targets"] == people
        Recipient.objects.all().delete()
        return len(asked)

    assert queries(5_000) == queries(100)


def test_a_text_that_is_too_long_is_refused(to):
    AccountFactory(label="Line")
    words = ("reminder", "add", "--account", "Line", "--to", to, "--text")
    assert "The text has 65,537 characters; at most 65,536 are sent." in bad_input(*words, "x" * 65_537)
    assert "The text has 65,537 characters" in bad_input(*words, "x", "--reply-text", "x" * 65_537)
    assert not Reminder.objects.exists()
    assert not Recipient.objects.exists()


def test_a_mail_account_takes_mailboxes_only(to, tmp_path):
    AccountFactory(label="Office", channel="smtp", address="office@example.com")
    words = ("reminder", "add", "--account", "Office", "--subject", "Hello", "--text", "x", "--to")
    said = bad_input(*words, to)
    assert said == (
        "Office (smtp) sends to mailboxes only: it cannot reach 120363025246125486@g.us in line 1 and 1 more."
    )
    assert not Reminder.objects.exists()
    assert not Recipient.objects.exists()
    (tmp_path / "mail.txt").write_text("ann@example.com\n")
    text(*words, str(tmp_path / "mail.txt"))
    assert Reminder.objects.get().action == "email"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("a.svg", b"<svg/>", id="svg"),
        pytest.param("a.html", b"<html>", id="html"),
        pytest.param("a.png", b"<html>", id="disguised"),
    ],
)
def test_a_file_that_the_admin_refuses_is_refused_here(to, tmp_path, name, content):
    AccountFactory(label="Line")
    (tmp_path / name).write_bytes(content)
    assert name in bad_input("reminder", "add", "--account", "Line", "--media", f"{tmp_path}/{name}", "--to", to)
    assert not Reminder.objects.exists()
    assert not MediaFile.objects.exists()


@pytest.mark.parametrize("option", ["--media", "--reply-media"])
def test_a_file_is_limited_by_every_sender_s_channel(to, tmp_path, option):
    """As in the admin: one Cloud account among the senders makes its limit the limit."""
    line = AccountFactory.create(label="Line")
    AccountFactory(label="Cloud", owner=line.owner, channel="cloud", config={"phone_number_id": "1"})
    (tmp_path / "poster.png").write_bytes(PNG + b"0" * 6 * 1024 * 1024)
    words = ("reminder", "add", "--text", "x", option, f"{tmp_path}/poster.png", "--to", to, "--account", "Line")
    assert "5 MB is the limit" in bad_input(*words, "--account", "Cloud")
    assert not MediaFile.objects.exists()
    text(*words)
    assert MediaFile.objects.count() == 1


def test_without_a_time_it_is_off_and_fires_by_hand(to):
    """As the admin keeps it, which does not let a reminder without a time be on."""
    AccountFactory(label="Line")
    # All day: with the usual window the firing would fail after 18:00, and so would the test.
    number = text("reminder", "add", "--account", "Line", "--text", "x", "--to", to, "--window", "0-24").strip()
    assert data("reminder", "list")["reminders"][0]["enabled"] is False
    text("fire", number)
    assert Run.objects.get().total == 2
    text("reminder", "add", "--account", "Line", "--text", "x", "--to", to, "--at", "2034-01-02T09:00")
    assert data("reminder", "list")["reminders"][0]["enabled"] is True


def test_one_that_is_off_may_fire_late(to):
    """It is asked about when it is switched on."""
    AccountFactory(label="Line")
    text("reminder", "add", "--account", "Line", "--text", "x", "--to", to, "--cron", "0 19 * * *", "--disabled")
    assert Reminder.objects.get().enabled is False


def test_only_a_channel_that_connects_takes_connection_requests(to, tmp_path):
    AccountFactory(label="Line")
    words = ("reminder", "add", "--text", "x", "--connect")
    assert "sends no connection requests" in bad_input(*words, "--account", "Line", "--to", to)
    AccountFactory(label="Links", channel="unipile", config={"base_url": "https://api1.unipile.com:13111"})
    (tmp_path / "profiles.txt").write_text("https://www.linkedin.com/in/ann-lee\n")
    text(*words, "--account", "Links", "--to", str(tmp_path / "profiles.txt"))
    assert Reminder.objects.get().action == "connection_request"


def test_the_same_file_is_stored_once(to, tmp_path):
    AccountFactory(label="Line")
    (tmp_path / "poster.png").write_bytes(PNG)
    for _ in range(2):
        text("reminder", "add", "--account", "Line", "--media", f"{tmp_path}/poster.png", "--to", to)
    assert MediaFile.objects.count() == 1
    assert Recipient.objects.count() == 2


def test_list():
    assert data("reminder", "list") == {"reminders": []}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param((), "at least one --text", id="no parts"),
        pytest.param(("--text", "x", "--caption", "y"), "needs a --media before it", id="caption of a text"),
        pytest.param(("--reply-text", "x"), "at least one --text", id="only a Message 2"),
        pytest.param(("--text", "x", "--reply-caption", "y"), "needs a --reply-media", id="caption in Message 2"),
        pytest.param(("--media", "nowhere.png"), "is not a file", id="no file"),
        pytest.param(("--text", "x", "--window", "22-6"), "midnight", id="window"),
        pytest.param(("--text", "x", "--cron", "often"), "five fields", id="cron"),
        pytest.param(("--text", "x", "--at", "soon"), "takes a date and time", id="time"),
        pytest.param(("--text", "x", "--at", "2020-01-01T09:00"), "This time has passed.", id="past"),
        pytest.param(("--text", "x", "--at", "9999-12-31T23:59"), "a date from 2000", id="end of the calendar"),
        pytest.param(("--text", "x", "--tz", "Mars"), "is not a timezone", id="timezone"),
        pytest.param(("--text", "x", "--urgency", "low"), "add --follow-up", id="urgency of no follow-up"),
        pytest.param(("--text", "x", "--follow-up", "--urgency", "now"), "invalid choice", id="urgency"),
        pytest.param(("--text", "x", "--at", "2099-01-01", "--cron", "0 9 * * *"), "not allowed with", id="both"),
    ],
)
def test_bad_reminders_are_one_sentence(to, words, says):
    AccountFactory(label="Line")
    assert says in bad_input("reminder", "add", "--account", "Line", "--to", to, *words)
    assert not Reminder.objects.exists()
    assert not Recipient.objects.exists()


def test_placeholders_are_checked_and_shown(tmp_path):
    AccountFactory.create(label="Line")
    listed = tmp_path / "people.csv"
    listed.write_text("address,name,flat\n+60123456789,Ann Lee,7\n+60123456788,,8\n")
    words = ["reminder", "add", "--account", "Line", "--to", str(listed), "--text"]
    assert "there is no {falt}. The recipients have {name}, {first_name}, {flat}." in bad_input(*words, "{falt}")
    assert "1 of 2 recipients have no value for {name}" in bad_input(*words, "Hi {name}")
    assert not Reminder.objects.exists()
    number = text(*words, "Flat {flat}\n{first_name|there}").strip()
    assert text("reminder", "preview", number) == (
        "To Ann Lee:\n  Flat 7\n  Ann\nTo +60123456788:\n  Flat 8\n  there\n"
    )
    shown = data("reminder", "preview", number)
    assert (shown["problem"], len(shown["examples"])) == ("", 2)
    plain = text(*words, "Hello").strip()
    assert text("reminder", "preview", plain) == "To everyone:\n  Hello\n"
    Recipient.objects.update(fields={})
    assert "there is no {flat}" in text("reminder", "preview", number)


def test_message_2_through_an_unread_mailbox_warns(owner, tmp_path):
    AccountFactory(label="Office", channel="smtp", address="office@example.com")
    (tmp_path / "mail.txt").write_text("ann@example.org\n")
    words = ("--account", "Office", "--subject", "Rent", "--text", "Due", "--reply-text", "Thank you!")
    found = data("reminder", "add", *words, "--to", f"{tmp_path}/mail.txt")
    assert found["warning"].startswith("Message 2 needs replies, and Crier receives none for Office.")


# --- message templates --------------------------------------------------------------------------------------

NEWS = Template("news", "en", body="News from the choir: {{1}}\nReply STOP to get no more.")
VISIT = Template(
    "visit", "de", named=True, header="text", header_text="Flat {{flat}}", body="Hello {{who}}, we come {{when}}."
)
POSTER = [Template("poster", language, header="image", body="Hello {{1}}, look!") for language in ("en", "de")]


@pytest.fixture
def cloud(tmp_path):
    """An account with templates, and the words of a reminder to a person that it sends."""
    account = AccountFactory.create(
        label="Line", channel="cloud", config={"phone_number_id": "1"}, templates_read_at=timezone.now()
    )
    for one in (NEWS, VISIT, *POSTER, Template("old", "en", status="PAUSED", body="Hello.")):
        MessageTemplate.objects.create(account=account, name=one.name, language=one.language, content=asdict(one))
    path = tmp_path / "people.csv"
    path.write_text("address,name,flat\n+60123456789,Ann Lee,7\n")
    return ("reminder", "add", "--account", "Line", "--to", str(path))


def test_each_part_may_have_a_template_with_its_values(cloud, tmp_path):
    (tmp_path / "poster.png").write_bytes(PNG)
    doors = ("--text", "Doors open at nine.\nBring a friend.", "--template", "news:en", "--value", "1=doors at nine.")
    visit = ["--text", "We come.", "--template", "visit"]
    visit += ("--value", "header.flat={flat}", "--value", "who={first_name}", "--value", "when=at 9=10")
    poster = ("--media", f"{tmp_path}/poster.png", "--template", "poster:de", "--value", "1={first_name}")
    answer = data(*cloud, *doors, *visit, *poster, "--text", "Bye")

    assert answer["templates"] == ["news:en", "visit:de", "poster:de", ""]
    assert "part 4 has no template" in answer["warning"]
    stored = [(part.template or {}).get("values") for part in Reminder.objects.get().messages.all()]
    assert stored == [
        {"body.1": "doors at nine."},
        {"header.flat": "{flat}", "body.who": "{first_name}", "body.when": "at 9=10"},
        {"body.1": "{first_name}"},
        None,
    ]

    said = text("reminder", "preview", str(answer["reminder"]))
    assert "by the template visit (de)\n  Flat 7\n  \n  Hello Ann, we come at 9=10.\n" in said
    assert "Part 4, to people who have not written within 24 hours: People who" in said
    shown = data("reminder", "preview", str(answer["reminder"]))["without_a_recent_message"]
    assert [part["where"] for part in shown] == ["part 1", "part 2", "part 3", "part 4"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--template", "news"], "--template needs a --text or --media before it"),
        (["--text", "a", "--value", "1=x"], "--value needs a --template before it"),
        (["--text", "a", "--template", "old"], "choose one of news:en, poster:de, poster:en, visit:de"),
        (["--text", "a", "--template", "poster"], "choose one of poster:de, poster:en"),
        (["--text", "a", "--template", "news", "--value", "2=x"], "the variables of news:en are body.1"),
        (["--text", "a", "--template", "news", "--value", "x"], "write VARIABLE=TEXT"),
        (["--text", "a", "--template", "news"], "Fill in {{1}} in the body"),
        (["--text", "a", "--template", "news", "--value", "1=x\ny"], "on one line"),
        (["--text", "a", "--template", "poster:en", "--value", "1=x"], "starts with an image"),
    ],
)
def test_a_template_that_would_be_refused_is_bad_input(cloud, words, sentence):
    assert sentence in bad_input(*cloud, *words)
    assert not Reminder.objects.exists()


def test_templates_are_listed_with_their_variables(cloud):
    found = data("reminder", "templates", "--account", "Line")["templates"]
    assert [row["template"] for row in found] == ["news:en", "poster:de", "poster:en", "visit:de"]
    assert (found[3]["variables"], found[1]["file"]) == (["header.flat", "body.who", "body.when"], "image")
    assert "News from the choir: {{1}} Reply STOP to get no more." in text("reminder", "templates", "--account", "Line")


def test_other_channels_have_no_templates(to):
    AccountFactory(label="Line")
    assert "without templates" in bad_input("reminder", "templates", "--account", "Line")
    words = ("--account", "Line", "--to", to, "--text", "a", "--template", "news")
    assert "without templates" in bad_input("reminder", "add", *words)
