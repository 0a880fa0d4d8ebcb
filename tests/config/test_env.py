"""The environment: every variable is explained, and every wrong value is one sentence."""

from __future__ import annotations

import json
import os
import re
import runpy
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from cryptography.fernet import Fernet
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from accounts.knobs import KNOBS
from config import env
from config.local.embedded_files import layout
from tests.crier_processes import bare_environment

ROOT = Path(__file__).resolve().parents[2]
READ = re.compile(r'env\.\w+\(\s*"([A-Z_]+)"|os\.environ\.get\("([A-Z_]+)"')
#: set by Crier itself or by the system, not by a site
INTERNAL = {"Q_CLUSTER_NAME", "DJANGO_SETTINGS_MODULE"}


def variables_read() -> Iterator[str]:
    for path in (ROOT / "config").glob("*.py"):
        for found in READ.finditer(path.read_text()):
            yield found.group(1) or found.group(2)
    for knob in KNOBS.values():
        yield knob.variable


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`manage.py` in a process of its own, against the server that the tests use."""
    known = {"SECRET_KEY": secrets.token_urlsafe(64), "CREDENTIAL_KEYS": Fernet.generate_key().decode()}
    world = bare_environment(**{"DATABASE_URL": settings.DATABASE_URL, **known, **variables})
    command = [sys.executable, "manage.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env=world, capture_output=True, text=True, timeout=180, check=False)


def settings_with(monkeypatch: pytest.MonkeyPatch, **variables: str) -> dict[str, Any]:
    """Return what the settings module defines in an environment with these variables."""
    known = {"SECRET_KEY": "x", "CREDENTIAL_KEYS": Fernet.generate_key().decode()}
    for name, value in ({"DATABASE_URL": settings.DATABASE_URL} | known | variables).items():
        monkeypatch.setenv(name, value)
    return runpy.run_path(str(ROOT / "config" / "settings.py"))


def test_every_variable_that_is_read_is_explained():
    explained = set(re.findall(r"^#([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    read = set(variables_read()) - INTERNAL
    assert len(read) > 30
    assert read - explained == set()
    assert explained - read == set()


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        pytest.param("BOT_MAX_SEND_PER_MINUTE", "many", "takes a whole number from 0 to 100000", id="no number"),
        pytest.param("BOT_SEND_BURST", "0", "takes a whole number from 1", id="below the range"),
        pytest.param("BOT_CIRCUIT_BREAKER", "20", "takes a number from 0 to 1", id="percent for a share"),
        pytest.param("BOT_PART_JITTER_MS", "500-200", "takes a range of milliseconds", id="range turned round"),
        pytest.param("DEBUG", "maybe", "takes yes or no", id="no flag"),
        pytest.param("LOG_LEVEL", "LOUD", "takes one of DEBUG, INFO", id="unknown word"),
        pytest.param("DATABASE_URL", "mysql://localhost/x", "must start with postgresql://", id="MySQL"),
        pytest.param("DATABASE_URL", "postgresql://localhost:no/x", "port that is not a number", id="port"),
        pytest.param("DATABASE_URL", "postgresql://a:5432,b:no/x", "port that is not a number", id="second port"),
        pytest.param("DATABASE_URL", "postgresql://u:50%den@127.0.0.1/x", "with %25 for %", id="% in a password"),
        pytest.param("DATABASE_URL", "postgresql://u:hid#den@127.0.0.1/x", "write %23 for #", id="# in a password"),
        pytest.param("DATABASE_URL", "postgresql://u:hid/den@127.0.0.1/x", "%2F for /", id="/ in a password"),
        pytest.param("DATABASE_URL", "postgresql://u:hid[den@127.0.0.1/x", "%5B for [", id="[ in a password"),
        pytest.param("EMAIL_URL", "smtp+tls://u:hid#den@mail.example.com:587", "write %23 for #", id="# in mail's"),
        pytest.param("EMAIL_URL", "pop3://host", "EMAIL_URL is not usable: it takes smtp://", id="mail scheme"),
        pytest.param("EMAIL_URL", "smtp://user:hidden@host:no", "EMAIL_URL is not usable", id="mail port"),
        pytest.param("PUBLIC_URL", "crier.example.com", "takes an address such as https://", id="no scheme"),
        pytest.param("PUBLIC_URL", "http://crier.example.com", "takes an address such as https://", id="not HTTPS"),
        pytest.param("SITE_URL", "https:///admin", "takes an address such as https://", id="no host"),
        pytest.param("SANDBOX_URL", "127.0.0.1:8765", "takes an address such as https://", id="provider, no scheme"),
        pytest.param("SANDBOX_URL", "http://127.0.0.1:no", "takes an address such as https://", id="provider's port"),
        pytest.param("BOT_MIN_GAP_SECONDS", "100", "(100) is above BOT_MAX_GAP_SECONDS (0)", id="gap turned round"),
        pytest.param("SECRET_KEY", "", "SECRET_KEY is not set", id="no secret key"),
        pytest.param("CREDENTIAL_KEYS", "", "CREDENTIAL_KEYS is not set", id="no credential key"),
    ],
)
def test_a_wrong_value_is_one_sentence(monkeypatch, name, value, sentence):
    with pytest.raises(ImproperlyConfigured) as caught:
        settings_with(monkeypatch, **{name: value})
    assert sentence in str(caught.value)
    assert "hid" not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        pytest.param("DEBUG", "maybe", "takes yes or no", id="no flag"),
        pytest.param("DATABASE_URL", "postgresql://127.0.0.1:1/x", "port 1 failed: Connection refused", id="nobody"),
        pytest.param("DATABASE_URL", "postgresql://u:hid/den@127.0.0.1/x", "%2F for /", id="/ in a password"),
        pytest.param("CRIER_VAR", "/etc/passwd", "takes a directory that Crier may write to", id="a file"),
        pytest.param("CRIER_VAR", "/proc/foo", "takes a directory that Crier may write to", id="no place"),
    ],
)
def test_commands_print_only_the_sentence(name, value, sentence):
    done = run("migrate", "--check", **{name: value})
    assert done.returncode == 1
    assert sentence in done.stderr
    assert "hid" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


LEADER = {"target_session_attrs": "read-write", "connect_timeout": "3"}


@pytest.mark.parametrize(
    ("url", "password", "host", "port", "options"),
    [
        ("postgresql://u:p%23w@127.0.0.1:5432/x", "p#w", "127.0.0.1", "5432", {}),
        ("postgresql://127.0.0.1:5432/x?user=u", "", "127.0.0.1", "5432", {}),
        ("postgres://u:p@[::1]:5432/x?sslmode=require", "p", "::1", "5432", {"sslmode": "require"}),
        ("postgresql://u@/x?host=%2Fvar%2Frun", "", "/var/run", "", {}),
        ("postgresql://u@db/x?options=-c%20work_mem%3D9MB", "", "db", "", {"options": "-c work_mem=9MB"}),
        ("postgresql://u:p@db1:5432,db2:5433/x", "p", "db1,db2", "5432,5433", LEADER),
        ("postgresql://u@[::1]:5432,db2/x", "", "::1,db2", "5432,", LEADER),
        ("postgresql://u@db1,db2/x?connect_timeout=9", "", "db1,db2", ",", LEADER | {"connect_timeout": "9"}),
    ],
)
def test_usable_addresses_of_a_database_are_taken(url, password, host, port, options, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", url)
    assert env.database_url() == url
    names = {"NAME": "x", "USER": "u", "PASSWORD": password, "HOST": host, "PORT": port}
    limits = "-c lock_timeout=1500 -c idle_in_transaction_session_timeout=0"
    whole = {"options": f"{limits} {options.get('options', '')}".strip()}
    assert env.database_settings(url, 1.5, 0) == names | {"OPTIONS": env.NOTICE_A_CUT | options | whole}


def test_the_time_after_which_a_cut_is_noticed_can_be_chosen() -> None:
    chosen = env.database_settings("postgresql://u@db1/x?tcp_user_timeout=60000", 1.5, 0)["OPTIONS"]
    assert chosen["tcp_user_timeout"] == "60000"


@pytest.mark.processes
@pytest.mark.parametrize("words", ["account --help", "help fire"])
def test_help_starts_no_database(words, tmp_path):
    done = run(*words.split(), DATABASE_URL="", CRIER_VAR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: manage.py")
    assert not (tmp_path / "postgres").exists()


@pytest.mark.processes
def test_secrets_that_cannot_be_kept_are_one_sentence():
    done = run("check", DATABASE_URL="", SECRET_KEY="", CRIER_VAR="/proc")
    assert done.returncode == 1
    assert "CRIER_VAR='/proc' is not usable" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.processes
@pytest.mark.parametrize(
    ("in_file", "directory"),
    [
        pytest.param("{tmp}/data", "{tmp}/data", id="absolute"),
        pytest.param("", f"{ROOT}/var", id="empty"),
        pytest.param("var", f"{ROOT}/var", id="from the checkout on"),
    ],
)
def test_the_directory_may_come_from_the_file(tmp_path, in_file, directory):
    """As if .env held it: a file in the checkout would reach everything else that runs there."""
    program = (
        "from pathlib import Path; read = Path.read_text;"
        f"line = 'CRIER_VAR={in_file.format(tmp=tmp_path)}';"
        "Path.read_text = lambda path, *a, **k: line if path.name == '.env' else read(path, *a, **k);"
        "from config import env; print(env.VAR_DIR)"
    )
    given = bare_environment(PYTHONPATH=str(ROOT), CRIER_ENV_FILE=".env")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=given, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == directory.format(tmp=tmp_path)


@pytest.mark.processes
@pytest.mark.parametrize("words", [("runs", "--json"), ("simulate", "--groups", "1", "--json")])
def test_an_unreachable_database_is_reported_as_json(words):
    done = run(*words, DATABASE_URL="postgresql://127.0.0.1:1/x")
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["error"].startswith("The database is not available: ")


@pytest.mark.parametrize(
    ("name", "value", "hosts"),
    [
        pytest.param(
            "ALLOWED_HOSTS", "crier.example.com", ["crier.example.com", "localhost", "127.0.0.1", "[::1]"], id="listed"
        ),
        pytest.param(
            "PUBLIC_URL",
            "https://hello.example.com:8443/crier",
            ["localhost", "127.0.0.1", "[::1]", "hello.example.com"],
            id="public address",
        ),
    ],
)
def test_this_machine_and_the_public_address_are_allowed_hosts(monkeypatch, name, value, hosts):
    assert settings_with(monkeypatch, **{name: value})["ALLOWED_HOSTS"] == hosts


@pytest.mark.processes
def test_an_unusable_credential_key_stops_every_command_with_a_hint_that_works():
    done = run("check", CREDENTIAL_KEYS="short")
    assert done.returncode == 1
    assert done.stderr.startswith("Key 1 in CREDENTIAL_KEYS is not 32 bytes")
    assert len(done.stderr.strip().splitlines()) == 1
    (program,) = re.findall(r'python3 -c "(.*?)"', done.stderr)
    key = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    assert run("check", CREDENTIAL_KEYS=key).returncode == 0


# --- the file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(b"DEBUG=no\nSECRET_KEY = hidden\n", "Line 2 of", id="spaces around ="),
        pytest.param(b"SECRET_KEY =hidden\n", "without spaces around the =", id="a space before ="),
        pytest.param(b"SECRET_KEY= hidden\n", "without spaces around the =", id="a space behind ="),
        pytest.param(b"  SECRET_KEY=hidden\n", "from the start of the line", id="indented"),
        pytest.param(b"SECRET_KEY: hidden\n", "Line 1 of", id="a colon"),
        pytest.param(b"SECRET_KEY=hidden\xe9\n", "is not UTF-8 text", id="Latin-1"),
        pytest.param("SECRET_KEY=hidden".encode("utf-16"), "is not UTF-8 text", id="UTF-16"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence_without_its_secrets(tmp_path, monkeypatch, caplog, content, says):
    monkeypatch.delenv("SECRET_KEY", raising=False)
    (tmp_path / ".env").write_bytes(content)
    with pytest.raises(ImproperlyConfigured) as caught:
        env.read_file(tmp_path / ".env")
    assert says in str(caught.value)
    assert "hidden" not in str(caught.value) + caplog.text
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert "SECRET_KEY" not in os.environ


def test_a_file_as_editors_write_it_is_taken(tmp_path, monkeypatch, caplog):
    for name in ("CRIER_A", "CRIER_B", "CRIER_C", "CRIER_D"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    content = "\ufeffCRIER_A=a#b\r\n\r\n# a comment\r\n   \nexport CRIER_B='b c'\nCRIER_C=\nCRIER_D=x=y\n"
    (tmp_path / ".env").write_text(content, "utf-8")
    env.read_file(tmp_path / ".env")
    assert [os.environ.get(f"CRIER_{letter}") for letter in "ABCD"] == ["a#b", "b c", "", "x=y"]
    assert caplog.text == ""
    env.read_file(tmp_path / "no such file")


@pytest.mark.processes
def test_a_traceback_is_shown_on_request():
    assert "Traceback" in run("migrate", "--traceback", DATABASE_URL="postgresql://127.0.0.1:1/x").stderr


@pytest.mark.processes
def test_production_settings_pass_the_deployment_check():
    done = run("check", "--deploy", "--fail-level", "WARNING")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.django_db
def test_the_tests_use_a_database_of_their_own():
    assert connection.settings_dict["NAME"].startswith("test_")


def test_the_tests_use_a_directory_and_a_server_of_their_own():
    embedded = f"host={layout(settings.VAR_DIR).socket_dir}"
    assert os.environ.get("TEST_DATABASE_URL", embedded) in unquote(settings.DATABASE_URL)
    assert not settings.VAR_DIR.is_relative_to(ROOT)
    assert settings.MEDIA_MAX_MB == 64


@pytest.mark.processes
def test_the_suite_ignores_what_a_developer_has_set(tmp_path):
    """A shell with every variable of .env.example set to nonsense, and a file with the same."""
    names = re.findall(r"^#([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    nonsense = dict.fromkeys(names, "nonsense") | {"DJANGO_SETTINGS_MODULE": "nonsense", "PGHOST": "nonsense"}
    (tmp_path / "env").write_text("".join(f"{name}=nonsense\n" for name in names))
    nonsense["CRIER_ENV_FILE"] = str(tmp_path / "env")
    test = "tests/config/test_env.py::test_the_tests_use_a_directory_and_a_server_of_their_own"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    environment = bare_environment(**nonsense)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
