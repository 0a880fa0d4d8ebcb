"""docs/api.md, taken literally: its shell blocks run one after the other, against a web server, with curl."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.utils import timezone

from accounts.access import OPERATORS
from fanout.models import Run
from fanout.ops import webhooks
from fanout.runs import single_messages
from tests.api.conftest import Api
from tests.engine.stage import PNG, Stage
from tests.factories import InboundEventFactory
from tests.ops.test_webhooks import OK, Hook, requests, told, until_quiet

TEXT = (Path(__file__).parents[2] / "docs/api.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", TEXT, re.S)


class Shell:
    """One shell for all blocks: variables and functions stay."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.process = subprocess.Popen(
            ["bash", "-e"],
            cwd=folder,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, block: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{block}\necho; echo '=== done'\n")
        self.process.stdin.flush()
        lines: list[str] = []
        for line in self.process.stdout:
            if line == "=== done\n":
                return "".join(lines)
            lines.append(line)
        raise AssertionError(f"the shell ended in:\n{block}\n{''.join(lines)}")

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10)


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_walk(live_server: Any, stage: Stage, tmp_path: Path) -> None:
    stage.user.groups.add(Group.objects.get(name=OPERATORS))
    account = stage.account(label="Events line")
    (tmp_path / "poster.png").write_bytes(PNG)
    caller = Api(stage.user)
    with Hook(OK) as hook:
        variables = {"CRIER": live_server.url, "TOKEN": caller.secret, "ACCOUNT": str(account.pk), "HOOK": hook.url}
        shell = Shell(tmp_path, **variables)
        functions, webhook, people, image, forecast, reminder, watching, outcome, single = BLOCKS
        try:
            shell.run(functions)
            shell.run(webhook)
            secret = shell.run("echo $SECRET").strip()
            assert shell.run(people).startswith("2\n")
            shell.run(image)
            assert shell.run(forecast).strip().endswith(".")
            assert "Dear Choir" in shell.run(reminder)
            said = shell.run(watching)
            assert "Paused." in said
            assert "Resumed: 2 still to send." in said
            stage.now = timezone.now()
            stage.play()
            run = Run.objects.get()
            InboundEventFactory.create(
                account=account,
                kind="reply",
                address="+4915112345678",
                words={"text": "We come"},
                run_target_id=run.targets.values_list("pk", flat=True)[0],
                came_at=timezone.now(),
            )
            said = shell.run(outcome)
            assert said.startswith("2\n120363025246125401@g.us\n")
            assert '"text": "We come"' in said.splitlines()[-1]
            assert shell.run(single).split() == ["accepted", "accepted"]
        finally:
            shell.close()
        assert single_messages.collect(timezone.now(), 30)
        assert Run.objects.count() == 3
        until_quiet()
    assert told(hook) == ["run.paused", "run.started", "run.finished"]
    verify: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", TEXT, re.S)[0], verify)  # the reader's own code
    for headers, body in requests(hook):
        assert verify["verify"](secret, headers, body)
        assert not verify["verify"](webhooks.new_secret(), headers, body)
