"""A scripted WhatsApp: clients in neonize's shape whose server follows a script, and its book of what went out.

A development tool for tests and the demo, used where WHATSAPP_SCRIPT is set. Pairing, sessions, acknowledgements,
receipts and faults behave as measured with neonize 0.5.2 (docs/whatsapp.md). Everything that a real server would
remember lies in files, so that a killed bridge finds it again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from accounts.channels.paired import GROUPS, PEOPLE
from accounts.channels.whatsapp.bridge.library import Library, with_client

Rule = dict[str, Any]

#: Keys of the script and their defaults; "accounts" has the same keys per account.
DEFAULTS: Rule = {
    "latency_ms": [5, 20],
    "groups": 12,
    "pair_after": None,  # seconds until the phone scans the code; None: never
    "codes": [60, 20, 20, 20, 20, 20],  # seconds that each code lasts
    # {"fail": words}, {"event": name, "fields": {…}}, {"after": seconds} or {"hang": True}, and "times": n
    "connect": None,
    "sends": {},  # by address or "*": {"error": words} {"hang": True} {"late": seconds} {"drop": True}, and "times": n
    "upload": None,  # {"error": words} or {"hang": True}
    "list_groups": None,  # {"error": words}
    "left": [],  # groups that are no longer listed
    "announce": [],  # groups in which only admins write
    "no_whatsapp": [],
    "ids": {},  # WhatsApp's ids of numbers that it knows by another one, such as Brazilian ones without the ninth digit
    "hidden": {},  # numbers by hidden id (LID), of people whom the client has met
    "look_up": 0,  # seconds that such a look-up takes
    "question": 0,  # seconds until WhatsApp says whether it has a number
    "receipts": 0.05,  # seconds until a message is delivered; None: never
    "limits": {},  # of the bridge (Limits)
}


class ScriptedRules:
    """The script: a JSON file that is read again whenever it changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read_at = -1
        self.rules: Rule = {}

    def of(self, account: str) -> Rule:
        with suppress(OSError, ValueError):
            changed = self.path.stat().st_mtime_ns
            if changed != self.read_at:
                self.rules = json.loads(self.path.read_text())
                self.read_at = changed
        own: Rule = self.rules.get("accounts", {}).get(account, {})
        return DEFAULTS | self.rules | own

    def replace(self, rules: Rule) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(rules))
        part.replace(self.path)


class ScriptedBook:
    """The server's book of what it accepted, one JSON object a line.

    A line is one write(2), so that a kill leaves whole lines.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, **line: Any) -> None:
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, (json.dumps({"t": time.time(), **line}) + "\n").encode())
        finally:
            os.close(handle)

    def lines(self, kind: str = "message") -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        lines = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [line for line in lines if line["line"] == kind]


class ScriptedWhatsApp:
    """The server. `client` makes clients that talk to it."""

    def __init__(self, folder: Path, stand_ins: bool = False) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.script = ScriptedRules(folder / "script.json")
        self.book = ScriptedBook(folder / "book.jsonl")
        self.clients: dict[str, ScriptedClient] = {}
        self.used: dict[str, int] = {}
        self.library: Library = with_client(self.client, stand_ins)

    def client(self, name: str, **options: Any) -> ScriptedClient:
        return ScriptedClient(self, name, **options)

    def fault(self, account: str, address: str) -> Rule:
        """Return the fault for this send; one with "times" is used up."""
        sends = self.script.of(account)["sends"]
        for key in (address, "*"):
            rule = sends.get(key)
            if rule is None:
                continue
            if rule := self.used_up(f"{account}/{key}", rule):
                return rule
        return {}

    def used_up(self, name: str, rule: Rule) -> Rule:
        """Return the rule, or nothing after so many "times"."""
        name = f"{name}/{json.dumps(rule, sort_keys=True)}"
        self.used[name] = self.used.get(name, 0) + 1
        return dict(rule) if self.used[name] <= rule.get("times", float("inf")) else {}

    # -- control, beside the bridge's API -----------------------------------------------------------------

    def add_routes(self, app: web.Application) -> None:
        app.add_routes(
            [
                web.put("/script", self._replace),
                web.post("/script/{account:[0-9]+}", self._happen),
            ]
        )

    async def _replace(self, request: web.Request) -> web.Response:
        self.script.replace(json.loads(await request.read()))
        return web.json_response({})

    async def _happen(self, request: web.Request) -> web.Response:
        """Make something happen at WhatsApp: {"event": name, "fields": {…}}, {"scan": true}, {"next_code": true},
        {"say": text, "in": chat} or {"receipt": {…}, "in": chat}."""
        client = self.clients.get(request.match_info["account"])
        if client is None:
            raise web.HTTPNotFound
        await client.happen(json.loads(await request.read()))
        return web.json_response({})


class Handlers:
    """neonize's way of registering: `client.event(ConnectedEv)(handler)` and `client.event.qr(handler)`."""

    def __init__(self) -> None:
        self.by_event: dict[Any, Callable[..., Any]] = {}
        self.on_code: Callable[..., Any] | None = None

    def __call__(self, event: Any) -> Callable[[Callable[..., Any]], None]:
        return lambda handler: self.by_event.__setitem__(event, handler)

    def qr(self, handler: Callable[..., Any]) -> None:
        self.on_code = handler


class ScriptedClient:
    def __init__(self, server: ScriptedWhatsApp, name: str, uuid: str = "") -> None:
        self.server = server
        self.store = Path(name)
        self.account = uuid.partition("-")[0]
        self.event = Handlers()
        self.connected = self.stopped = False
        self.loop_task: asyncio.Task[None] | None = None
        self.scanned = False
        self.next_code = asyncio.Event()
        self.turn = asyncio.Lock()

    @property
    def rules(self) -> Rule:
        return self.server.script.of(self.account)

    @property
    def types(self) -> Any:
        return self.server.library.types

    @property
    def number(self) -> str:
        return f"49151{int(self.account):08d}"

    # -- connecting and pairing ---------------------------------------------------------------------------

    async def connect(self) -> asyncio.Task[None]:
        self.server.clients[self.account] = self
        self.server.book.add(line="connect", account=self.account)
        self.loop_task = asyncio.create_task(self._run())
        return self.loop_task

    async def _run(self) -> None:
        rule = self.server.used_up(f"{self.account}/connect", self.rules["connect"] or {})
        if "fail" in rule:
            raise self.error(rule["fail"])
        if rule.get("hang"):
            await asyncio.Event().wait()
        await asyncio.sleep(rule.get("after", 0.02))
        if not self.store.exists():
            await self._offer_codes()
        if "event" in rule:
            await self.emit(rule["event"], **rule.get("fields", {}))
        elif self.store.exists():
            await self._log_in()
        # neonize's task stays pending, even when the session ends.
        await asyncio.Event().wait()

    async def _offer_codes(self) -> None:
        pair_after, began = self.rules["pair_after"], time.monotonic()
        for lasts in self.rules["codes"]:
            assert self.event.on_code is not None
            await self.event.on_code(self, f"2@{secrets.token_urlsafe(60)}".encode())
            wait = lasts
            if pair_after is not None:
                wait = min(lasts, max(0.0, began + pair_after - time.monotonic()))
            self.next_code.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.next_code.wait(), wait)
            if self.scanned or (pair_after is not None and time.monotonic() - began >= pair_after):
                self.store.write_text(self.number)
                await self.emit("PairStatus", ID=self.jid(self.number), Status=2)
                return
        await asyncio.Event().wait()

    async def _log_in(self) -> None:
        self.connected = True
        self.server.book.add(line="login", account=self.account, pid=os.getpid())
        await self.emit("Connected", status=True)
        for line in self._owed_receipts():
            self._deliver_receipt(line, soon=True)

    async def PairPhone(self, phone: str, show_push_notification: bool) -> str:
        return "KBDT-FC2M"

    async def stop(self) -> None:
        self.connected, self.stopped = False, True
        if self.loop_task is not None:
            self.loop_task.cancel()
        if self.server.clients.get(self.account) is self:
            del self.server.clients[self.account]

    async def logout(self) -> None:
        self.server.book.add(line="logout", account=self.account)
        self.connected = False

    async def get_me(self) -> Any:
        self._must_be_known()
        return self.types.Device(JID=self.jid(self.number), LID=self.jid("7", "lid"), PushName="Scripted")

    # -- asking -------------------------------------------------------------------------------------------

    async def get_joined_groups(self) -> list[Any]:
        self.server.book.add(line="list", account=self.account)
        if rule := self.rules["list_groups"]:
            raise self.error(rule["error"])
        numbers = range(self.rules["groups"])
        left = self.rules["left"]
        return [self._group(n) for n in numbers if group_address(self.account, n) not in left]

    def _group(self, n: int) -> Any:
        types = self.types
        jid = group_address(self.account, n)
        members = [types.GroupParticipant(JID=self.jid(str(4915200000000 + m))) for m in range(3 + n % 8)]
        return types.GroupInfo(
            JID=self.jid(jid.partition("@")[0], GROUPS),
            GroupName=types.GroupName(Name=f"Neighbours {n + 1}"),
            GroupAnnounce=types.GroupAnnounce(IsAnnounce=jid in self.rules["announce"]),
            Participants=[*members, types.GroupParticipant(JID=self.jid(self.number))],
        )

    async def is_on_whatsapp(self, *numbers: str) -> list[Any]:
        gone, ids = self.rules["no_whatsapp"], self.rules["ids"]
        self.server.book.add(line="question", account=self.account)
        await asyncio.sleep(self.rules["question"])
        return [
            self.types.IsOnWhatsAppResponse(Query=n, JID=self.jid(ids.get(n, n.lstrip("+"))), IsIn=n not in gone)
            for n in numbers
        ]

    async def get_pn_from_lid(self, jid: Any) -> Any:
        """Return the number behind a hidden id.

        Like neonize it returns an empty one, without an error, for an id it has not met.
        """
        self._must_be_known()
        await asyncio.sleep(self.rules["look_up"])
        self._must_be_known()
        number = self.rules["hidden"].get(jid.User)
        return self.jid(number) if number else self.types.JID(User="", Server="", IsEmpty=True)

    def _must_be_known(self) -> None:
        if self.stopped:
            # Go would end the process here.
            self.server.book.add(line="crash", account=self.account)

    async def send_chat_presence(self, jid: Any, state: Any, media: Any) -> None:
        self.server.book.add(line="typing", account=self.account, to=f"{jid.User}@{jid.Server}")

    # -- sending ------------------------------------------------------------------------------------------

    async def upload(self, content: bytes, media_type: Any) -> Any:
        rule = self.rules["upload"] or {}
        if rule.get("hang"):
            await asyncio.Event().wait()
        if "error" in rule:
            raise self.error(rule["error"])
        digest = hashlib.sha256(content)
        self.server.book.add(line="upload", account=self.account, sha256=digest.hexdigest(), type=media_type.name)
        return self.types.UploadResponse(
            url=f"https://mmg.example/{media_type.name}/{digest.hexdigest()[:12]}",
            DirectPath=f"/v/{media_type.name}/{digest.hexdigest()[:12]}",
            Handle="",
            MediaKey=digest.digest(),
            FileEncSHA256=digest.digest(),
            FileSHA256=digest.digest(),
            FileLength=len(content),
        )

    async def send_message(self, to: Any, message: Any) -> Any:
        # One client's sends are serial: a slow one delays all.
        async with self.turn:
            return await self._send(f"{to.User}@{to.Server}", message)

    async def _send(self, chat: str, message: Any) -> Any:
        if not self.store.exists():
            raise self.error("the store doesn't contain a device JID")
        if not self.connected:
            raise self.error("failed to send message node: websocket not connected")
        rule = self.server.fault(self.account, chat)
        if rule.get("hang"):
            await asyncio.Event().wait()
        if "error" in rule and not rule.get("drop"):
            raise self.error(rule["error"])
        await asyncio.sleep(random.uniform(*self.rules["latency_ms"]) / 1000)
        provider_id = "3EB0" + secrets.token_hex(8).upper()
        line = {"account": self.account, "to": chat, "id": provider_id, **described(message)}
        self.server.book.add(line="message", **line)
        self._deliver_receipt(line)
        await asyncio.sleep(rule.get("late", 0))
        if rule.get("drop"):
            raise self.error(rule.get("error", "websocket disconnected before message send returned response"))
        return self.types.SendResponse(ID=provider_id, Timestamp=int(time.time()))

    # -- receipts and other events --------------------------------------------------------------------------

    def _owed_receipts(self) -> list[dict[str, Any]]:
        """Return the messages whose receipts are still due, because the sender was away."""
        known = {line["id"] for line in self.server.book.lines("receipt")}
        return [m for m in self.server.book.lines() if m["account"] == self.account and m["id"] not in known]

    def _deliver_receipt(self, line: dict[str, Any], soon: bool = False) -> None:
        delay = self.rules["receipts"]
        if delay is not None:
            asyncio.get_running_loop().call_later(0 if soon else delay, self._receipt, line)

    def _receipt(self, line: dict[str, Any]) -> None:
        if not self.connected or self.server.clients.get(self.account) is not self:
            return
        self.server.book.add(line="receipt", account=self.account, id=line["id"])
        self._hand_out("Receipt", self._receipt_for(line["to"], line["id"]))

    def _receipt_for(self, chat: str, id: str, type: int = 1, ago: float = 0, **_: Any) -> Any:
        user, server = chat.split("@")
        source = self.types.MessageSource(
            Chat=self.jid(user, server),
            Sender=self.jid("4915200000000") if server == GROUPS else self.jid(user, server),
            IsGroup=server == GROUPS,
        )
        at = int(time.time() - ago)
        return self.make("Receipt", MessageSource=source, MessageIDs=[id], Timestamp=at, Type=type)

    async def happen(self, what: Rule) -> None:
        if what.get("scan") or what.get("next_code"):
            self.scanned = bool(what.get("scan"))
            self.next_code.set()
        elif "receipt" in what:
            self._hand_out("Receipt", self._receipt_for(what["in"], **what["receipt"]))
        elif "say" in what:
            self._hand_out("Message", self._incoming(what))
        else:
            await self.emit(what["event"], **what.get("fields", {}))

    def _incoming(self, what: Rule) -> Any:
        chat, _, server = what.get("in", f"4915200000000@{PEOPLE}").partition("@")
        types = self.types
        source = types.MessageSource(
            Chat=self.jid(chat, server),
            Sender=self.jid(*what.get("from", "4915200000000").split("@")),
            IsGroup=server == GROUPS,
            IsFromMe=what.get("from_me", False),
        )
        info = types.MessageInfo(MessageSource=source, ID=what["id"], Pushname="Ann", Timestamp=int(time.time() * 1000))
        content = types.Content(conversation=what["say"]) if what["say"] else types.Content()
        return self.make("Message", Info=info, Message=content)

    async def emit(self, name: str, **fields: Any) -> None:
        if name in ("Disconnected", "TemporaryBan", "StreamReplaced", "LoggedOut", "ClientOutdated"):
            self.connected = False
        if name == "Connected":
            self.connected = True
        self._hand_out(name, self.make(name, **fields))

    def _hand_out(self, name: str, event: Any) -> None:
        handler = self.event.by_event.get(self.server.library.events[name])
        if handler is not None:
            asyncio.get_running_loop().create_task(handler(self, event))

    # -- shapes -------------------------------------------------------------------------------------------

    def make(self, name: str, **fields: Any) -> Any:
        return self.server.library.events[name](**fields)

    def jid(self, user: str, server: str = PEOPLE) -> Any:
        return self.types.JID(User=user, Server=server, RawAgent=0, Device=0, Integrator=0, IsEmpty=False)

    def error(self, words: str) -> Exception:
        return self.server.library.error(words)


def group_address(account: str, n: int) -> str:
    return f"120363{int(account):06d}{n:06d}@{GROUPS}"


def described(message: Any) -> dict[str, Any]:
    """Return what a recipient would see."""
    if message.conversation:
        return {"kind": "text", "text": message.conversation}
    for kind in ("image", "video", "audio", "document"):
        carried = getattr(message, f"{kind}Message")
        if carried.ListFields():
            caption = getattr(carried, "caption", "")
            # Keys are made for one kind: a file uploaded as another kind arrives, but cannot be opened.
            opens = f"/Media{kind.title()}/" in carried.directPath
            shown = {"file": carried.directPath, "mime": carried.mimetype, "opens": opens}
            return {"kind": kind, "text": caption, **shown}
    return {"kind": "empty", "text": ""}
