"""One setting or credential of a channel: its name, its purpose and the values that it takes."""

from __future__ import annotations

import base64
import enum
import ipaddress
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509

from accounts.addresses import MAILBOX, normalise

HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?")
URL = re.compile(r"https?://[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a text, and how to say it."""

    pattern: re.Pattern[str]
    in_words: str


#: ids that Meta gives to numbers and accounts
META_ID = Form(re.compile("[0-9]{5,25}"), "a number of at least 5 digits, without + or spaces")
#: ids of a MongoDB
OBJECT_ID = Form(re.compile("[0-9a-f]{24}"), "an id of 24 digits and letters from a to f")
#: ids of Unipile's accounts: no mail address, name or link to a profile
UNIPILE_ID = Form(re.compile("[A-Za-z0-9_-]{2,100}"), "an id of letters, digits, - and _, without spaces")
LANGUAGE = Form(re.compile("[a-z]{2,3}(_[A-Z]{2,3})?"), "a language such as en or pt_BR")


class FieldKind(enum.StrEnum):
    TEXT = "text"
    HOST = "host"
    URL = "url"
    MAILBOX = "mail address"
    NUMBER = "number"
    WHOLE = "whole number"
    YES_NO = "yes or no"
    CHOICE = "choice"
    OBJECT = "JSON object"
    PEM = "certificates"


class BadSetting(ValueError):
    """Raised for a value that the field does not take. The text names the field, and never shows a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One setting. `default` is the meaning of an empty value; None where there is nothing to assume."""

    name: str
    label: str
    help: str = ""
    kind: FieldKind = FieldKind.TEXT
    required: bool = False
    secret: bool = False
    default: Any = None
    low: float = 0
    high: float = math.inf
    choices: tuple[str, ...] = ()
    #: Decides where the credentials are sent, or as whom: when it changes, they must be entered again.
    destination: bool = False
    #: For an address: the provider's own hosts and their subdomains. Empty: any.
    hosts: tuple[str, ...] = ()
    #: Most accounts keep the default: forms show it separately.
    advanced: bool = False
    #: Of a text: checked when it is entered. Stored values are used as they are.
    form: Form | None = None

    def read(self, value: Any) -> Any:
        """Return the value in its own type, or the default; raises BadSetting."""
        if value is None or value == "":
            if self.required:
                raise BadSetting(f"“{self.name}” is missing.")
            return self.default
        try:
            return READERS[self.kind](self, value)
        except (TypeError, ValueError):
            # Without the cause: its text may quote a secret.
            raise BadSetting(self._refusal(value)) from None

    def problem(self, value: Any) -> str:
        """Return the sentence for a value that is not accepted, or ""."""
        try:
            self.read_entered(value)
        except BadSetting as refused:
            return str(refused)
        return ""

    def read_entered(self, value: Any) -> Any:
        """Return the value like `read`; also raises BadSetting for a text that does not have the field's form."""
        result = self.read(value)
        if self.form is not None and result not in (None, "") and not self.form.pattern.fullmatch(str(result)):
            raise BadSetting(self._refusal(value))
        return result

    def _refusal(self, value: Any) -> str:
        shown = "" if self.secret else f" is {_shortened(repr(value))}; it"
        return f"“{self.name}”{shown} must be {self.takes()}."

    def takes(self) -> str:
        """Return the accepted values in words."""
        if self.kind in (FieldKind.NUMBER, FieldKind.WHOLE):
            upper = f"from {self.low:g} to {self.high:g}" if self.high < math.inf else f"of at least {self.low:g}"
            return f"a {self.kind} {upper}"
        return {
            FieldKind.TEXT: self.form.in_words if self.form else "text",
            FieldKind.HOST: "a host name such as mail.example.com",
            FieldKind.MAILBOX: "a mail address such as office@example.com",
            FieldKind.URL: f"an address such as https://{self.hosts[0] if self.hosts else 'example.com'}",
            FieldKind.YES_NO: "true or false",
            FieldKind.OBJECT: "a JSON object",
            FieldKind.PEM: "one or more certificates (-----BEGIN CERTIFICATE----- …)",
            FieldKind.CHOICE: " or ".join(self.choices),
        }[self.kind]


def _shortened(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:60]}…"


# -- one reader per kind: the value in its type, or ValueError --------------------------------------------


def _text(field: Field, value: Any) -> str:
    # A user name of digits comes from JSON as a number.
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError
    return str(value)


def _host(field: Field, value: Any) -> str:
    if not isinstance(value, str) or not (HOST.fullmatch(value) or _is_ip(value)):
        raise ValueError
    return value


def _is_ip(value: str) -> bool:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True


def _url(field: Field, value: Any) -> str:
    if not isinstance(value, str) or not URL.fullmatch(value):
        raise ValueError
    parts = urlsplit(value)
    # Reading the port checks it. A user name or password would be a secret among the settings.
    if not parts.hostname or parts.port == 0 or "@" in parts.netloc:
        raise ValueError
    if field.hosts and not _is_at(parts.hostname, field.hosts) and not _is_stand_in(parts.hostname):
        raise ValueError
    return value


def _is_stand_in(host: str) -> bool:
    """Return whether the host is a provider of the demo or of tests, on this machine."""
    # Imported here, because the sandbox's server imports this module and runs without Django.
    from django.conf import settings

    return settings.SANDBOX and (host == "localhost" or (_is_ip(host) and ipaddress.ip_address(host).is_loopback))


def _is_at(host: str, hosts: tuple[str, ...]) -> bool:
    return any(host == own or host.endswith(f".{own}") for own in hosts)


def _pem(field: Field, value: Any) -> str:
    return certificates(_text(field, value))


def _number(field: Field, value: Any) -> float:
    number = math.nan if isinstance(value, bool) else float(value)
    if not field.low <= number <= field.high:
        raise ValueError
    return number


def _whole(field: Field, value: Any) -> int:
    number = _number(field, value)
    if number != int(number):
        raise ValueError
    return int(number)


def _yes_no(field: Field, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _choice(field: Field, value: Any) -> str:
    if value not in field.choices:
        raise ValueError
    return str(value)


def _object(field: Field, value: Any) -> dict[str, Any]:
    """Return an object, given as such or as the text of a file that holds one."""
    try:
        read = json.loads(value) if isinstance(value, str) else value
    except RecursionError:  # brackets within brackets, thousands deep
        raise ValueError from None
    if not isinstance(read, dict):
        raise ValueError
    return read


READERS: dict[FieldKind, Callable[[Field, Any], Any]] = {
    FieldKind.TEXT: _text,
    FieldKind.HOST: _host,
    FieldKind.MAILBOX: lambda field, value: normalise(MAILBOX, _text(field, value)),
    FieldKind.URL: _url,
    FieldKind.NUMBER: _number,
    FieldKind.WHOLE: _whole,
    FieldKind.YES_NO: _yes_no,
    FieldKind.CHOICE: _choice,
    FieldKind.OBJECT: _object,
    FieldKind.PEM: _pem,
}


# -- certificates as people paste them --------------------------------------------------------------------


LONGEST_PEM = 100_000
PEM_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]++)-----END CERTIFICATE-----")


def certificates(text: str) -> str:
    """Return the certificates in a text as PEM, with its line breaks: people who paste into JSON write spaces instead.

    Raises ValueError where there are none, or one cannot be read.
    """
    if len(text) > LONGEST_PEM:
        raise ValueError
    blocks = [base64.b64decode("".join(block.split()), validate=True) for block in PEM_BLOCK.findall(text)]
    if not blocks:
        raise ValueError
    return "".join(_as_pem(block) for block in blocks)


def _as_pem(der: bytes) -> str:
    x509.load_der_x509_certificate(der)
    lines = base64.encodebytes(der).decode()
    return f"-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n"
