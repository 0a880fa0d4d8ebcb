"""Changes that change nothing: no test can notice them, and here is why."""

from __future__ import annotations

from fnmatch import fnmatch

from tests.mutants.changes import Mutant

#: file, the piece as it is, the piece as it would be (patterns), and the reason
EQUIVALENT: tuple[tuple[str, str, str, str], ...] = (
    ("fanout/engine/holding.py", "0x43*", "*", "the number of a lock space: any unused one is as good"),
    (
        "fanout/engine/commit.py",
        "id = ANY(%s::bigint[[]])",
        "*",
        "LOCK_RUNS only takes locks earlier: without it batches may deadlock, and are then written one by one",
    ),
    (
        "fanout/engine/commit.py",
        "account_id = ANY(%s::bigint[[]])",
        "*",
        "LOCK_LANE_STATES only takes locks earlier, in the order of the accounts: the same is written without it",
    ),
    ("fanout/rules/outcomes.py", "0.0", "False", "of seconds that nobody named: False counts as zero"),
    (
        "fanout/rules/new_chat_limits.py",
        "20",
        "(20 + 1)",
        "how often a hold may double: before that it is as long as the longest, even if it began with a second",
    ),
    (
        "fanout/runs/follow_ups.py",
        "o.id <> t.id",
        "(true OR*",
        "the target itself is pending without a part, and that is not under way",
    ),
    (
        "fanout/migrations/version_1_0/counters.py",
        "id = ANY(runs)",
        "(true OR*",
        "more runs are locked, or looked at, than have changes: the counts are the same",
    ),
    (
        "fanout/runs/freezing.py",
        "35.0",
        "*",
        "how long a task works before the next one goes on: a second more or less",
    ),
    (
        "fanout/runs/hygiene.py",
        "30.0",
        "*",
        "how long a round works before the next one goes on: a second more or less",
    ),
    ("fanout/runs/controls.py", "20.0", "*", "how long a person waits before the sweep goes on: a second more or less"),
    (
        "fanout/lanes/account_limits.py",
        "0x43*",
        "*",
        "the number of a lock space: any unused one is as good",
    ),
    ("fanout/inbound/worker.py", "0x43*", "*", "the number of a lock: any unused one is as good"),
    (
        "fanout/runs/follow_ups.py",
        "address = ANY(%s::text[[]])",
        "*",
        "LOCK_PEOPLE only takes locks earlier, in one order: what is changed afterwards is the same without it",
    ),
    (
        "fanout/database.py",
        "id = ANY(%(runs)s)",
        "*",
        "LOCK_RUNS only takes locks earlier, in one order: what is changed afterwards is the same without it",
    ),
    (
        "fanout/lanes/lane_rows.py",
        "account_id = ANY(%(accounts)s)",
        "*",
        "LOCK_LANE_ROWS only takes locks earlier, in one order: what is changed afterwards is the same without it",
    ),
    ("fanout/inbound/bounces.py", "now", "False", "the fallback for the type: what is unconfirmed was claimed"),
    ("reminders/window.py", " > ", " >= ", "the same hour was refused before"),
    ("fanout/inbound/mails.py", '""', "False", "of a header that is not there: no word in it names a message"),
    ("accounts/access.py", "0", "(0 + 1)", "how much Django says: it names permissions from 2 on"),
    ("accounts/access.py", "thing.team_id is not None", "True", "no group has no number, so nobody is in it"),
    (
        "fanout/migrations/version_1_0/senders.py",
        "(NEW.account_id <> OLD.account_id)",
        "(true OR*",
        "the account is there already, and holding it once more changes nothing",
    ),
    (
        "accounts/channels/http.py",
        "not ip.is_reserved",
        "True",
        "Python counts what is reserved among what is not global",
    ),
    (
        "accounts/channels/gmail/google_api.py",
        "not answer.retry_after.isdigit()",
        "True",
        "a number is no date either: it is read as seconds below",
    ),
    ("accounts/channels/mail.py", "part.media", "True", "for the type: there is no content id without a file"),
    (
        "accounts/channels/settings.py",
        "_is_ip(host)",
        "True",
        "a name that is no address is a ValueError, and refused too",
    ),
    (
        "accounts/channels/settings.py",
        "not isinstance(value, str)",
        "False",
        "a pattern raises TypeError for what is no text, and that is refused too",
    ),
    (
        "accounts/channels/smtp/connection.py",
        "login",
        "not (login)",
        "before MAIL a refusal means the same at the door and at the login",
    ),
    ("accounts/channels/*/transport.py", "120.0", "*", "how long an upload may take: a second more or less"),
    ("accounts/channels/gateway.py", "60.0", "*", "how long a list may take: a second more or less"),
    ("accounts/channels/smtp/connection.py", "1.0", "*", "how long a goodbye may take: a second more or less"),
    (
        "fanout/engine/ledger.py",
        "commit.only_starts",
        "True",
        "the writer pauses before each batch instead of going on: whoever handed in something has woken it again",
    ),
    (
        "accounts/channels/whatsapp/bridge/journal.py",
        "1",
        "2",
        "a column that is read as true or false: any number but 0 is true",
    ),
    (
        "config/logins.py",
        "0",
        "(0 + 1)",
        "failures where there is no row: the limits are 5 and 25, and the first failure makes a row",
    ),
    ("fanout/rules/liveness.py", "1", "(1 + 1)", "how often a bridge beats: it is replaced after ten seconds without"),
    ("reminders/excel.py", "60.0", "(60.0 + 1)", "how long a file waits for its turn: a second more or less"),
    ("*.py", "log.*", "*", "words for a person"),
)


def reason_of(mutant: Mutant) -> str | None:
    for file, before, after, reason in EQUIVALENT:
        if fnmatch(mutant.file, file) and fnmatch(mutant.before, before) and fnmatch(mutant.after, after):
            return reason
    return None
