"""Unipile's API v1: mail, LinkedIn messages, InMail and invitations, as developer.unipile.com/reference documents them.

tests/gateways/captures/unipile.py has its answers and reports one by one.
"""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from accounts.channels.http import Answer
from accounts.channels.sandbox.book import Line
from tests.gateways.server import Dialect, Hooked, Malformed

#: A member's id here is the profile's name with this in front.
MEMBER = "member-"


def error(status: int, name: str) -> tuple[int, str]:
    return status, json.dumps({"status": status, "type": f"errors/{name}", "title": name, "detail": "%s"})


class Unipile(Dialect):
    refusals = {
        "auth": error(401, "disconnected_account"),
        "banned": error(403, "account_restricted"),
        "rate_limited": error(429, "too_many_requests"),
        "recipient_gone": error(422, "invalid_recipient"),
        "content_rejected": error(400, "content_too_large"),
        "unavailable": error(503, "service_unavailable"),
        "error_after_accept": error(504, "request_timeout"),
    }

    async def reply(self, request: web.BaseRequest, path: str) -> Answer:
        key, message_id = request.headers.get("X-API-KEY"), request.headers.get("X-Request-Id", "")
        if path == "/api/v1/users/invite":
            body = json.loads(await request.read())
            return await self.one(body["account_id"], profile(body["provider_id"]), "note", body, message_id, key)
        if path == "/api/v1/chats":
            form = await request.post()
            kind = "inmail" if form.get("linkedin[inmail]") == "true" else "text"
            return await self.one(
                str(form["account_id"]), profile(str(form["attendees_ids"])), kind, form, message_id, key
            )
        if path == "/api/v1/emails":
            form = await request.post()
            to = json.loads(str(form["to"]))[0]["identifier"]
            return await self.one(str(form["account_id"]), to, "email", form, message_id, key)
        if path.startswith("/api/v1/users/"):
            return self.member(path.rpartition("/")[2])
        return await self.account(path.rpartition("/")[2], key)

    async def one(self, account: str, to: str, kind: str, form: Any, message_id: str, key: str | None) -> Answer:
        text = str(form.get("text") or form.get("message") or form.get("body") or "")
        answer = await self.deliver(account, to, kind, text, None, message_id, key)
        if answer.status != 201:
            return answer
        ident = answer.body["id"]
        return Answer(
            201,
            {
                "text": {"object": "ChatStarted", "chat_id": "c1", "message_id": ident},
                "inmail": {"object": "ChatStarted", "chat_id": "c1", "message_id": ident},
                "note": {"object": "UserInvitationSent", "invitation_id": ident},
                "email": {"object": "EmailSent", "tracking_id": ident, "provider_id": "p1"},
            }[kind],
        )

    def member(self, name: str) -> Answer:
        if name.startswith("nobody"):
            raise Malformed(404, {"status": 404, "type": "errors/resource_not_found", "title": "not found"})
        return Answer(200, {"object": "UserProfile", "provider_id": MEMBER + name, "public_identifier": name})

    async def account(self, name: str, key: str | None) -> Answer:
        answer = await self.provider.status(name, key)
        if answer.status != 200:
            return self.refused(answer)
        return Answer(200, {"object": "Account", "name": "Ann Lee", "sources": [{"id": "s", "status": "OK"}]})

    def accepted(self, provider_id: str, to: str) -> Answer:
        return Answer(201, {"id": provider_id})

    def incoming(self, line: Line, text: str, hidden: str, key: str) -> Hooked:
        """`hidden`: only the member's id is named, which is valid for one account; else the profile too."""
        return self.hooked(line, "message_received", {"message": text}, hidden, key)

    def reaction(self, line: Line, emoji: str, key: str) -> Hooked:
        return self.hooked(line, "message_reaction", {"reaction": emoji}, "", key)

    def hooked(self, line: Line, event: str, said: dict[str, str], hidden: str, key: str) -> Hooked:
        name = line["to"].rpartition("/")[2]
        sender = {"attendee_provider_id": MEMBER + name, "attendee_name": "Ana"}
        sender |= {} if hidden else {"attendee_public_identifier": name}
        told = {"event": event, "account_id": line["account"], "account_info": {"user_id": "me"}, "sender": sender}
        told |= {"chat_id": "c1", "message_id": f"in-{event}-{line['provider_id']}", **said}
        return Hooked({"X-Crier-Token": key}, json.dumps(told).encode())


def profile(member: str) -> str:
    return "linkedin.com/in/" + member.removeprefix(MEMBER)


DIALECT = Unipile
