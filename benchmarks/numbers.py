"""How many paired WhatsApp numbers one bridge carries: memory, CPU, and the time to reconnect after a kill -9.

    python -m benchmarks.numbers [--numbers 200] [--minutes 1] [--json FILE]

A real bridge process with PostgreSQL, journals and HTTP, whose numbers talk to a scripted WhatsApp in the same process:
what neonize and Go need for each number (about 4 MB and a little CPU, measured with 20) comes on top. Every number is
in 20 groups and sends a message every three seconds. Prints the memory and the CPU of the bridge at rest and while all
numbers send, and when half and all of the numbers were connected again after the kill.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import django
import psutil

from benchmarks.reporting import report

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

GROUPS = 20
EVERY = 3.0  # seconds between two messages of a number
REST = 15.0
PATIENCE = 300.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numbers", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--json", type=Path, help="append the figures to this file, one line each")
    options = parser.parse_args()
    django.setup()
    from benchmarks.scratch import scratch_database

    with scratch_database(), tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), options.numbers, options.minutes, options.json)


def measure(folder: Path, numbers: int, minutes: float, file: Path | None) -> None:
    from django.conf import settings

    from tests.whatsapp.running import Process, write_script

    settings.VAR_DIR = folder / "var"
    write_script(folder, groups=GROUPS, limits={})
    bridge = Process(folder)
    bridge.child.command += ["--most", str(numbers)]
    with bridge:
        at = time.time()
        accounts = paired_accounts(bridge, numbers)
        first = connected(bridge, numbers, at)
        report({"numbers": numbers, "first connection": first} | resources(bridge, REST), file)
        sent = asyncio.run(send_for(accounts, minutes * 60, lambda: resources(bridge, minutes * 60 - 1)))
        report({"numbers": numbers, "sending": sent} | sent.pop("bridge"), file)
        bridge.kill()
        bridge.book.path.unlink()  # the scripted server would read all of it at each login
        at = time.time()
        bridge.start()
        report({"numbers": numbers, "after a kill": connected(bridge, numbers, at)}, file)


def paired_accounts(bridge: Any, numbers: int) -> list[int]:
    from django.contrib.auth import get_user_model

    from accounts.models import Account

    user = get_user_model().objects.create_user("benchmark")
    made = Account.objects.bulk_create(
        Account(owner=user, label=f"number {n}", channel="whatsapp", status="active") for n in range(numbers)
    )
    accounts = [account.pk for account in made]
    bridge.pair_all(*accounts)
    return accounts


def connected(bridge: Any, numbers: int, since: float) -> dict[str, float]:
    """Wait until all are connected; return the seconds until half and all had logged in."""
    ends = time.monotonic() + PATIENCE
    while True:
        logins = sorted(line["t"] - since for line in bridge.book.lines("login") if line["t"] > since)
        if len(logins) >= numbers:
            return {"half": round(logins[numbers // 2 - 1], 1), "all": round(logins[numbers - 1], 1)}
        if time.monotonic() > ends:
            raise SystemExit(f"only {len(logins)} of {numbers} numbers connected")
        time.sleep(0.2)


def resources(bridge: Any, seconds: float) -> dict[str, float]:
    process = psutil.Process(bridge.child.pid)
    before = process.cpu_times()
    time.sleep(max(seconds, 1.0))
    after = process.cpu_times()
    share = (after.user + after.system - before.user - before.system) / max(seconds, 1.0)
    memory = process.memory_info().rss / 1e6
    return {"memory MB": round(memory), "CPU %": round(100 * share, 1), "threads": process.num_threads()}


async def send_for(accounts: list[int], seconds: float, watch: Any) -> dict[str, Any]:
    """Send from all numbers; return how many messages went out, how long the slowest took, and what `watch` saw."""
    from accounts.channels.base import AccountConfig, Part, Sent
    from accounts.channels.whatsapp.bridge.scripted import group_address
    from accounts.channels.whatsapp.transport import WhatsAppTransport

    text, took, ends = Part(key="1:0", index=0, kind="text", text="At 8"), [], time.monotonic() + seconds

    async def drive(place: int, account: int) -> None:
        transport = WhatsAppTransport(AccountConfig(account, "whatsapp", "number", "", {}))
        await asyncio.sleep(EVERY * place / len(accounts))
        n = 0
        while time.monotonic() < ends:
            began = time.monotonic()
            outcome = await transport.send(group_address(str(account), n % GROUPS), text, f"crier-{account}{n:04d}-0")
            if isinstance(outcome, Sent):
                took.append(time.monotonic() - began)
            n += 1
            await asyncio.sleep(max(0.0, began + EVERY - time.monotonic()))
        await transport.close()

    watching = asyncio.create_task(asyncio.to_thread(watch))
    await asyncio.gather(*(drive(place, account) for place, account in enumerate(accounts)))
    took.sort()
    figures = {"messages": len(took), "median s": round(took[len(took) // 2], 3), "longest s": round(took[-1], 2)}
    return figures | {"bridge": await watching}


if __name__ == "__main__":
    main()
