"""The files in deploy/: systemd accepts the units, and they and the image start what `manage.py up` starts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

DEPLOY = Path(settings.BASE_DIR) / "deploy"
UNITS = sorted(path.name for path in (DEPLOY / "systemd").glob("*.service"))


def _verify(unit: Path) -> str:
    """Return systemd's complaints about the unit; empty if there are none."""
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
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


def test_the_image_has_every_package_that_settings_name():
    copied = {line.split()[-1] for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line.startswith("COPY")}
    ours = {
        app.split(".")[0] for app in settings.INSTALLED_APPS if (Path(settings.BASE_DIR) / app.split(".")[0]).is_dir()
    }
    assert ours | {"templates"} <= copied
    let_in = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert {f"!{package}" for package in ours | {"templates"}} <= set(let_in)
