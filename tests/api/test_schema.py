"""Schemathesis over the OpenAPI document: whatever a client sends, no 5xx, and no answer outside its schema."""

from __future__ import annotations

import os
from typing import Any

import hypothesis
import pytest
import schemathesis
from django.core.handlers.wsgi import WSGIHandler
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

from tests.api.conftest import Api
from tests.factories import AccountFactory, RecipientFactory, ReminderFactory, RunFactory

# The server closes its connection after each request.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
EXAMPLES = int(os.environ.get("API_EXAMPLES", "4"))


@pytest.fixture
def caller(operator: Any) -> Api:
    """With one of most things, whose numbers are small."""
    account = AccountFactory.create(owner=operator)
    ReminderFactory.create(account=account, targets=1)
    RecipientFactory.create(owner=operator)
    RunFactory.create(reminder__account=account, status="paused", pause_reason="operator", targets={"pending": 1})
    return Api(operator)


def test_no_server_error_and_no_answer_outside_its_schema(caller: Api) -> None:
    schema = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", WSGIHandler())
    headers = {"Authorization": f"Bearer {caller.secret}"}
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()  # type: ignore[union-attr]

        @hypothesis.given(case=operation.as_strategy())
        @hypothesis.settings(
            max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
        )
        def answers(case: Any) -> None:
            nonlocal tried
            tried += 1
            answer = case.call(headers=headers)
            case.validate_response(answer, checks=[not_a_server_error, response_schema_conformance])

        answers()
    assert tried > 40
