"""One person's timeline, newest first: what was sent to them, received, read and answered, and why something was not
sent. A page of it at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from django.db.models import DateTimeField, F, Model, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from accounts import access
from accounts.inputs import as_id
from accounts.models import Account
from fanout.inbound.replies import automatic_words
from fanout.inbound.reply_inbox import TEXT_SHOWN, readable, sent_texts
from fanout.models import InboundEvent, Run, RunTarget
from fanout.plans.plan import delay_reason
from fanout.runs import texts
from reminders.models import Recipient

M = TypeVar("M", bound=Model)
Visible = Callable[[QuerySet[Any]], QuerySet[Any]]

ENTRIES_SHOWN = 30

Kind = InboundEvent.Kind
KINDS_SHOWN = (Kind.REPLY, Kind.UNSUBSCRIBE, Kind.COMPLAINT, Kind.AUTOMATIC)
ELSEWHERE = "a reply to another account"
Status = RunTarget.Status


class Place(NamedTuple):
    """Where an entry stands: its moment, then events before deliveries of the same moment, then its number."""

    at: datetime
    is_event: bool
    pk: int

    def __str__(self) -> str:
        # With a Z: the plus of an offset would be read as a space in an address.
        at = self.at.astimezone(UTC).replace(tzinfo=None).isoformat()
        return f"{at}Z_{'e' if self.is_event else 't'}_{self.pk}"


def place_in(text: str) -> Place | None:
    """Return the place that the link to earlier entries names; None for the newest ones."""
    at, _, rest = text.partition("_")
    kind, _, number = rest.partition("_")
    pk = as_id(number)
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    usable = pk is not None and kind in ("e", "t") and moment.tzinfo is not None
    return Place(moment, kind == "e", pk) if usable and pk is not None else None


@dataclass(frozen=True, slots=True)
class Entry:
    place: Place
    timezone: str
    #: the title of the run, or the account that received it
    name: str
    texts: list[str]
    #: None for received messages
    target: RunTarget | None = None
    #: why it was not sent, or not yet
    reason: str = ""
    opted_out: bool = False

    @property
    def at(self) -> datetime:
        return self.place.at

    @property
    def steps(self) -> list[tuple[str, datetime]]:
        """Return what came back after the message, in words, with its time."""
        return came_back(self.target) if self.target is not None else []


@dataclass(frozen=True, slots=True)
class Timeline:
    entries: list[Entry]
    #: the place after which earlier entries begin; empty on the last page
    earlier: str
    is_first: bool


def came_back(target: RunTarget) -> list[tuple[str, datetime]]:
    """Return each step that came back after the message, with its time."""
    steps = (
        ("received", target.delivered_at),
        ("read", target.read_at),
        ("replied", target.replied_at),
        ("opted out", target.opted_out_at),
    )
    return [(word, at) for word, at in steps if at is not None]


def timeline(recipient: Recipient, user: Any, before: str = "", team: int | None = None) -> Timeline:
    """Return the page of entries before that place: of this address, over all accounts and lists that the user may
    see; only of one team if it is named."""
    place = place_in(before)

    def visible(rows: QuerySet[M]) -> QuerySet[M]:
        rows = access.visible(user, rows)
        return rows.filter(team=team) if team else rows

    found = [*_deliveries(recipient, visible, place), *_received(recipient, visible, place)]
    newest = sorted(found, key=lambda entry: entry.place, reverse=True)
    shown = newest[:ENTRIES_SHOWN]
    return Timeline(shown, str(shown[-1].place) if len(newest) > len(shown) else "", place is None)


def _before(place: Place | None, column: str, is_event: bool) -> Q:
    """Return the condition for rows that stand before the place in their order, which is newest first."""
    if place is None:
        return Q()
    if place.is_event == is_event:
        return Q(**{f"{column}__lt": place.at}) | Q(**{column: place.at, "pk__lt": place.pk})
    return Q(**{f"{column}__{'lt' if is_event else 'lte'}": place.at})


# --- deliveries ---------------------------------------------------------------------------------------------


def _deliveries(recipient: Recipient, visible: Visible, place: Place | None) -> Iterator[Entry]:
    """Yield the newest deliveries before the place. A person's targets are sorted by the times in their index
    (target_once_per_run); only those that are shown are read."""
    people = list(Recipient.objects.filter(address=recipient.address).values_list("pk", flat=True))
    # The run is asked only for those that have no time of their own.
    planned = Subquery(Run.objects.filter(pk=OuterRef("run_id")).values("scheduled_for"))
    moment = Coalesce(F("settled_at"), F("claimed_at"), planned, output_field=DateTimeField())
    rows = RunTarget.objects.filter(recipient__in=people).annotate(at=moment).filter(_before(place, "at", False))
    ids = _first_visible(rows.order_by("-at", "-pk").values_list("pk", "at", "run_id"), visible)
    found = RunTarget.objects.select_related("run").in_bulk([pk for pk, _ in ids])
    for pk, at in ids:
        if pk in found:
            target, run = found[pk], found[pk].run
            said = sent_texts(target, run)
            yield Entry(Place(at, False, pk), run.timezone, run.title, said, target, _reason(target))


def _first_visible(rows: QuerySet[RunTarget, Any], visible: Visible) -> list[tuple[int, datetime]]:
    """Return the first targets of runs that are visible, one more than a page has. Joining a person's runs before they
    are sorted would take ten times as long as sorting; where most are hidden, ever more are looked at."""
    found: list[tuple[int, datetime]] = []
    start, size = 0, 2 * ENTRIES_SHOWN
    while len(found) <= ENTRIES_SHOWN:
        some = list(rows[start : start + size])
        runs = visible(Run.objects.filter(pk__in={run for _, _, run in some}))
        seen = set(runs.values_list("pk", flat=True))
        found += [(pk, at) for pk, at, run in some if run in seen]
        if len(some) < size:
            break
        start, size = start + size, size * 8
    return found[: ENTRIES_SHOWN + 1]


def _reason(target: RunTarget) -> str:
    """Return why it was not sent, or when it will be; empty for what went out."""
    if target.status == Status.SKIPPED:
        return f"not sent: {texts.left_out(target.error)}"
    if target.status == Status.FAILED:
        words = texts.error(target.error_kind) or "it failed"
        return f"not sent: {words}: {target.error}" if target.error else f"not sent: {words}"
    if target.status == Status.UNCONFIRMED:
        return "it is not known whether it arrived"
    if target.status == Status.PENDING:
        return f"not sent yet: {why}" if (why := delay_reason(target, target.run) or target.error) else "not sent yet"
    return ""


# --- what came back -----------------------------------------------------------------------------------------


def _received(recipient: Recipient, visible: Visible, place: Place | None) -> Iterator[Entry]:
    """Yield replies, without messages in groups. Their texts are visible to people who may see the account."""
    said = InboundEvent.objects.filter(address=recipient.address, group="", kind__in=KINDS_SHOWN)
    rows = said.filter(_before(place, "happened_at", is_event=True)).select_related("account")
    events = list(rows.order_by("-happened_at", "-pk")[: ENTRIES_SHOWN + 1])
    asked = Account.objects.filter(pk__in={event.account_id for event in events})
    mine = set(visible(asked).values_list("pk", flat=True))
    for event in events:
        where = Place(event.happened_at, True, event.pk)
        if event.account_id in mine:
            text = _event_text(event)[:TEXT_SHOWN]
            yield Entry(where, event.account.timezone, event.account.label, [text], opted_out=event.opts_out)
        else:
            yield Entry(where, "UTC", "", [ELSEWHERE])


def _event_text(event: InboundEvent) -> str:
    if event.kind == Kind.AUTOMATIC:
        return automatic_words(event)
    if event.kind != Kind.REPLY:
        return event.get_kind_display().lower()
    return readable(event)
