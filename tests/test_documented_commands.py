"""Every command block of the documents, run as it is written; what cannot run in a test is listed with the reason."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.core.management import call_command
from django.utils import timezone

from accounts.channels.templates import Template
from accounts.models import MessageTemplate
from reminders.models import Recipient, Suppression
from tests.factories import AccountFactory, ReminderFactory, RunFactory, SuppressionFactory, UserFactory

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "deploy/README.md",
    # The calls of docs/api.md are run by tests/api/test_walk.py, in one shell.
    *sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs/api.md"}),
]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"(^|\s)#\s.*$")
#: blocks for a shell, which begin like this
SHELL = "address=$("
MANAGE = re.compile(r"^(?:\.venv/bin/python )?manage\.py ")

#: how a line begins, and why no test runs it
NOT_RUN = {
    "make ": "a target of the Makefile, whose name is checked below",
    ".venv/bin/python -m pytest": "the test suite itself",
    ".venv/bin/python -m tests.": "a campaign of minutes; its module is checked below",
    "docker compose": "needs Docker",
    "systemctl ": "needs systemd",
    "cp deploy/systemd/": "writes to /etc",
    "useradd ": "adds a user of the machine",
    "git ": "fetches the project",
    "python3 -m venv": "installs packages",
    ".venv/bin/pip ": "installs packages",
    ".venv/bin/python -m compileall": "writes into the checkout; the image does the same",
    "runuser -u postgres": "needs a server of the machine; tests/commands/test_restore.py has a database restored",
    "runuser -u crier": "needs the user of the machine",
    "journalctl ": "needs systemd",
    "pg_restore ": "needs a server of the machine; tests/commands/test_restore.py has a database restored",
    "pg_dump ": "needs a server of the machine; tests/commands/test_restore.py has a database restored",
    "pg_basebackup ": "needs a server of the machine; `python -m tests.engine.chaos --restore` copies and recovers one",
    "tar ": "archives /var/lib/crier",
    "umask ": "changes the shell",
    "cd /srv/crier": "needs an installation",
    "manage.py createsuperuser": "asks for a password on a terminal",
    "manage.py check --deploy": "judges the settings of an installation; tests/config/test_deploy.py has its cases",
    "manage.py doctor": "judges running processes; tests/commands/test_doctor.py has its cases",
    "manage.py account_check": "asks a provider on the network; tests/commands/test_account_check.py has one",
    "manage.py sync_groups": "asks a provider on the network; tests/admin/test_groups.py has one",
    "manage.py fire Market --follow": "waits for drivers; tests/commands/test_controls.py follows one",
}


class Block(NamedTuple):
    document: str
    line: int
    commands: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def blocks() -> Iterator[Block]:
    for document in DOCUMENTS:
        text = document.read_text()
        for match in BLOCK.finditer(text):
            lines = match[1].replace("\\\n", " ").splitlines()
            commands = [words for line in lines if (words := COMMENT.sub("", line).strip())]
            yield Block(str(document.relative_to(ROOT)), text[: match.start()].count("\n") + 1, tuple(commands))


BLOCKS = list(blocks())


def plain(command: str) -> str:
    return MANAGE.sub("manage.py ", command)


def is_setting(command: str) -> bool:
    """Return whether it is a line of a file with variables, or of a block that the shell runs."""
    return command.startswith((SHELL, ".venv/lib/")) or re.match(r"[A-Z_]+=", command) is not None


def reason(command: str) -> str:
    return next((why for start, why in NOT_RUN.items() if plain(command).startswith(start)), "")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Path:
    """What the commands name: people, accounts, a reminder, a run and files."""
    monkeypatch.chdir(tmp_path)
    mei = UserFactory.create(username="mei", is_superuser=True)
    AccountFactory.create(owner=mei, label="Events line")
    AccountFactory.create(owner=mei, label="Sales", channel="smtp", address="sales@example.com")
    line = AccountFactory.create(
        owner=mei, label="Line", channel="cloud", config={"phone_number_id": "1"}, templates_read_at=timezone.now()
    )
    news = Template("news", "en", body="News from the choir: {{1}} Reply STOP to get no more.")
    MessageTemplate.objects.create(account=line, name=news.name, language=news.language, content=asdict(news))
    ReminderFactory.create(owner=mei, account__owner=mei, title="Water works", targets=3)
    RunFactory.create(pk=12, status="success", targets={"sent": 1})
    SuppressionFactory.create(address="ann@example.com")
    for name in ("waha", "waha-hmac", "smtp"):
        (tmp_path / name).write_text("secret")
    (tmp_path / "groups.csv").write_text("address,name\n120363025246125486@g.us,Choir\n")
    (tmp_path / "old-list.csv").write_text("bob@example.com\n")
    (tmp_path / "people.csv").write_text("address,name\n+60123456789,Ann\n")
    (tmp_path / "list.txt").write_text("ann.lee@example.com\nbo@example.com\n")
    return tmp_path


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.parametrize("block", [block for block in BLOCKS if any("manage.py" in c for c in block.commands)], ids=str)
def test_commands_work_as_they_are_written(block: Block, site: Path) -> None:
    if "suppress add" in block.commands[0]:
        Suppression.objects.all().delete()
    for command in block.commands:
        if is_setting(command) or reason(command):
            continue
        assert MANAGE.match(command), f"{block}: {command!r} is neither run nor listed in NOT_RUN"
        _, *words = shlex.split(plain(command).replace("/run/secrets/", f"{site}/"))
        call_command(*words)
    if "erase" in block.commands[0]:
        assert not Recipient.objects.filter(address="ann@example.com").exists()


@pytest.mark.slow
def test_the_embedded_database_is_dumped_as_it_is_written(tmp_path: Path) -> None:
    (block,) = [block for block in BLOCKS if block.commands[0].startswith(SHELL)]
    script = "\n".join(block.commands).replace("crier.dump", f"{tmp_path}/crier.dump")
    environment = {**os.environ, "CRIER_VAR": str(tmp_path), "DATABASE_URL": ""}
    subprocess.run(["bash", "-euc", script], cwd=ROOT, env=environment, check=True, timeout=120)
    assert (tmp_path / "crier.dump").read_bytes().startswith(b"PGDMP")


def test_what_is_not_run_is_listed_and_exists() -> None:
    commands = [command for block in BLOCKS for command in block.commands if not is_setting(command)]
    unknown = [command for command in commands if not MANAGE.match(command) and not reason(command)]
    assert unknown == []
    unused = [start for start in NOT_RUN if not any(plain(command).startswith(start) for command in commands)]
    assert unused == []
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {command.split()[1] for command in commands if command.startswith("make ")} <= set(targets)
    modules = {match[1] for command in commands if (match := re.match(r"\S+ -m (tests\.\S+)", command))}
    assert all((ROOT / module.replace(".", "/") / "__main__.py").exists() for module in modules)


@pytest.mark.parametrize("name", ["cluster", "up", "whatsapp_bridge"])
def test_commands_that_go_on_have_an_example(name: str) -> None:
    from django.core.management import load_command_class

    command = load_command_class("fanout", name)
    assert f"manage.py {name}" in command.create_parser("manage.py", name).format_help().partition("example:")[2]
