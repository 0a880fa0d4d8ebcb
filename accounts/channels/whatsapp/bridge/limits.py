"""Seconds that the bridge waits for this and that. Tests and the demo have shorter ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    #: A QR code is good for so long: the first, and each further one.
    first_code: float = 60.0
    next_code: float = 20.0
    #: The lane has 12 s for a call and its transport 11: the bridge answers before both.
    answer: float = 10.0
    #: Of that, the wait behind a message that WhatsApp has not answered yet.
    turn: float = 5.0
    question: float = 8.0
    #: neonize has no limit for an upload. Files get this, and their size at a slow line's speed.
    upload: float = 30.0
    upload_bytes_per_second: float = 256_000.0
    #: Between two tries to connect: doubled each time, up to the longest.
    first_retry: float = 2.0
    longest_retry: float = 60.0
    #: A login has this long before its client is replaced: doubled each time, up to eight times this.
    login: float = 30.0
    #: A client that does not begin to connect within this keeps no other session waiting.
    connect: float = 10.0
    #: A client has begun with its first event, or after this: the next one may begin.
    begin: float = 0.5
    #: neonize comes back by itself after a lost connection, except when it does not.
    disconnected: float = 120.0
    #: A lost connection that is back within this is nobody's business.
    worth_telling: float = 30.0
    #: The list of groups is asked for again after so long; after news of a group; for a group that is not on it.
    groups: float = 3600.0
    groups_changed: float = 300.0
    groups_unheard: float = 60.0
    #: After a list that did not come: doubled each time, up to the hour. neonize itself waits for 75 s.
    groups_failed: float = 90.0
    #: A pairing that came to nothing keeps the account from other bridges for so long.
    unused: float = 600.0
    #: Between two looks for what the journal need not keep any longer.
    forget: float = 3600.0
    watch: float = 1.0
    stop: float = 5.0

    def upload_limit(self, size: int) -> float:
        return self.upload + size / self.upload_bytes_per_second

    def groups_retry(self, failures: int) -> float:
        return min(self.groups, self.groups_failed * 2.0 ** min(max(failures - 1, 0), 10))

    def retry(self, failures: int) -> float:
        return min(self.longest_retry, self.first_retry * 2.0 ** min(failures, 10))

    def login_limit(self, earlier: int) -> float:
        """`earlier`: clients since the last connection that never logged in."""
        return self.login * 2.0 ** min(earlier, 3)
