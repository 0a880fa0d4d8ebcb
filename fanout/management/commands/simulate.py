"""`manage.py simulate`: the real lane on a virtual clock."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandParser
from django.db import connection
from django.utils import timezone

from accounts import knobs
from config.problems import is_empty
from fanout.database import conninfo
from fanout.engine.simulation import Scenario, simulate, summary
from fanout.lanes import tuning
from fanout.management.base import BadInput, CrierCommand, table
from fanout.management.options import parse_date_and_time, parse_timezone, parse_window
from reminders.models import ReminderMessage

COMPARED = ("rate", "status", "sent", "pending", "virtual_minutes", "peak_60s", "bound_by")
MOST_GROUPS = 1_000_000


class Command(CrierCommand):
    help = "Simulate a run on a virtual clock, with the real lane code and SQL. Nothing is sent or stored."
    example = (
        "simulate --groups 1000 --parts text,image --image-mb 5 --rate 40 --window 6-18 --at 09:00 "
        "--tz Asia/Kuala_Lumpur"
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--groups", type=int, default=1000, help="number of recipients")
        parser.add_argument("--parts", default="text", help="kinds of the parts in their order, such as text,image")
        parser.add_argument("--image-mb", type=float, default=5, help="size of each file in MB")
        parser.add_argument("--rate", type=int, help="messages per minute")
        parser.add_argument("--burst", type=int, help="messages that may be sent without delay after a pause")
        parser.add_argument("--window", default="6-18", help="delivery window: opening and closing hour")
        parser.add_argument("--at", default="09:00", help="time of the firing: today's, or an ISO date and time")
        parser.add_argument("--tz", default="UTC", help="timezone of window and --at")
        parser.add_argument("--latency-ms", default="80-250", help="response time of the provider: a number or a range")
        parser.add_argument("--error-rate", type=float, default=0.0, help="share of messages that fail, 0 to 1")
        parser.add_argument("--daily-cap", type=int, help="messages per day")
        parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same run")
        parser.add_argument(
            "--set", action="append", default=[], metavar="KEY=VALUE", dest="pairs", help="set any knob"
        )
        parser.add_argument("--compare", metavar="RATES", help="compare several rates, such as 20,40,60")

    def handle(self, *args: Any, **options: Any) -> None:
        scenario = scenario_of(options)
        if settings.EMBEDDED_DATABASE and is_empty():
            # It copies the tables, which do not exist before the first `up`. A site's own database is not touched.
            self.stderr.write("Setting up the database …")
            call_command("migrate", interactive=False, verbosity=0)
        if options["compare"]:
            self.compare(scenario, whole_numbers(options["compare"], "--compare"))
        else:
            result = play(scenario)
            self.answer(result, *(f"{name.replace('_', ' '):16} {value}" for name, value in result.items()))

    def compare(self, scenario: Scenario, rates: list[int]) -> None:
        progress = self.progress(len(rates), "simulating")
        results = []
        for done, rate in enumerate(rates):
            progress.show(done, f"{rate}/min")
            at_rate = replace(scenario, knobs=scenario.knobs | {"max_send_per_minute": rate})
            results.append({"rate": rate, **play(at_rate)})
        progress.show(len(rates))
        progress.end()
        self.answer({"compare": results}, *table(COMPARED, [[result[name] for name in COMPARED] for result in results]))


def play(scenario: Scenario) -> dict[str, Any]:
    return summary(simulate(conninfo(connection.settings_dict), scenario), scenario)


# --- reading the options ----------------------------------------------------------------------------------


def scenario_of(options: dict[str, Any]) -> Scenario:
    parse_timezone(options["tz"])
    if not 1 <= options["groups"] <= MOST_GROUPS:
        raise BadInput(f"--groups takes a number from 1 to {MOST_GROUPS}.")
    if not 0 <= options["error_rate"] <= 1:
        raise BadInput("--error-rate takes a share from 0 to 1.")
    if not 0 < options["image_mb"] <= 2000:
        raise BadInput("--image-mb takes a number above 0, up to 2000.")
    if options["daily_cap"] is not None and options["daily_cap"] < 0:
        raise BadInput("--daily-cap takes a whole number, 0 or more.")
    return Scenario(
        groups=options["groups"],
        parts=parts_of(options["parts"]),
        image_mb=options["image_mb"],
        at=moment_of(options["at"], options["tz"]),
        timezone=options["tz"],
        window=parse_window(options["window"]),
        latency_ms=range_of(options["latency_ms"], "--latency-ms"),
        error_rate=options["error_rate"],
        daily_cap=options["daily_cap"],
        seed=options["seed"],
        knobs=knobs_of(options),
    )


def parts_of(raw: str) -> tuple[str, ...]:
    parts = tuple(word.strip() for word in raw.split(",") if word.strip())
    unknown = sorted(set(parts) - set(ReminderMessage.Kind.values))
    if unknown or not parts:
        raise BadInput(f"--parts takes some of {', '.join(ReminderMessage.Kind.values)}, not {raw!r}.")
    return parts


def moment_of(raw: str, tz: str) -> datetime:
    """Return the moment in UTC: adding seconds to a local time is an hour wrong on the day the clocks change."""
    zone = ZoneInfo(tz)
    if re.fullmatch(r"\d{1,2}:\d{2}", raw):
        raw = f"{timezone.now().astimezone(zone):%F} {raw:0>5}"
    moment = parse_date_and_time(raw, "a time such as 09:00 or 2026-03-01T09:00")
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)


def range_of(raw: str, option: str) -> tuple[float, float]:
    match = re.fullmatch(r"([\d.]+)(?:-([\d.]+))?", raw)
    try:
        low, high = float(match[1]), float(match[2] or match[1])  # type: ignore[index]
    except (TypeError, ValueError):
        raise BadInput(f"{option} takes a number or a range such as 80-250, not {raw!r}.") from None
    if low > high:
        raise BadInput(f"{option} takes the smaller number first, not {raw!r}.")
    return low, high


def whole_numbers(raw: str, option: str) -> list[int]:
    words = [word.strip() for word in raw.split(",") if word.strip()]
    if not words or not all(word.isdecimal() and len(word) < 10 for word in words):
        raise BadInput(f"{option} takes whole numbers such as 20,40,60, not {raw!r}.")
    return [int(word) for word in words]


def knobs_of(options: dict[str, Any]) -> dict[str, float]:
    pairs = list(options["pairs"])
    if options["rate"] is not None:
        pairs.append(f"max_send_per_minute={options['rate']}")
    if options["burst"] is not None:
        pairs.append(f"send_burst={options['burst']}")
    values = tuning.parse(pairs)
    foreign = values.keys() - knobs.KNOBS.keys()
    if foreign:
        raise BadInput(f"{', '.join(sorted(foreign))} cannot be set here: use --daily-cap.")
    return {name: value for name, value in values.items() if value is not None}
