"""What a channel's description asks for, on the account's form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from accounts.models import Account
from tests.admin.conftest import login
from tests.admin.test_forms import account_form

KEY = json.dumps({"service_account": {"client_email": "crier@project.iam", "private_key": "s3cret"}})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({"config": '{"timeout": "abc"}'}, "“timeout” is &#x27;abc&#x27;; it must be a number", id="type"),
        pytest.param({"config": '{"key": "s3cret"}'}, "“key” is a secret", id="secret among the settings"),
        pytest.param({"new_credentials": "token = s3cret"}, "There is no credential “token”", id="credential"),
        pytest.param({"channel": "gmail", "address": "a@b.cd"}, "“service_account” is missing", id="no key"),
    ],
)
def test_what_is_refused_is_said_on_the_page(operator: User, fields: dict[str, Any], said: str) -> None:
    answer = login(operator).post(reverse("admin:accounts_account_add"), account_form(**fields))

    assert answer.status_code == 200
    assert said in answer.content.decode()
    assert not Account.objects.exists()


def test_credentials_count_in_the_form_they_come_with(operator: User) -> None:
    fields = account_form(channel="gmail", address="a@b.cd", new_credentials=KEY)
    login(operator).post(reverse("admin:accounts_account_add"), fields)

    assert Account.objects.get().credentials == json.loads(KEY)
