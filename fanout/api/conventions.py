"""Conventions of all operations: who calls, problems, pages with a cursor, and texts without characters that cannot be
stored."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from ninja import Field, Query, Schema
from ninja.security import HttpBearer
from pydantic import AfterValidator, BaseModel

from accounts import access
from accounts.inputs import LARGEST_ID
from accounts.models import ApiToken
from fanout.runs.controls import ControlResult

M = TypeVar("M", bound=Model)
PROBLEM = "application/problem+json"
MOST = 500

Scope = ApiToken.Scope


class Answer(BaseModel):
    """What an operation answers. Not ninja's Schema, which reads every field of every row through a getter for model
    instances: half of the time that a long page takes."""


# --- problems, as RFC 9457 has them -----------------------------------------------------------------------------


class FieldProblem(Answer):
    field: str
    detail: str


class ProblemOut(Answer):
    """A problem in the sentence that the admin shows, with the fields that it belongs to."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = []
    run: int | None = Field(None, description="The run that the problem is about")


@dataclass
class Problem(Exception):
    """Raised by an operation that did nothing."""

    status: int
    detail: str
    fields: dict[str, str] = field(default_factory=dict)
    run: int | None = None
    headers: dict[str, str] = field(default_factory=dict)


def problem_response(problem: Problem) -> HttpResponse:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        "errors": [{"field": name, "detail": words} for name, words in problem.fields.items()],
        "run": problem.run,
    }
    return JsonResponse(body, status=problem.status, content_type=PROBLEM, headers=problem.headers)


#: fields of models that have another name in requests
IN_REQUESTS = {
    "delivery_window_start_hour": "window.start_hour",
    "delivery_window_end_hour": "window.end_hour",
    "cron": "schedule.cron",
    "fire_at": "schedule.at",
    "follow_up_days": "follow_ups",
}


def of_validation(error: ValidationError) -> Problem:
    """Return the problem for what a model or a control refused."""
    if not hasattr(error, "error_dict"):
        return Problem(422, " ".join(error.messages))
    fields = {IN_REQUESTS.get(name, name): " ".join(words) for name, words in error.message_dict.items()}
    return Problem(422, " ".join(fields.values()), {n: words for n, words in fields.items() if n != "__all__"})


def require(wish: ControlResult) -> ControlResult:
    """Return the result of a control; raise its sentence as a problem where nothing was done."""
    if not wish.ok:
        raise Problem(409, wish.text, run=wish.run.pk if wish.run else None)
    return wish


# --- who calls --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Caller:
    """The person behind a call, and the token, which may see less than the person."""

    user: Any
    token: ApiToken

    def visible(self, rows: QuerySet[M]) -> QuerySet[M]:
        """Return the rows of owned things that the call may see."""
        rows = access.visible(self.user, rows)
        return rows.filter(team=self.token.team_id) if self.token.team_id else rows

    def find(self, rows: QuerySet[M], pk: int, what: str) -> M:
        """Return the thing with this number. Others' things are not there."""
        row = self.visible(rows).filter(pk=pk).first() if 0 < pk <= LARGEST_ID else None
        if row is None:
            raise Http404(f"There is no {what} {pk}.")
        return row


class Needs(HttpBearer):
    """Admits calls whose token has the scope and whose person has the permission. The door has looked at the token."""

    def __init__(self, scope: Scope, permission: str) -> None:
        super().__init__()
        self.scope, self.permission = scope, permission

    def __call__(self, request: HttpRequest) -> Caller:
        caller = caller_of(request)
        if self.scope not in caller.token.scopes:
            raise Problem(403, f"This token lacks the scope “{self.scope.value}”: make another one.")
        reads = self.permission.split(".")[1].startswith("view_")
        may = caller.user.has_perm(self.permission) if reads else access.may_do(caller.user, self.permission)
        if not may:
            raise Problem(403, "Your role does not allow this: ask an administrator.")
        return caller

    def authenticate(self, request: HttpRequest, token: str) -> Any:
        raise NotImplementedError("the door authenticates")


def caller_of(request: HttpRequest) -> Caller:
    caller: Caller = request.__dict__["caller"]
    return caller


# --- values -----------------------------------------------------------------------------------------------------


def _storable(text: str) -> str:
    if "\x00" in text:
        raise ValueError("The text contains a NUL character.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("The text contains half of a character (a lone surrogate).") from None
    return text


Text = Annotated[str, AfterValidator(_storable)]
Line = Annotated[Text, Field(max_length=200)]
Id = Annotated[int, Field(ge=1, le=LARGEST_ID)]
Hour = Annotated[int, Field(ge=0, le=24)]


class Done(Answer):
    """The result of a control, in a sentence."""

    text: str


# --- pages ------------------------------------------------------------------------------------------------------


class PageQuery(Schema):
    limit: int = Field(100, ge=1, le=MOST, description="Items on a page")
    cursor: Annotated[Text, Field(max_length=200)] = Field("", description="`next` of the page before")


Paging = Query[PageQuery]


def page_of(rows: QuerySet[M], paging: PageQuery, newest_first: bool = True) -> tuple[list[M], str | None]:
    """Return a page in the order of the keys, and the cursor of the next one. Rows that are added while a client reads
    do not move the others."""
    after = read_cursor(paging.cursor, 1)
    if after:
        rows = rows.filter(pk__lt=after[0]) if newest_first else rows.filter(pk__gt=after[0])
    found = list(rows.order_by("-pk" if newest_first else "pk")[: paging.limit + 1])
    return cut(found, paging.limit, lambda row: [row.pk])


def cut(rows: list[M], limit: int, key: Any) -> tuple[list[M], str | None]:
    """Return the first rows, and the cursor behind them if there are more."""
    return rows[:limit], write_cursor(key(rows[limit - 1])) if len(rows) > limit else None


def write_cursor(numbers: Sequence[int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(list(numbers)).encode()).decode().rstrip("=")


def read_cursor(text: str, length: int) -> list[int]:
    """Return the numbers in a cursor; nothing for an empty one."""
    if not text:
        return []
    try:
        numbers: list[int] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        usable = isinstance(numbers, list) and len(numbers) == length
        if not usable or not all(type(n) is int and 0 <= n <= LARGEST_ID for n in numbers):
            raise ValueError
    except (ValueError, binascii.Error, RecursionError):
        raise Problem(422, "This cursor is not one that a page gave.", {"cursor": "not a cursor"}) from None
    return numbers
