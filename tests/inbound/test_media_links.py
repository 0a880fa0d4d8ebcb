"""A gateway fetches the file of its link, and no other."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import psutil
import pytest
from django.core import signing
from django.core.files.base import ContentFile
from django.test import Client

from accounts.channels.base import Media
from config.local.children import wait_until
from reminders import media
from reminders.models import MediaFile
from tests.crier_processes import Web
from tests.factories import MediaFileFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def public(settings: Any) -> None:
    settings.PUBLIC_URL = "https://crier.example"


@pytest.fixture
def file() -> MediaFile:
    return MediaFileFactory.create()


def described(file: MediaFile) -> Media:
    return Media(file.sha256, file.filename, file.mime, file.size, lambda: b"")


def path(file: MediaFile) -> str:
    url = media.link_url(described(file))
    assert url is not None
    return url.removeprefix("https://crier.example")


def test_the_file_comes_with_its_name_and_type_and_without_a_login(client: Client, file: MediaFile) -> None:
    answer = client.get(path(file))

    assert answer.status_code == 200
    with file.file.open("rb") as stored:
        assert answer.getvalue() == stored.read()
    assert answer["Content-Type"] == file.mime
    assert file.filename in answer["Content-Disposition"]


def test_the_link_is_the_same_all_day_and_expires(file: MediaFile) -> None:
    midnight = datetime(2026, 6, 1, tzinfo=UTC).timestamp()
    links = {media.link_token(file.sha256, midnight + second) for second in (0, 1, 3600, 86_399)}

    (link,) = links
    last = datetime(2026, 6, 2, 23, 59, 59, tzinfo=UTC)
    assert media.linked_file(link, last) == file
    with pytest.raises(media.NoSuchFile):
        media.linked_file(link, datetime(2026, 6, 3, tzinfo=UTC))


@pytest.mark.parametrize("token", ["x", "x:y", "WyJhIiwxXQ:x", "é"])
def test_a_link_that_is_not_ours_is_not_found(client: Client, file: MediaFile, token: str) -> None:
    assert client.get(f"/files/{token}").status_code == 404
    assert client.get(path(file) + "x").status_code == 404


def test_a_link_of_another_kind_does_not_open_files(client: Client, file: MediaFile) -> None:
    other = signing.Signer(salt="crier.unsubscribe").sign_object([file.sha256, time.time() + 60])
    assert client.get(f"/files/{other}").status_code == 404


def test_a_file_that_is_gone_is_not_found(client: Client, file: MediaFile) -> None:
    link = path(file)
    file.file.storage.delete(str(file.file.name))
    assert client.get(link).status_code == 404
    file.delete()
    assert client.get(link).status_code == 404


def test_nothing_is_changed_by_other_methods(client: Client, file: MediaFile) -> None:
    assert client.post(path(file)).status_code == 405


def test_without_a_public_address_there_is_no_link(settings: Any, file: MediaFile) -> None:
    settings.PUBLIC_URL = ""
    assert media.link_url(described(file)) is None


def test_only_the_size_is_asked_for(client: Client, file: MediaFile) -> None:
    answer = client.head(path(file))
    assert (answer["Content-Length"], answer.getvalue()) == (str(file.size), b"")


SIZE, READERS, MB = 60_000_000, 8, 1_000_000


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_readers_that_stop_hold_no_memory(tmp_path: Any) -> None:
    file = MediaFileFactory.create(file=ContentFile(bytes(SIZE), name="film.mp4"), filename="film.mp4")
    link = path(file)
    with Web(tmp_path, CRIER_VAR=str(tmp_path)) as web, ExitStack() as readers:
        whole = web.ask("GET", link)
        assert (whole.status, len(whole.content), whole.headers["Content-Length"]) == (200, SIZE, str(SIZE))
        process = psutil.Process(web.child.pid)
        before = process.memory_info().rss
        for _ in range(READERS):
            reader = readers.enter_context(socket.create_connection(("127.0.0.1", web.port)))
            reader.sendall(f"GET {link} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            assert reader.recv(12) == b"HTTP/1.1 200"
        # Later requests are answered, so the readers' first chunks are out by now.
        assert web.ask("GET", link).status == 200
        assert process.memory_info().rss - before < 40 * MB
        readers.close()
        assert wait_until(lambda: not [one for one in process.net_connections("tcp") if one.status == "CLOSE_WAIT"], 20)
        assert not [one for one in process.open_files() if one.path.endswith(".mp4")]
