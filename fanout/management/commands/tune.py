"""`manage.py tune`: show an account's knobs and their sources, and set them."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.db import transaction
from django.utils import timezone

from accounts import access
from accounts.models import Account
from accounts.presets import PRESETS
from config import env
from fanout.lanes import accounts, tuning
from fanout.lanes.tuning import advise, recent_activity
from fanout.management.base import BadInput, CrierCommand, NotDone, add_actor_option, find_account, find_actor, table


class Command(CrierCommand):
    help = "Show every knob with its value and source; --set changes the knobs of an account, also while it is sending."
    example = 'tune "Events line" --set max_send_per_minute=30 --set daily_limit_message=500'

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("account", nargs="?", help="number or label; default: show the site's values")
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            dest="pairs",
            help="set a knob; an empty value restores the environment's value, 'none' removes a daily cap",
        )
        parser.add_argument(
            "--preset",
            choices=sorted(PRESETS),
            metavar="NAME",
            help="apply a set of values: " + "; ".join(f"{p.name} ({p.label})" for p in PRESETS.values()),
        )
        parser.add_argument("--advise", action="store_true", help="suggest values, from recent activity")
        add_actor_option(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        account = find_account(options["account"]) if options["account"] else None
        if account is None and (options["pairs"] or options["preset"] or options["advise"]):
            raise BadInput(
                "Name an account: --set, --preset and --advise work on one account. Site-wide values are set in the "
                "environment."
            )
        changed = self.change(account, options) if account else {}
        advice = _advice(account) if account and options["advise"] else []
        self.show(account, changed, advice)

    def change(self, account: Account, options: dict[str, Any]) -> dict[str, Any]:
        values, preset = tuning.parse(options["pairs"]), PRESETS.get(options["preset"])
        changed: dict[str, Any] = {}
        actor, now = find_actor(options["actor"]), timezone.now()
        try:
            with transaction.atomic():
                if preset:
                    changed |= accounts.apply_preset(account, preset, actor, now)
                if values:
                    changed |= accounts.tune(account, values, actor, now)
        except access.NotYours as refusal:
            raise NotDone(str(refusal)) from None
        account.refresh_from_db()
        return changed

    def show(self, account: Account | None, changed: dict[str, Any], advice: list[dict[str, Any]]) -> None:
        values = tuning.effective(account, timezone.now()) + ([] if account else site_values())
        data = {
            "account": account.pk if account else None,
            "label": account.label if account else None,
            "knobs": {v.name: {"value": v.value, "source": v.source, "meaning": v.meaning} for v in values},
            "changed": changed,
            "advice": advice,
        }
        rows = [(v.name, v.value, v.source, v.meaning) for v in values]
        self.answer(data, *table(("knob", "value", "source", "meaning"), rows), *map(_line, advice))


def site_values() -> list[tuning.Value]:
    return [
        tuning.Value(name, getattr(settings, variable), "environment" if env.is_set(variable) else "default", meaning)
        for name, (variable, meaning) in tuning.SITE_KNOBS.items()
    ]


def _advice(account: Account) -> list[dict[str, Any]]:
    now = timezone.now()
    knob = {name: setting.value for name, setting in account.settings().items()}
    proposals = advise(
        knob["max_send_per_minute"],
        knob["send_burst"],
        knob["error_rate_slowdown"],
        recent_activity(account, now),
        now,
    )
    return [{"knob": a.knob, "now": a.now, "proposed": a.proposed, "reason": a.reason} for a in proposals]


def _line(advice: dict[str, Any]) -> str:
    if advice["proposed"] is None:
        return f"Keep {advice['knob']} at {advice['now']:g}: {advice['reason']}"
    return f"Try --set {advice['knob']}={advice['proposed']:g} (now {advice['now']:g}): {advice['reason']}"
