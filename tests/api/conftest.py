"""A client of the API: JSON in and out, with a token."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from accounts import tokens
from accounts.models import ApiToken
from tests.admin.conftest import boss, colleague, member, operator, team, viewer

__all__ = ["boss", "colleague", "member", "operator", "team", "viewer"]
ALL = list(ApiToken.Scope.values)


class Api:
    """Calls operations as one token does."""

    def __init__(self, user: User, scopes: list[str] | None = None, team: Any = None, name: str = "n8n") -> None:
        wish = (user, name, ALL if scopes is None else scopes, team)
        self.user = user
        self.token, self.secret = tokens.issue(*wish, timezone.now() + timedelta(days=1), timezone.now())
        self.client = Client()

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> HttpResponse:
        named = {"Authorization": f"Bearer {self.secret}"} | {k.replace("_", "-"): v for k, v in headers.items()}
        content = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        answer: Any = getattr(self.client, method)(f"/api/v1{path}", headers=named, **content)
        return answer

    def get(self, path: str, **headers: str) -> Any:
        return self("get", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self("post", path, {} if body is None else body, **headers)

    def put(self, path: str, body: Any) -> Any:
        return self("put", path, body)


@pytest.fixture
def api(operator: User) -> Api:
    return Api(operator)
