"""Read the environment. A wrong value is reported in one sentence that names the variable and its format."""

from __future__ import annotations

import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from io import StringIO
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import environ
import psycopg
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured
from psycopg.conninfo import conninfo_to_dict

from config.local import embedded
from config.local.embedded_files import layout
from config.problems import is_full, sentence

BASE_DIR = Path(__file__).resolve().parent.parent

# As a shell reads it, too: no space around the =.
LINE = re.compile(r"(?:export )?[A-Za-z_][A-Za-z_0-9]*=(?!\s+\S)")

# A password before the @ with one of these in it; a number before them is a port.
CUT_PASSWORD = re.compile(r"://[^:/?@]*:(?!\d*[/?])[^@]*[/?\[\]].*@")


def read_file(path: Path) -> None:
    """Read the variables of a .env file, except those that are set already. Errors show no line: most hold a secret."""
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except FileNotFoundError:
        return
    except UnicodeDecodeError:
        raise ImproperlyConfigured(f"{path} is not UTF-8 text: save it in that encoding.") from None
    except OSError as error:
        raise ImproperlyConfigured(f"{path} cannot be read: {error.strerror}.") from None
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.startswith("#") and not LINE.match(line):
            raise ImproperlyConfigured(
                f"Line {number} of {path} is not usable: write NAME=value from the start of the line, without spaces "
                "around the =, and # before a comment."
            )
    environ.Env.read_env(StringIO("\n".join(line for line in lines if line.strip())))


read_file(BASE_DIR / os.environ.get("CRIER_ENV_FILE", ".env"))


def _var_dir() -> Path:
    """Create and return the data directory, so that a bad path is reported before anything else needs it."""
    path = BASE_DIR / (os.environ.get("CRIER_VAR", "").strip() or "var")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise ImproperlyConfigured(no_var_dir(path, error)) from None
    return path


def no_var_dir(path: Path, error: Exception) -> str:
    if is_full(error):
        return sentence(error)
    reason = error.strerror if isinstance(error, OSError) else error
    return f"CRIER_VAR={str(path)!r} is not usable: it takes a directory that Crier may write to ({reason})."


VAR_DIR = _var_dir()


def in_var(name: str) -> str:
    """Return the path of something in the data directory as a person types it in the project's directory."""
    path = VAR_DIR / name
    return str(path.relative_to(BASE_DIR) if path.is_relative_to(BASE_DIR) else path)


def last_site() -> str:
    """Return the address of the web server that `manage.py up` started last; empty if it never did."""
    path = VAR_DIR / "site-url"
    return path.read_text().strip() if path.exists() else ""


T = TypeVar("T")

# In plain Python: manage.py itself does not run without them.
MAKE = {
    "SECRET_KEY": 'python3 -c "import secrets; print(secrets.token_urlsafe(64))" makes one.',
    "CREDENTIAL_KEYS": (
        'python3 -c "import base64, os; print(base64.urlsafe_b64encode(os.urandom(32)).decode())" makes one.'
    ),
}


def _read(name: str, default: T, parse: Callable[[str], T], takes: str) -> T:
    raw = os.environ.get(name)
    if raw is None or raw.strip() == "":
        return default
    try:
        return parse(raw.strip())
    except ValueError:
        raise ImproperlyConfigured(f"{name}={raw!r} is not usable: it takes {takes}.") from None


def _in_range(parse: Callable[[str], T], low: float, high: float) -> Callable[[str], T]:
    def checked(raw: str) -> T:
        value = parse(raw)
        if not low <= float(value) <= high:  # type: ignore[arg-type]
            raise ValueError(raw)
        return value

    return checked


def text(name: str, default: str = "") -> str:
    return os.environ.get(name, "").strip() or default


def words(name: str, default: list[str]) -> list[str]:
    return _read(name, default, lambda raw: [w.strip() for w in raw.split(",") if w.strip()], "words")


def flag(name: str, default: bool) -> bool:
    truth = {
        "1": True,
        "true": True,
        "yes": True,
        "on": True,
        "0": False,
        "false": False,
        "no": False,
        "off": False,
    }

    def parse(raw: str) -> bool:
        if raw.lower() not in truth:
            raise ValueError(raw)
        return truth[raw.lower()]

    return _read(name, default, parse, "yes or no (1/0, true/false, on/off)")


def integer(name: str, default: int, low: int = 0, high: int = 1_000_000) -> int:
    return _read(name, default, _in_range(int, low, high), f"a whole number from {low} to {high}")


def number(name: str, default: float, low: float = 0, high: float = 1_000_000) -> float:
    return _read(name, default, _in_range(float, low, high), f"a number from {low:g} to {high:g}")


def jitter(name: str) -> dict[str, float]:
    """Return a range of milliseconds such as 200-500; nothing if it is not set."""

    def parse(raw: str) -> dict[str, float]:
        low, high = (int(half) for half in raw.split("-"))
        if not 0 <= low <= high <= 60_000:
            raise ValueError(raw)
        return {"part_jitter_min_ms": low, "part_jitter_max_ms": high}

    return _read(name, {}, parse, "a range of milliseconds such as 200-500")


def in_order(values: Mapping[str, float], knobs: Mapping[str, Any], low: str, high: str) -> None:
    """Check two variables that are the ends of one range; an unset one has its default."""
    lowest, highest = (values.get(name, knobs[name].default) for name in (low, high))
    if lowest > highest:
        least, most = knobs[low].variable, knobs[high].variable
        raise ImproperlyConfigured(f"{least} ({lowest:g}) is above {most} ({highest:g}): set both.")


def choice(name: str, default: str, choices: tuple[str, ...]) -> str:
    """Return one of a few words, given in upper or lower case."""
    words = {word.lower(): word for word in choices}

    def parse(raw: str) -> str:
        if raw.lower() not in words:
            raise ValueError(raw)
        return words[raw.lower()]

    return _read(name, default, parse, f"one of {', '.join(choices)}")


def url(name: str, default: str = "", schemes: tuple[str, ...] = ("http", "https")) -> str:
    """Return an address without the slash at its end, to be followed by a path."""

    def parse(raw: str) -> str:
        parts = urlsplit(raw)
        # Reading the port checks it.
        if parts.scheme not in schemes or not parts.hostname or parts.port == 0 or parts.query or parts.fragment:
            raise ValueError(raw)
        return raw.rstrip("/")

    return _read(name, default, parse, f"an address such as {schemes[-1]}://crier.example.com")


def email_url(name: str, default: str) -> dict[str, Any]:
    """Return Django's mail settings from one URL. Errors leave the URL out, because it has a password in it."""
    raw = text(name, default)
    check_password(name, raw)
    try:
        mail: dict[str, Any] = environ.Env.email_url_config(raw)
    except (ImproperlyConfigured, ValueError):
        takes = "smtp://host:25 or smtp+tls://user:password@host:587"
        raise ImproperlyConfigured(f"{name} is not usable: it takes {takes}.") from None
    return mail


def check_password(name: str, raw: str) -> None:
    """Refuse a password whose characters would end it in the middle; what follows would be taken for a host."""
    if "#" in raw or CUT_PASSWORD.search(raw):
        raise ImproperlyConfigured(
            f"{name} is not usable: in its password, write %23 for #, %2F for /, %3F for ?, %5B for [ and %5D for ]."
        )


def networks(name: str, default: str) -> list[IPv4Network | IPv6Network]:
    """Return networks such as 10.0.0.0/8; "yes" means all of them and "no" none."""
    every: list[IPv4Network | IPv6Network] = [ip_network("0.0.0.0/0"), ip_network("::/0")]

    def parse(raw: str) -> list[IPv4Network | IPv6Network]:
        words: dict[str, list[IPv4Network | IPv6Network]] = {"yes": every, "no": []}
        return words[raw] if raw in words else [ip_network(word.strip()) for word in raw.split(",") if word.strip()]

    return _read(name, parse(default), parse, "yes, no, or networks such as 10.0.0.0/8,fd00::/8")


def is_set(name: str) -> bool:
    return bool(os.environ.get(name, "").strip())


def database_url() -> str:
    """Return the database's URL; without DATABASE_URL, start the embedded PostgreSQL."""
    url = text("DATABASE_URL")
    if url:
        if not url.startswith(("postgres://", "postgresql://")):
            raise ImproperlyConfigured(
                "DATABASE_URL must start with postgresql:// "
                "(PostgreSQL 14 or newer is the only database Crier runs on)."
            )
        check_password("DATABASE_URL", url)
        _check_port(url)
        return url
    if {"-h", "--help"}.intersection(sys.argv[1:]) or sys.argv[1:2] in (["help"], ["version"], ["--version"]):
        return embedded.url(layout(VAR_DIR))  # nothing will ask it
    try:
        return embedded.ensure_running(VAR_DIR)
    except embedded.EmbeddedError as error:
        raise ImproperlyConfigured(str(error)) from None
    except OSError as error:
        raise ImproperlyConfigured(no_var_dir(VAR_DIR, error)) from None


def _check_port(url: str) -> None:
    """Refuse ports that are not numbers; a URL may name several hosts, each with its port."""
    hosts = urlsplit(url).netloc.rpartition("@")[2].split(",")
    ports = [host.rpartition(":")[2] for host in hosts if ":" in host.rpartition("]")[2]]
    if any(port and not (port.isdecimal() and len(port) < 6 and int(port) <= 65535) for port in ports):
        # Without the URL: it carries a password.
        raise ImproperlyConfigured("DATABASE_URL has a port that is not a number from 0 to 65535.")


# A server that is cut off answers nothing, and TCP would wait for it for a quarter of an hour: keepalives count
# while an answer is awaited, the last one (milliseconds) while something sent is not acknowledged.
NOTICE_A_CUT: dict[str, Any] = {
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}


def database_settings(url: str, lock_seconds: float, idle_seconds: float) -> dict[str, Any]:
    """Return the URL as Django's database settings. libpq's own parser reads it, so it may name several hosts. Every
    session that is opened with them has the limits; options in the URL go before them."""
    try:
        given: dict[str, Any] = conninfo_to_dict(url)
    except (psycopg.Error, UnicodeDecodeError):
        # Without libpq's words: they may quote the password.
        raise ImproperlyConfigured(
            "DATABASE_URL is not usable: write postgresql://user:password@host:5432/name, with %25 for % in the "
            "password. Several hosts are separated by commas."
        ) from None
    if "," in str(given.get("host", "")):
        # One of them is a standby, which would accept the connection and refuse to write; one may be unreachable.
        given = {"target_session_attrs": "read-write", "connect_timeout": "3"} | given
    limits = {"lock_timeout": lock_seconds, "idle_in_transaction_session_timeout": idle_seconds}
    options = " ".join(f"-c {name}={seconds * 1000:.0f}" for name, seconds in limits.items())
    given["options"] = f"{options} {given.get('options', '')}".strip()
    given = NOTICE_A_CUT | given
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    return {key: given.pop(word, "") for key, word in names.items()} | {"OPTIONS": given}


def secret(name: str, file_name: str, generate: Callable[[], str]) -> str:
    """Return a secret from the environment. With the embedded database it is generated once and kept in var/."""
    value = text(name)
    if value:
        return value
    if is_set("DATABASE_URL"):
        raise ImproperlyConfigured(f"{name} is not set. With DATABASE_URL you choose it yourself: {MAKE[name]}")
    try:
        return kept(VAR_DIR / file_name, generate)
    except OSError as error:
        raise ImproperlyConfigured(no_var_dir(VAR_DIR, error)) from None


def kept(path: Path, generate: Callable[[], str]) -> str:
    """Return the content of the file, generated by the first call."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        # O_EXCL: of two processes that start at once, one writes and the other reads.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read_when_written(path)
    with os.fdopen(handle, "w") as file:
        file.write(generate())
    return path.read_text().strip()


def _read_when_written(path: Path) -> str:
    for _ in range(50):
        value = path.read_text().strip()
        if value:
            return value
        time.sleep(0.02)
    raise ImproperlyConfigured(f"{path.name} in var/ is empty: delete it and start again.")


def new_secret_key() -> str:
    return secrets.token_urlsafe(64)


def credential_keys(name: str) -> list[str]:
    """Return the keys. The first encrypts, all of them decrypt: see `manage.py rotate_keys`."""
    raw = secret(name, "credential_keys", lambda: Fernet.generate_key().decode())
    keys = [key.strip() for key in raw.split(",")]
    for number, key in enumerate(keys, start=1):
        try:
            Fernet(key)
        except ValueError:
            raise ImproperlyConfigured(
                f"Key {number} in {name} is not 32 bytes in URL-safe base64. {MAKE[name]} "
                "Keep the old ones behind it, after a comma."
            ) from None
    return keys


def sandbox_url() -> str:
    """Return the address at which this checkout's sandbox provider listens, or listened last."""
    try:
        port = int((VAR_DIR / "sandbox" / "port").read_text())
    except (OSError, ValueError):
        port = 8765
    return f"http://127.0.0.1:{port}"
