"""`manage.py account_check`: does an account work? Signs in at its provider, and sends a test message when asked to."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from accounts.addresses import AddressError, guess_kind, normalise
from accounts.channels.base import AccountConfig, CheckFailed
from accounts.channels.registry import ChannelUnavailable, UnknownChannel, transport_for
from accounts.crypto import CredentialError
from accounts.models import Account
from fanout.management import lookup
from fanout.management.base import BadInput, CrierCommand, NotDone
from fanout.management.following import POLL_SECONDS, step
from fanout.models import Run, RunTarget
from fanout.ops import diagnosis
from fanout.runs import self_test
from fanout.runs.why import why_run
from reminders.reach import reaches

SIGN_IN_SECONDS = 30.0
SEND_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Finding:
    ok: bool
    detail: str
    kind: str = ""


class Command(CrierCommand):
    help = (
        "Sign in with an account and show the provider's answer; with --send-to, also send a test message. It goes "
        "through the account's lane, within its pace and caps."
    )
    example = "account_check Office --send-to me@example.com"

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("account", help="number or label")
        parser.add_argument("--send-to", metavar="ADDRESS", help="also send a test message to this address")
        parser.add_argument(
            "--timeout", type=float, default=SEND_SECONDS, metavar="SECONDS",
            help=f"how long to wait for the test message [{SEND_SECONDS:g}]",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        account = lookup.account(options["account"])
        address = checked_address(account, options["send_to"]) if options["send_to"] else ""
        finding = sign_in(account)
        if finding.ok and address:
            finding = self.send(account, address, finding.detail, options["timeout"])
        report = {
            "account": account.pk,
            "label": account.label,
            "channel": account.channel,
            "ok": finding.ok,
            "kind": finding.kind,
            "detail": finding.detail,
        }
        if not finding.ok:
            kind = f" ({finding.kind})" if finding.kind else ""
            raise NotDone(f"{account.label}: {finding.detail}{kind}", report)
        self.answer(report, f"{account.label}: {finding.detail}")

    def send(self, account: Account, address: str, who: str, timeout: float) -> Finding:
        drivers = diagnosis.drivers()
        if drivers.state == diagnosis.FAILED:
            return Finding(False, f"{who}; no test message was queued: {drivers.text}; run `manage.py doctor`")
        answer = self_test.send_account_test(account, address, timezone.now())
        if answer.run is None:
            return Finding(False, f"{who}; no test message was queued: {answer.text}")
        self.wait(answer.run, timeout)
        return judged(who, answer.run.targets.get())

    def wait(self, run: Run, timeout: float) -> None:
        progress = self.progress(run.total, f"run {run.pk}")
        ends = time.monotonic() + timeout
        while step(run, progress) and (run.pending or run.sending) and time.monotonic() < ends:
            time.sleep(POLL_SECONDS)
        progress.end()


def checked_address(account: Account, typed: str) -> str:
    try:
        kind = guess_kind(typed)
        address = normalise(kind, typed)
    except AddressError as error:
        raise BadInput(f"--send-to: {error}") from None
    if not reaches(account.channel, kind):
        raise BadInput(f"--send-to: {account} ({account.channel}) cannot reach {address}.")
    return address


# --- signing in -------------------------------------------------------------------------------------------


def sign_in(account: Account) -> Finding:
    try:
        return Finding(True, asyncio.run(introduction(config_of(account))))
    except CheckFailed as error:
        return Finding(False, error.detail, error.kind.value)
    except (UnknownChannel, ChannelUnavailable, CredentialError) as error:
        return Finding(False, str(error), "auth")
    except TimeoutError:
        return Finding(False, f"no answer within {SIGN_IN_SECONDS:g} s", "network")
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


async def introduction(config: AccountConfig) -> str:
    transport = transport_for(config)
    try:
        async with asyncio.timeout(SIGN_IN_SECONDS):
            return await transport.check()
    finally:
        await transport.close()


# --- the test message -------------------------------------------------------------------------------------


def judged(who: str, target: RunTarget) -> Finding:
    test = f"{who}; test message to {target.address}"
    if target.status == RunTarget.Status.SENT:
        return Finding(True, f"{test} accepted ({target.provider_id or 'no id'})")
    if target.status == RunTarget.Status.UNCONFIRMED:
        return Finding(False, f"{test} may have gone out: {target.error}", "unknown")
    if target.status in (RunTarget.Status.FAILED, RunTarget.Status.SKIPPED):
        return Finding(False, f"{test} refused: {target.error}", target.error_kind)
    # Not taken back: it may be on its way at this very moment.
    why = target.error or why_run(target.run, timezone.now()).text
    hint = f"it stays queued, and `manage.py cancel {target.run_id}` drops it"
    return Finding(False, f"{test} is still {target.status}: {why.rstrip('.')}; {hint}", target.error_kind)
