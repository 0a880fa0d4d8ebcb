"""The bridge as a process: one event loop, threads enough for its clients, locks, feed and API."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
from aiohttp import web
from django.db import connection

from accounts.channels.whatsapp import wire
from accounts.channels.whatsapp.bridge import library
from accounts.channels.whatsapp.bridge.api import Api
from accounts.channels.whatsapp.bridge.bridge import Bridge
from accounts.channels.whatsapp.bridge.library import Limits
from accounts.channels.whatsapp.bridge.scripted import ScriptedWhatsApp
from accounts.channels.whatsapp.channel import CHANNEL
from fanout.bridge.feed import DatabaseFeed
from fanout.bridge.shard import LockShard, LocksLost
from fanout.database import conninfo
from fanout.rules.liveness import BRIDGE_BEATS_EVERY

log = logging.getLogger("crier.bridge")

#: Every connected client occupies a thread for as long as it lives, and each call another for as long as it takes; with
#: asyncio's own executor everything stands still at the sixth client.
THREADS_PER_CLIENT = 4
SPARE_THREADS = 16
RECONNECT_SECONDS = 2.0
PING_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Options:
    host: str = "127.0.0.1"
    port: int = 0
    #: Where bridges and drivers on other machines reach this one; empty: nobody else does.
    public_url: str = ""
    most: int = 200
    #: Folder of a script; None: the real WhatsApp.
    script: Path | None = None


def run(options: Options, beat: Callable[[], None]) -> None:
    """Until SIGTERM; `beat` is called for as long as the event loop goes round. Ends the process itself: a client that
    does not stop must not keep it alive."""
    # Keys in the sessions are as secret as credentials.
    os.umask(0o077)
    # It logs what passes through it.
    for name in ("whatsmeow", "Whatsmeow", "neonize"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # neonize prints to stdout.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    asyncio.run(serve(options, beat))


async def beat_on(beat: Callable[[], None]) -> None:
    """Not from a thread: a loop that stands still must not beat."""
    while True:
        beat()
        await asyncio.sleep(BRIDGE_BEATS_EVERY.total_seconds())


async def serve(options: Options, beat: Callable[[], None]) -> None:
    executor = ThreadPoolExecutor(options.most * THREADS_PER_CLIENT + SPARE_THREADS, "client")
    asyncio.get_running_loop().set_default_executor(executor)
    stop = stop_signal()
    beating = asyncio.create_task(beat_on(beat))
    provider = ScriptedWhatsApp(options.script) if options.script else None
    client_library = provider.library if provider else library.neonize()
    limits = Limits(**provider.script.of("0")["limits"]) if provider else Limits()
    feed = DatabaseFeed()
    shard = LockShard(conninfo(connection.settings_dict), CHANNEL.key)
    bridge = Bridge(client_library, wire.folder(), shard, feed, limits, options.most)
    app = Api(bridge, wire.token()).application()
    if provider:
        provider.add_routes(app)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, options.host, options.port)
    await site.start()
    address = options.public_url or f"http://{options.host}:{runner.addresses[0][1]}"
    shard.address = address
    try:
        await until_stopped(bridge, shard, stop)
    finally:
        withdraw(address)
        beating.cancel()
        await runner.cleanup()
        with suppress(Exception):
            await feed.close()
    sys.stderr.flush()
    # Threads inside the Go library may never end, and Python would wait for them.
    os._exit(0)


def stop_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def until_stopped(bridge: Bridge, shard: LockShard, stop: asyncio.Event) -> None:
    """Work for as long as the locks are ours; without them, leave everything and take locks anew."""
    while not stop.is_set():
        try:
            await shard.open()
        except (OSError, psycopg.Error) as error:
            log.warning("no session with PostgreSQL: %s", error)
        else:
            # Not earlier: whoever reads the address may ask at once.
            announce(shard.address)
            await work(bridge, shard, stop)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), RECONNECT_SECONDS)


async def work(bridge: Bridge, shard: LockShard, stop: asyncio.Event) -> None:
    working = asyncio.create_task(bridge.run())
    try:
        while not stop.is_set():
            await shard.accounts()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), PING_SECONDS)
            if working.done():
                working.result()
    except LocksLost as lost:
        log.error("the locks are lost, so every session is ended until they are back: %s", lost)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await shard.close()
        await bridge.abandon()


def announce(address: str) -> None:
    """Renamed into place: who sees the file sees the whole address."""
    folder = wire.folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = folder / f"bridge.url.{os.getpid()}"
    part.write_text(address)
    part.replace(folder / "bridge.url")
    sys.stderr.write(f"WhatsApp bridge on {address}\n")
    sys.stderr.flush()


def withdraw(address: str) -> None:
    path = wire.folder() / "bridge.url"
    with suppress(OSError):
        if path.read_text() == address:
            path.unlink()
