"""`manage.py account_check`: sign in at an account's provider, and send a test message when asked to."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from accounts import message_templates
from accounts.addresses import AddressError, guess_kind, normalise
from accounts.channels.registry import channel
from accounts.models import Account
from accounts.signin import SignIn, sign_in
from fanout.lanes import accounts
from fanout.management.base import POLL_SECONDS, BadInput, CrierCommand, NotDone, find_account, show_step
from fanout.models import Run, RunTarget
from fanout.ops import diagnosis
from fanout.runs import self_test
from fanout.runs.why import why_run

SEND_SECONDS = 60.0


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
            "--timeout",
            type=float,
            default=SEND_SECONDS,
            metavar="SECONDS",
            help=f"how long to wait for the test message [{SEND_SECONDS:g}]",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        account = find_account(options["account"])
        address = checked_address(account, options["send_to"]) if options["send_to"] else ""
        asked_at = timezone.now()
        result = asyncio.run(sign_in(account))
        accounts.note_test(account, result, None, asked_at)
        templates = ""
        if result.ok and channel(account.channel).lists_templates:
            templates = message_templates.refresh(account, timezone.now())
        if result.ok and address:
            result = self.send(account, address, result.text, options["timeout"])
        report = {
            "account": account.pk,
            "label": account.label,
            "channel": account.channel,
            "ok": result.ok,
            "kind": result.kind,
            "detail": result.text,
        } | ({"templates": templates} if templates else {})
        if not result.ok:
            kind = f" ({result.kind})" if result.kind else ""
            raise NotDone(f"{account.label}: {result.text}{kind}", report)
        self.answer(report, "; ".join(filter(None, [f"{account.label}: {result.text}", templates])))

    def send(self, account: Account, address: str, who: str, timeout: float) -> SignIn:
        drivers = diagnosis.drivers()
        if drivers.state == diagnosis.FAILED:
            return SignIn(False, f"{who}; no test message was queued: {drivers.text}; run `manage.py doctor`")
        answer = self_test.send_account_test(account, address, timezone.now())
        if answer.run is None:
            return SignIn(False, f"{who}; no test message was queued: {answer.text}")
        self.wait(answer.run, timeout)
        return judged(who, answer.run.targets.get())

    def wait(self, run: Run, timeout: float) -> None:
        progress = self.progress(run.total, f"run {run.pk}")
        ends = time.monotonic() + timeout
        while show_step(run, progress) and (run.pending or run.sending) and time.monotonic() < ends:
            time.sleep(POLL_SECONDS)
        progress.end()


def checked_address(account: Account, typed: str) -> str:
    try:
        kind = guess_kind(typed)
        address = normalise(kind, typed)
    except AddressError as error:
        raise BadInput(f"--send-to: {error}") from None
    if not channel(account.channel).reaches(kind):
        raise BadInput(f"--send-to: {account} ({account.channel}) cannot reach {address}.")
    return address


# --- the test message -------------------------------------------------------------------------------------


def judged(who: str, target: RunTarget) -> SignIn:
    test = f"{who}; test message to {target.address}"
    if target.status == RunTarget.Status.SENT:
        return SignIn(True, f"{test} accepted ({target.provider_id or 'no id'})")
    if target.status == RunTarget.Status.UNCONFIRMED:
        return SignIn(False, f"{test} may have gone out: {target.error}", "unknown")
    if target.status in (RunTarget.Status.FAILED, RunTarget.Status.SKIPPED):
        return SignIn(False, f"{test} refused: {target.error}", target.error_kind)
    # Not canceled: it may be being sent at this moment.
    why = target.error or why_run(target.run, timezone.now()).text
    hint = f"it stays queued, and `manage.py cancel {target.run_id}` drops it"
    return SignIn(False, f"{test} is still {target.status}: {why.rstrip('.')}; {hint}", target.error_kind)
