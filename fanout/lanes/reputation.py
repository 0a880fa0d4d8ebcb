"""An account's reputation: how many people complained, replied and opted out, which refusals are its own fault, and
what to do about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import QuerySet

from accounts.actions import Action
from accounts.channels.base import Kind
from accounts.channels.faults import ADVICE, Cause, cause_of
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.database import Row, Steps, carry_out, execute
from fanout.lanes import results, status
from fanout.lanes.results import Result
from fanout.lanes.telling import add_event, tell
from fanout.rules import breaker
from fanout.rules.gates import local_date
from fanout.rules.outcomes import AccountChange

#: People complain days after the message, so a day alone says little.
SPAN = timedelta(days=7)
WARNED_FOR = timedelta(days=1)
WARNING = "complaints"

# Proven complaints of the last days, and the messages that went out in them. Messages sent before the account was last
# activated do not count: an operator has seen what became of them.
COMPLAINTS = """
SELECT a.id, a.owner_id, a.team_id, a.label,
       (SELECT count(*) FROM fanout_inboundevent e LEFT JOIN fanout_runtarget t ON t.id = e.run_target_id
         WHERE e.account_id = a.id AND e.kind = 'complaint' AND e.happened_at >= since.at
           AND coalesce(t.claimed_at >= since.at, true) AND NOT e.detail @> '{"authentic": false}') AS complaints,
       (SELECT count(*) FROM fanout_activity v
         WHERE v.account_id = a.id AND v.action = ANY(%(actions)s::text[]) AND v.outcome = 'sent'
           AND v.at >= since.at) AS sends,
       EXISTS (SELECT FROM fanout_event v
                WHERE v.account_id = a.id AND v.verb = %(warning)s AND v.at > %(warned_after)s) AS warned
  FROM accounts_account a,
       LATERAL (SELECT greatest(%(starts)s::timestamptz, a.status_changed_at) AS at) AS since
 WHERE a.id = %(account)s
"""


def judge_complaints(account: int, threshold: float, now: datetime) -> Steps[str]:
    """Pause an account that too many people complain about, or warn its owner and team once a day. Returns what was
    done in words; empty: nothing."""
    (row,) = yield COMPLAINTS, _week(account, now)
    complaints, sends = row["complaints"], row["sends"]
    why = (
        f"complaint rate {breaker.complaint_rate(complaints, sends):.1%}: {_counted(complaints)} about {sends} messages"
    )
    if breaker.too_many_complaints(complaints, sends, threshold):
        stopped = yield from status.stop(account, AccountChange("paused", why), now)
        return f"the account is paused: {why}" if stopped else ""
    if not breaker.warns_of_complaints(complaints, sends) or row["warned"]:
        return ""
    limit = f"Gmail and Yahoo reject mail above {breaker.COMPLAINT_LIMIT:.1%}"
    yield add_event(now, WARNING, f"{why}; {limit}", account=account)
    yield from tell(row, "People complain", f"{why}. {limit}: write only to people who expect it", "warning", now)
    return f"the owner is warned: {why}"


def _week(account: int, now: datetime) -> Row:
    return {
        "account": account,
        "actions": list(Action.values),
        "starts": now - SPAN,
        "warning": WARNING,
        "warned_after": now - WARNED_FOR,
    }


def _counted(complaints: int) -> str:
    return "1 complaint" if complaints == 1 else f"{complaints} complaints"


# --- replies and opt-outs, this week and the one before ---------------------------------------------------

OPT_OUTS_RISE = "opt-outs rise"
ADVICE_ON_OPT_OUTS = "Write less often, and only to people who expect it: WhatsApp blocks numbers that people report"
TOLD_FOR = timedelta(days=7)
LATELY = "messages in the last seven days"


class Trend(NamedTuple):
    """How people took an account's messages in the last seven days and in the seven before; and chats it began."""

    week: Result
    before: Result
    new_chats: int = 0
    new_chats_before: int = 0

    @property
    def warning(self) -> str:
        """Return a sentence if many more people opt out than before; empty otherwise."""
        week, before = self.week, self.before
        if not breaker.opt_outs_rise(week.opted_out, week.sent, before.opted_out, before.sent):
            return ""
        now = f"{_rate(week.per_thousand('opted_out'))} per 1,000 {LATELY}"
        if earlier := breaker.rate_before(before.opted_out, before.sent):
            twice = week.opted_out * before.sent == 2 * before.opted_out * week.sent
            risen = "doubled" if twice else "more than doubled"
            return f"Opt-outs have {risen}: {now}, {_rate(earlier * 1000)} in the seven before."
        if before.sent < breaker.MINIMUM_SAMPLE:
            return f"Many people opt out: {now}; before, too few were sent to compare."
        return f"Opt-outs have begun: {now}, 0 in the seven before."

    def line(self, name: str) -> str:
        """Return both rates of replies or opt-outs, in words."""
        now, before = self.week.per_thousand(name), self.before.per_thousand(name)
        return f"{now:.1f} per 1,000 messages, {before:.1f} in the seven days before"


def _rate(per_thousand: float) -> str:
    """Return the rate with a decimal where it is small: 0.4 is not 0."""
    return f"{per_thousand:.0f}" if per_thousand >= 10 else f"{per_thousand:.1f}"


# The weeks of one account, in each row with the chats that it began.
WITH_NEW_CHATS = f"""
SELECT weeks.*, chats.* FROM (
  SELECT count(*) FILTER (WHERE begun_at > %(week)s) AS new_chats,
         count(*) FILTER (WHERE begun_at <= %(week)s) AS new_chats_before
    FROM fanout_knownchat WHERE account_id = ANY(%(accounts)s::bigint[]) AND begun_at > %(two_weeks)s) AS chats
  LEFT JOIN ({results.WEEKS_OF}) AS weeks ON true
"""


def trends(accounts: Iterable[Account], now: datetime) -> dict[int, Trend]:
    """Return the trend of each account, without new chats, in one query."""
    weeks = results.two_weeks({account.pk: local_date(account.timezone, now) for account in accounts})
    return {pk: Trend(*pair) for pk, pair in weeks.items()}


def trend(account: Account, now: datetime) -> Trend:
    """Return the trend of one account, with its new chats, in one query."""
    today = {account.pk: local_date(account.timezone, now)}
    rows = execute(WITH_NEW_CHATS, results.of_accounts(today) | {"week": now - SPAN, "two_weeks": now - 2 * SPAN})
    week, before = results.weeks_in(rows, today)[account.pk]
    return Trend(week, before, rows[0]["new_chats"], rows[0]["new_chats_before"])


def with_opt_outs(accounts: QuerySet[Account], now: datetime) -> QuerySet[Account]:
    """Return those of the accounts that had enough opt-outs lately to be judged, by name."""
    return results.with_opt_outs(accounts, breaker.LEAST_OPT_OUTS, now).order_by("label", "pk")


def rising(accounts: Iterable[Account], now: datetime) -> list[tuple[Account, str]]:
    """Return those of the accounts of which more people opt out than before, with the warning."""
    some = list(accounts)
    found = trends(some, now)
    return [(account, found[account.pk].warning) for account in some if found[account.pk].warning]


def warn_of_opt_outs(now: datetime) -> int:
    """Tell owners and teams of accounts whose opt-outs rise, once a week. Returns how many accounts there were."""
    told = 0
    judged = with_opt_outs(Account.objects.filter(archived=False), now)
    for account, warning in rising(judged, now):
        with transaction.atomic():
            lately = account.events.filter(verb=OPT_OUTS_RISE, at__gt=now - TOLD_FOR)
            if not lately.exists():
                carry_out(_tell_of_opt_outs(account, warning, now))
                told += 1
    return told


def _tell_of_opt_outs(account: Account, warning: str, now: datetime) -> Steps[None]:
    about = {"id": account.pk, "owner_id": account.owner_id, "team_id": account.team_id, "label": account.label}
    yield add_event(now, OPT_OUTS_RISE, warning, account=account.pk)
    yield from tell(about, "Opt-outs rise", f"{warning} {ADVICE_ON_OPT_OUTS}", "warning", now)


# --- for the account's page -------------------------------------------------------------------------------

OWN_FAULTS = [Kind.SENDER_REJECTED.value, Kind.CONTENT_REJECTED.value]
MOST_LOOKED_AT = 500
# Failures that are not the recipient's fault, newest first. A mail that came back counts as a soft bounce: what its
# target failed of says more.
REFUSED = """
SELECT t.error FROM fanout_activity v JOIN fanout_runtarget t ON t.id = v.run_target_id
 WHERE v.account_id = %(account)s AND v.action = ANY(%(actions)s::text[]) AND v.at >= %(starts)s
   AND v.outcome = 'failed' AND t.status = 'failed' AND t.error_kind = ANY(%(kinds)s::text[])
 ORDER BY v.at DESC LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class OwnFault:
    """A reason why servers refused the account's mail, with an example and what to do."""

    cause: Cause
    count: int
    answer: str
    advice: str


class MailHealth(NamedTuple):
    """The last seven days of a mail account."""

    sends: int
    complaints: int
    rate: float
    alarming: bool
    faults: list[OwnFault]

    @property
    def good(self) -> bool:
        return not self.complaints and not self.faults


def mail_health(account: Account, now: datetime) -> MailHealth | None:
    """Return how servers and people take the account's mail; None for accounts that send no mail."""
    if channel(account.channel).action != Action.EMAIL:
        return None
    (row,) = execute(COMPLAINTS, _week(account.pk, now))
    complaints, sends = row["complaints"], row["sends"]
    return MailHealth(
        sends,
        complaints,
        breaker.complaint_rate(complaints, sends),
        breaker.warns_of_complaints(complaints, sends),
        _own_faults(account, now),
    )


def _own_faults(account: Account, now: datetime) -> list[OwnFault]:
    wanted = {"account": account.pk, "actions": list(Action.values), "starts": now - SPAN}
    answers = [row["error"] for row in execute(REFUSED, wanted | {"kinds": OWN_FAULTS, "most": MOST_LOOKED_AT})]
    causes = [cause_of(answer) for answer in answers]
    newest = dict(zip(reversed(causes), reversed(answers)))
    return [
        OwnFault(cause, count, newest[cause], ADVICE[cause])
        for cause, count in Counter(causes).most_common()
        if cause in ADVICE
    ]
