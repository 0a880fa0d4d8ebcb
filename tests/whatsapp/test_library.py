"""The real neonize is what the bridge expects: names, signatures and fields. Skipped where the extra is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command

from accounts.channels.whatsapp.bridge import library, stand_ins
from fanout.management.base import NotDone

needs_neonize = pytest.mark.skipif(not library.installed(), reason=f"neonize is not installed: {library.INSTALL}")

#: In a process of its own: the import starts a thread, sets up logging and takes 65 MB.
LOOK = """
import inspect, json, sys
from accounts.channels.whatsapp.bridge import library, stand_ins
import neonize
real = library.neonize()
fields = lambda cls: sorted(f.name for f in cls.DESCRIPTOR.fields)
enum = lambda event, field: real.events[event].DESCRIPTOR.fields_by_name[field].enum_type.values
numbers = lambda event, field: {one.name: one.number for one in enum(event, field)}
shape = {name: cls for name, cls in vars(stand_ins).items() if library._is_shape(cls)}
client = real.client
events = __import__("neonize.events", fromlist=["EVENT_TO_INT"]).EVENT_TO_INT
made = client("/nonexistent/never-connected", uuid="1")
json.dump({
    "version": neonize.__version__,
    "classes": {name: fields(getattr(real.types, name)) for name in shape},
    "events": {name: fields(cls) for name, cls in real.events.items()},
    "registered": [name for name, cls in real.events.items() if cls in events],
    "methods": {name: list(inspect.signature(getattr(client, name)).parameters) for name in %(methods)s},
    "coroutines": [name for name in %(methods)s if inspect.iscoroutinefunction(getattr(client, name))],
    "media": [one.name for one in real.types.MediaType],
    "receipts": numbers("Receipt", "Type"),
    "reasons": numbers("LoggedOut", "Reason"),
    "event": [callable(made.event), callable(made.event.qr)],
    "error": issubclass(__import__("neonize.exc", fromlist=["SendMessageError"]).SendMessageError, real.error),
}, sys.stdout)
"""
METHODS = {
    "connect": [],
    "stop": [],
    "logout": [],
    "get_me": [],
    "PairPhone": ["phone", "show_push_notification"],
    "send_message": ["to", "message"],
    "upload": ["binary", "media_type"],
    "get_joined_groups": [],
    "is_on_whatsapp": ["numbers"],
    "send_chat_presence": ["jid", "state", "media"],
    "get_pn_from_lid": ["jid"],
}


@needs_neonize
def test_the_real_library_has_what_the_bridge_uses() -> None:
    code = LOOK % {"methods": repr(list(METHODS))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout[done.stdout.index("{") :])

    assert seen["version"] == library.VERSION
    for name, has in seen["classes"].items():
        assert set(getattr(stand_ins, name).fields) <= set(has), name
    for name, has in seen["events"].items():
        assert set(stand_ins.EVENTS[name].fields) <= set(has), name
    assert set(seen["registered"]) == set(stand_ins.EVENTS)
    for name, parameters in METHODS.items():
        assert seen["methods"][name][1 : 1 + len(parameters)] == parameters, name
    assert set(seen["coroutines"]) == set(METHODS)
    assert {one.name for one in stand_ins.MediaType} <= set(seen["media"])
    kinds = {"DELIVERED": 1, "READ": 4, "PLAYED": 6, "INACTIVE": 9}
    assert {name: seen["receipts"][name] for name in kinds} == kinds
    reasons = {"LOGGED_OUT": 2, "TEMP_BANNED": 3, "MAIN_DEVICE_GONE": 4, "UNKNOWN_LOGOUT": 5}
    assert {name: seen["reasons"][name] for name in reasons} == reasons
    assert seen["event"] == [True, True]
    assert seen["error"]


@needs_neonize
def test_without_libmagic_the_bridge_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['magic'] = None\n"
        "from accounts.channels.whatsapp.bridge import library\n"
        "try: library.neonize()\n"
        "except library.NotInstalled as problem: print(problem)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert "apt install libmagic1" in done.stdout


@pytest.mark.django_db
def test_the_command_passes_the_sentence_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(*args: object) -> None:
        raise library.NotInstalled("It needs libmagic.")

    monkeypatch.setattr("fanout.bridge.run", run)
    with pytest.raises(NotDone, match=r"It needs libmagic\."):
        call_command("whatsapp_bridge", "--script", str(tmp_path))


def test_a_stand_in_takes_only_declared_fields() -> None:
    assert stand_ins.JID(User="1").Server == ""
    assert stand_ins.Content().imageMessage.ListFields() == []
    assert [field.name for field, _ in stand_ins.Content(conversation="Hi").ListFields()] == ["conversation"]
    with pytest.raises(ValueError, match="no field Usr"):
        stand_ins.JID(Usr="1")


def test_the_scripted_client_is_in_neonizes_shape() -> None:
    import inspect

    from accounts.channels.whatsapp.bridge.scripted import ScriptedClient

    for name, parameters in METHODS.items():
        taken = inspect.signature(getattr(ScriptedClient, name)).parameters
        assert len(taken) - 1 == len(parameters), name
