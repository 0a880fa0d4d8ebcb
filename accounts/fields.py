"""A model field for credentials: a dict in Python, an encrypted token in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.query_utils import DeferredAttribute

from accounts import crypto

if TYPE_CHECKING:
    _TextField = models.TextField[dict[str, Any], dict[str, Any]]
else:
    _TextField = models.TextField


class Secrets(dict[str, Any]):
    """A dict that does not print its values: tracebacks, debug pages and log lines show locals."""

    def __repr__(self) -> str:
        return f"<Secrets: {len(self)} hidden>"

    __str__ = __repr__


class Sealed(str):
    """A token as it came from the database, not decrypted yet."""

    def __repr__(self) -> str:
        return "<Sealed>"


class _OpenOnAccess(DeferredAttribute):
    """Decrypts when the attribute is read, not when the row is loaded.

    An account whose key is lost can then still be listed and given new credentials, and loading a
    thousand accounts does not decrypt a thousand tokens.
    """

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        value = super().__get__(instance, cls)
        if isinstance(value, Sealed):
            # An empty column is an empty dict: most events from providers have no text.
            value = instance.__dict__[self.field.attname] = Secrets(crypto.decrypt(value) if value else {})
        return value

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.field.attname] = Secrets(value) if type(value) is dict else value


class EncryptedJSONField(_TextField):
    """Stores a dict as an encrypted token.

    Not editable: a form asks for credentials with inputs of its own and never shows stored ones. `values()` gives the
    token; only an instance's attribute decrypts it.
    """

    description = "Encrypted credentials"
    descriptor_class = _OpenOnAccess

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("default", dict)
        kwargs["editable"] = False
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> tuple[str, str, Any, Any]:
        name, path, args, kwargs = super().deconstruct()
        del kwargs["editable"]
        if kwargs.get("default") is dict:
            del kwargs["default"]
        return name, path, args, kwargs

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Sealed | None:
        return None if value is None else Sealed(value)

    def to_python(self, value: Any) -> Any:
        if value is None or isinstance(value, dict):
            return value
        if isinstance(value, str):  # a token, from a fixture
            return Secrets(crypto.decrypt(value))
        raise ValidationError("Credentials must be a set of names and values.", code="invalid")

    def get_prep_value(self, value: Any) -> Any:
        if value is None or hasattr(value, "resolve_expression"):
            return value
        if isinstance(value, dict):
            return crypto.encrypt(value)
        if isinstance(value, Sealed):
            return str(value)
        # Without the value: it may be a password in the wrong shape.
        raise TypeError("Credentials must be a dict.")

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        # A token that was not read is written back as it is, even when no key opens it.
        value = model_instance.__dict__.get(self.attname)
        return value if isinstance(value, Sealed) else super().pre_save(model_instance, add)

    def value_to_string(self, obj: models.Model) -> str:
        """Return the token for dumpdata, never the plaintext."""
        return str(self.get_prep_value(self.pre_save(obj, add=False)))

    def get_lookup(self, lookup_name: str) -> Any:
        # Every encryption gives another token: a comparison would silently find nothing.
        return super().get_lookup(lookup_name) if lookup_name == "isnull" else None
