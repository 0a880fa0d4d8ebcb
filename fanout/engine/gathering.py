"""Questions of many lanes, asked together.

A lane asks for itself alone. Whatever has gathered while the last answer was under way is asked in one go, so that a
thousand lanes cost a few round trips and a single one does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")
AskAll = Callable[[list[Question]], Awaitable[list[Answer]]]

AT_ONCE = 100  # questions in one go: the first lanes go on while the others wait, and no statement grows without limit


class Gathering(Generic[Question, Answer]):
    """`ask_all` answers questions in their order."""

    def __init__(self, ask_all: AskAll[Question, Answer]) -> None:
        self.ask_all = ask_all
        self._waiting: list[tuple[Question, asyncio.Future[Answer]]] = []
        self._asking: asyncio.Task[None] | None = None

    async def ask(self, question: Question) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_waiting())
        return await answer

    async def _ask_waiting(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
            await self._ask(group)
        self._asking = None

    async def _ask(self, group: list[tuple[Question, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self.ask_all([question for question, _ in group])
            answered = list(zip(group, answers, strict=True))
        except Exception as error:
            await self._one_by_one(group, error)
        else:
            for (_, future), answer in answered:
                if not future.done():
                    future.set_result(answer)

    async def _one_by_one(self, group: list[tuple[Question, asyncio.Future[Answer]]], error: Exception) -> None:
        """One question that cannot be answered must not take the others with it."""
        if len(group) > 1:
            for one in group:
                await self._ask([one])
        elif not group[0][1].done():
            group[0][1].set_exception(error)
