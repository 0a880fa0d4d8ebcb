"""The campaign in which everything goes wrong at once: `python -m tests.engine.chaos --everything --kills 200`.

A leader with a synchronous standby, both clusters, a web server, the sandbox provider and three operators in processes
of their own (tests/engine/clicking.py). Reminders go out through several accounts each, to people and groups; the
provider reports receipts and STOPs to the web server. Killed with -9 are drivers, clusters, the web server, operators
in the middle of a click, the standby, and the leader: it starts again, or the standby is promoted and gets a new
standby. Meanwhile disks are full, clients stand still with rows locked, and processes and the provider are stopped
(tests/engine/wider_trouble.py).

The provider's book judges: no message twice, none lost, the pace held, nothing sent after a STOP, no report lost that
was accepted. An unconfirmed target is right where its driver was killed after the claim or no answer came, which the
claim journal and the list of kills tell. Work that no lane drives for a minute, nothing sent for minutes, and a
violation that `manage.py limits` would find are failures.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from config.local.children import Child, session_members
from tests.channels.mail_server import free_port
from tests.engine.chaos import STANDSTILL, Campaign, call, driver_pids, unsettled, wait
from tests.engine.clicking import PARTS, TARGETS
from tests.engine.standby import LastingPair
from tests.engine.trouble import act
from tests.engine.wider_trouble import WiderTrouble

ACCOUNTS = ("a0", "a1", "a2", "a3", "a4", "slow")
OPERATORS = 3
PEOPLE, GROUPS = 300, 100
IN_FLIGHT = 3  # messages of an account at the same time
KEY = "chaos"
#: rare, so that accounts go on: messages that are refused, and calls that are never answered
FAULTS = [
    {"match": {"probability": 0.01, "seed": 1}, "effect": "content_rejected"},
    {"match": {"probability": 0.005, "seed": 2}, "effect": "unavailable", "retry_after": 2},
    {"match": {"probability": 0.001, "seed": 3}, "effect": "drop_after_accept"},
    {"match": {"probability": 0.001, "seed": 4}, "effect": "hang", "accept": True},
    {"match": {"probability": 0.001, "seed": 5}, "effect": "hang"},
]
REPORTS = {"delivered": 0.6, "read": 0.3, "reply": 0.01, "replies": ["STOP"], "delay_ms": [200, 2000]}
SCRIPT = {
    "*": {"latency_ms": [20, 120], "faults": FAULTS, "reports": REPORTS},
    "slow": {"latency_ms": [6000, 9000]},
}
#: seconds in which a message may still arrive that was claimed before its recipient's STOP was accepted
AFTER_A_STOP = 30.0
NOTHING_SENT = 180.0
#: a kill waits until so many messages have gone out since the last one, but not for longer than so many seconds
BETWEEN_KILLS, A_WHILE = 5, 8.0
#: these end what the others need, so some messages must have gone out since the last one
HEAVY = ("cluster", "main", "postgres", "standby", "fail_over")
LOGGED = re.compile(r".*(?:neither due nor driven|not among its lanes|nothing left to send|no driver holds).*")

UNDRIVEN = """
SELECT DISTINCT l.account_id FROM fanout_run r JOIN fanout_lanestate l ON l.account_id = ANY(r.lanes)
  JOIN accounts_account a ON a.id = l.account_id
 WHERE r.status IN ('queued', 'running', 'waiting') AND r.scheduled_for <= now() AND a.status = 'active'
   AND (l.due_at IS NULL OR l.due_at <= now()) AND NOT l.holder = ANY(%(alive)s)
   AND EXISTS (SELECT FROM fanout_runtarget t WHERE t.run_id = r.id AND t.account_id = l.account_id
                  AND t.status = 'pending')
"""


class WholeCampaign(Campaign):
    default_kills = 50
    victims = {
        "worker": 30,
        "cluster": 8,
        "main": 4,
        "web": 3,
        "operator": 4,
        "postgres": 8,
        "standby": 3,
        "fail_over": 5,
    }
    end_patience = NOTHING_SENT
    trouble: WiderTrouble

    def __init__(self, folder: Path, given: argparse.Namespace, pair: LastingPair) -> None:
        super().__init__(folder, given)
        self.pair = pair
        self.port = free_port()
        self.seeds = given.seed * 1000
        self.targets = given.groups or TARGETS
        self.children: dict[str, Child] = {}
        self.killed_pids: dict[int, float] = {}
        self.undriven: dict[int, float] = {}
        self.observed = 0.0
        self.read_to = self.sent = self.sent_before = 0
        self.confirmations = 0
        self.going_on: Future[None] | None = None

    def run(self) -> dict[str, Any]:
        from django.utils import timezone

        from tests.sandbox_server import SandboxServer

        os.environ["CHAOS_RATE"] = str(self.rate)
        call("migrate", "-v0")
        with SandboxServer(self.folder, script=SCRIPT) as sandbox:
            self.sandbox = sandbox
            os.environ["SANDBOX_URL"] = sandbox.url
            self.scene(sandbox.url)
            disks = [self.pair.leader.root, self.pair.standby.root, self.folder / "var" / "claims"]
            self.trouble = WiderTrouble(self.rng, self.user, disks, sandbox.pid, self.stoppable)
            began, began_at = time.monotonic(), timezone.now()
            for name in ("drivers", "main", "web", *(f"operator{n}" for n in range(OPERATORS))):
                self.start(name)
            try:
                self.torment()
                runs = self.come_to_rest()
                finished = self.wait_for_the_end(runs)
                seconds = time.monotonic() - began
                violations = wait(lambda: [self.violations(began_at)])[0]
            finally:
                wait(lambda: self.trouble.end_due(everything=True))
                for child in self.children.values():
                    child.kill_all()
            self.broken += violations
            return self.judge(runs, sandbox.book(), finished, seconds)

    def scene(self, url: str) -> list[Any]:
        from django.contrib.auth import get_user_model

        from accounts.models import Account
        from config.local.provider import set_hooks
        from reminders.models import Recipient

        self.user = get_user_model().objects.create_user("operator", is_staff=True)
        hooks = {}
        for name in ACCOUNTS:
            account = Account.objects.create(
                owner=self.user,
                label=name,
                channel="sandbox",
                address=name,
                max_send_per_minute=self.rate,
                part_jitter_min_ms=50,
                part_jitter_max_ms=100,
                group_concurrency=20 if name == "slow" else IN_FLIGHT,
                config={"url": url, "recognises_repeats": False},
                credentials={"key": KEY},
            )
            hooks[name] = {"url": f"http://127.0.0.1:{self.port}/hooks/sandbox/{account.hook_token}", "key": KEY}
        set_hooks(url, hooks)
        people = [Recipient(owner=self.user, kind="person", address=f"+49151{10**7 + n}") for n in range(PEOPLE)]
        groups = [Recipient(owner=self.user, kind="group", address=f"{10**12 + n}@g.us") for n in range(GROUPS)]
        Recipient.objects.bulk_create([*people, *groups])
        return []

    # --- processes --------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a process of Crier, or an operator, who never does the same twice."""
        self.seeds += 1
        command = {
            "drivers": ["manage.py", "cluster", "drivers"],
            "main": ["manage.py", "cluster", "main"],
            "web": ["-m", "uvicorn", "config.asgi:application", "--port", str(self.port), "--lifespan", "off"],
        }.get(name, ["-m", "tests.engine.clicking", str(self.seeds), str(self.folder), str(self.targets)])
        environment = {"Q_CLUSTER_NAME": name} if name in ("drivers", "main") else {}
        child = Child(name, [sys.executable, *command], self.folder / f"{name}.log", environment)
        child.start()
        self.children[name] = child

    def supervise(self) -> bool:
        """Start again what ended, as `manage.py up` and systemd do."""
        self.pair.supervise()
        for name, child in self.children.items():
            if not child.alive():
                self.start(name)
        return True

    def stoppable(self) -> dict[str, list[psutil.Process]]:
        """Return the processes that may be stopped: drivers, the clusters' main processes, the web and operators."""
        found: dict[str, list[psutil.Process]] = {}
        for name, child in self.children.items():
            if child.process is not None and child.alive():
                found.setdefault(name.rstrip("0123456789"), []).append(child.process)
        with suppress(psutil.NoSuchProcess):
            drivers = [psutil.Process(pid) for pid in sorted(wait(driver_pids))]
            return found | ({"driver": drivers} if drivers else {})
        return found

    def kill_child(self, name: str) -> None:
        child = self.children[name]
        victims = [process.pid for process in session_members(child.pid)] if child.pid is not None else []
        child.kill_all()
        # Noted afterwards: until then they may still claim.
        self.killed_pids |= dict.fromkeys(victims, time.time())
        self.start(name)

    # --- killing ----------------------------------------------------------------------------------------

    def torment(self) -> None:
        if not wait(lambda: self.supervise() and self.sent_parts() > 20):
            self.broken.append("nothing was sent at the beginning")
        sent = self.sent_parts()
        for n in range(self.kills):
            self.pass_time(self.rng.uniform(0.3, 1.8))
            if self.rng.random() < 0.35:
                self.trouble.begin()
            if self.rng.random() < 0.2:
                self.go_on()
            victim = self.rng.choices([*self.victims], [*self.victims.values()])[0]
            if victim in HEAVY:
                self.wait_until_something_is_sent()
            else:
                self.wait_for(sent + BETWEEN_KILLS, A_WHILE)
            victim = getattr(self, f"kill_{victim}")() or victim
            self.killed[victim] = self.killed.get(victim, 0) + 1
            sent = self.sent_parts()
            print(f"{n + 1} {victim} {self.sent} sent {dict(self.trouble.seen)}", file=sys.stderr)  # noqa: T201

    def pass_time(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.look()
            time.sleep(0.3)

    def look(self) -> bool:
        """Start what ended, end trouble that is over, and look for lanes with work that no driver has."""
        from django.db import DatabaseError, InterfaceError, connection

        self.trouble.end_due()
        self.supervise()
        before, self.observed = self.observed, time.monotonic()
        try:
            undriven = self.undriven_accounts()
            self.confirm()
        except (DatabaseError, InterfaceError):
            connection.close()
            return True
        # While disks are full or no driver runs, nothing can be driven, and a look that came late proves nothing.
        counts = min(self.observed - before, 3.0) if undriven is not None and not self.trouble.full else 0.0
        self.undriven = {account: self.undriven.get(account, 0.0) + counts for account in undriven or ()}
        for account, seconds in self.undriven.items():
            if seconds > STANDSTILL:
                self.broken.append(f"no lane drove account {account} for a minute, which has something to send")
                self.undriven[account] = -STANDSTILL
        return True

    def undriven_accounts(self) -> list[int] | None:
        """Return accounts that have something to send and no live driver; None where no driver runs."""
        from fanout.database import execute
        from fanout.models import Driver

        pids = driver_pids()
        if not pids:
            return None
        alive = list(Driver.objects.filter(pid__in=pids).values_list("token", flat=True))
        return [row["account_id"] for row in execute(UNDRIVEN, {"alive": alive})]

    def confirm(self) -> None:
        """Confirm lost commits, so that the campaign goes on; with a synchronous standby there are none."""
        from fanout.models import KnownServer

        held = KnownServer.objects.filter(held=True).first()
        if held is not None:
            self.broken.append(f"sending was held up after a fail-over: {held.why}")
            call("lost_commits", "--confirm")
            self.confirmations += 1

    def wait_until_something_is_sent(self) -> None:
        """Wait until messages have gone out since the last heavy kill: otherwise kills only follow each other."""
        self.sent_before, before = self.sent_parts(), self.sent_before
        if self.wait_for(before + 1, STANDSTILL):
            return
        wait(lambda: self.look() and self.trouble.end_due(everything=True))
        if not wait(lambda: self.look() and self.go_on() and self.sent_parts() > before, patience=NOTHING_SENT):
            self.broken.append(f"nothing was sent for {STANDSTILL + NOTHING_SENT:g} s")

    def wait_for(self, parts: int, patience: float) -> bool:
        return wait(lambda: self.look() and self.sent_parts() >= parts, patience=patience)

    def sent_parts(self) -> int:
        """Return how many messages are in the provider's book."""
        with self.sandbox.book_path.open("rb") as book:
            book.seek(self.read_to)
            text = book.read()
        whole = text.rfind(b"\n") + 1
        self.read_to += whole
        self.sent += text[:whole].count(b'"provider_id"')
        return self.sent

    def kill_worker(self) -> None:
        pids = wait(lambda: self.look() and driver_pids())
        if pids:
            pid = self.rng.choice(sorted(pids))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.killed_pids[pid] = time.time()

    def kill_cluster(self) -> None:
        self.kill_child("drivers")

    def kill_main(self) -> None:
        self.kill_child("main")

    def kill_web(self) -> None:
        self.kill_child("web")

    def kill_operator(self) -> None:
        self.kill_child(f"operator{self.rng.randrange(OPERATORS)}")

    def kill_postgres(self) -> None:
        self.pair.restart(self.pair.leader)

    def kill_standby(self) -> str:
        if not self.pair.is_synchronous():
            self.kill_postgres()
            return "postgres"
        self.pair.restart(self.pair.standby)
        return ""

    def kill_fail_over(self) -> str:
        """Kill the leader and promote its standby, once the last fail-over is over and there is room on the disks."""
        for disk in list(self.trouble.full):
            self.trouble.full[disk] = 0.0
        if not wait(lambda: self.look() and not self.trouble.full and self.pair.is_synchronous()):
            self.broken.append("no standby became synchronous")
            return "worker"
        self.pair.fail_over(self.rng.uniform(0.2, 2))
        return ""

    # --- the end ----------------------------------------------------------------------------------------

    def come_to_rest(self) -> list[Any]:
        """End the trouble, and let the operators finish what they do. Returns all runs."""
        from fanout.models import Run

        wait(lambda: self.look() and self.trouble.end_due(everything=True))
        operators = [self.children.pop(f"operator{n}") for n in range(OPERATORS)]
        for operator in operators:
            operator.ask_to_end()
        if not wait(lambda: self.supervise() and not any(one.alive() for one in operators)):
            self.broken.append("an operator's click did not come back")
        for operator in operators:
            operator.kill_all()
        return wait(lambda: list(Run.objects.order_by("pk")) if self.supervise() else [])

    def go_on(self) -> bool:
        """Resume what is paused and reactivate what was suspended, so that every run comes to its end. In a thread: a
        commit may wait for a standby, which we have to start again meanwhile."""
        self.look()
        if self.going_on is None or self.going_on.done():
            self.going_on = self.trouble.threads.submit(act, self.resume_all)
        return True

    def resume_all(self, now: datetime) -> None:
        from accounts.models import Account
        from fanout.runs import controls

        for account in Account.objects.exclude(status="active"):
            controls.reactivate(account, self.user, now)
        self.trouble.resume_paused()

    # --- judging ----------------------------------------------------------------------------------------

    def violations(self, since: Any) -> list[str]:
        from django.utils import timezone

        from fanout.ops import audit

        found = audit.examine(since, timezone.now())
        return [f"{violation.check}: {violation.subject}: {violation.text}" for violation in found]

    def judge(self, runs: list[Any], book: Any, finished: bool, seconds: float) -> dict[str, Any]:
        doubled = [*book.duplicates("message_id"), *self.repeated_texts(book)]
        statuses, lost = self.compare(runs, book)
        clicks = [json.loads(line) for line in (self.folder / "clicks.jsonl").read_text().splitlines()]
        unconfirmed, wrong = self.judge_unconfirmed(book, clicks)
        stops, late = self.judge_stops(book)
        peaks = {name: book.peak(name) for name in ACCOUNTS}
        # Beside rate and burst: what a stopped provider took in late, as much as an account may have in flight.
        most = self.rate + 3 + IN_FLIGHT
        fast = [f"more than {most} messages in 60 s: {peaks}"] if max(peaks.values()) > most else []
        logged = [
            line for path in self.folder.glob("*.log") for line in LOGGED.findall(path.read_text(errors="replace"))
        ]
        crashed = [f"{one['control']} {one['answer']}" for one in clicks if one["answer"].startswith("crashed")]
        stuck = [] if finished else [f"{unsettled(runs)} parts or runs did not come to their end: {self.left_over()}"]
        broken = [*self.broken, *stuck, *(f"twice: {one}" for one in doubled), *lost, *wrong, *late, *fast, *logged]
        return {
            "broken": [*broken, *crashed],
            "kills": self.killed,
            "restarts_of_postgres_by_itself": self.pair.restarts,
            "trouble": dict(self.trouble.seen),
            "clicks": clicked(clicks),
            "runs": dict(Counter(run.status for run in runs)),
            "targets": statuses,
            "deliveries": len(book.deliveries()),
            "doubled": len(doubled),
            "lost": len(lost),
            "unconfirmed": unconfirmed,
            "reports_accepted": dict(Counter(report.kind for report in book.reports() if report.status == 200)),
            "stops_honoured": stops,
            "peaks": peaks,
            "seconds": round(seconds, 1),
        }

    def repeated_texts(self, book: Any) -> list[tuple[str, str]]:
        """Return what a recipient got twice; every text is of one part of one run."""
        sent = Counter((line["to"], line["text"]) for line in book.lines() if "provider_id" in line)
        return [key for key, count in sent.items() if count > 1]

    def compare(self, runs: list[Any], book: Any) -> tuple[dict[str, int], list[str]]:
        """Compare every target with the book. Returns how many there are of each status, and what is wrong."""
        from fanout.models import InboundEvent, RunTarget

        received: dict[int, set[int]] = {}
        for delivery in book.deliveries():
            _, target, part, _ = delivery.message_id.split("-")
            received.setdefault(int(target), set()).add(int(part))
        canceled = {run.pk for run in runs if run.status == "canceled"}
        statuses: Counter[str] = Counter()
        wrong = []
        for target in RunTarget.objects.order_by("pk").iterator():
            reason = f" ({target.error})" if target.status in ("skipped", "failed") else ""
            statuses[target.status + reason] += 1
            sure, has = set(range(target.parts_sent)), received.pop(target.pk, set())
            doubt = {target.parts_sent} if target.in_doubt or target.status == "unconfirmed" else set()
            if not sure <= has <= sure | doubt or (target.status == "sent" and len(has) != PARTS):
                wrong.append(f"{target.address} is {target.status} with {target.parts_sent} parts, not {sorted(has)}")
            if target.status in ("pending", "sending") and target.run_id not in canceled:
                wrong.append(f"{target.address} of run {target.run_id} is still {target.status}")
        wrong += [f"the provider has messages of target {target}, which does not exist" for target in received]
        accepted = {report.id for report in book.reports() if report.status == 200 and report.id}
        stored = set(InboundEvent.objects.values_list("key", flat=True))
        wrong += [f"the report {report} was accepted and is lost" for report in sorted(accepted - stored)]
        return dict(statuses), wrong

    def judge_unconfirmed(self, book: Any, clicks: list[dict[str, Any]]) -> tuple[dict[str, int], list[str]]:
        """Explain every target that is unconfirmed, or was until an operator settled it: its driver was killed after
        the claim, or there was no answer."""
        from fanout.models import RunTarget

        claims, answers = self.journal()
        told = {tuple(delivery.message_id.split("-")[1:3]) for delivery in book.deliveries()}
        counts: Counter[str] = Counter({"right": 0, "wrong": 0})
        left = list(RunTarget.objects.filter(status="unconfirmed"))
        for target in left:
            counts["delivered" if (str(target.pk), str(target.parts_sent)) in told else "not delivered"] += 1
        keys = {(target.pk, target.claim_epoch, target.claimed_at) for target in left if target.claimed_at}
        settled = [one["settled"] for one in clicks if one.get("settled")]
        settled_keys = {(pk, epoch, datetime.fromisoformat(at)) for pk, epoch, at in settled} - keys
        counts["settled by operators"] = len(settled_keys)
        wrong = []
        for key in sorted(keys | settled_keys):
            pid, answer = claims.get(key), answers.get(key, "none noted")
            reason = self.why_unconfirmed(key[2].timestamp(), pid, answer)
            counts["right" if reason else "wrong"] += 1
            if reason:
                counts[reason] += 1
            else:
                wrong.append(f"target {key[0]} is unconfirmed, driver {pid} was not killed, answer: {answer}; {key[2]}")
        return dict(counts), wrong

    def why_unconfirmed(self, claimed_at: float, pid: int | None, answer: str) -> str:
        """Return why a claim is rightly unconfirmed; empty where it is not."""
        if pid is not None and self.killed_pids.get(pid, 0.0) >= claimed_at:
            return "driver killed"
        if pid is None and any(claimed_at <= at < claimed_at + STANDSTILL for at in self.killed_pids.values()):
            return "driver killed before the claim was noted"
        return "no answer" if answer == "unconfirmed" else ""

    def journal(self) -> tuple[dict[Any, int], dict[Any, str]]:
        """Return which process made each claim, and which answers were noted, from the claim journal."""
        from fanout.engine.claim_journal import _claim, _lines, _result, files

        claims: dict[Any, int] = {}
        answers: dict[Any, str] = {}
        for folder in (self.folder / "var" / "claims").iterdir():
            for path in files(folder) if folder.is_dir() else []:
                pid = int(path.stem.split("-")[1])
                for line in _lines(path):
                    kind, *fields = line.decode().rstrip("\n").split("\t")
                    with suppress(ValueError, IndexError):
                        if kind == "c":
                            claims[_claim(fields).key] = pid
                        elif kind == "r":
                            result = _result(fields)
                            answers[result.target_id, result.epoch, result.claimed_at] = result.status
        return claims, answers

    def judge_stops(self, book: Any) -> tuple[int, list[str]]:
        """Return how many people said STOP, and what they got after that."""
        sent_to = {line["provider_id"]: line["to"] for line in book.lines() if "provider_id" in line}
        stopped: dict[str, float] = {}
        for report in book.reports("reply"):
            address = sent_to[report.id.removeprefix("ev-").removesuffix("-reply")]
            if report.status == 200 and not address.endswith("@g.us"):
                stopped.setdefault(address, report.t)
        late = [
            f"{delivery.to} got {delivery.message_id} {delivery.t - stopped[delivery.to]:.1f} s after a STOP"
            for delivery in book.deliveries()
            if delivery.to in stopped and delivery.t > stopped[delivery.to] + AFTER_A_STOP
        ]
        return len(stopped), late

    def left_over(self) -> str:
        """Describe what has not come to its end, for people who look for the reason."""
        from fanout.models import LaneState, Run

        fields = ("pk", "status", "pause_reason", "pending", "sending", "lanes", "archived", "error_summary")
        runs = [row for row in Run.objects.values(*fields) if row["pending"] + row["sending"]]
        lanes = list(LaneState.objects.values("account_id", "account__status", "due_at", "holder", "crashes"))
        return f"{runs} {lanes}"


def clicked(clicks: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Count what operators clicked: by control, how often it was done, refused, or not possible without a database."""
    counts: dict[str, Counter[str]] = {}
    for one in clicks:
        word = one["answer"].partition(":")[0]
        counts.setdefault(one["control"], Counter())[
            word if word in ("done", "refused", "no") else "nothing to do"
        ] += 1
    return {control: dict(answers) for control, answers in sorted(counts.items())}
