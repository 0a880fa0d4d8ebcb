"""Does an account work? Signs in at its provider, and sends a test message when asked to."""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import dataclass
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.addresses import AddressError, guess_kind, normalise
from accounts.crypto import CredentialError
from accounts.models import Account
from accounts.transports.base import AccountConfig, CheckFailed, NotSent, Outcome, Part, Sent
from accounts.transports.registry import ChannelUnavailable, UnknownChannel, transport_for

FAILED, BAD_INPUT = 1, 2
TIMEOUT = 30.0
TEXT = "This is a test message from Crier. The account works."


@dataclass(frozen=True, slots=True)
class Finding:
    ok: bool
    detail: str
    kind: str = ""


class Command(BaseCommand):
    help = "Sign in with an account and say what its provider answers; with --send-to, send a test message."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("account", metavar="LABEL_OR_ID")
        parser.add_argument("--send-to", metavar="ADDRESS", help="also send a test message there")
        parser.add_argument("--json", action="store_true", help="one JSON object instead of a sentence")

    def handle(self, *args: Any, **options: Any) -> None:
        account = find(options["account"])
        address = checked_address(options["send_to"]) if options["send_to"] else ""
        finding = examine(account, address)
        if options["json"]:
            self.stdout.write(json.dumps(report(account, finding), ensure_ascii=False))
        elif finding.ok:
            self.stdout.write(f"{account.label}: {finding.detail}")
        if not finding.ok:
            kind = f" ({finding.kind})" if finding.kind else ""
            raise CommandError(f"{account.label}: {finding.detail}{kind}", returncode=FAILED)


def report(account: Account, finding: Finding) -> dict[str, Any]:
    return {
        "account": account.pk,
        "label": account.label,
        "channel": account.channel,
        "ok": finding.ok,
        "kind": finding.kind,
        "detail": finding.detail,
    }


def find(given: str) -> Account:
    """By id or by label. A label may be used by several owners: then only an id will do."""
    found = list(Account.objects.filter(label=given)[:20])
    if not found and given.isdecimal() and len(given) < 19:
        found = list(Account.objects.filter(pk=int(given)))
    if not found:
        raise CommandError(f"There is no account “{given}”.", returncode=BAD_INPUT)
    if len(found) > 1:
        ids = ", ".join(str(account.pk) for account in found)
        raise CommandError(f"Several accounts are called “{given}”: give one of the ids {ids}.", returncode=BAD_INPUT)
    return found[0]


def checked_address(given: str) -> str:
    try:
        return normalise(guess_kind(given), given)
    except AddressError as error:
        raise CommandError(f"--send-to: {error}", returncode=BAD_INPUT) from None


def examine(account: Account, address: str) -> Finding:
    try:
        return asyncio.run(converse(config_of(account), address))
    except CheckFailed as error:
        return Finding(False, error.detail, error.kind.value)
    except (UnknownChannel, ChannelUnavailable, CredentialError) as error:
        return Finding(False, str(error), "auth")
    except TimeoutError:
        return Finding(False, f"no answer within {TIMEOUT:g} s", "network")
    except Exception as error:  # a transport's bug; its words may hold what must not be shown
        return Finding(False, f"the transport failed with {type(error).__name__}", "unknown")


def config_of(account: Account) -> AccountConfig:
    return AccountConfig(
        id=account.pk,
        channel=account.channel,
        label=account.label,
        address=account.address,
        config=account.config,
        credentials=account.credentials,
    )


async def converse(config: AccountConfig, address: str) -> Finding:
    transport = transport_for(config)
    try:
        async with asyncio.timeout(TIMEOUT):
            who = await transport.check()
            if not address:
                return Finding(True, who)
            part = Part(key="test:0", index=0, kind="text", text=TEXT, subject="Test message from Crier")
            return judged(who, await transport.send(address, part, f"crier-test-{uuid.uuid4().hex}"), address)
    finally:
        await transport.close()


def judged(who: str, outcome: Outcome, address: str) -> Finding:
    if isinstance(outcome, Sent):
        return Finding(True, f"{who}; test message to {address} accepted ({outcome.provider_id or 'no id'})")
    if isinstance(outcome, NotSent):
        return Finding(False, f"{who}; test message to {address} refused: {outcome.detail}", outcome.kind.value)
    return Finding(False, f"{who}; test message to {address} may have gone out: {outcome.detail}", "unknown")
