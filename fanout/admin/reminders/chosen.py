"""Whom the reminder's form names, saved or not: the targets it has, tags, people found by search, and lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import Count, Q, QuerySet, TextField
from django.http import HttpRequest, QueryDict

from accounts import access
from accounts.addresses import PERSON
from accounts.inputs import as_id, as_ids
from accounts.models import Account
from fanout.lanes.new_chats import known_addresses, new_among
from reminders import imports, suppressions
from reminders.models import Recipient, Reminder, ReminderTarget, Suppression
from reminders.tables import MOST_ROWS
from reminders.targets import among, with_any_tag
from reminders.wording import Audience

PROBLEMS_SHOWN = 5
#: lines of a list that are read while the form is written, which is after every few letters
PREVIEWED = 5_000
#: lines of a list that cannot be used: then it is refused without reading the rest
MOST_PROBLEMS = 1_000


@dataclass(frozen=True, slots=True)
class Heads:
    """How many of each kind of address will get it, and how many will not, because of their status or a suppression."""

    kinds: Counter[str]
    silent: int
    suppressed: int

    @property
    def nothing(self) -> str:
        """Who gets nothing, in words; empty where everybody gets it."""
        counts = {"opted out or blocked": self.silent, "suppressed": self.suppressed}
        words = ", ".join(f"{n:,} {word}" for word, n in counts.items() if n)
        return f"{self.silent + self.suppressed:,} more will get nothing: {words}." if words else ""


@dataclass(slots=True)
class Listed:
    """Somebody on a list of the form, as they will be once it is saved. Not a Recipient: 50,000 would take seconds."""

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
    partial: str = ""

    @classmethod
    def posted(cls, request: HttpRequest, most: int = MOST_ROWS) -> Chosen:
        """`most`: so many lines of a list are read, and so many of the people found by search."""
        form, user = request.POST, request.user
        accounts, tags = posted_senders(form, user), split_tags(form.get("tag", ""))
        pasted, found = read_list(request, "paste", most), read_list(request, "chosen", most)
        partial = _partial(len(tags), pasted.unread + found.unread, most)
        tags = tags[: imports.MOST_TAGS]
        listed = _people(user, [*pasted.entries, *found.entries])
        stored = _stored(form, user, tags, accounts)
        if listed:
            stored = stored.exclude(among("address", [person.address for person in listed], TextField()))
        return cls(user, accounts, tags, pasted, listed, stored, partial)

    @property
    def audience(self) -> Audience:
        return Audience(self.stored, self.listed)

    def heads(self, now: datetime) -> Heads:
        silent = Q(status__in=Recipient.GETS_NOTHING)
        held = suppressions.is_suppressed(now)
        rows = (
            self.stored.order_by()
            .values_list("kind")
            .annotate(heads=Count("pk"), silent=Count("pk", filter=silent), held=Count("pk", filter=~silent & Q(held)))
        )
        heard = [person for person in self.listed if person.status not in Recipient.GETS_NOTHING]
        suppressed = _suppressed(heard, now)
        kinds = Counter(person.kind for person in heard if person.address not in suppressed)
        counts = Heads(kinds, len(self.listed) - len(heard), len(suppressed))
        for kind, heads, of_silent, of_held in rows:
            kinds[kind] += heads - of_silent - of_held
            counts = replace(counts, silent=counts.silent + of_silent, suppressed=counts.suppressed + of_held)
        return counts

    def new_chats(self, account: int, now: datetime) -> int:
        """How many of the persons who will get it the account has not written to yet."""
        held = suppressions.is_suppressed(now)
        silent = Q(status__in=Recipient.GETS_NOTHING)
        stored = self.stored.filter(~silent, ~held, kind=PERSON)
        persons = [p for p in self.listed if p.kind == PERSON and p.status not in Recipient.GETS_NOTHING]
        added = {person.address for person in persons} - _suppressed(persons, now)
        return new_among(stored, account) + len(added - known_addresses(account, added))

    def tag_counts(self) -> dict[str, int]:
        """How many of those with each tag these accounts reach."""
        counts = {f"tag_{n}": Count("pk", filter=Q(tags__contains=[tag])) for n, tag in enumerate(self.tags)}
        found = with_any_tag(self.user, self.tags, self.accounts).aggregate(**counts)
        return {tag: found[f"tag_{n}"] for n, tag in enumerate(self.tags)}

    def lines(self) -> dict[str, Any]:
        """What is wrong with lines of the pasted list; only the others are counted."""
        problems = imports.first_problems(self.pasted.problems, PROBLEMS_SHOWN)
        return {"good": len(self.pasted.entries), "repeated": self.pasted.repeated, "problems": problems}


def read_list(request: HttpRequest, name: str, most: int = MOST_ROWS) -> imports.RecipientList:
    """The list in this field of the posted form. Read once per request, because 50,000 lines take two seconds."""
    lists: dict[tuple[str, int], imports.RecipientList] = request.__dict__.setdefault("_crier_lists", {})
    if (name, most) not in lists:
        text = "\n".join(request.POST.getlist(name)).strip()
        lists[name, most] = imports.read(text, most=most, most_problems=MOST_PROBLEMS)
    return lists[name, most]


def _partial(tags: int, unread: int, most: int) -> str:
    """What is not counted here because it is too much, in words."""
    words = [f"Only the first {imports.MOST_TAGS} tags are counted."] if tags > imports.MOST_TAGS else []
    if unread:
        words.append(f"Only the first {most:,} lines are counted: {unread:,} more are read when it is saved.")
    return " ".join(words)


def split_tags(text: str) -> list[str]:
    return list(dict.fromkeys(tag.strip() for tag in text.split(",") if tag.strip()))


def posted_senders(form: QueryDict, user: Any) -> list[Account]:
    """The chosen accounts, the reminder's own first; none before that one is chosen."""
    first = as_id(form.get("account", ""))
    if first is None:
        return []
    ids = list(dict.fromkeys([first, *as_ids(form.getlist("further"))]))
    accounts = access.visible(user, Account.objects.all()).in_bulk(ids)
    return [accounts[pk] for pk in ids if pk in accounts]


def _stored(form: QueryDict, user: Any, tags: Sequence[str], accounts: Sequence[Account]) -> QuerySet[Recipient]:
    """The targets that the reminder has, unless they are about to be removed, and everybody with one of the tags."""
    ids: list[Any] = [with_any_tag(user, tags, accounts).order_by().values("pk")] if tags else []
    if not form.get("clear"):
        mine = access.visible(user, Reminder.objects.filter(pk__in=as_ids([form.get("reminder", "")])))
        ids.append(ReminderTarget.objects.filter(reminder__in=mine.values("pk")).order_by().values("recipient"))
    # A union, because each of them goes by its own index: an OR of them would read every recipient.
    return Recipient.objects.filter(pk__in=Recipient.objects.none().values("pk").union(*ids))


def _people(user: Any, entries: Sequence[imports.Entry]) -> list[Listed]:
    """Who is there keeps their name and their status, and gets the fields of the list."""
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
    rows = Suppression.objects.filter(listed, suppressions.holding(now))
    return set(rows.values_list("address", flat=True))
