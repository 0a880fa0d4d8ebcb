"""Asking for many at once: what comes while one question is under way goes out together with the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Question = TypeVar("Question")
Reply = TypeVar("Reply")

MOST = 500


class Gathered(Generic[Question, Reply]):
    """`ask` takes a list of questions and gives a reply for each. Belongs to one event loop."""

    def __init__(self, ask: Callable[[list[Question]], Awaitable[list[Reply]]]) -> None:
        self.ask = ask
        self.waiting: list[tuple[Question, asyncio.Future[Reply]]] = []
        self.task: asyncio.Task[None] | None = None

    async def __call__(self, question: Question) -> Reply:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.waiting.append((question, future))
        if self.task is None:
            self.task = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        while self.waiting:
            batch, self.waiting = self.waiting[:MOST], self.waiting[MOST:]
            await self._ask([question for question, _ in batch], [future for _, future in batch])
        self.task = None

    async def _ask(self, questions: list[Question], futures: list[asyncio.Future[Reply]]) -> None:
        """Whoever gave up waiting is left out; what was asked for them is done all the same."""
        try:
            replies = await self.ask(questions)
        except Exception as error:
            for future in futures:
                if not future.done():
                    future.set_exception(error)
            return
        for future, reply in zip(futures, replies, strict=True):
            if not future.done():
                future.set_result(reply)
