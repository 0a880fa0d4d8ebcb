"""The reminder's form as it stands, saved or not: its schedule and forecast, its recipients, and its texts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import Count, Q, QuerySet, TextField
from django.http import HttpRequest, QueryDict
from django.template.defaultfilters import pluralize
from django.utils import timezone
from django.utils.text import get_text_list

from accounts import access
from accounts.actions import Action
from accounts.addresses import NEW_CHAT_KINDS, counted_as
from accounts.inputs import as_id, as_ids, counted, valid_timezone
from accounts.models import Account
from fanout.admin.run_status import my_zone
from fanout.lanes.chats import addresses_with_chat, new_among, wrote_since
from fanout.models import KnownChat
from fanout.plans.audience import examples, reached, segment_members, shared_with
from fanout.plans.forecast import CountNew, Forecast, Reader, draft_lanes, forecast_draft, forecast_lanes
from fanout.plans.outlook import LaneWork, messages_left_at
from reminders import imports, schedule, suppressions, wording
from reminders.excel import MOST_ROWS
from reminders.models import (
    MOST_STEPS,
    Recipient,
    Reminder,
    ReminderTarget,
    Segment,
    Suppression,
    length_problems,
)
from reminders.moments import moment, wall_clock
from reminders.readiness import follow_ups_in_words, missing, missing_in_words, subject_problem
from reminders.targets import able_to_reach, among, count_kinds, what_they_reach, with_any_tag
from reminders.window import Window, window_error
from reminders.wording import Audience, Text

PART_KIND = re.compile(r"(messages-\d{1,4})-kind")
FOLLOW_UP_KIND = re.compile(r"(follow_up_parts-\d{1,4})-kind")
FIRINGS = 5
MOST_SENDS = 100_000  # a forecast simulates every one of them


@dataclass(slots=True)
class Draft:
    senders: list[Account]
    timezone: str
    schedule: str
    fire_at: datetime | None
    cron: str
    hours: tuple[int, int] | None
    parts: int
    kinds: Counter[str]  # how many will get it, by kind of address
    count_new: CountNew
    action: str = ""
    subject: str = ""
    #: a sentence about a date and time that cannot be used; empty if there is none
    time_problem: str = ""
    follow_up_days: Sequence[int] = ()

    @classmethod
    def posted(cls, request: HttpRequest, chosen: Chosen, kinds: Counter[str], now: datetime) -> Draft:
        form = request.POST
        zone = form.get("timezone", "")
        fire_at, time_problem = _parse_moment(form.get("fire_at", ""), zone, now)
        if time_problem and fire_at and keeps_its_time(_saved(form, request.user), fire_at):
            time_problem = ""
        return cls(
            chosen.accounts,
            zone,
            form.get("schedule", "once"),
            fire_at,
            form.get("cron", "").strip(),
            _parse_hours(form.get("delivery_window_start_hour", ""), form.get("delivery_window_end_hour", "")),
            len(written_parts(form)),
            kinds,
            lambda account: chosen.new_chats(account, now),
            Action.CONNECTION_REQUEST if form.get("connect") else Action.INMAIL if form.get("inmail") else "",
            form.get("subject", ""),
            "" if form.get("schedule") == schedule.CRON else time_problem,
            as_ids(imports.split_tags(form.get("follow_up_days", ""))[:MOST_STEPS]),
        )

    def forecast(self, now: datetime) -> dict[str, Any]:
        """Return missing parts, the next firings, the forecast, and each account's share of it, for the form."""
        answer: dict[str, Any] = {
            "review": "",
            "missing": "",
            "firings": [],
            "words": "",
            "window": "",
            "late": "",
            "forecast": "",
            "fits": True,
            "lanes": [],
            "problem": self.problem(),
            "passed": self.time_problem,
        }
        if answer["problem"]:
            return answer | {"review": self._review([], now)}
        when = (self.schedule, self.fire_at, self.cron, self.timezone)
        firings = schedule.upcoming(*when, now, FIRINGS) if self.timed else []
        answer["review"] = self._review(firings, now)
        answer["missing"] = " ".join(filter(None, [missing_in_words(self.missing()), *self._refused()]))
        answer["window"] = self._window_in_words()
        answer["firings"] = [self._firing(at, now) for at in firings]
        answer["words"] = schedule.describe(self.cron) if self.schedule == schedule.CRON else ""
        answer["late"] = (self.timed and schedule.late_error(*when, self._window, now)) or ""
        return answer | self._fitting(max(now, firings[0]) if firings else now, now)

    def starts(self, now: datetime) -> datetime:
        """Return when it goes out first, as far as that is known."""
        when = (self.schedule, self.fire_at, self.cron, self.timezone)
        firings = schedule.upcoming(*when, now, 1) if self.timed and not self.problem() else []
        return max(now, firings[0]) if firings else now

    def problem(self) -> str:
        if not valid_timezone(self.timezone):
            return "Choose a timezone."
        if self.schedule not in Reminder.Schedule.values:
            return "Choose a schedule."
        if self.hours is None:
            return "Give the delivery hours as whole numbers."
        if problem := window_error(*self.hours):
            return problem
        return (schedule.cron_error(self.cron) or "") if self.schedule == schedule.CRON and self.cron else ""

    @property
    def timed(self) -> bool:
        return bool(self.cron if self.schedule == schedule.CRON else self.fire_at)

    def missing(self) -> list[str]:
        return missing(self.parts, self.kinds.total(), self.timed)

    def _refused(self) -> Iterator[str]:
        """Yield what saving would refuse about these accounts."""
        if not self.senders:
            return
        yield subject_problem(self.senders, self.subject)
        if left_out := self.kinds.total() - self._reached():
            yield f"{counted(left_out, 'recipient')} cannot be reached: {what_they_reach(self.senders)}."

    def _reached(self) -> int:
        """Return how many of the recipients these accounts can write to."""
        return sum(n for kind, n in self.kinds.items() if able_to_reach(kind, self.senders))

    @property
    def _window(self) -> Window:
        assert self.hours is not None  # problem() has looked
        return Window(self.timezone, *self.hours)

    def _review(self, firings: Sequence[datetime], now: datetime) -> str:
        """Return the whole reminder in a sentence."""
        through = f" through {get_text_list([str(account) for account in self.senders], 'and')}" if self.senders else ""
        once = f", {moment(firings[0], self.timezone, now)}" if firings else ""
        repeats = self.schedule == schedule.CRON and self.cron and not self.problem()
        when = f", {schedule.describe(self.cron)} ({self.timezone})" if repeats else once
        messages = f"{self.parts} message{pluralize(self.parts)} each"
        later = f"; {words}" if (words := follow_ups_in_words(self.follow_up_days)) else ""
        return f"To {of_kinds(self.kinds)}{through}{when}, {messages}{later}."

    def _window_in_words(self) -> str:
        window = self._window
        hours = window.end_hour - window.start_hour
        return f"{window.start_hour:02d}:00–{window.end_hour:02d}:00, {hours} hour{pluralize(hours)} a day"

    def _firing(self, at: datetime, now: datetime) -> dict[str, Any]:
        late = self._is_late(at)
        after = ": after the delivery hours, sends nothing" if late else ""
        return {"text": f"{moment(at, self.timezone, now)}{after}", "late": late}

    def _is_late(self, at: datetime) -> bool:
        return at >= self._window.closes_on(at)

    def _fitting(self, at: datetime, now: datetime) -> dict[str, Any]:
        if not self.senders:
            return {"forecast": "Choose an account to see when it will be done.", "fits": None}
        if not self.kinds.total():
            return {"forecast": "No one to send it to yet.", "fits": None}
        if not self._reached():
            return {"forecast": f"No recipient can be reached: {what_they_reach(self.senders)}.", "fits": False}
        if self.kinds.total() * max(self.parts, 1) > MOST_SENDS:
            return {"forecast": f"More than {MOST_SENDS:,} messages: no forecast.", "fits": None}
        lanes = draft_lanes(
            self.senders, self.kinds, self.parts or 1, self._window, at, now, self.count_new, self.action
        )
        whole = forecast_draft(lanes, self._window, at, Reader(now, my_zone()))
        lead = "" if self.timed else "If fired now: "
        fitting = {"forecast": f"{lead}{whole.sentence}", "fits": whole.fits}
        if self._is_late(at):
            return fitting
        return fitting | {"lanes": [self._share(account, lane, at, now) for account, lane in zip(self.senders, lanes)]}

    def _share(self, account: Account, lane: LaneWork, at: datetime, now: datetime) -> dict[str, Any]:
        """Return one account's row: its queue when the reminder fires, its share, and when that is done."""
        ahead = messages_left_at(lane.account, lane.account.queued_before, at, now)
        forecast = forecast_lanes([lane], self._window, at, Reader(now, my_zone()))
        return {
            "sender": str(account),
            "status": "" if account.status == Account.Status.ACTIVE else account.status,
            "ahead": f"{ahead:,}",
            "share": f"{lane.targets:,}",
            "done": self._done(lane, forecast, now),
            "fits": forecast.fits,
        }

    def _done(self, lane: LaneWork, forecast: Forecast, now: datetime) -> str:
        if not lane.targets:
            return "–"
        return wall_clock(forecast.ends_at, my_zone(), now) if forecast.ends_at else "never"


def of_kinds(kinds: Counter[str], cap: int | None = None) -> str:
    """Return the number of recipients by what they are; above the cap it is not exact."""
    n, known = kinds.total(), [kind for kind, n in kinds.items() if n]
    return f"more than {counted_as(cap, known)}" if cap is not None and n > cap else counted_as(n, known)


def written_parts(form: Mapping[str, Any], files: Mapping[str, Any] | None = None) -> list[str]:
    """Return the prefixes of the parts that have content and are not deleted."""
    prefixes = [match.group(1) for name in form if (match := PART_KIND.fullmatch(name))]
    return [prefix for prefix in prefixes if not form.get(f"{prefix}-DELETE") and _says_something(form, files, prefix)]


def posted_steps(form: Mapping[str, Any], files: Mapping[str, Any] | None = None) -> set[int]:
    """Return the numbers of the follow-ups that have a part with content."""
    prefixes = [match.group(1) for name in form if (match := FOLLOW_UP_KIND.fullmatch(name))]
    kept = [prefix for prefix in prefixes if not form.get(f"{prefix}-DELETE")]
    steps = [as_id(form.get(f"{prefix}-step", "")) for prefix in kept if _says_something(form, files, prefix)]
    return {step for step in steps if step is not None}


def _says_something(form: Mapping[str, Any], files: Mapping[str, Any] | None, prefix: str) -> bool:
    # While the form is being written its files are not posted: such a part is recognised by its kind.
    has_file = f"{prefix}-upload" in files if files is not None else form.get(f"{prefix}-kind", "text") != "text"
    names = ("text", "media", "template_key")
    return has_file or any(form.get(f"{prefix}-{name}", "").strip() for name in names)


def _parse_moment(text: str, zone: str, now: datetime) -> tuple[datetime | None, str]:
    """Return the moment that was typed, and what is wrong with it in a sentence."""
    try:
        clock = datetime.fromisoformat(text)
    except ValueError:
        return None, ""
    if not valid_timezone(zone):
        return None, ""
    try:
        at = schedule.from_wall_clock(clock, zone, now)
    except ValueError as problem:
        return None, str(problem)
    except OSError:
        return None, ""
    return at, passed_problem(at, now)


def passed_problem(at: datetime, now: datetime) -> str:
    """Return what to do about a time in the past; nothing if it is ahead."""
    passed = schedule.passed_error(at, now)
    return f"{passed} Choose a later one, or use “Fire now”." if passed else ""


def keeps_its_time(reminder: Reminder | None, fire_at: datetime) -> bool:
    """Return whether it has this time already and is on, so that it has fired: its other fields may be changed. The
    form knows whole minutes."""
    if reminder is None or not reminder.enabled or reminder.fire_at is None:
        return False
    return reminder.fire_at.replace(second=0, microsecond=0) == fire_at.replace(second=0, microsecond=0)


def _saved(form: QueryDict, user: Any) -> Reminder | None:
    mine = access.visible(user, Reminder.objects.filter(pk__in=as_ids([form.get("reminder", "")])))
    return mine.select_related("owner").first()


def _parse_hours(start: str, end: str) -> tuple[int, int] | None:
    hours = as_id(start), as_id(end)
    return (hours[0], hours[1]) if hours[0] is not None and hours[1] is not None else None


# --- recipients: the targets it has, tags, people found by search, and lists ------------------------------


PROBLEMS_SHOWN = 5
#: lines of a list that are read while the form is being written, after every few letters
PREVIEWED = 5_000


@dataclass(frozen=True, slots=True)
class Heads:
    """Counts of recipients by kind of address, and of those left out because of their status or a suppression."""

    kinds: Counter[str]
    silent: int
    suppressed: int

    @property
    def nothing(self) -> str:
        """Return how many get nothing and why, in words; empty if all get it."""
        counts = {"opted out or blocked": self.silent, "suppressed": self.suppressed}
        words = ", ".join(f"{n:,} {word}" for word, n in counts.items() if n)
        return f"{self.silent + self.suppressed:,} more will get nothing: {words}." if words else ""


@dataclass(slots=True)
class Listed:
    """A person on a list of the form, as saved later. Not a Recipient: 50,000 of them would take seconds."""

    kind: str
    address: str
    name: str
    fields: dict[str, str]
    status: str = Recipient.Status.ACTIVE

    def __str__(self) -> str:
        return self.name or self.address


@dataclass(slots=True)
class Chosen:
    user: Any
    accounts: list[Account]
    tags: list[str]
    pasted: imports.RecipientList
    listed: list[Listed]
    stored: QuerySet[Recipient]
    segment: QuerySet[Recipient] | None = None
    partial: str = ""

    @classmethod
    def posted(cls, request: HttpRequest, most: int = MOST_ROWS) -> Chosen:
        """Read the posted form, with at most `most` lines of the list and of the people found by search."""
        form, user = request.POST, request.user
        accounts, tags = posted_senders(form, user), imports.split_tags(form.get("tag", ""))
        pasted, found = (imports.read_posted(request, name, most) for name in ("paste", "chosen"))
        partial = _partial(len(tags), pasted.unread + found.unread, most)
        tags = tags[: imports.MOST_TAGS]
        listed = _people(user, [*pasted.entries, *found.entries])
        segment = _in_segment(form, user, accounts, timezone.now())
        stored = _stored(form, user, tags, accounts, segment)
        if listed:
            stored = stored.exclude(among("address", [person.address for person in listed], TextField()))
        return cls(user, accounts, tags, pasted, listed, stored, segment, partial)

    @property
    def audience(self) -> Audience:
        return Audience(self.stored, self.listed, access.visible(self.user, self.stored))

    def heads(self, now: datetime) -> Heads:
        silent = Q(status__in=Recipient.GETS_NOTHING)
        held = suppressions.is_suppressed(now)
        rows = (
            self.stored.order_by()
            .values_list("kind")
            .annotate(heads=Count("pk"), silent=Count("pk", filter=silent), held=Count("pk", filter=~silent & Q(held)))
        )
        active = [person for person in self.listed if person.status not in Recipient.GETS_NOTHING]
        suppressed = _suppressed(active, now)
        kinds = Counter(person.kind for person in active if person.address not in suppressed)
        counts = Heads(kinds, len(self.listed) - len(active), len(suppressed))
        for kind, heads, of_silent, of_held in rows:
            kinds[kind] += heads - of_silent - of_held
            counts = replace(counts, silent=counts.silent + of_silent, suppressed=counts.suppressed + of_held)
        return counts

    def new_chats(self, account: int, now: datetime) -> int:
        """Return how many of the recipients are people that the account has not written to yet."""
        held = suppressions.is_suppressed(now)
        silent = Q(status__in=Recipient.GETS_NOTHING)
        stored = self.stored.filter(~silent, ~held, kind__in=NEW_CHAT_KINDS)
        persons = [p for p in self.listed if p.kind in NEW_CHAT_KINDS and p.status not in Recipient.GETS_NOTHING]
        added = {person.address for person in persons} - _suppressed(persons, now)
        return new_among(stored, account) + len(added - addresses_with_chat(account, added))

    def wrote_since(self, account: int, since: datetime, now: datetime) -> int:
        """Return how many of the recipients are people who have written to the account since then."""
        silent = Q(status__in=Recipient.GETS_NOTHING)
        stored = self.stored.filter(~silent, ~suppressions.is_suppressed(now), kind__in=NEW_CHAT_KINDS)
        listed = {p.address for p in self.listed if p.kind in NEW_CHAT_KINDS and p.status not in Recipient.GETS_NOTHING}
        chats = KnownChat.objects.filter(account=account, heard_at__gt=since, address__in=listed)
        return wrote_since(stored, account, since) + chats.count()

    def tag_counts(self) -> dict[str, int]:
        """Return how many recipients with each tag these accounts reach."""
        counts = {f"tag_{n}": Count("pk", filter=Q(tags__contains=[tag])) for n, tag in enumerate(self.tags)}
        found = with_any_tag(self.user, self.tags, self.accounts).aggregate(**counts)
        return {tag: found[f"tag_{n}"] for n, tag in enumerate(self.tags)}

    def segment_now(self) -> str:
        """Return how many are in the segment now and three of them, in words; empty where none is chosen."""
        return members_in_words(self.segment, self.user) if self.segment is not None else ""

    def lines(self) -> dict[str, Any]:
        """Return the number of usable lines of the pasted list, and the problems of the others."""
        problems = imports.first_problems(self.pasted.problems, PROBLEMS_SHOWN)
        return {"good": len(self.pasted.entries), "repeated": self.pasted.repeated, "problems": problems}


def members_in_words(members: QuerySet[Recipient], user: Any) -> str:
    """Return for example "812 people now, such as Ann, Ben and Chong"."""
    kinds, names = count_kinds(members), examples(members, user)
    return f"{of_kinds(kinds)} now" + (f", such as {get_text_list(names, 'and')}" if names else "")


def _partial(tags: int, unread: int, most: int) -> str:
    """Return in words what is not counted because there is too much of it."""
    words = [f"Only the first {imports.MOST_TAGS} tags are counted."] if tags > imports.MOST_TAGS else []
    if unread:
        words.append(f"Only the first {most:,} lines are counted: {unread:,} more are read when it is saved.")
    return " ".join(words)


def posted_senders(form: QueryDict, user: Any) -> list[Account]:
    """Return the chosen accounts, the reminder's own first; none until that one is chosen."""
    first = as_id(form.get("account", ""))
    if first is None:
        return []
    ids = list(dict.fromkeys([first, *as_ids(form.getlist("further"))]))
    accounts = access.visible(user, Account.objects.all()).in_bulk(ids)
    return [accounts[pk] for pk in ids if pk in accounts]


def _in_segment(form: QueryDict, user: Any, accounts: Sequence[Account], now: datetime) -> QuerySet[Recipient] | None:
    """Return who is in the chosen segment now; None: no segment is chosen. The reminder's own segment is counted for
    its owner, who fires it. Any other shows only what the person sees: they choose its conditions. Both have only
    those who are shared as the reminder is (`living`)."""
    segments = access.visible(user, Segment.objects.filter(pk__in=as_ids([form.get("segment", "")])))
    segment, reminder = segments.first(), _saved(form, user)
    if segment is None:
        return None
    seen_by = reminder.owner if reminder is not None and reminder.segment_id == segment.pk else user
    # Only its owner moves a reminder to another team: in the form of others there is no choice.
    chosen = reminder is None or (access.owns(user, reminder) and "team" in form)
    team = as_id(form.get("team", "")) if chosen or reminder is None else reminder.team_id
    return reached(shared_with(team, segment_members(segment, seen_by, now)), accounts)


def _stored(
    form: QueryDict,
    user: Any,
    tags: Sequence[str],
    accounts: Sequence[Account],
    segment: QuerySet[Recipient] | None,
) -> QuerySet[Recipient]:
    """Return the reminder's targets, unless they will be removed, and all recipients with one of the tags or in the
    segment."""
    ids: list[Any] = [with_any_tag(user, tags, accounts).order_by().values("pk")] if tags else []
    if segment is not None:
        ids.append(segment.order_by().values("pk"))
    mine = access.visible(user, Reminder.objects.filter(pk__in=as_ids([form.get("reminder", "")])))
    if not form.get("clear"):
        ids.append(ReminderTarget.objects.filter(reminder__in=mine.values("pk")).order_by().values("recipient"))
    # A union, because each of them goes by its own index: an OR of them would read every recipient.
    return Recipient.objects.filter(pk__in=Recipient.objects.none().values("pk").union(*ids))


def _people(user: Any, entries: Sequence[imports.Entry]) -> list[Listed]:
    """Return the people on the list; existing recipients keep name and status and get the fields of the list."""
    if not entries:
        return []
    columns = ("owner_id", "kind", "address", "name", "fields", "status")
    addresses = among("address", [entry.address for entry in entries], TextField())
    there: dict[str, tuple[int, Listed]] = {}
    for owner, *facts in access.visible(user, Recipient.objects.filter(addresses)).values_list(*columns):
        one = Listed(*facts)
        if one.address not in there or owner == user.pk:
            there[one.address] = owner, one
    return list({entry.address: _with(there.get(entry.address), entry, user) for entry in entries}.values())


def _with(stored: tuple[int, Listed] | None, entry: imports.Entry, user: Any) -> Listed:
    if stored is None:
        return Listed(entry.kind, entry.address, entry.name, entry.fields)
    owner, listed = stored
    return replace(listed, fields=listed.fields | entry.fields) if entry.fields and owner == user.pk else listed


def _suppressed(people: Sequence[Listed], now: datetime) -> set[str]:
    if not people:
        return set()
    listed = among("address", [person.address for person in people], TextField())
    rows = Suppression.objects.filter(listed, suppressions.in_force(now))
    return set(rows.values_list("address", flat=True))


# --- message templates ------------------------------------------------------------------------------------


#: Characters of the posted values of one part's template.
MOST_VALUES = 20_000


def template_values(text: str) -> dict[str, str]:
    """Return the values of a template's variables in a posted field, which the page's script writes as JSON; none where
    it has something else."""
    try:
        values = json.loads(text) if text and len(text) <= MOST_VALUES else {}
    except (ValueError, RecursionError):
        return {}
    items = values.items() if isinstance(values, dict) else ()
    return {str(key): value for key, value in items if isinstance(value, str)}


# --- texts, checked and shown before saving, as some recipients will read them ----------------------------


PART_TEXT = re.compile(r"(?P<prefix>(?P<set>messages|reply_parts|follow_up_parts)-(?P<number>\d{1,4}))-text")
SET_IN_WORDS = {
    "messages": "part",
    "reply_parts": "part of Message 2,",
    "follow_up_parts": "part of the follow-ups,",
}


@dataclass(slots=True)
class DraftTexts:
    parts: list[dict[str, Any]]
    texts: list[Text]
    audience: Callable[[], Audience]
    everybody: Audience
    #: a sentence about a text that is too long; empty if there is none
    too_long: str

    @classmethod
    def posted(cls, request: HttpRequest, audience: Callable[[], Audience]) -> DraftTexts:
        form = request.POST
        subject, parts = form.get("subject", ""), list(posted_parts(form))
        texts = [("the subject", subject)]
        for part in parts:
            texts += [(part["where"], part["text"]), (f"the HTML of {part['where']}", part["html"])]
            texts += [(f"the template of {part['where']}", value) for value in part["values"].values()]
        message_1 = [{"subject": subject, "text": part["text"]} for part in parts if part["set"] == "messages"]
        everybody = Audience(access.visible(request.user, Recipient.objects.all()))
        too_long = [
            f"In {part['where']}: {problem}"
            for part in parts
            for problem in length_problems(part["text"], part["html"]).values()
        ]
        return cls(message_1, texts, audience, everybody, next(iter(too_long), ""))

    def problem(self) -> str:
        return wording.problem(self.texts, self.audience, self.everybody)

    def preview(self) -> dict[str, Any]:
        """Return the problem with the placeholders, or examples of the parts as they will be sent.

        Parts that are sent exactly as written need no example.
        """
        if problem := self.too_long or self.problem():
            return {"wording": problem, "examples": []}
        shown = wording.preview(self.parts, self.audience().some())
        written = [{name: text for name, text in part.items() if text} for part in self.parts]
        return {"wording": "", "examples": [example for example in shown if example["parts"] != written]}


def posted_parts(form: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the parts in the order in which they will be sent."""
    matches = [match for name in form if (match := PART_TEXT.fullmatch(name))]
    for match in sorted(
        matches, key=lambda match: (match["set"], _part_order(form, match["prefix"]), int(match["number"]))
    ):
        prefix = match["prefix"]
        if not form.get(f"{prefix}-DELETE"):
            where = f"{SET_IN_WORDS[match['set']]} {int(match['number']) + 1}"
            yield {
                "set": match["set"],
                "prefix": prefix,
                "where": where,
                "kind": form.get(f"{prefix}-kind") or "text",
                "text": form.get(f"{prefix}-text", ""),
                "html": form.get(f"{prefix}-html", ""),
                "template": form.get(f"{prefix}-template_key", ""),
                "values": template_values(form.get(f"{prefix}-template_values", "")),
            }


def _part_order(form: Mapping[str, str], prefix: str) -> int:
    order = as_ids([form.get(f"{prefix}-order", "")])
    return order[0] if order else 10_000
