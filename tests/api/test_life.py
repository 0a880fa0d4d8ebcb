"""Recipients, files and reminders by the API, from the first address to a finished run."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Group
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from accounts.access import OPERATORS
from accounts.channels.templates import Template
from accounts.models import Account, MessageTemplate
from fanout.inbound import person_timeline
from fanout.models import Run, SingleMessage, TrailEntry
from reminders import erasure
from reminders.models import MediaFile, Recipient, Reminder, Suppression
from tests.api.conftest import Api
from tests.engine.stage import MONDAY, PNG, Stage
from tests.factories import (
    AccountFactory,
    InboundEventFactory,
    RecipientFactory,
    ReminderFactory,
    RunFactory,
    RunTargetFactory,
)

pytestmark = pytest.mark.django_db
CHOIR = "120363025246125400@g.us"


def upload(api: Api, content: bytes = PNG, name: str = "poster.png") -> Any:
    headers = {"Authorization": f"Bearer {api.secret}"}
    return api.client.post("/api/v1/media", {"file": SimpleUploadedFile(name, content)}, headers=headers)


@pytest.fixture
def playing(stage: Stage) -> Api:
    stage.user.groups.add(Group.objects.get(name=OPERATORS))
    with time_machine.travel(MONDAY, tick=False):
        return Api(stage.user)


def test_a_reminder_with_an_image_is_forecast_fired_paused_and_resumed(stage, playing):
    api, account = playing, stage.account(label="Events line")
    with time_machine.travel(MONDAY, tick=False):
        people = [{"address": f"{120363025246125400 + n}@g.us", "name": f"Group {n}"} for n in range(60)]
        listed = api.post("/recipients/batch", {"recipients": [p | {"tags": ["market"]} for p in people]}).json()
        assert (listed["added"], listed["changed"], listed["refused"]) == (60, 0, 0)
        image = upload(api).json()
        wish = {
            "senders": [account.pk],
            "title": "Market",
            "parts": [{"text": "Dear {name}, open at 8."}, {"media": image["id"], "text": "See you!"}],
            "audience": {"tags": ["market"]},
            "window": {"start_hour": 6, "end_hour": 18},
        }
        draft = api.post("/reminders/forecast", wish).json()
        assert draft["targets"] == 60
        assert draft["forecast"]["fits"] is True
        assert draft["examples"][0]["parts"][0]["text"].startswith("Dear Group")
        assert not Reminder.objects.exists(), "nothing is saved"
        made = api.post("/reminders", wish)
        assert made.status_code == 201
        reminder = made.json()
        assert reminder["missing"] == ["no time"]
        fired = api.post(f"/reminders/{reminder['id']}/fire", Idempotency_Key="market").json()
        assert api.post(f"/reminders/{reminder['id']}/fire", Idempotency_Key="market").json() == fired
        again = api.post(f"/reminders/{reminder['id']}/fire")
        assert again.status_code == 409
        assert again.json()["run"] == fired["run"]["id"]
    run = fired["run"]["id"]

    stage.play(seconds=20)
    with time_machine.travel(stage.now, tick=False):
        assert api.post(f"/runs/{run}/pause").status_code == 200
    stage.play(seconds=60)
    with time_machine.travel(stage.now, tick=False):
        paused = api.get(f"/runs/{run}").json()
        assert paused["status"] == "paused"
        assert 0 < paused["counts"]["sent"] < 60
        assert api.post(f"/runs/{run}/resume").json()["run"]["status"] in ("queued", "running")
    stage.play()
    with time_machine.travel(stage.now, tick=False):
        assert api.get(f"/runs/{run}").json()["status"] == "success"
        page = api.get(f"/runs/{run}/targets?limit=50").json()
        rest = api.get(f"/runs/{run}/targets?limit=50&cursor={page['next']}").json()
        seen = [target["address"] for target in page["items"] + rest["items"]]
        assert len(seen) == len(set(seen)) == 60
        csv = api.get(f"/runs/{run}/targets.csv")
        assert b"".join(csv.streaming_content).count(b"\n") == 61
        verbs = [line["verb"] for line in api.get(f"/runs/{run}/timeline").json()["items"]]
        assert verbs == ["fired", "paused", "resumed", "success"]
        days = api.get("/statistics/days?until=2026-01-05").json()["days"]
        assert (days[-1]["sent"], days[-1]["failed"]) == (60, 0)
    assert len(stage.book.deliveries()) == 120


def test_recipients_are_added_and_changed_with_a_result_per_line(api):
    Recipient.objects.create(owner=api.user, kind="person", address="+4915112345678", name="Old", tags=["a"])
    wish = [
        {"address": "0049 151 12345678", "name": "Ann", "tags": ["b"], "fields": {"Flat no": "12 B"}},
        {"address": CHOIR},
        {"address": "nonsense at all"},
        {"address": CHOIR},
    ]
    answer = api.post("/recipients/batch", {"recipients": wish}).json()
    assert [line["status"] for line in answer["lines"]] == ["changed", "added", "refused", "refused"]
    assert "earlier line" in answer["lines"][3]["problem"]
    ann = api.get(f"/recipients/{answer['lines'][0]['id']}").json()
    assert (ann["name"], ann["tags"], ann["fields"]) == ("Ann", ["a", "b"], {"flat_no": "12 B"})
    assert api.get("/recipients?address=%2B49 151 12345678").json()["items"][0]["id"] == ann["id"]
    one = api.post("/recipients", {"address": CHOIR, "name": "Choir"}).json()
    assert (one["name"], Recipient.objects.count()) == ("Choir", 2)
    assert api.post("/recipients/tags", {"recipients": [one["id"]], "add": ["x"], "remove": ["none"]}).json() == {
        "tagged": 1,
        "untagged": 0,
    }


def test_ten_thousand_recipients_in_one_call(api):
    wish = [{"address": f"{120363000000000000 + n}@g.us", "name": f"Group {n}"} for n in range(10_000)]
    assert api.post("/recipients/batch", {"recipients": wish}).json()["added"] == 10_000
    assert api.post("/recipients/batch", {"recipients": [*wish, *wish[:1]]}).status_code == 422


def test_an_erased_address_stays_out(api):
    erasure.remember(CHOIR, timezone.now())
    answer = api.post("/recipients", {"address": CHOIR})
    assert answer.status_code == 422
    assert answer.json()["detail"] == erasure.REFUSED


def test_suppressing_and_erasing(api):
    ann = RecipientFactory.create(owner=api.user, kind="mailbox", address="ann@example.com")
    assert api.post("/recipients/suppress", {"addresses": ["Ann@Example.com"]}).json()["suppressed"] == 1
    assert Suppression.objects.get().address == "ann@example.com"
    assert api.get(f"/recipients/{ann.pk}/timeline").json() == {"suppressed": True, "items": [], "next": None}
    assert api.post(f"/recipients/{ann.pk}/erase").status_code == 200
    assert not Recipient.objects.filter(address="ann@example.com").exists()
    assert "mei (token n8n)" in TrailEntry.objects.values_list("actor_name", flat=True)


def test_a_timeline_is_read_page_by_page(api, monkeypatch):
    """The place of the next page is taken as it is, although programs forget to encode it."""
    monkeypatch.setattr(person_timeline, "ENTRIES_SHOWN", 2)
    ann = RecipientFactory.create(owner=api.user)
    now = timezone.now()
    for n in range(5):
        run = RunFactory.create(owner=api.user, reminder__owner=api.user, title=f"run {n}")
        RunTargetFactory.create(run=run, recipient=ann, status="sent", claimed_at=now - timedelta(hours=n))
    path = f"/recipients/{ann.pk}/timeline"
    pages = [api.get(path).json()]
    while (following := pages[-1]["next"]) and len(pages) < 5:
        pages.append(api.get(f"{path}?before={following}").json())
    assert [[entry["name"] for entry in page["items"]] for page in pages] == [
        ["run 0", "run 1"],
        ["run 2", "run 3"],
        ["run 4"],
    ]
    assert api.get(f"{path}?before=2026-01-01").status_code == 422


def test_a_file_is_stored_once_and_dangerous_ones_are_refused(api):
    first, second = upload(api).json(), upload(api, name="copy.png").json()
    assert first["id"] == second["id"]
    assert MediaFile.objects.count() == 1
    assert list(TrailEntry.objects.values_list("verb", "kind", "subject_id")) == [
        ("added", "mediafile", str(first["id"]))
    ]
    assert api.get(f"/media?sha256={first['sha256']}").json()["items"][0]["kind"] == "image"
    for content, name in ((PNG, "run.exe"), (b"<html>", "page.html"), (b"not a png", "poster.png")):
        answer = upload(api, content, name)
        assert answer.status_code == 422, name
        assert answer.json()["detail"]


def test_a_reminder_of_others_things_is_refused(api, colleague):
    theirs = AccountFactory.create(owner=colleague)
    mine = AccountFactory.create(owner=api.user)
    stranger = RecipientFactory.create(owner=colleague)
    parts = [{"text": "Hello"}]
    assert api.post("/reminders", {"senders": [theirs.pk], "parts": parts}).status_code == 404
    wish = {"senders": [mine.pk], "parts": parts, "audience": {"recipients": [stranger.pk]}}
    assert api.post("/reminders", wish).status_code == 422
    file = MediaFile.objects.create(owner=colleague, file=SimpleUploadedFile("a.png", PNG), filename="a.png")
    assert api.post("/reminders", {"senders": [mine.pk], "parts": [{"media": file.pk}]}).status_code == 404
    assert not Reminder.objects.exists()


def test_problems_of_a_reminder_name_their_field(api):
    account = AccountFactory.create(owner=api.user)
    base = {"senders": [account.pk], "parts": [{"text": "Hello"}], "audience": {"addresses": [CHOIR]}}

    def field(**wish: Any) -> list[str]:
        answer = api.post("/reminders", base | wish)
        assert answer.status_code == 422, answer.content
        return [problem["field"] for problem in answer.json()["errors"]]

    assert field(window={"start_hour": 9, "end_hour": 8}) == ["window.end_hour"]
    assert field(schedule={"at": "2020-01-01T00:00:00Z"}) == ["schedule"]
    assert field(schedule={"cron": "not cron"}) == ["schedule.cron"]
    assert field(schedule={"at": "2190-01-01T00:00:00Z"}) == ["schedule.at"]
    assert field(parts=[{"text": "Hello {nobody_has_this}"}]) == ["parts"]
    assert field(audience={"addresses": ["ann@"]}) == ["audience.addresses"]
    assert field(timezone="Mars/Base") == ["timezone"]
    assert field(parts=[{"text": "x" * 70_000}]) == ["parts.0.text"]


def test_reminders_are_switched_on_and_off(api):
    reminder = ReminderFactory.create(account__owner=api.user, targets=1, schedule="cron", cron="0 8 * * *")
    assert api.post(f"/reminders/{reminder.pk}/enable").status_code == 409
    assert api.post(f"/reminders/{reminder.pk}/disable").json()["reminder"]["enabled"] is False
    on = api.post(f"/reminders/{reminder.pk}/enable").json()
    assert on["reminder"]["next_fire_at"]
    draft = ReminderFactory.create(account__owner=api.user, enabled=False)
    assert "no time" in api.post(f"/reminders/{draft.pk}/enable").json()["detail"]


def test_replies_of_a_run(api):
    run = RunFactory.create(reminder__account__owner=api.user, status="success", targets={"sent": 1})
    target = run.targets.get()
    InboundEventFactory.create(
        account=run.account, kind="reply", address="+4915112345678", words={"text": "yes"}, run_target_id=target.pk
    )
    InboundEventFactory.create(account=run.account, kind="reply", address="+4915112345679", words={"text": "other"})
    (reply,) = api.get(f"/replies?run={run.pk}").json()["items"]
    assert (reply["text"], reply["run"], reply["target"]) == ("yes", run.pk, target.pk)
    assert len(api.get("/replies").json()["items"]) == 2


@pytest.mark.parametrize("control", ["resume", "offload"])
def test_replies_to_an_account_that_has_nothing_more_to_send_for_the_run(api, control):
    run = RunFactory.create(
        reminder__account__owner=api.user, status="paused", pause_reason="operator", targets={"sent": 1}
    )
    first, second = run.account, AccountFactory.create(owner=api.user)
    reply = {"kind": "reply", "address": "+4915112345678", "run_target_id": run.targets.get().pk}
    InboundEventFactory.create(account=first, words={"text": "yes"}, **reply)
    RunTargetFactory.create(run=run, account=second if control == "resume" else first)
    Run.objects.filter(pk=run.pk).update(lanes=[first.pk, second.pk] if control == "resume" else [first.pk])
    wish = {"account": second.pk} if control == "offload" else {}
    answer = api.post(f"/runs/{run.pk}/{control}", wish)
    assert answer.status_code == 200, answer.content
    run.refresh_from_db()
    assert run.lanes == [second.pk]
    assert [one["text"] for one in api.get(f"/replies?run={run.pk}").json()["items"]] == ["yes"]


def test_no_credentials_in_any_answer_about_an_account(api):
    account = AccountFactory.create(owner=api.user, channel="smtp", address="a@example.com")
    account.credentials = {"password": "very secret"}
    account.save(update_fields=["credentials"])
    for path in ("", f"/{account.pk}", f"/{account.pk}/health", f"/{account.pk}/why", f"/{account.pk}/pace"):
        answer = api.get(f"/accounts{path}")
        assert answer.status_code == 200, path
        assert b"secret" not in answer.content
        assert str(account.hook_token).encode() not in answer.content
    assert api.post(f"/accounts/{account.pk}/pause", {"reason": "holiday"}).json()["account"]["status"] == "paused"
    assert api.post(f"/accounts/{account.pk}/resume").json()["account"]["status"] == "active"
    knobs = api.put(f"/accounts/{account.pk}/pace", {"knobs": {"max_send_per_minute": "7"}}).json()["knobs"]
    assert {knob["name"]: knob["value"] for knob in knobs}["max_send_per_minute"] == 7


# --- templates and follow-ups -----------------------------------------------------------------------------------


@pytest.fixture
def cloud(api: Api) -> Account:
    account = AccountFactory.create(
        owner=api.user, channel="cloud", config={"phone_number_id": "1"}, templates_read_at=timezone.now()
    )
    news = Template("news", "en", body="News from the choir: {{1}}\nReply STOP to get no more.")
    visits = [Template("visit", language, body="Hello {{who}}, we come.") for language in ("de", "en")]
    for one in (news, *visits):
        MessageTemplate.objects.create(account=account, name=one.name, language=one.language, content=asdict(one))
    return account


def test_a_part_may_have_a_template_with_values(api, cloud):
    listed = api.get(f"/accounts/{cloud.pk}/templates").json()["items"]
    assert [row["template"] for row in listed] == ["news:en", "visit:de", "visit:en"]
    parts = [
        {"text": "Doors at nine", "template": {"name": "news", "values": {"1": "doors at nine"}}},
        {"template": {"name": "visit", "language": "de", "values": {"who": "{first_name|all}"}}},
    ]
    wish = {"senders": [cloud.pk], "parts": parts, "audience": {"addresses": ["+4915112345678"]}}
    assert api.post("/reminders", wish).status_code == 201
    stored = list(Reminder.objects.get().messages.all())
    assert [part.template["values"] for part in stored if part.template] == [
        {"body.1": "doors at nine"},
        {"body.who": "{first_name|all}"},
    ]
    assert stored[1].text == "Hello {first_name|all}, we come.", "a part without a text gets the template's words"


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ({"name": "gone"}, "choose one of news:en, visit:de, visit:en"),
        ({"name": "visit", "values": {"who": "x"}}, "choose one of visit:de, visit:en"),
        ({"name": "news", "values": {"2": "x"}}, "the variables of news:en are body.1"),
        ({"name": "news"}, "Fill in {{1}}"),
        ({"name": "news", "values": {"1": "a\nb"}}, "on one line"),
    ],
)
def test_a_template_that_the_provider_would_refuse(api, cloud, template, says):
    parts = [{"text": "x", "template": template}]
    reminder = {"senders": [cloud.pk], "parts": parts, "audience": {"addresses": ["+4915112345678"]}}
    message = {"account": cloud.pk, "address": "+4915112345678", "parts": parts}
    for path, wish in (("/reminders", reminder), ("/messages", message)):
        answer = api.post(path, wish)
        assert answer.status_code == 422, path
        assert says in answer.json()["detail"]


def test_a_single_message_keeps_its_template(api, cloud):
    part = {"text": "x", "template": {"name": "news", "values": {"1": "order {order}"}}}
    wish = {"account": cloud.pk, "address": "+4915112345678", "parts": [part], "values": {"order": "12"}}
    assert api.post("/messages", wish).status_code == 202
    message = SingleMessage.objects.get()
    assert message.parts[0]["template"]["values"] == {"body.1": "order {order}"}
    assert message.values == {"order": "12"}


def test_accounts_without_templates_take_none(api):
    account = AccountFactory.create(owner=api.user)
    parts = [{"text": "x", "template": {"name": "news"}}]
    answer = api.post("/reminders", {"senders": [account.pk], "parts": parts})
    assert "without templates" in answer.json()["detail"]


def test_follow_ups(api):
    account = AccountFactory.create(owner=api.user)
    wish = {"senders": [account.pk], "parts": [{"text": "Rent"}], "audience": {"addresses": ["+4915112345678"]}}
    steps = [{"days": 2, "parts": [{"text": "Again"}, {"text": "Please"}]}, {"days": 5, "parts": [{"text": "Last"}]}]
    made = api.post("/reminders", wish | {"follow_ups": steps})
    assert made.json()["follow_up_days"] == [2, 5]
    rows = Reminder.objects.get().follow_up_parts.values_list("step", "text")
    assert list(rows) == [(1, "Again"), (1, "Please"), (2, "Last")]
    for wrong in (steps[::-1], [steps[0], steps[0]], [{"days": 91, "parts": steps[0]["parts"]}], [{"days": 2}]):
        assert api.post("/reminders", wish | {"follow_ups": wrong}).status_code == 422
    unknown = [{"days": 2, "parts": [{"text": "{nobody_has_this}"}]}]
    assert "there is no {nobody_has_this}" in api.post("/reminders", wish | {"follow_ups": unknown}).json()["detail"]
