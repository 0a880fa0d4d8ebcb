"""An SMTP account's settings, in their own types."""

from __future__ import annotations

from dataclasses import dataclass, field

from accounts.channels.base import LONGEST_TIMEOUT, AccountConfig, Kind, NotSent, Refused
from accounts.channels.fields import BadSetting
from accounts.channels.smtp.channel import CHANNEL, PORTS


@dataclass(frozen=True, slots=True)
class Settings:
    host: str
    port: int
    security: str
    verify: bool
    ca_pem: str | None
    helo: str
    username: str
    password: str = field(repr=False)
    timeout: float
    idle_seconds: float
    messages_per_connection: int

    @classmethod
    def of(cls, account: AccountConfig) -> Settings:
        """Raises Refused: a wrong setting is the account's trouble, like a wrong password."""
        try:
            values = CHANNEL.read_settings(account.config) | CHANNEL.read_credentials(account.credentials)
        except BadSetting as problem:
            raise misconfigured(str(problem)) from None
        return cls(
            host=values["host"],
            port=values["port"] or PORTS[values["security"]],
            security=values["security"],
            verify=values["verify"],
            ca_pem=values["ca_pem"],
            helo=values["helo"] or "",
            username=values["username"] or "",
            password=values["password"] or "",
            timeout=min(values["timeout"], LONGEST_TIMEOUT),
            idle_seconds=values["idle_seconds"],
            messages_per_connection=values["messages_per_connection"],
        )


def misconfigured(problem: str) -> Refused:
    return Refused(NotSent(Kind.AUTH, f"Account setting {problem}"))
