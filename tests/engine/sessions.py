"""Sessions of the virtual clock that are used again.

A new session reads PostgreSQL's catalogue and plans every statement anew: 20 to 35 ms of the server's CPU, more than
most plays take. A slice of a driver opens two. So a session that ends leaves its locks, as it would at its end, and
serves the next one.
"""

from __future__ import annotations

import os
from collections import defaultdict

import psycopg
from psycopg.pq import TransactionStatus

from fanout.database import Row
from fanout.engine.connection import BlockingLink

Session = psycopg.Connection[Row]


class Sessions:
    """Idle sessions by server and use. Sessions of one use have the same settings and prepared statements."""

    def __init__(self) -> None:
        self._idle: defaultdict[tuple[int, str, str], list[Session]] = defaultdict(list)

    def take(self, info: str, use: str) -> tuple[Session, bool]:
        """Return a session, and whether it is new and must be prepared."""
        idle = self._idle[os.getpid(), info, use]  # a fork must not use the sessions of its parent
        while idle:
            session = idle.pop()
            if not session.closed and session.info.transaction_status is TransactionStatus.IDLE:
                return session, False
        session = BlockingLink.open(info).connection
        session.execute("SET application_name = 'stage'")  # tests count the product's own sessions by their name
        return session, True

    def give_back(self, session: Session, info: str, use: str) -> None:
        """End the use of a session: its locks are free for others. One in the middle of something is closed."""
        try:
            if session.closed or session.info.transaction_status is not TransactionStatus.IDLE:
                raise psycopg.OperationalError("in the middle of something")
            session.execute("SELECT pg_advisory_unlock_all()")
        except psycopg.OperationalError:
            session.close()
        else:
            self._idle[os.getpid(), info, use].append(session)

    def close(self) -> None:
        """Close the idle sessions, before their database goes."""
        for sessions in self._idle.values():
            for session in sessions:
                session.close()
        self._idle.clear()


SESSIONS = Sessions()


class PooledLink(BlockingLink):
    """A link whose session serves others after it was closed."""

    def __init__(self, session: Session, info: str, use: str) -> None:
        super().__init__(session)
        self._source = info, use
        self._given_back = False

    @property
    def closed(self) -> bool:
        return self._given_back or super().closed

    async def close(self) -> None:
        self.give_back()

    def give_back(self) -> None:
        if not self._given_back:
            self._given_back = True
            SESSIONS.give_back(self.connection, *self._source)
            self.connection = closed_session(self._source[0])


_closed: dict[int, Session] = {}


def closed_session(info: str) -> Session:
    """Return a session that is closed: whatever still uses the link fails as it would on its own."""
    if os.getpid() not in _closed:
        _closed[os.getpid()] = BlockingLink.open(info).connection
        _closed[os.getpid()].close()
    return _closed[os.getpid()]
