"""A campaign against real processes, at seeded moments.

    python -m tests.engine.chaos --kills 50 --seed 1
    python -m tests.engine.chaos --fail-over --kills 20
    python -m tests.engine.chaos --lose-commits
    python -m tests.engine.chaos --restore
    python -m tests.engine.chaos --cluster --rounds 2
    python -m tests.engine.chaos --everything --kills 200

It has a PostgreSQL, a sandbox provider and a cluster of its own under a temporary directory, and sends runs of two
parts through them: two runs of one account each, one that two accounts share, and one whose provider takes ten
seconds to answer. First come kill -9 of drivers, whole clusters and PostgreSQL, among operators at the same moment,
clients that stand still with rows locked, and a full disk: what was in flight then may be uncertain. Then come
accidents after which nothing is: PostgreSQL alone is killed, the cluster is stopped cleanly, its clock is set back, or
one of the troubles without a kill. The provider's book judges: no part twice, nothing lost, the pace held, and nothing
unconfirmed that was certain; a run with work that no lane drives for a minute is a failure. With `--fail-over` the
database is a leader with a synchronous standby instead; the leader is killed in the middle and the standby promoted,
which makes nothing uncertain, and the kills (of drivers and clusters) come after it. With `--lose-commits` the standby
is asynchronous and lags behind, with `--restore` the database is recovered to an earlier moment, and with `--cluster`
there are three servers (tests/engine/cluster_campaign.py). `--everything` plays kills, operators, full disks, stuck
clients, fail-overs, receipts and opt-outs together (tests/engine/whole_campaign.py). Prints one JSON object and exits
with 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
from cryptography.fernet import Fernet

from tests.engine import database_cluster
from tests.engine.standby import Archived, LastingPair, Pair
from tests.engine.trouble import KINDS, Trouble
from tests.engine.wider_trouble import Disks

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0
STOP_PATIENCE = 30.0
LATE_ANSWERS = 30.0
STANDSTILL = 60.0
WATCHED = 12.0  # seconds after which a call under way has ended


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, help="50; with --fail-over none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--groups", type=int, default=0, help="targets of a run: for the kills; with --everything 120")
    parser.add_argument("--rate", type=int, help="messages per minute and account: 900; with --everything 300")
    parser.add_argument("--fail-over", action="store_true", help="kill a leader and promote its standby, once")
    parser.add_argument("--lose-commits", action="store_true", help="the same with a standby that lags behind")
    parser.add_argument("--restore", action="store_true", help="recover the database to an earlier moment, once")
    parser.add_argument("--cluster", action="store_true", help="three database machines with Patroni, two of Crier")
    parser.add_argument("--everything", action="store_true", help="all accidents together, with fail-overs; needs root")
    parser.add_argument("--rounds", type=int, default=1, help="with --cluster: accidents of each kind")
    given = parser.parse_args()
    if given.cluster and (problem := database_cluster.missing()):
        sys.exit(f"skipped: {problem}")
    signal.signal(
        signal.SIGTERM, lambda number, frame: sys.exit(f"ended by signal {number}")
    )  # servers and disks go, too
    # Standard output is for the report; servers and commands may write to it, too.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    given.rate = given.rate or (300 if given.everything else 900)
    with tempfile.TemporaryDirectory(prefix="crier-chaos-") as folder, ExitStack() as stack:
        os.chmod(folder, 0o755)
        os.environ |= {
            "CRIER_VAR": folder,
            "CRIER_ENV_FILE": os.devnull,
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "DRIVER_SLICE_SECONDS": "6",
            "BOT_FIRE_CONCURRENCY": "50",
            "LOG_LEVEL": "WARNING",
        }
        os.environ.pop("DATABASE_URL", None)
        fails_over = given.fail_over or given.lose_commits
        servers: Pair | Archived | database_cluster.DatabaseCluster | None = None
        if given.everything:
            disks = stack.enter_context(Disks(Path(folder)))
            os.environ["CRIER_VAR"] = str(disks.data_directory)
            servers = stack.enter_context(LastingPair(Path(folder)))
        elif fails_over:
            servers = stack.enter_context(Pair(Path(folder), not given.lose_commits))
        elif given.restore:
            servers = stack.enter_context(Archived(Path(folder)))
        elif given.cluster:
            servers = stack.enter_context(database_cluster.DatabaseCluster(Path(folder)))
        if servers:
            keys = {"SECRET_KEY": "chaos", "CREDENTIAL_KEYS": Fernet.generate_key().decode()}
            permitted = {"HTTPS": "no", "SANDBOX": "yes", "ALLOW_PRIVATE_NETWORKS": "yes"}
            os.environ |= {"DATABASE_URL": servers.url} | keys | permitted
        import django

        django.setup()
        report = campaign_of(Path(folder), given, servers).run()
        if report["broken"]:
            report["logs"] = tempfile.mkdtemp(prefix="crier-chaos-logs-")
            for log in (path for path in Path(folder).glob("*") if path.suffix in (".log", ".jsonl")):
                shutil.copy(log, report["logs"])
    print(json.dumps(report, indent=1), file=output, flush=True)
    sys.exit(0 if not report["broken"] else 1)


def campaign_of(folder: Path, given: argparse.Namespace, servers: Any) -> Campaign:
    if given.cluster:
        from tests.engine.cluster_campaign import ClusterCampaign

        return ClusterCampaign(folder, given, servers)
    if given.everything:
        from tests.engine.whole_campaign import WholeCampaign

        return WholeCampaign(folder, given, servers)
    if given.lose_commits:
        return LostCommits(folder, given, servers)
    if given.restore:
        return Restored(folder, given, servers)
    return FailOver(folder, given, servers) if given.fail_over else Campaign(folder, given)


class Campaign:
    default_kills = 50
    victims = {"worker": 6, "cluster": 2, "postgres": 2}  # each with how often it is chosen
    slow_groups = 12  # through the provider that takes ten seconds
    end_patience = STANDSTILL  # seconds without progress

    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        self.folder = folder
        self.kills = self.default_kills if given.kills is None else given.kills
        self.rate = given.rate
        # Enough to last for all kills: about a second between two.
        self.groups = given.groups or max(60, self.kills * self.rate // 60 // 2)
        self.rng = random.Random(given.seed)
        self.killed: dict[str, int] = {}
        self.cluster: subprocess.Popen[bytes] | None = None
        self.clock = folder / "clock"
        self.set_back = 0.0
        self.set_clock()
        self.broken: list[str] = []

    def run(self) -> dict[str, Any]:
        from tests.sandbox_server import SandboxServer

        call("migrate", "-v0")
        script = {"slow": {"latency_ms": [8500, 9800]}, "*": {"latency_ms": [20, 120]}}
        with SandboxServer(self.folder, script=script) as sandbox:
            self.sandbox = sandbox
            os.environ["SANDBOX_URL"] = sandbox.url
            runs = self.scene(sandbox.url)
            self.trouble = Trouble(self.rng, runs, self.user)
            began = time.monotonic()
            self.start_cluster()
            try:
                self.torment()
                self.accidents()
                wait(lambda: self.trouble.end_due(everything=True))
                finished = self.wait_for_the_end(runs)
                undriven = wait(lambda: [undriven_work()])[0]
                gaps = time.monotonic() - began
            finally:
                self.stop_cluster()
            self.broken += undriven
            return self.judge(runs, sandbox.book(), finished, gaps)

    def wait_for_the_end(self, runs: list[Any]) -> bool:
        """As long as anything moves: a busy machine needs its time. False: it stands still."""
        before = sys.maxsize
        while (left := (wait(lambda: self.go_on() and [unsettled(runs)]) or [before])[0]) < before:
            if left == 0:
                return True
            before = left
            wait(lambda: self.go_on() and unsettled(runs) == 0, patience=self.end_patience)
        return False

    def go_on(self) -> bool:
        return self.supervise() and self.trouble.resume_paused()

    def scene(self, url: str) -> list[Any]:
        from django.contrib.auth import get_user_model
        from django.utils import timezone

        from accounts.models import Account
        from fanout.runs import controls
        from reminders.models import Recipient, Reminder, ReminderMessage, ReminderTarget
        from tests.engine.stage import whole_day

        self.user = get_user_model().objects.create_user("operator")
        accounts = {
            name: Account.objects.create(
                owner=self.user,
                label=name,
                channel="sandbox",
                address=name,
                max_send_per_minute=self.rate,
                part_jitter_min_ms=50,
                part_jitter_max_ms=100,
                config={"url": url, "recognises_repeats": False},
            )
            for name in ("a0", "a1", "a2", "a3", "slow")
        }
        senders = [["a0"], ["a1"], ["a2", "a3"], ["slow"]]
        runs = []
        for n, names in enumerate(senders):
            reminder = Reminder.objects.create(
                owner=self.user,
                title=f"chaos {n}",
                account=accounts[names[0]],
                **whole_day(timezone.now()),
            )
            reminder.set_further_senders([accounts[name] for name in names[1:]])
            for position in range(2):
                ReminderMessage.objects.create(reminder=reminder, position=position, text=f"part {position}")
            groups = self.slow_groups if names == ["slow"] else self.groups
            people = Recipient.objects.bulk_create(
                Recipient(owner=self.user, kind="group", address=f"{(n + 1) * 10**12 + i}@g.us") for i in range(groups)
            )
            ReminderTarget.objects.bulk_create(
                ReminderTarget(reminder=reminder, recipient=person, position=i) for i, person in enumerate(people)
            )
            runs.append(controls.fire(reminder, self.user, timezone.now()).run)
        return runs

    # --- killing ----------------------------------------------------------------------------------------

    def torment(self) -> None:
        wait(lambda: bool(driver_pids()))
        for _ in range(self.kills):
            time.sleep(self.rng.uniform(0.2, 1.6))
            self.trouble.end_due()
            if self.rng.random() < 0.4:
                self.trouble.begin()
            if self.rng.random() < 0.2:
                wait(self.trouble.resume_paused)
            victim = self.rng.choices([*self.victims], [*self.victims.values()])[0]
            getattr(self, f"kill_{victim}")()
            self.killed[victim] = self.killed.get(victim, 0) + 1
        wait(lambda: self.trouble.end_due(everything=True))
        wait(self.trouble.resume_paused)

    def accidents(self) -> None:
        """After these nothing is uncertain: the process that sent a message lives and knows its outcome."""
        for _ in range(max(1, self.kills // 4)):
            time.sleep(0.5)  # a process that was killed a moment ago still looks alive
            wait(lambda: self.supervise() and bool(driver_pids()) and nothing_left_in_flight())
            before = unconfirmed()
            accident = self.rng.choice(["kill_postgres", "stop", "set_clock_back", *KINDS])
            time.sleep(self.rng.uniform(0.2, 1.6))
            if accident in KINDS:
                self.trouble.begin(accident)
                wait(lambda: self.trouble.end_due())
                wait(self.trouble.resume_paused)
            else:
                getattr(self, accident)()
                self.killed[accident] = self.killed.get(accident, 0) + 1
            # A lost lane's targets are unconfirmed until the answers come that their sender still waits for.
            self.expect_unconfirmed(before, accident)

    def expect_unconfirmed(self, most: int, accident: str) -> None:
        if not wait(lambda: self.supervise() and unconfirmed() <= most, patience=LATE_ANSWERS):
            self.broken.append(f"{unconfirmed() - most} became unconfirmed by {accident}")

    def stop(self) -> None:
        """As systemd and Ctrl-C do it: asked, and then waited for."""
        assert self.cluster is not None
        self.supervise()
        self.cluster.terminate()
        try:
            self.cluster.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self.broken.append(f"the cluster did not stop within {STOP_PATIENCE:g} s")
            self.stop_cluster()
        self.start_cluster()

    def set_clock_back(self) -> None:
        self.set_back += self.rng.choice([1.0, 4.0, 15.0])
        self.set_clock()

    def set_clock(self) -> None:
        # In one step: a process that reads half a line would see a time of its own.
        fresh = self.clock.with_suffix(".new")
        fresh.write_text(f"-{self.set_back}\n")
        fresh.rename(self.clock)

    def supervise(self) -> bool:
        """Start a cluster again that ended, as `manage.py up` does."""
        assert self.cluster is not None
        if self.cluster.poll() is not None:
            self.start_cluster()
        return True

    def kill_worker(self) -> None:
        pids = wait(lambda: self.supervise() and driver_pids())
        if pids:
            kill(self.rng.choice(sorted(pids)))

    def kill_cluster(self) -> None:
        assert self.cluster is not None
        self.supervise()
        tree = [self.cluster.pid, *(child.pid for child in psutil.Process(self.cluster.pid).children(recursive=True))]
        self.rng.shuffle(tree)
        for pid in tree:
            kill(pid)
        self.cluster.wait()
        self.start_cluster()

    def kill_postgres(self) -> None:
        pid = int((self.folder / "postgres" / "postmaster.pid").read_text().split()[0])
        for process in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
            kill(process.pid)
        wait(database_answers)

    def start_cluster(self) -> None:
        with (self.folder / "cluster.log").open("ab") as log:
            self.cluster = subprocess.Popen(
                [sys.executable, "-m", "tests.engine.set_clock", str(self.clock), "cluster", "drivers"],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env=os.environ | {"Q_CLUSTER_NAME": "drivers"},
            )

    def stop_cluster(self) -> None:
        self.supervise()
        assert self.cluster is not None
        children = psutil.Process(self.cluster.pid).children(recursive=True)
        for pid in [self.cluster.pid, *(child.pid for child in children)]:
            kill(pid)
        self.cluster.wait()

    # --- judging ----------------------------------------------------------------------------------------

    def judge(self, runs: list[Any], book: Any, finished: bool, seconds: float) -> dict[str, Any]:
        broken = self.broken + ([] if finished else ["a run did not end"])
        duplicates = book.duplicates("to", "part")
        if duplicates:
            broken.append(f"parts delivered twice: {duplicates}")
        received = {(delivery.to, delivery.part) for delivery in book.deliveries()}
        counts: dict[str, int] = {}
        for run in runs:
            broken += judge_run(run, received, counts)
        peaks = {f"a{n}": book.peak(f"a{n}") for n in range(4)}
        if max(peaks.values(), default=0) > self.rate + 3:
            broken.append(f"more than {self.rate + 3} messages in 60 s: {peaks}")
        return {
            "broken": broken,
            "kills": self.killed,
            "trouble": dict(self.trouble.seen),
            "targets": counts,
            "deliveries": len(book.deliveries()),
            "peaks": peaks,
            "seconds": round(seconds, 1),
        }


class FailOver(Campaign):
    """The leader of two servers dies while runs are under way, and the standby takes over."""

    slow_groups = 2
    default_kills = 0
    victims = {"worker": 3, "cluster": 1}

    def __init__(self, folder: Path, given: argparse.Namespace, pair: Any) -> None:
        super().__init__(folder, given)
        self.pair = pair

    def torment(self) -> None:
        wait(lambda: sent_parts() > self.groups)
        self.pair.kill_leader()
        time.sleep(self.rng.uniform(0.5, 3))  # until the standby is promoted; drivers find no leader meanwhile
        self.pair.promote()
        promoted_at, before = time.monotonic(), wait(sent_parts)
        wait(lambda: self.supervise() and sent_parts() > before)
        self.killed["leader"] = 1
        self.standstill = time.monotonic() - promoted_at
        self.expect_unconfirmed(0, "the fail-over")
        super().torment()

    def accidents(self) -> None:
        """The other accidents need the embedded server."""

    def judge(self, runs: list[Any], book: Any, finished: bool, seconds: float) -> dict[str, Any]:
        found = super().judge(runs, book, finished, seconds)
        return found | {"seconds_from_promotion_to_result": round(self.standstill, 1)}


class LostCommits(FailOver):
    """The same with an asynchronous standby that has not got the last commits. Nothing is sent after the promotion
    until an operator confirms, and nothing twice after that."""

    def lose(self) -> None:
        wait(lambda: sent_parts() > self.groups // 2)
        self.pair.hold_back()
        before = wait(sent_parts)
        wait(lambda: sent_parts() > before + self.groups // 2)
        self.pair.kill_leader()
        self.pair.promote()

    def torment(self) -> None:
        from fanout.models import KnownServer, LostClaim

        self.lose()
        held = wait(lambda: self.supervise() and KnownServer.objects.filter(held=True).exists(), LATE_ANSWERS)
        if not held:
            self.broken.append("the lost commits were not recognised")
        time.sleep(WATCHED)  # calls under way when the leader died have ended
        sent = len(self.sandbox.book().deliveries())
        time.sleep(WATCHED)
        self.supervise()
        if (more := len(self.sandbox.book().deliveries()) - sent) > 0:
            self.broken.append(f"{more} messages went out before an operator confirmed")
        listed = {(claim.address, claim.part) for claim in LostClaim.objects.all()}
        self.found = {"lost_claims": len(listed), "unconfirmed_at_confirmation": unconfirmed()}
        if held:
            call("lost_commits", "--confirm")
        self.killed["leader"] = 1
        self.standstill = 0.0

    def accidents(self) -> None:
        pass

    def judge(self, runs: list[Any], book: Any, finished: bool, seconds: float) -> dict[str, Any]:
        return super().judge(runs, book, finished, seconds) | self.found


class Restored(LostCommits):
    """The same after the server was recovered from a base backup and its archived log, to a moment in the middle."""

    def lose(self) -> None:
        from django.db.models.functions import Now

        from fanout.models import Run

        self.pair.back_up()
        wait(lambda: sent_parts() > self.groups // 2)
        then, before = Run.objects.values_list(Now(), flat=True)[0], wait(sent_parts)
        wait(lambda: sent_parts() > before + self.groups // 2)
        self.pair.recover(then)


def judge_run(run: Any, received: set[tuple[str, int]], counts: dict[str, int]) -> list[str]:
    broken = []
    run.refresh_from_db()
    for target in run.targets.all():
        counts[target.status] = counts.get(target.status, 0) + 1
        told = [part for part in range(2) if (target.address, part) in received]
        if target.status == "sent" and told != [0, 1]:
            broken.append(f"{target.address} is sent, but the provider has parts {told}")
        certain = list(range(target.parts_sent))
        if target.status == "unconfirmed" and told not in (certain, [*certain, target.parts_sent]):
            broken.append(f"{target.address} is unconfirmed at part {target.parts_sent}, the provider has {told}")
        if target.status not in ("sent", "unconfirmed"):
            broken.append(f"{target.address} is {target.status}: {target.error}")
    total = run.sent + run.unconfirmed + run.failed + run.skipped + run.pending + run.sending
    if total != run.total:
        broken.append(f"the books of run {run.pk} do not balance")
    if run.pending or run.sending:
        account = run.account
        broken = [
            f"run {run.pk} is {run.status} with {run.pending} pending; account {account.status} {account.status_reason}"
        ]
    return broken


def unsettled(runs: list[Any]) -> int:
    """Count the parts that are still to be sent, or under way, and the runs that have not ended."""
    left = 0
    for run in runs:
        run.refresh_from_db()
        left += run.finished_at is None
        for target in run.targets.filter(status__in=["pending", "sending"]):
            left += len(run.parts) - target.parts_sent
    return left


def undriven_work() -> list[str]:
    """Return work that no lane would ever pick up."""
    from django.utils import timezone

    from fanout.ops import audit

    now = timezone.now()
    found = [*audit.forgotten_lanes(now, now), *audit.sleeping(now, now)]
    return [f"no lane drives it: {violation.subject}: {violation.text}" for violation in found]


def sent_parts() -> int:
    from django.db.models import Sum

    from fanout.models import RunTarget

    return RunTarget.objects.aggregate(n=Sum("parts_sent"))["n"] or 0


def driver_pids() -> set[int]:
    from datetime import timedelta

    from django.utils import timezone

    from fanout.models import Driver

    # Long ago: whether it runs says more than its last beat.
    since = timezone.now() - timedelta(minutes=10)
    pids = Driver.objects.filter(beat_at__gte=since, ended_at__isnull=True).values_list("pid", flat=True)
    return {pid for pid in pids if is_running(pid)}


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def unconfirmed() -> int:
    from fanout.models import RunTarget

    return RunTarget.objects.filter(status="unconfirmed").count()


def nothing_left_in_flight() -> bool:
    """Check that everything in flight was claimed by a driver that lives. In one statement: drivers go on meanwhile."""
    from django.db.models import F

    from fanout.models import Driver, RunTarget

    alive = Driver.objects.filter(pid__in=driver_pids()).values("token")
    in_flight = RunTarget.objects.filter(status="sending")
    known = in_flight.filter(account__lane__holder__in=alive, claim_epoch=F("account__lane__epoch"))
    return not in_flight.exclude(pk__in=known.values("pk")).exists()


def database_answers() -> bool:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return True


def wait(ask: Callable[[], T], patience: float = PATIENCE) -> T:
    """Ask until the answer is true, through restarts of the database."""
    from django.db import DatabaseError, InterfaceError, connection

    until = time.monotonic() + patience
    answer: Any = False
    while time.monotonic() < until:
        try:
            answer = ask()
        except (DatabaseError, InterfaceError):
            connection.close()
            answer = False
        if answer:
            break
        time.sleep(0.1)
    return answer


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, 9)


def call(*command: str) -> None:
    subprocess.run([sys.executable, "manage.py", *command], cwd=ROOT, check=True, env=os.environ)


if __name__ == "__main__":
    main()
