from __future__ import annotations

import base64
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core import serializers
from django.core.exceptions import FieldError, ImproperlyConfigured, ValidationError
from django.db import connection, models
from django.db.migrations.writer import MigrationWriter
from django.test.utils import isolate_apps
from hypothesis import given
from hypothesis import strategies as st

from accounts.crypto import CredentialError, decrypt, encrypt, rotate
from accounts.fields import EncryptedJSONField, Sealed, Secrets

SECRET = {"password": "hunter2-hunter2", "port": 587, "tags": ["a", None, True]}
OLD, NEW, FOREIGN = (base64.urlsafe_b64encode(bytes([n]) * 32).decode() for n in (1, 2, 3))


@pytest.fixture(autouse=True)
def keys(settings: Any) -> Any:
    settings.CREDENTIAL_KEYS = [OLD]
    return settings


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(credentials=st.dictionaries(st.text(), json_values, max_size=4))
def test_round_trip(credentials: dict[str, Any]) -> None:
    assert decrypt(encrypt(credentials)) == credentials


def test_token_is_opaque_and_never_the_same() -> None:
    token = encrypt(SECRET)
    assert "hunter2" not in token
    assert "hunter2" not in base64.urlsafe_b64decode(token).decode("latin-1")
    assert encrypt(SECRET) != token


def test_old_keys_still_open(keys: Any) -> None:
    token = encrypt(SECRET)
    keys.CREDENTIAL_KEYS = [NEW, OLD]
    assert decrypt(token) == SECRET


def test_the_first_key_encrypts(keys: Any) -> None:
    keys.CREDENTIAL_KEYS = [NEW, OLD]
    token = encrypt(SECRET)
    keys.CREDENTIAL_KEYS = [NEW]
    assert decrypt(token) == SECRET


def test_rotation_lets_the_old_key_go(keys: Any) -> None:
    token = encrypt(SECRET)
    keys.CREDENTIAL_KEYS = [NEW, OLD]
    rotated = rotate(token)
    keys.CREDENTIAL_KEYS = [NEW]
    assert decrypt(rotated) == SECRET
    with pytest.raises(CredentialError):
        decrypt(token)


@pytest.mark.parametrize("action", [decrypt, rotate])
@pytest.mark.parametrize("spoil", ["foreign-key", "nonsense", "empty", "cut", "not-ascii"])
def test_no_key_fits(action: Any, spoil: str, keys: Any) -> None:
    token = encrypt(SECRET)
    if spoil == "foreign-key":
        keys.CREDENTIAL_KEYS = [FOREIGN, NEW]
    else:
        token = {"nonsense": "abc", "empty": "", "cut": token[:-5], "not-ascii": "ключ"}[spoil]
    with pytest.raises(CredentialError, match="No key in CREDENTIAL_KEYS opens these credentials"):
        action(token)


@pytest.mark.parametrize("plain", [b"[1]", b'"text"', b"{not json hunter2"])
def test_foreign_content(plain: bytes) -> None:
    token = Fernet(OLD).encrypt(plain).decode()
    with pytest.raises(CredentialError, match="not written by this application") as caught:
        decrypt(token)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        pytest.param([], "empty", id="none"),
        pytest.param([OLD, "hunter2"], "Key 2", id="too-short"),
        pytest.param(["ключ"], "Key 1", id="not-ascii"),
    ],
)
def test_bad_keys_are_named_by_number_only(bad: list[str], words: str, keys: Any) -> None:
    keys.CREDENTIAL_KEYS = bad
    with pytest.raises(ImproperlyConfigured, match=words) as caught:
        encrypt(SECRET)
    assert "hunter2" not in str(caught.value)


def test_only_dicts() -> None:
    with pytest.raises(TypeError, match="must be a dict") as caught:
        encrypt("hunter2")  # type: ignore[arg-type]
    assert "hunter2" not in str(caught.value)


# --- the field --------------------------------------------------------------------------------------------


@pytest.fixture
def vault(db: None) -> Iterator[Any]:
    """A model with the field and its table, gone with the test's transaction."""
    with isolate_apps():

        class Vault(models.Model):
            credentials = EncryptedJSONField()

            class Meta:
                app_label = "vaults"

            def __str__(self) -> str:
                return "vault"

        with connection.schema_editor() as editor:
            editor.create_model(Vault)
        yield Vault


def stored(vault: Any, pk: int) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT credentials FROM {vault._meta.db_table} WHERE id = %s", [pk])
        return cursor.fetchone()[0]


def test_field_stores_a_token_and_gives_a_dict(vault: Any) -> None:
    row = vault.objects.create(credentials=SECRET)
    assert "hunter2" not in stored(vault, row.pk)
    assert decrypt(stored(vault, row.pk)) == SECRET
    again = vault.objects.get(pk=row.pk)
    assert isinstance(again.credentials, dict)
    assert again.credentials == SECRET


def test_field_defaults_to_an_empty_dict_of_its_own(vault: Any) -> None:
    first, second = vault(), vault()
    first.credentials["a"] = 1
    assert second.credentials == {}
    second.save()
    assert vault.objects.get(pk=second.pk).credentials == {}


def test_changes_in_place_are_saved(vault: Any) -> None:
    row = vault.objects.create(credentials={"a": 1})
    again = vault.objects.get(pk=row.pk)
    again.credentials["b"] = 2
    again.save(update_fields=["credentials"])
    row.refresh_from_db()
    assert row.credentials == {"a": 1, "b": 2}


def test_deferred_and_updated_in_bulk(vault: Any) -> None:
    row = vault.objects.create(credentials=SECRET)
    vault.objects.filter(pk=row.pk).update(credentials={"b": 2})
    assert vault.objects.defer("credentials").get(pk=row.pk).credentials == {"b": 2}
    row.credentials = {"c": 3}
    vault.objects.bulk_update([row], ["credentials"])
    assert vault.objects.get(pk=row.pk).credentials == {"c": 3}


def test_row_with_a_lost_key_can_be_listed_saved_and_mended(vault: Any, keys: Any) -> None:
    pk = vault.objects.create(credentials=SECRET).pk
    token = stored(vault, pk)
    keys.CREDENTIAL_KEYS = [FOREIGN]
    (row,) = vault.objects.all()
    row.save()
    assert stored(vault, pk) == token
    with pytest.raises(CredentialError):
        _ = row.credentials
    row.credentials = {"new": 1}
    row.save()
    assert vault.objects.get(pk=pk).credentials == {"new": 1}


def test_nothing_prints_the_plaintext(vault: Any) -> None:
    row = vault.objects.create(credentials=SECRET)
    loaded = vault.objects.get(pk=row.pk)
    shown = [repr(row.credentials), str(loaded.credentials), f"{loaded.credentials}", repr(loaded.__dict__)]
    shown += [repr(list(vault.objects.values_list("credentials"))), repr(vars(vault.objects.get(pk=row.pk)))]
    assert not any("hunter2" in text or "password" in text for text in shown)


def test_dump_and_load_carry_the_token(vault: Any) -> None:
    row = vault.objects.create(credentials=SECRET)
    field = vault._meta.get_field("credentials")
    dumped = serializers.serialize("json", [row])
    assert "hunter2" not in dumped
    assert field.to_python(field.value_to_string(row)) == SECRET


@pytest.mark.parametrize("lookup", ["credentials", "credentials__contains", "credentials__in"])
def test_comparing_tokens_is_refused(lookup: str, vault: Any) -> None:
    with pytest.raises(FieldError):
        vault.objects.filter(**{lookup: SECRET}).exists()


def test_wrong_shapes_do_not_show_the_value() -> None:
    field = EncryptedJSONField()
    for call, kind in (
        (field.get_prep_value, TypeError),
        (field.to_python, (ValidationError, CredentialError)),
    ):
        for value in ("hunter2", ["hunter2"]):
            with pytest.raises(kind) as caught:
                call(value)
            assert "hunter2" not in str(caught.value)


def test_no_form_shows_it() -> None:
    assert not EncryptedJSONField(editable=True).editable


def test_deconstructs_without_noise() -> None:
    _, path, args, kwargs = EncryptedJSONField().deconstruct()
    assert (path, args, kwargs) == ("accounts.fields.EncryptedJSONField", [], {})
    _, _, _, kwargs = EncryptedJSONField(blank=True, default=list).deconstruct()
    assert kwargs == {"blank": True, "default": list}
    assert MigrationWriter.serialize(EncryptedJSONField())[0] == "accounts.fields.EncryptedJSONField()"


def test_sealed_and_secrets_hide() -> None:
    assert repr(Sealed("token")) == "<Sealed>"
    assert repr(Secrets(a=1, b=2)) == "<Secrets: 2 hidden>"
