"""A second factor: codes from an authenticator app (TOTP), and recovery codes for the day the app is lost.

django-otp keeps the devices, slows guessing down and takes each code once.
"""

from __future__ import annotations

import secrets
from typing import Any

import segno
from django.conf import settings
from django.db import transaction
from django.utils.crypto import salted_hmac
from django.utils.safestring import SafeString, mark_safe
from django_otp import verify_token
from django_otp.models import Device
from django_otp.plugins.otp_static.models import StaticDevice, StaticToken
from django_otp.plugins.otp_totp.models import TOTPDevice

RECOVERY_CODES = 10
#: without letters and digits that are easily taken for each other
ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def app_of(user: Any) -> TOTPDevice | None:
    """Return the authenticator app that a person logs in with, or None without a second factor."""
    return TOTPDevice.objects.filter(user_id=user.pk, confirmed=True).first()


def required_of(user: Any) -> bool:
    return bool(settings.REQUIRE_SECOND_FACTOR and user.is_superuser)


@transaction.atomic
def begin(user: Any) -> TOTPDevice:
    """Create a new key for the person's app. It counts from its first code on (`finish`)."""
    TOTPDevice.objects.filter(user_id=user.pk, confirmed=False).delete()
    return TOTPDevice.objects.create(user_id=user.pk, name=user.get_username(), confirmed=False)


def begun(user: Any) -> TOTPDevice | None:
    return TOTPDevice.objects.filter(user_id=user.pk, confirmed=False).first()


@transaction.atomic
def finish(user: Any, code: str) -> TOTPDevice | None:
    """Turn the second factor on, if the code shows that the app has the key."""
    app = TOTPDevice.objects.select_for_update().filter(user_id=user.pk, confirmed=False).first()
    if app is None or not app.verify_token(tidy(code)):
        return None
    TOTPDevice.objects.filter(user_id=user.pk, confirmed=True).delete()
    app.confirmed = True
    app.save(update_fields=["confirmed"])
    return app


@transaction.atomic
def new_recovery_codes(user: Any) -> list[str]:
    """Return ten new codes that work once each, and end earlier ones. Only their digests are kept."""
    StaticDevice.objects.filter(user_id=user.pk).delete()
    sheet = StaticDevice.objects.create(user_id=user.pk, name="recovery codes")
    codes = ["".join(secrets.choice(ALPHABET) for _ in range(10)) for _ in range(RECOVERY_CODES)]
    StaticToken.objects.bulk_create(StaticToken(device=sheet, token=digest(code)) for code in codes)
    return [f"{code[:5]}-{code[5:]}" for code in codes]


def recovery_codes_left(user: Any) -> int:
    return int(StaticToken.objects.filter(device__user_id=user.pk).count())


def accepted(user: Any, code: str) -> Device | None:
    """Return the device that accepts this code. It accepts none twice, and makes a guesser wait longer each time."""
    code = tidy(code)
    kind, token = (TOTPDevice, code) if is_app_code(code) else (StaticDevice, _kept_digest(user, code))
    device = kind.objects.filter(user_id=user.pk, confirmed=True).first()
    return verify_token(user, device.persistent_id, token) if device else None


@transaction.atomic
def remove(user: Any) -> None:
    TOTPDevice.objects.filter(user_id=user.pk).delete()
    StaticDevice.objects.filter(user_id=user.pk).delete()


def is_app_code(code: str) -> bool:
    return len(code) == 6 and code.isascii() and code.isdigit()


def tidy(code: str) -> str:
    """Return a code as it is compared: people type codes with spaces, dashes and capitals."""
    return "".join(code.split()).replace("-", "").lower()


def digest(code: str, key: str | None = None) -> str:
    """Return a digest as long as django-otp's column.

    It is keyed, so that a copy of the database is not enough to guess codes.
    """
    return salted_hmac("crier.recovery-code", code, key).hexdigest()[:16]


def _kept_digest(user: Any, code: str) -> str:
    """Return the digest under the key that made it: a sheet that was printed before the key changed still counts."""
    digests = [digest(code), *(digest(code, key) for key in settings.SECRET_KEY_FALLBACKS)]
    kept = StaticToken.objects.filter(device__user_id=user.pk, token__in=digests).values_list("token", flat=True)
    return kept.first() or digests[0]


def qr_code(app: TOTPDevice) -> SafeString:
    """Return the key for an app's camera, as SVG without style attributes: the content security policy forbids them."""
    picture = segno.make(app.config_url, micro=False).svg_inline(scale=5, border=4, dark="#000", light="#fff")
    return mark_safe(picture)  # noqa: S308 - drawn by segno: no text of a person is in it


def is_app(device: Device) -> bool:
    return isinstance(device, TOTPDevice)
