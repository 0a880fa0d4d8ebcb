"""Reports that the sandbox provider sends by itself: receipts, replies, late bounces, complaints and junk.

It behaves as providers do: a report is signed with the account's key, comes after a while, and is repeated until the
webhook has accepted it.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp

from accounts.channels.sandbox.book import Line
from accounts.channels.sandbox.provider import TEXT_KEPT, Hook, Provider
from accounts.channels.sandbox.script import Behaviour, Reports
from accounts.channels.sandbox.webhook import SIGNATURE_HEADER, signature

ReportBody = dict[str, Any]

#: seconds before each repetition
REPEAT_AFTER = (1, 5, 30, 120)
#: requests at the same time, to spare a slow webhook
AT_ONCE = 50
GROUP_SUFFIX = "@g.us"
#: members who reply in a group
MEMBERS = tuple(f"+601734500{n:02d}" for n in range(1, 30))

JUNK: tuple[Callable[[Hook, bytes], tuple[bytes, str]], ...] = (
    lambda hook, body: (body, "forged"),
    lambda hook, body: (body[:-5], signature(hook.key, body)),
    lambda hook, body: (b"\xff\x00 no JSON", signature(hook.key, b"\xff\x00 no JSON")),
)


def story(line: Line, reports: Reports, rng: random.Random) -> Iterator[ReportBody]:
    """Yield the reports about an accepted message, in their order."""
    if rng.random() < reports.bounce:
        yield report_on(line, "bounce")
        return
    if rng.random() >= reports.delivered:
        return
    yield report_on(line, "delivered")
    for kind in ("read", "reply", "complaint", "unsubscribe"):
        if rng.random() < getattr(reports, kind):
            yield report_on(line, kind, rng.choice(reports.replies) if kind == "reply" else "", rng)


def report_on(line: Line, kind: str, text: str = "", rng: random.Random | None = None, suffix: str = "") -> ReportBody:
    """Return a report about a message that stands in the book."""
    report: ReportBody = {"id": f"ev-{line['provider_id']}-{kind}{suffix}", "kind": kind, "text": text}
    if kind in ("reply", "complaint", "unsubscribe"):
        quotes = {"message": line["provider_id"]} if kind == "reply" else {}
        return report | quotes | _sender(line["to"], rng or random.Random())
    report |= {"to": line["to"], "message": line["provider_id"], "message_id": line["message_id"]}
    if kind == "bounce":
        report |= {"text": text or "This address does not exist after all", "detail": {"kind": "hard_bounce"}}
    return report


def _sender(address: str, rng: random.Random) -> ReportBody:
    if address.endswith(GROUP_SUFFIX):
        return {"from": rng.choice(MEMBERS), "group": address}
    return {"from": address}


def report_line(at: float, account: str, kind: str, report_id: str, status: int, text: str = "") -> Line:
    """Return the line of the book about a report, with the person's words if there are some."""
    line = {"t": round(at, 6), "account": account, "report": kind, "id": report_id, "status": status}
    return line | ({"text": text[:TEXT_KEPT]} if text else {})


class Reporter:
    """Posts reports to the accounts' webhook addresses. Belongs to the server's event loop."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.tasks: set[asyncio.Task[None]] = set()
        self.room = asyncio.Semaphore(AT_ONCE)
        self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15))
        provider.on_accepted = self.schedule_reports

    def schedule_reports(self, line: Line, behaviour: Behaviour) -> None:
        if line["account"] in self.provider.hooks:
            self._begin(self._send_reports(line, behaviour.reports))

    def send(self, account: str, report: ReportBody) -> None:
        """Send a report at once, in the background."""
        self._begin(self._post(account, report))

    def send_junk(self, account: str) -> None:
        self._begin(self._junk(account))

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await self.session.close()

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _send_reports(self, line: Line, reports: Reports) -> None:
        rng = self.provider.rng
        for report in story(line, reports, rng):
            await asyncio.sleep(rng.uniform(*reports.delay_ms) / 1000)
            await self._post(line["account"], report)
        if rng.random() < reports.junk:
            await self._junk(line["account"])

    async def _post(self, account: str, report: ReportBody) -> None:
        """Send a report until it is accepted or refused."""
        hook = self.provider.hooks.get(account)
        if hook is None:
            return
        body = json.dumps({"events": [{**report, "at": self.provider.now()}]}).encode()
        for seconds in (*REPEAT_AFTER, 0):
            status = await self._call(hook, body, signature(hook.key, body))
            self._note(account, report["kind"], report["id"], status, report.get("text", ""))
            if status and status < 500:
                return
            await asyncio.sleep(seconds)

    async def _junk(self, account: str) -> None:
        hook = self.provider.hooks.get(account)
        if hook is not None:
            body, signed = self.provider.rng.choice(JUNK)(hook, b'{"events": []}')
            self._note(account, "junk", "", await self._call(hook, body, signed))

    async def _call(self, hook: Hook, body: bytes, signed: str) -> int:
        """Return the webhook's status; 0 where there was no answer."""
        headers = {SIGNATURE_HEADER: signed, "Content-Type": "application/json"}
        try:
            async with self.room, self.session.post(hook.url, data=body, headers=headers) as response:
                return response.status
        except (aiohttp.ClientError, TimeoutError, OSError):
            return 0

    def _note(self, account: str, kind: str, report_id: str, status: int, text: str = "") -> None:
        self.provider.book.append(report_line(self.provider.now(), account, kind, report_id, status, text))
