"""The people and things of the demo: operators, a team, accounts, groups and reminders. What exists already is kept."""

from __future__ import annotations

import json
import secrets
import struct
import zlib
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.files.base import ContentFile
from django.utils import timezone

from accounts.actions import Action
from accounts.models import Account, DailyLimit
from config.logins import DEMO_LOGINS
from fanout.lanes import accounts
from reminders.models import FollowUpPart, MediaFile, Recipient, Reminder, ReminderMessage, ReminderTarget, Segment

ZONE = "Asia/Kuala_Lumpur"
GROUPS = 1000
PEOPLE = 60
OPERATORS = "operators"

PLACES = (
    "Riverside",
    "Hillview",
    "Old Town",
    "Harbour",
    "Garden City",
    "North Gate",
    "Lakeside",
    "Market Street",
)
FIRST_NAMES = ("Aina", "Ben", "Chong", "Devi", "Emir", "Farah", "Goh", "Hana", "Irfan", "Jia", "Kumar", "Lina")
CIRCLES = ("parents", "choir", "football", "volunteers", "residents", "book club", "runners", "shopkeepers")


@dataclass
class Cast:
    """The objects that the history and the live runs use."""

    mei: Any
    jonas: Any
    accounts: dict[str, Account] = field(default_factory=dict)
    recipients: list[Recipient] = field(default_factory=list)
    people: list[Recipient] = field(default_factory=list)
    segments: dict[str, Segment] = field(default_factory=dict)
    reminders: dict[str, Reminder] = field(default_factory=dict)


def gather(provider: str) -> Cast:
    """Create everything that does not exist yet. The accounts use the sandbox provider at this address."""
    team = Group.objects.get_or_create(name="Community team")[0]
    cast = Cast(mei=_operator("mei", team), jonas=_operator("jonas", team))
    _user("admin", is_staff=True, is_superuser=True)
    _add_accounts(cast, team, provider)
    cast.recipients = _groups(cast.mei, team)
    cast.people = _people(cast.mei, team)
    _add_segments(cast, team)
    _add_reminders(cast, team)
    silent = {"team": team, "not_replied_to": cast.reminders[VOLUNTEERS]}
    Segment.objects.get_or_create(owner=cast.mei, name="Volunteers who have not answered", defaults=silent)
    return cast


# --- people -----------------------------------------------------------------------------------------------


def _operator(name: str, team: Group) -> Any:
    user = _user(name, is_staff=True)
    # The role grants permissions, the team shares objects.
    user.groups.add(Group.objects.get_or_create(name=OPERATORS)[0], team)
    return user


def _user(name: str, **flags: bool) -> Any:
    users = get_user_model().objects
    user = users.filter(username=name).first()
    # A changed password is kept.
    return user or users.create_user(name, f"{name}@example.com", dict(DEMO_LOGINS)[name], **flags)


# --- accounts ---------------------------------------------------------------------------------------------

ACCOUNTS: dict[str, dict[str, Any]] = {
    "Community line": {"address": "+60123450001"},
    "Events line": {"address": "+60123450002"},
    "Office line": {
        "address": "+60123450003",
        "hours_start": 9,
        "hours_end": 17,
        "max_send_per_minute": 20,
    },
    "Spare number": {
        "address": "+60123450004",
        "status": Account.Status.PAUSED,
        "status_reason": "paused by an operator",
    },
    "Promotions line": {
        "address": "+60123450005",
        "status": Account.Status.SUSPENDED,
        "status_reason": "The provider has banned this number for unwanted messages",
    },
}
OFFICE_CAP = 200
WHATSAPP = "WhatsApp number"


def _add_accounts(cast: Cast, team: Group, provider: str) -> None:
    for label, values in ACCOUNTS.items():
        account, _ = Account.objects.get_or_create(
            owner=cast.mei,
            label=label,
            defaults={
                "team": team,
                "channel": "sandbox",
                "timezone": ZONE,
                "config": {"url": provider, "account": label.lower().replace(" ", "-")},
                **values,
            },
        )
        account.refresh_from_db()
        _follow(account, provider)
        cast.accounts[label] = account
    DailyLimit.objects.get_or_create(
        account=cast.accounts["Office line"], action=Action.MESSAGE, defaults={"limit": OFFICE_CAP}
    )
    if settings.WHATSAPP_SCRIPT:
        _add_whatsapp(cast, team)


def _add_whatsapp(cast: Cast, team: Group) -> None:
    """Add a number to pair, with a scripted phone that scans the code after a while."""
    folder = Path(settings.WHATSAPP_SCRIPT)
    if not folder.exists():
        folder.mkdir(mode=0o700, parents=True)
        (folder / "script.json").write_text(json.dumps({"pair_after": 10, "groups": 25}))
    if not Account.objects.filter(owner=cast.mei, label=WHATSAPP).exists():
        account = Account(owner=cast.mei, team=team, label=WHATSAPP, channel="whatsapp", timezone=ZONE)
        accounts.add_account(account, cast.mei, timezone.now())


def _follow(account: Account, provider: str) -> None:
    """Update the provider's address, which may change between starts, and add the key that signs its reports."""
    if account.config.get("url") != provider:
        account.config["url"] = provider
        account.save(update_fields=["config", "updated_at"])
    if "key" not in account.credentials:
        account.credentials = {"key": secrets.token_urlsafe(16)}
        account.save(update_fields=["credentials", "updated_at"])


# --- recipients -------------------------------------------------------------------------------------------


def _groups(owner: Any, team: Group) -> list[Recipient]:
    made = [
        # In its normal form: bulk_create does not call save().
        Recipient(
            owner=owner,
            team=team,
            kind="group",
            address=f"12036304{n:010d}@g.us",
            name=_name(n),
            tags=[_circle(n)],
            fields={"place": PLACES[n % len(PLACES)]},
        )
        for n in range(1, GROUPS + 1)
    ]
    return _found_or_made(owner, made)


def _people(owner: Any, team: Group) -> list[Recipient]:
    made = [
        Recipient(owner=owner, team=team, kind="person", address=f"+6019345{n:04d}", name=f"{FIRST_NAMES[n % 12]} {n}")
        for n in range(1, PEOPLE + 1)
    ]
    return _found_or_made(owner, made)


def _found_or_made(owner: Any, made: list[Recipient]) -> list[Recipient]:
    Recipient.objects.bulk_create(made, ignore_conflicts=True)
    addresses = [recipient.address for recipient in made]
    return list(Recipient.objects.filter(owner=owner, address__in=addresses).order_by("address"))


def _name(n: int) -> str:
    return f"{PLACES[n % len(PLACES)]} {_circle(n)} {n:04d}"


def _circle(n: int) -> str:
    return CIRCLES[n // len(PLACES) % len(CIRCLES)]


SEGMENTS: dict[str, dict[str, Any]] = {
    "Choirs and book clubs": {"tags": ["choir", "book club"]},
    "Quiet harbour circles": {"fields": [["place", "=", "Harbour"]], "not_contacted_days": 2},
}


def _add_segments(cast: Cast, team: Group) -> None:
    for name, conditions in SEGMENTS.items():
        cast.segments[name], _ = Segment.objects.get_or_create(
            owner=cast.mei, name=name, defaults={"team": team, **conditions}
        )


# --- reminders --------------------------------------------------------------------------------------------

GROUPS_LIVE, PEOPLE_LIVE = "Town hall tonight", "Can you help on Saturday?"
VOLUNTEERS = "News for volunteers"
FOOD_BANK = "Help at the food bank"
#: sent whenever the demo starts
LIVE = (GROUPS_LIVE, PEOPLE_LIVE)


@dataclass(frozen=True)
class Spec:
    title: str
    account: str
    parts: tuple[tuple[str, str], ...]  # kind and text
    targets: int
    fields: dict[str, Any] = field(default_factory=dict)
    people: bool = False  # in place of groups
    segment: str = ""  # in place of fixed targets
    follow_ups: tuple[str, ...] = ()


REMINDERS = (
    Spec(
        "Friday market",
        "Events line",
        (("text", "The market opens at 8. Bring your own bags."),),
        400,
        {"schedule": "cron", "cron": "0 8 * * 5"},
    ),
    Spec("Choir concert", "Community line", (("image", "Choir concert on Saturday, 7 pm, town hall."),), 250),
    Spec(
        "Vaccination day",
        "Community line",
        (("text", "Free vaccination on Sunday, 9 to 1."), ("image", "How to find the clinic.")),
        300,
    ),
    Spec("Water works", "Events line", (("text", "No water on Tuesday from 10 to 2: fill a bucket."),), 1000),
    Spec("Library opening hours", "Office line", (("text", "The library opens at 10 from now on."),), 350),
    Spec("Lost and found", "Spare number", (("text", "A blue bicycle was found at the harbour."),), 60),
    Spec("Late notice", "Events line", (("text", "The bus to the harbour does not run today."),), 80),
    Spec(
        "Weekly clean-up",
        "Community line",
        (("text", "Clean-up on Saturday at 10: gloves are there."),),
        120,
        {"schedule": "cron", "cron": "0 9 * * 6", "auto_resume": True, "resume_after_limit": True},
    ),
    Spec(
        VOLUNTEERS,
        "Office line",
        (("text", "We still look for helpers this week. Who has two hours?"),),
        PEOPLE,
        people=True,
    ),
    Spec(
        "Recycling tomorrow",
        "Office line",
        (("text", "Recycling is collected tomorrow from 7: put it out tonight."),),
        180,
        {"schedule": "cron", "cron": "0 14 * * 1,4"},
    ),
    Spec(
        "Bus timetable",
        "Office line",
        (("text", "The new timetable is at every stop."),),
        60,
        {"schedule": "cron", "cron": "30 14 * * 4"},
    ),
    Spec(
        "School run",
        "Community line",
        (("text", "Road works at the school: please walk the last hundred metres."),),
        150,
        {"schedule": "cron", "cron": "15 7 * * 1-5"},
    ),
    Spec(
        "Evening class",
        "Events line",
        (("text", "Tonight at 7: first aid for everyone, room 2."),),
        220,
        {"schedule": "cron", "cron": "0 17 * * 2,4"},
    ),
    Spec(
        "Sunday walk",
        "Community line",
        (("text", "We meet at the harbour at 9. Good shoes help."),),
        90,
        {"schedule": "cron", "cron": "0 12 * * 0"},
    ),
    Spec(
        FOOD_BANK,
        "Community line",
        (("text", "The food bank needs drivers on Monday. Can you come?"),),
        24,
        {"follow_up_days": [2, 5]},
        people=True,
        follow_ups=("We still look for drivers for Monday.", "Last call for Monday: can you drive?"),
    ),
    Spec(
        "Harbour news",
        "Events line",
        (("text", "The harbour festival needs you: who can help?"),),
        0,
        {"schedule": "cron", "cron": "30 10 * * 3"},
        segment="Quiet harbour circles",
    ),
    Spec(
        PEOPLE_LIVE,
        "Events line",
        (("text", "Can you help at the market on Saturday? Please answer yes or no."),),
        PEOPLE,
        {"delivery_window_start_hour": 0, "delivery_window_end_hour": 24, "follow_up_days": [2, 5]},
        people=True,
        follow_ups=("We still need hands on Saturday. Can you help?", "Last call: shall we count on you?"),
    ),
    Spec(
        GROUPS_LIVE,
        "Community line",
        (("text", "Town hall tonight at 8. See you there!"),),
        GROUPS,
        {"delivery_window_start_hour": 0, "delivery_window_end_hour": 24},
    ),
)


def _add_reminders(cast: Cast, team: Group) -> None:
    for spec in REMINDERS:
        account = cast.accounts[spec.account]
        reminder, made = Reminder.objects.get_or_create(
            owner=cast.mei,
            title=spec.title,
            defaults={"team": team, "account": account, "timezone": ZONE, **_time(spec), **spec.fields},
        )
        if made:
            reminder.segment = cast.segments.get(spec.segment)
            _fill_reminder(reminder, spec, cast)
        cast.reminders[spec.title] = reminder


def _time(spec: Spec) -> dict[str, Any]:
    """Return a time in the past for reminders that fire once: one that is on needs a time, and the demo fires it."""
    return {} if "cron" in spec.fields else {"fire_at": timezone.now() - timedelta(days=1)}


def _fill_reminder(reminder: Reminder, spec: Spec, cast: Cast) -> None:
    for position, (kind, text) in enumerate(spec.parts):
        media = _picture(reminder, position) if kind == "image" else None
        ReminderMessage.objects.create(reminder=reminder, position=position, kind=kind, text=text, media=media)
    for number, text in enumerate(spec.follow_ups, start=1):
        FollowUpPart.objects.create(reminder=reminder, step=number, position=number - 1, text=text)
    ReminderTarget.objects.bulk_create(
        ReminderTarget(reminder=reminder, recipient=recipient, position=position)
        for position, recipient in enumerate(_chosen(cast, spec))
    )
    reminder.next_fire_at = reminder.firing_after(timezone.now())
    reminder.save(update_fields=["next_fire_at", "segment"])


def _chosen(cast: Cast, spec: Spec) -> list[Recipient]:
    """Return the first groups, or the last people: some of the first have opted out."""
    return cast.people[-spec.targets :] if spec.people else cast.recipients[: spec.targets]


def _picture(reminder: Reminder, position: int) -> MediaFile:
    name = f"{reminder.title.lower().replace(' ', '-')}.png"
    content = draw_png(hue=(reminder.pk * 40 + position) % 256)
    media = MediaFile(owner=reminder.owner, team=reminder.team, filename=name, mime="image/png")
    media.file.save(name, ContentFile(content), save=False)
    media.save()
    media.file.close()
    return media


# --- a small real picture, drawn here so that no binary file lies in the repository -----------------------


WIDTH, HEIGHT = 320, 180
SIGNATURE = b"\x89PNG\r\n\x1a\n"
EIGHT_BIT_RGB = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)


def draw_png(hue: int) -> bytes:
    """Return an evening sky; the hue (0–255) sets the colour at the horizon, so that each picture differs."""
    rows = b"".join(_picture_row(y, hue) for y in range(HEIGHT))
    chunks = ((b"IHDR", EIGHT_BIT_RGB), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return SIGNATURE + b"".join(_png_chunk(name, data) for name, data in chunks)


def _picture_row(y: int, hue: int) -> bytes:
    depth = 255 * y // HEIGHT
    pixel = bytes(((hue * depth) // 255, 70 + depth // 3, 150 - depth // 4))
    # Every row starts with its filter: none.
    return b"\x00" + pixel * WIDTH


def _png_chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
