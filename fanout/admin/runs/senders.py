"""Who sends a run: its own account, or those that it was offloaded to or shared out over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from accounts.models import Account
from fanout.models import Run

MOST_NAMED = 3


def read_accounts(runs: Sequence[Run]) -> Mapping[int, Account]:
    """Of all lanes of these runs, besides the runs' own, which a list has read already; at most one query."""
    own = {run.account_id: run.account for run in runs}
    others = {pk for run in runs for pk in run.lanes} - own.keys()
    return own | (Account.objects.in_bulk(others) if others else {})


def names(run: Run, accounts: Mapping[int, Account]) -> SafeString:
    """The accounts by name, with links to them."""
    lanes = [accounts[pk] for pk in run.lanes if pk in accounts] or [run.account]
    links = [(reverse("admin:accounts_account_change", args=[one.pk]), one) for one in lanes[:MOST_NAMED]]
    more = f" and {len(lanes) - MOST_NAMED} more" if len(lanes) > MOST_NAMED else ""
    return format_html("{}{}", format_html_join(", ", '<a href="{}">{}</a>', links), more)
