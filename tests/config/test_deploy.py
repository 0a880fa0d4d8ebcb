"""The files in deploy/: systemd accepts the units, and they and the image start what `manage.py up` starts."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.core.management import get_commands, load_command_class
from django.test import Client, RequestFactory
from packaging.specifiers import SpecifierSet

from config import web
from tests.factories import UserFactory

DEPLOY = Path(settings.BASE_DIR) / "deploy"
UNITS = sorted(path.name for path in (DEPLOY / "systemd").glob("*.service"))


def _verify(unit: Path) -> str:
    """Return systemd's complaints about the unit; empty if there are none."""
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    lines = done.stderr.splitlines()
    return "\n".join(line for line in lines if unit.name.split("@")[0].removesuffix(".service") in line)


def _installed(unit: str, place: Path, change: tuple[str, str] = ("", "")) -> Path:
    """A copy as it would be installed, with a Python that exists here."""
    text = (DEPLOY / "systemd" / unit).read_text().replace("/srv/crier/.venv/bin/python", sys.executable)
    copy = place / unit.replace("@", "@main")
    copy.write_text(text.replace(*change) if change[0] else text)
    return copy


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_the_unit(unit, tmp_path):
    assert _verify(_installed(unit, tmp_path)) == ""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_a_misspelt_line_would_be_seen(tmp_path):
    unit = _installed("crier-web.service", tmp_path, ("Restart=always", "Restrat=always"))
    assert "Restrat" in _verify(unit)


@pytest.mark.parametrize("unit", UNITS)
def test_the_signal_reaches_the_main_process_only(unit):
    lines = (DEPLOY / "systemd" / unit).read_text().splitlines()
    assert {"KillMode=mixed", "Restart=always", "NoNewPrivileges=yes", "ProtectSystem=strict"} <= set(lines)
    # With systemd's default, a bridge that ends at once for a while would stay down.
    assert "StartLimitIntervalSec=0" in lines


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_the_unit_well_protected(unit, tmp_path):
    place = str(_installed(unit, tmp_path))
    # Tenths of its exposure level, which goes from 0 to 10.
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", place]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze is too old")
    assert done.returncode == 0, done.stdout + done.stderr


FILES = {path.name: path.read_text() for path in [*DEPLOY.glob("*"), *DEPLOY.glob("systemd/*")] if path.is_file()}
STARTED = sorted(
    {
        (name, *found[1].replace("%i", "main").split())
        for name, text in FILES.items()
        for found in re.finditer(r"python manage\.py ([a-z_]+(?: (?:--)?[^\s`\"&]+)*)", text)
        if not name.endswith(".md")
    }
)


@pytest.mark.parametrize("call", STARTED, ids=" ".join)
def test_what_is_started_is_a_command_with_these_arguments(call):
    _, name, *arguments = call
    load_command_class(get_commands()[name], name).create_parser("manage.py", name).parse_args(arguments)


def test_the_web_server_has_the_same_options_everywhere():
    """Without --no-proxy-headers uvicorn itself would believe X-Forwarded-For."""
    options = ["--lifespan", "off", "--no-proxy-headers", "--timeout-graceful-shutdown", "5"]
    starts = [text.replace("\\\n", " ") for text in FILES.values() if "config.asgi:application" in text]
    assert len(starts) == 2
    for text in [*starts, (DEPLOY.parent / "config" / "local" / "supervisor.py").read_text()]:
        assert " ".join(options) in " ".join(re.sub(r'[",\[\]]', " ", text).split())


def test_nginx_takes_as_much_as_crier():
    limits = [int(found) for found in re.findall(r"client_max_body_size (\d+)m;", FILES["nginx.conf"])]
    most = web.FILES_AT_ONCE * settings.MEDIA_MAX_MB
    assert limits[0] == web.FOR_ANYBODY / web.MB
    assert most < limits[1] < 1.1 * most


def test_the_image_has_every_package_that_settings_name():
    copied = {line.split()[-1] for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line.startswith("COPY")}
    ours = {
        app.split(".")[0] for app in settings.INSTALLED_APPS if (Path(settings.BASE_DIR) / app.split(".")[0]).is_dir()
    }
    assert ours | {"templates"} <= copied
    let_in = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert {f"!{package}" for package in ours | {"templates"}} <= set(let_in)


# --- containers -------------------------------------------------------------------------------------------

EXPLAINED = set(re.findall(r"^#([A-Z_]+)=", (DEPLOY.parent / ".env.example").read_text(), re.MULTILINE))


def test_containers_get_every_variable():
    """One that compose.yaml does not name would be ignored without a word."""
    named = set(re.findall(r"^    ([A-Z_]+): ", FILES["compose.yaml"], re.MULTILINE))
    assert EXPLAINED - named == {"CRIER_VAR", "CRIER_ENV_FILE"}  # the image sets the first one


def test_an_empty_variable_means_the_default(monkeypatch):
    """Containers get one for everything that is not set."""
    for name in EXPLAINED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CRIER_ENV_FILE", os.devnull)
    monkeypatch.setenv("CRIER_VAR", str(settings.VAR_DIR))
    chosen = {"SECRET_KEY": "x", "CREDENTIAL_KEYS": settings.CREDENTIAL_KEYS[0], "DATABASE_URL": settings.DATABASE_URL}
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)

    def read() -> dict[str, Any]:
        values = runpy.run_path(str(DEPLOY.parent / "config" / "settings.py"))
        return {name: value for name, value in values.items() if name.isupper()}

    unset = read()
    for name in EXPLAINED - set(chosen) - {"CRIER_VAR", "CRIER_ENV_FILE"}:
        monkeypatch.setenv(name, "")
    assert read() == unset


def test_containers_of_a_machine_keep_its_name():
    """Machines are known by it: drivers' slots, heartbeats, and paired numbers that were moved to one."""
    assert "\n  hostname: ${MACHINE_NAME:-" in FILES["compose.yaml"]


def test_the_database_counts_as_healthy_when_others_can_reach_it():
    """While the image sets itself up, its server listens on the socket only."""
    probe = re.search(r"test: (\[.*pg_isready.*\])", FILES["compose.yaml"])
    assert probe
    assert json.loads(probe[1])[2:4] == ["--host", "127.0.0.1"]


def compose_default(name: str) -> str:
    found = re.search(rf"{name}: \${{{name}:-([^}}]*)}}", (DEPLOY / "compose.yaml").read_text())
    assert found, name
    return found[1]


@pytest.mark.django_db
def test_strangers_behind_the_composed_proxy_do_not_lock_everybody_out(settings):
    """A proxy on the machine reaches the container from the network's gateway."""
    gateway = re.search(r"gateway: ([0-9.]+)", (DEPLOY / "compose.yaml").read_text())
    assert gateway
    settings.TRUSTED_PROXIES = [ip_network(compose_default("TRUSTED_PROXIES"))]
    UserFactory.create(username="mei", password=make_password("right horse"))

    def log_in(name: str, password: str, address: str) -> int:
        client = Client(REMOTE_ADDR=gateway[1] if gateway else "", HTTP_X_FORWARDED_FOR=address)
        return client.post("/admin/login/", {"username": name, "password": password}).status_code

    assert [log_in(f"name{n}", "wrong", "203.0.113.9") for n in range(26)][-1] == 429
    assert log_in("mei", "right horse", "203.0.113.10") == 302


def test_a_proxy_that_is_not_believed_is_told_once(settings, caplog):
    settings.HTTPS, settings.TRUSTED_PROXIES = True, [ip_network("127.0.0.1/32")]
    web._warn_of_proxy.cache_clear()
    for address in ("172.18.0.1", "172.18.0.1", "127.0.0.1", "8.8.8.8"):
        request = RequestFactory().get("/", REMOTE_ADDR=address, HTTP_X_FORWARDED_FOR="203.0.113.9")
        assert web.client_address(request) == ("203.0.113.9" if address == "127.0.0.1" else address)
    (record,) = caplog.records
    assert "172.18.0.1 is not believed" in record.getMessage()


# --- what is pinned ---------------------------------------------------------------------------------------

pins: Any = runpy.run_path(str(DEPLOY.parent / ".ci" / "pins.py"))
A_HASH = "--hash=sha256:" + "0" * 64
LOCK_CASES = {
    "pinned": (f"attrs==26.1.0 \\\n    {A_HASH}\n", ""),
    "with a marker": (f"attrs==26.1.0 ; python_version < '3.12' \\\n    {A_HASH}\n", ""),
    "without a hash": ("attrs==26.1.0\n", "no hash"),
    "with a weak hash": ("attrs==26.1.0 --hash=md5:00\n", "not a package"),
    "a range": (f"attrs>=26 {A_HASH}\n", "not a package"),
    "any version": (f"attrs {A_HASH}\n", "not a package"),
    "an address": (f"attrs @ https://files.example/attrs.whl {A_HASH}\n", "not a package"),
    "another index": (f"--extra-index-url https://index.example\nattrs==26.1.0 {A_HASH}\n", "not a package"),
    "twice": (f"attrs==26.1.0 {A_HASH}\nattrs==26.2.0 {A_HASH}\n", "twice"),
    "empty": ("", "no packages"),
}


@pytest.mark.parametrize("lock", pins["LOCKS"])
def test_what_is_pinned_runs_on_the_python_of_debian_12(lock):
    """pip refuses a package whose author asks for a later one. Only what is installed here can be looked up."""
    pinned = pins["versions"]((DEPLOY.parent / lock).read_text())
    here = {dist.name.lower(): dist for dist in distributions()}
    known = [here[name] for name, version in pinned.items() if name in here and here[name].version == version]
    wishes = {dist.name: str(dist.metadata.json.get("requires_python", "")) for dist in known}
    assert len(wishes) > 40
    assert {name: wish for name, wish in wishes.items() if not SpecifierSet(wish).contains("3.11.2")} == {}


@pytest.mark.parametrize("case", LOCK_CASES)
def test_what_is_not_pinned_is_found(case):
    text, problem = LOCK_CASES[case]
    found = " ".join(pins["lock_problems"](text))
    assert problem in found
    assert bool(found) == bool(problem)


def test_images_have_a_tag_and_for_a_release_a_digest():
    digest = "@sha256:" + "0" * 64
    check = pins["image_problems"]
    assert check(f"FROM python:3.11-slim{digest}\n  image: crier\n", True) == []
    assert check("FROM python:3.11-slim\n", False) == []
    assert "digest" in check("FROM python:3.11-slim\n", True)[0]
    assert "tag" in check("    image: postgres\n", False)[0]
    assert "tag" in check("    image: postgres:latest\n", False)[0]
    assert "attrs" in pins["difference"]({"attrs": "1"}, {"attrs": "2"})[0]
    assert list(pins["problems"](False)) == []
