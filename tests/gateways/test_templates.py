"""Free texts and templates through the Cloud API: the engine decides for each person just before the call."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from accounts import message_templates
from accounts.channels.sandbox.book import is_delivery
from accounts.channels.templates import WINDOW_CLOSED, Template
from accounts.models import Account, MessageTemplate
from fanout.inbound import worker
from fanout.models import KnownChat
from tests.gateways.process import GatewayServer
from tests.gateways.running import make_run
from tests.gateways.test_opt_outs import SECRET, carry_out, listening

LATELY, LONG_AGO, NEVER = (f"+4917600000{n:03d}" for n in range(3))
CREDENTIALS = {"access_token": "k", "app_secret": SECRET}
NEWS = Template("news", "en", body="News: {{1}} Reply STOP to get no more.")


def kinds(gateway: GatewayServer) -> dict[str, list[str]]:
    """What each person got, by the gateway's own book."""
    got: dict[str, list[str]] = {}
    for line in filter(is_delivery, gateway.book().lines()):
        got.setdefault(line["to"], []).append(f"{line['kind']}: {line['text']}")
    return got


def run_to_three(
    gateway: GatewayServer,
    *templates: dict[str, Any] | None,
    words: dict[str, dict[str, str]] | None = None,
    listed: tuple[Template, ...] = (),
    **config: Any,
) -> Any:
    settings = {"url": gateway.url, "phone_number_id": "10200", "business_account_id": "20400", **config}
    people = [("person", number) for number in (LATELY, LONG_AGO, NEVER)]
    run = make_run("cloud", settings, CREDENTIALS, people, "message", templates, words)
    now, account = timezone.now(), Account.objects.get()
    for one in listed:
        MessageTemplate.objects.create(account=account, name=one.name, language=one.language, content=asdict(one))
    for number, hours in ((LATELY, 1), (LONG_AGO, 25)):
        KnownChat.objects.create(account=account, address=number, heard_at=now - timedelta(hours=hours))
    carry_out(run)
    return run


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_outside_the_window_a_part_goes_by_its_template(tmp_path: Path) -> None:
    with GatewayServer(tmp_path, "cloud") as gateway:
        run = run_to_three(gateway, NEWS.as_part({"body.1": "doors, {first_name|friend}."}))
        got = kinds(gateway)

    by_template = ["template: doors, friend."]
    assert got == {LATELY: ["text: Doors open at nine"], LONG_AGO: by_template, NEVER: by_template}
    run.refresh_from_db()
    assert (run.status, run.sent) == ("success", 3)


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_without_a_template_nothing_is_asked_of_meta(tmp_path: Path) -> None:
    """The second part has none, and half a message is none: nothing of it goes out to them."""
    with GatewayServer(tmp_path, "cloud") as gateway:
        run = run_to_three(gateway, NEWS.as_part({"body.1": "doors."}), None)
        got = kinds(gateway)

    assert got == {LATELY: ["text: Doors open at nine"] * 2}
    skipped = run.targets.filter(status="skipped")
    assert {target.address for target in skipped} == {LONG_AGO, NEVER}
    assert {(target.error, target.attempts, target.claimed_at) for target in skipped} == {(WINDOW_CLOSED, 0, None)}
    run.refresh_from_db()
    assert (run.status, run.failed) == ("partial", 0)


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("words", "fits"), [("Reply STOP.", True), ("x" * 1010, False)], ids=["short", "long"])
def test_the_accounts_template_is_judged_by_its_listed_words(tmp_path: Path, words: str, fits: bool) -> None:
    with GatewayServer(tmp_path, "cloud") as gateway:
        own = replace(NEWS, named=True, body=f"News: {{{{what}}}} {words}")
        run = run_to_three(gateway, None, listed=(own,), template="news", template_language="")
        got = kinds(gateway)

    free, by_template = ["text: Doors open at nine"], ["template: Doors open at nine"]
    assert got == {LATELY: free} | ({LONG_AGO: by_template, NEVER: by_template} if fits else {})
    errors = set(run.targets.exclude(status="sent").values_list("status", "error"))
    assert fits or errors == {
        ("skipped", "The body has 1,035 characters with its values; Meta takes at most 1,024. Shorten them.")
    }


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_a_value_that_makes_a_later_part_unfit_is_found_before_the_first_one(tmp_path: Path) -> None:
    with GatewayServer(tmp_path, "cloud") as gateway:
        doors, note = NEWS.as_part({"body.1": "doors."}), NEWS.as_part({"body.1": "{note}."})
        words = {LATELY: {"note": "a"}, LONG_AGO: {"note": "a long walk " * 100}, NEVER: {"note": "with\na break"}}
        run = run_to_three(gateway, doors, note, words=words)
        got = kinds(gateway)

    assert got == {
        LATELY: ["text: Doors open at nine"] * 2,
        NEVER: ["template: doors.", "template: with a break."],
    }
    target = run.targets.get(address=LONG_AGO)
    assert (target.status, target.parts_sent, target.claimed_at) == ("skipped", 0, None)
    assert "characters with its values; Meta takes at most 1,024" in target.error


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_a_reply_opens_the_window(tmp_path: Path) -> None:
    with GatewayServer(tmp_path, "cloud") as gateway, listening() as site:
        run = run_to_three(gateway, NEWS.as_part({"body.1": "doors."}))
        account = Account.objects.get()
        gateway.set_hook("10200", f"{site}/hooks/cloud/{account.hook_token}", SECRET)
        assert gateway.answer(NEVER, "Yes") == 200
        while worker.step(timezone.now()):
            pass
        words = message_templates.refresh(account, timezone.now())

    chat = KnownChat.objects.get(account=account, address=NEVER)
    assert chat.heard_at is not None
    assert timezone.now() - chat.heard_at < timedelta(minutes=5)
    assert run.targets.filter(status="sent").count() == 3
    listed = message_templates.templates_of([account])
    usable = sum(not one.unusable() for one in listed.values())
    assert usable
    assert words == f"{len(listed)} templates listed, {usable} of them can be used"
