"""`manage.py rotate_keys`: encrypt all credentials with the first key of CREDENTIAL_KEYS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from cryptography.fernet import Fernet, InvalidToken
from django.apps import apps
from django.conf import settings
from django.core.management.base import CommandParser
from django.db import transaction
from django.db.models import Model
from django.utils import timezone

from accounts import crypto
from accounts.fields import EncryptedJSONField, Sealed
from accounts.inputs import counted
from fanout.management.base import BadInput, CrierCommand, NotDone
from fanout.models.trail import note

NEXT = "Add it as the first key in CREDENTIAL_KEYS, restart, and run `manage.py rotate_keys`."


class Command(CrierCommand):
    help = (
        "Encrypt all credentials with the first key of CREDENTIAL_KEYS. It can be interrupted and run again. "
        "Afterwards the old keys can be removed."
    )
    example = "rotate_keys --dry-run"

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--generate", action="store_true", help="print a new key and change nothing")
        parser.add_argument("--dry-run", action="store_true", help="count only")
        parser.add_argument("--batch", type=int, default=200, help="rows read at a time")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["generate"]:
            key = Fernet.generate_key().decode()
            if not self.as_json:
                self.stderr.write(NEXT)
            self.answer({"key": key}, key)
            return
        if options["batch"] < 1:
            raise BadInput("--batch takes a whole number, 1 or more.")
        self.rotate(options["dry_run"], options["batch"])

    def rotate(self, dry_run: bool, batch: int) -> None:
        first = Fernet(settings.CREDENTIAL_KEYS[0])
        counts: Counter[str] = Counter()
        total = sum(model._default_manager.count() for model, _ in encrypted_fields())
        progress = self.progress(total, "credentials")
        for model, name in encrypted_fields():
            for pk, token in tokens(model, name, batch):
                counts[turn(model, name, pk, token, first, dry_run)] += 1
                progress.show(counts.total())
        progress.end()
        if counts["rotated"] and not dry_run:
            note("rotated keys", None, None, timezone.now(), counted(counts["rotated"], "credential"))
        self.report(counts, dry_run)

    def report(self, counts: Counter[str], dry_run: bool) -> None:
        data = {word: counts[word] for word in ("rotated", "current", "unreadable", "changed")} | {"dry_run": dry_run}
        verb = "to rotate" if dry_run else "rotated"
        text = f"{counts['rotated']} {verb}, {counts['current']} encrypted with the first key already."
        if counts["unreadable"]:
            lost = f"{counts['unreadable']} fit none of the keys: add the missing key, or enter the credentials again."
            raise NotDone(f"{text} {lost}", data)
        self.answer(data, text)


def encrypted_fields() -> Iterator[tuple[type[Model], str]]:
    for model in apps.get_models():
        for field in model._meta.local_fields:
            if isinstance(field, EncryptedJSONField):
                yield model, field.name


def tokens(model: type[Model], name: str, batch: int) -> Iterator[tuple[Any, Sealed]]:
    """Yield the tokens by primary key, a batch at a time: no long transaction, and memory for one batch only."""
    last: Any = 0
    while True:
        rows = list(model._default_manager.filter(pk__gt=last).order_by("pk").values_list("pk", name)[:batch])
        if not rows:
            return
        yield from ((pk, token) for pk, token in rows if token)
        last = rows[-1][0]


def turn(model: type[Model], name: str, pk: Any, token: Sealed, first: Fernet, dry_run: bool) -> str:
    """Rotate one token and return the result in a word."""
    try:
        first.decrypt(token.encode())
        return "current"
    except InvalidToken:
        pass
    try:
        fresh = Sealed(crypto.rotate(token))
    except crypto.CredentialError:
        return "unreadable"
    if dry_run:
        return "rotated"
    return "rotated" if _replace(model, name, pk, token, fresh) else "changed"


def _replace(model: type[Model], name: str, pk: Any, old: Sealed, fresh: Sealed) -> bool:
    """Store the token unless new credentials were entered meanwhile, which use the first key anyway."""
    rows = model._default_manager.filter(pk=pk)
    with transaction.atomic():
        if rows.select_for_update().values_list(name, flat=True).first() != old:
            return False
        rows.update(**{name: fresh})
    return True
