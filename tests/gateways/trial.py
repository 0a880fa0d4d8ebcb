"""`make demo CHANNEL=waha`: the demo with an account of a real channel, which talks to a scripted gateway of its own.

python -m tests.gateways.trial waha --port 8000
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120.0
LABEL = "Trial of "


class Trial(NamedTuple):
    """What an account of the channel needs, and whom it writes to where its gateway lists no groups."""

    config: dict[str, Any]
    credentials: dict[str, Any]
    dialect: str
    kind: str = ""
    addresses: str = ""


TRIALS = {
    "waha": Trial({"session": "default"}, {"api_key": "trial"}, "waha"),
    "evolution": Trial({"instance": "trial"}, {"api_key": "trial"}, "evolution"),
    "cloud": Trial({"phone_number_id": "10200"}, {"access_token": "trial"}, "cloud"),
    "wassenger": Trial({"device": "5f3a0c1d2e4b6a7890abcdef"}, {"token": "trial"}, "wassenger"),
    "unipile": Trial({"account_id": "trial"}, {"api_key": "trial"}, "unipile", "profile", "linkedin.com/in/guest-{n}"),
    "unipile_mail": Trial({"account_id": "trial"}, {"api_key": "trial"}, "unipile", "mailbox", "guest{n}@example.org"),
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("channel", choices=sorted(TRIALS))
    parser.add_argument("--port", type=int, default=8000, help="of Crier's web server")
    options = parser.parse_args(argv)
    # `kill` and a supervisor send it. Without this, Python would end at once and leave both processes behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    gateway, url = start_gateway(options.channel)
    crier = None
    try:
        crier = subprocess.Popen([sys.executable, "manage.py", "up", "--demo", "--port", str(options.port)], cwd=ROOT)
        wait_for(crier, f"http://127.0.0.1:{options.port}/readyz")
        sys.stdout.write(f"{send_through(options.channel, url)}\nWhat the gateway got: {url}/\n")
        sys.stdout.flush()
        return crier.wait()
    except KeyboardInterrupt:
        return crier.wait() if crier else 1
    finally:
        if crier is not None and crier.poll() is None:
            crier.terminate()
            crier.wait()
        gateway.terminate()
        gateway.wait()


def start_gateway(channel: str) -> tuple[subprocess.Popen[bytes], str]:
    """On the port it had last time, so that the account still finds it."""
    folder = ROOT / "var" / "trial" / channel
    folder.mkdir(parents=True, exist_ok=True)
    port_file = folder / "port"
    port = port_file.read_text() if port_file.exists() else "0"
    port_file.unlink(missing_ok=True)
    words = ["--port", port, "--port-file", str(port_file), "--book", str(folder / "book.jsonl")]
    module = [sys.executable, "-m", "tests.gateways.server", TRIALS[channel].dialect]
    process = subprocess.Popen([*module, *words], cwd=ROOT, start_new_session=True)
    while not port_file.exists():
        if process.poll() is not None:
            sys.exit("The scripted gateway did not start.")
        time.sleep(0.05)
    return process, f"http://127.0.0.1:{port_file.read_text()}"


def wait_for(crier: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if crier.poll() is not None:
            sys.exit(crier.returncode)
        try:
            urlopen(url, timeout=2).close()
        except (URLError, OSError):
            time.sleep(0.5)
        else:
            return
    sys.exit("Crier did not start.")


def send_through(channel: str, url: str) -> str:
    """An account of the channel, its groups as recipients, and a run to them; says what came of it."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django

    django.setup()
    from tests.gateways.trial_data import fire

    return fire(channel, url)


if __name__ == "__main__":
    sys.exit(main())
