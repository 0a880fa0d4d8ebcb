"""An operator at work in a process of its own, for the campaign in which everything goes wrong at once.

    python -m tests.engine.clicking SEED FOLDER TARGETS

Until it is told to end (SIGTERM) it fires reminders that several accounts send, and pauses, resumes, cancels, retries,
settles, offloads, archives and edits, as other operators do at the same moment. Before it settles an unconfirmed
message it looks into the provider's book, as a person would look at the phone. FOLDER has the book, and
`clicks.jsonl`, to which every click is added with its answer, and with the claim that was settled. TARGETS is the size
of a reminder.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import django

#: how often each is chosen
WEIGHTS = {
    "fire": 12,
    "pause": 6,
    "resume": 12,
    "retry": 4,
    "settle": 6,
    "offload": 4,
    "archive": 3,
    "edit": 4,
    "reactivate": 2,
    "cancel": 0.3,
}
ENOUGH_RUNS = 5  # that are not finished
TARGETS = 120
PARTS = 2
#: By then no call for a claim is under way: neither a driver nor the provider is stopped for so long.
CERTAIN_AFTER = timedelta(seconds=60)


def main() -> None:
    seed, folder, targets = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    django.setup()
    operator = Operator(seed, folder, targets)
    while not stopped:
        operator.click()
        time.sleep(operator.rng.uniform(0.3, 1.5))


class Operator:
    def __init__(self, seed: int, folder: Path, targets: int = TARGETS) -> None:
        self.rng = random.Random(seed)
        self.targets = targets
        self.name = f"{seed}-{os.getpid()}"
        self.book_path = folder / "book.jsonl"
        self.clicks = os.open(folder / "clicks.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.fired = 0
        self.settled: list[Any] | None = None  # the claim that the last click settled

    def click(self) -> None:
        """Choose a control and use it. A database that is away, full or locked is answered by trying again later."""
        from django.db import DatabaseError, InterfaceError, connection
        from django.utils import timezone

        control = self.rng.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
        began, answer, self.settled = time.monotonic(), "", None
        try:
            answer = getattr(self, control)(timezone.now())
        except (DatabaseError, InterfaceError) as error:
            answer = f"no: {type(error).__name__} {error}".partition("\n")[0]
            connection.close()
        except Exception as error:  # the judge's business
            answer = f"crashed: {type(error).__name__}: {error}"
        seconds = round(time.monotonic() - began, 2)
        line = {"by": self.name, "control": control, "answer": answer, "seconds": seconds, "settled": self.settled}
        os.write(self.clicks, json.dumps(line).encode() + b"\n")

    # --- what is clicked --------------------------------------------------------------------------------

    def fire(self, now: datetime) -> str:
        """Make a reminder of several senders and fire it, unless enough is under way."""
        from fanout.models import Run
        from fanout.runs import controls

        if Run.objects.filter(finished_at=None).exclude(status="canceled").count() >= ENOUGH_RUNS:
            return "enough is under way"
        self.fired += 1
        return told(controls.fire(self.reminder(f"{self.name}-{self.fired}", now), self.user(), now))

    def reminder(self, title: str, now: datetime) -> Any:
        from django.db import transaction

        from accounts.models import Account
        from reminders.models import Recipient, Reminder, ReminderMessage, ReminderTarget
        from tests.engine.stage import whole_day

        accounts = list(Account.objects.order_by("pk"))
        senders = self.rng.sample(accounts, self.rng.choice([2, 2, 3, 4]))
        people = self.rng.sample(list(Recipient.objects.order_by("pk")), self.targets)
        with transaction.atomic():
            reminder = Reminder.objects.create(owner=self.user(), title=title, account=senders[0], **whole_day(now))
            reminder.set_further_senders(senders[1:])
            ReminderMessage.objects.bulk_create(
                ReminderMessage(reminder=reminder, position=part, text=f"{title} part {part}") for part in range(PARTS)
            )
            ReminderTarget.objects.bulk_create(
                ReminderTarget(reminder=reminder, recipient=person, position=n) for n, person in enumerate(people)
            )
        return reminder

    def pause(self, now: datetime) -> str:
        from fanout.runs import controls

        return self.on_a_run(lambda run: controls.pause(run, self.user(), now), finished_at=None)

    def resume(self, now: datetime) -> str:
        from fanout.runs import controls

        return self.on_a_run(lambda run: controls.resume(run, self.user(), now), status="paused")

    def cancel(self, now: datetime) -> str:
        from fanout.runs import controls

        return self.on_a_run(lambda run: controls.cancel(run, self.user(), now), finished_at=None)

    def retry(self, now: datetime) -> str:
        from fanout.runs import controls

        return self.on_a_run(lambda run: controls.retry_failed(run, self.user(), now), failed__gt=0)

    def settle(self, now: datetime) -> str:
        """Settle an unconfirmed message as the provider's book knows it."""
        from accounts.channels.sandbox.book import Book
        from fanout.models import RunTarget
        from fanout.runs import corrections

        unconfirmed = RunTarget.objects.filter(status="unconfirmed", claimed_at__lt=now - CERTAIN_AFTER)
        target = self.one_of(unconfirmed)
        if target is None or target.claimed_at is None:
            return "nothing to settle"
        self.settled = [target.pk, target.claim_epoch, target.claimed_at.isoformat()]
        received = {(delivery.to, delivery.message_id) for delivery in Book.read(self.book_path).deliveries()}
        begins = f"crier-{target.pk}-{target.parts_sent}-"
        delivered = any(to == target.address and name.startswith(begins) for to, name in received)
        return told(corrections.settle(target.run, [target.pk], delivered, self.user(), now))

    def offload(self, now: datetime) -> str:
        from accounts.models import Account
        from fanout.runs import corrections

        account = self.one_of(Account.objects.all())
        resumes = self.rng.random() < 0.5
        return self.on_a_run(
            lambda run: corrections.offload(run, account, self.user(), now, and_resume=resumes), finished_at=None
        )

    def archive(self, now: datetime) -> str:
        from fanout.runs import controls

        back = self.rng.random() < 0.4
        return self.on_a_run(lambda run: controls.archive(run, self.user(), now, archived=not back), archived=back)

    def edit(self, now: datetime) -> str:
        """Change an account's pace, and the text of a reminder that may be going out: its run has the old one."""
        from accounts.models import Account
        from fanout.lanes.accounts import tune
        from reminders.models import Reminder, ReminderMessage

        account = self.one_of(Account.objects.all())
        reminder = self.one_of(Reminder.objects.filter(runs__isnull=False).distinct())
        if reminder is not None:
            ReminderMessage.objects.filter(reminder=reminder).update(text="edited after it was fired")
        rate = int(os.environ["CHAOS_RATE"])
        tune(account, {"max_send_per_minute": self.rng.choice([rate // 2, rate, rate])}, self.user(), now)
        return "done"

    def reactivate(self, now: datetime) -> str:
        from accounts.models import Account
        from fanout.runs import controls

        account = self.one_of(Account.objects.exclude(status="active"))
        return "all are active" if account is None else told(controls.reactivate(account, self.user(), now))

    # --- choosing ---------------------------------------------------------------------------------------

    def user(self) -> Any:
        from django.contrib.auth import get_user_model

        return get_user_model().objects.get(username="operator")

    def on_a_run(self, control: Callable[[Any], Any], **which: Any) -> str:
        from fanout.models import Run

        run = self.one_of(Run.objects.filter(**which))
        return "no such run" if run is None else told(control(run))

    def one_of(self, rows: Any) -> Any:
        """Choose one. It may have changed since it was listed, as on a page that is not fresh."""
        listed = list(rows.order_by("pk").values_list("pk", flat=True))
        return rows.model.objects.get(pk=self.rng.choice(listed)) if listed else None


def told(result: Any) -> str:
    return f"{'done' if result.ok else 'refused'}: {result.text}"


if __name__ == "__main__":
    main()
