"""Whose request it is, and when an address or a name has guessed often enough."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest
from django.test import Client, RequestFactory

from config.proxies import client_address
from tests.factories import UserFactory

case = pytest.param


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        case("203.0.113.9", "", "203.0.113.9", id="direct"),
        case("203.0.113.9", "198.51.100.1", "203.0.113.9", id="a stranger claims"),
        case("10.0.0.1", "198.51.100.1", "198.51.100.1", id="our proxy says"),
        case("10.0.0.1", "1.2.3.4, 198.51.100.1", "198.51.100.1", id="a claim through our proxy"),
        case("10.0.0.1", "1.2.3.4, 198.51.100.1, 10.0.0.2", "198.51.100.1", id="two proxies"),
        case("10.0.0.1", "10.0.0.3", "10.0.0.3", id="from inside"),
        case("10.0.0.1", "", "10.0.0.1", id="nothing said"),
        case("10.0.0.1", "1.2.3.4, garbage", "10.0.0.1", id="garbage"),
        case("", "1.2.3.4", "", id="no peer"),
    ],
)
def test_only_our_proxies_are_believed(settings: Any, peer: str, forwarded: str, client: str) -> None:
    settings.TRUSTED_PROXIES = [ip_network("10.0.0.0/8")]
    request = RequestFactory().get("/", REMOTE_ADDR=peer, headers={"X-Forwarded-For": forwarded})
    assert client_address(request) == client


def guess(name: str, address: str) -> int:
    form = {"username": name, "password": "wrong"}
    return Client().post("/admin/login/", form, REMOTE_ADDR=address, HTTP_X_FORWARDED_FOR="8.8.8.8").status_code


@pytest.fixture(autouse=True)
def plain_static_files(settings: Any) -> None:
    settings.STORAGES = settings.STORAGES | {
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    }


@pytest.mark.django_db
def test_five_for_a_name_from_an_address_and_nobody_else_suffers():
    UserFactory.create(username="mei")
    assert [guess("mei", "203.0.113.1") for _ in range(6)] == [200] * 4 + [429] * 2
    assert guess("mei", "203.0.113.2") == 200
    assert guess("noor", "203.0.113.1") == 200


@pytest.mark.django_db
def test_an_address_does_not_try_names_for_ever():
    statuses = [guess(f"name{n}", "203.0.113.1") for n in range(27)]
    assert statuses == [200] * 24 + [429] * 3
    assert guess("name0", "203.0.113.2") == 200


@pytest.mark.django_db
def test_a_name_is_not_tried_from_everywhere_for_ever():
    assert [guess("mei", f"203.0.113.{n}") for n in range(26)] == [200] * 24 + [429] * 2
    assert guess("noor", "203.0.113.1") == 200


def log_in(name: str, address: str) -> int:
    form = {"username": name, "password": "horse-battery-9-staple"}
    return Client().post("/admin/login/", form, REMOTE_ADDR=address).status_code


def person(name: str) -> None:
    user = UserFactory.create(username=name, is_staff=True)
    user.set_password("horse-battery-9-staple")
    user.save()


@pytest.mark.django_db
def test_a_login_of_ones_own_does_not_buy_more_guesses_at_another_name():
    person("jonas")
    UserFactory.create(username="mei")
    assert [guess("mei", "203.0.113.1") for _ in range(4)] == [200] * 4
    assert log_in("jonas", "203.0.113.1") == 302
    assert guess("mei", "203.0.113.1") == 429


@pytest.mark.django_db
def test_nor_more_names_from_one_address():
    person("jonas")
    statuses = []
    for n in range(25):
        statuses.append(guess(f"name{n}", "203.0.113.1"))
        if n % 4 == 3:
            log_in("jonas", "203.0.113.1")
    assert statuses == [200] * 24 + [429]


@pytest.mark.django_db
def test_a_login_forgets_ones_own_typing_errors_from_there_only():
    person("jonas")
    assert [guess("jonas", "203.0.113.2") for _ in range(4)] == [200] * 4
    assert [guess("jonas", "203.0.113.1") for _ in range(4)] == [200] * 4
    assert log_in("jonas", "203.0.113.1") == 302
    assert guess("jonas", "203.0.113.1") == 200
    assert guess("jonas", "203.0.113.2") == 429
