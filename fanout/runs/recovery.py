"""After a fail-over or a restore that lost commits: what may have gone out, and the operator's word to go on.

Drivers recognise it (fanout/engine/lost_commits.py). Here is what pages, commands and the scheduler need: whether the
server is the one that Crier knows, what is missing, and the confirmation.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet

from accounts import access
from accounts.models import Account
from fanout.database import Statement
from fanout.lanes.lane_rows import lock_lanes
from fanout.models import KnownServer, LaneState, LostClaim, Run, RunTarget
from fanout.models.trail import note
from fanout.runs import controls, corrections
from fanout.runs.controls import ControlResult, User

PATIENCE = timedelta(seconds=30)  # for machines that have not come back; then an operator decides
SYNCHRONOUS_PATIENCE = timedelta(seconds=5)  # for those whose commits waited for a standby
# A holder of a lane or a bridge may know epochs that the database has lost; it would take ours for older ones.
EPOCHS_APART = 1_000
STOPPED = "Nothing is sent: the database may lack the last commits"
COMPARING = "Nothing is sent for a moment: the machines compare their records with the new database server"
CONFIRM = "look at Lost messages in the admin or at `manage.py lost_commits`, then confirm there"


# --- what holds sending up --------------------------------------------------------------------------------


def in_the_way() -> KnownServer | None:
    """Return the comparison that holds all sending up, if there is one."""
    known = KnownServer.objects.first()
    return known if known is not None and (known.held or known.new_timeline is not None) else None


def in_words(known: KnownServer) -> str:
    if not known.held:
        return f"{COMPARING}."
    return stopped_because(known.why)


def stopped_because(why: str) -> str:
    return f"{STOPPED}. {why}"


def judge(machines: Mapping[str, Mapping[str, Any]], waited: timedelta) -> tuple[bool | None, str]:
    """Return whether the history is complete, None while machines are still awaited, and why it is not."""
    lost = {host: found["lost"] for host, found in machines.items() if found["answered"] and found["lost"] is not None}
    if lost:
        counts = ", ".join(f"{host} had claimed {n:,} of which it knows nothing" for host, n in sorted(lost.items()))
        return False, f"It lacks commits: {counts}.{_unknown(machines)}"
    silent = sorted(host for host, found in machines.items() if not found["answered"])
    if not silent:
        return True, ""
    doubtful = [host for host in silent if not machines[host]["synchronous"]]
    if waited < (PATIENCE if doubtful else SYNCHRONOUS_PATIENCE):
        return None, ""
    if not doubtful:
        return True, ""
    return False, (
        f"{', '.join(doubtful)} sent before the fail-over, without a synchronous standby, and cannot say whether "
        "anything is missing."
    )


def _unknown(machines: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a sentence about the machines whose journals do not reach back to the loss."""
    until = {host: found["unknown_until"] for host, found in machines.items() if found.get("unknown_until")}
    if not until:
        return ""
    each = ", ".join(f"{host} before {datetime.fromisoformat(at):%Y-%m-%d %H:%M:%S} UTC" for host, at in until.items())
    return (
        f" The list is incomplete: the journals no longer have what was sent by {each}. When you go on, all runs under "
        "way are paused: compare each with your provider before you resume it."
    )


def lost_claims(user: Any = None) -> QuerySet[LostClaim]:
    """Return what is to be confirmed; of the accounts that a person may see."""
    claims = LostClaim.objects.filter(confirmed_at=None).select_related("account")
    if user is None or user.is_superuser:
        return claims
    return claims.filter(account__in=access.visible(user, Account.objects.all()))


# --- the confirmation -------------------------------------------------------------------------------------


def confirm(user: User, now: datetime, send_again: bool = False) -> ControlResult:
    """Accept the server and go on sending. What may have gone out stays unconfirmed, or is sent once more where no
    answer is known (`send_again`). Where the list is incomplete, others may have gone out as well: without `send_again`
    all runs under way are paused first."""
    paused = ""
    if not send_again and _unknown(machines_held_up()):
        result = controls.pause_all(None, now)  # nothing is claimed before the commit below
        if not result.ok:
            return result
        paused = f" {result.text} Compare them with your provider, then resume them."
    with transaction.atomic():
        known = KnownServer.objects.select_for_update().filter(held=True).first()
        if known is None:
            return ControlResult(False, "There is nothing to confirm: sending is not held up.")
        claims = list(LostClaim.objects.filter(confirmed_at=None))
        known.system_identifier, known.timeline = known.new_system_identifier, known.new_timeline
        known.generation = next_generation(known.generation, known.machines)
        if locked := {lane for found in known.machines.values() for lane in found.get("locked", [])}:
            lock_lanes(locked)
            LaneState.objects.filter(pk__in=locked).update(epoch=F("epoch") + EPOCHS_APART)
        known.new_system_identifier = known.new_timeline = known.noticed_at = known.lost_since = None
        known.held, known.why, known.machines = False, "", {}
        known.confirmed_at = now
        known.confirmed_by_id = getattr(user, "pk", None)
        known.save()
        # Those of lost runs are needed when their reminder is fired again; the others live on in their targets.
        LostClaim.objects.filter(confirmed_at=None, target_found=True).delete()
        LostClaim.objects.filter(confirmed_at=None).update(confirmed_at=now)
        how = "sent once more" if send_again else "left unconfirmed"
        note("confirmed lost commits", known, user, now, f"{len(claims)} messages {how}")
    found = [claim for claim in claims if claim.target_found]
    if send_again:
        return ControlResult(True, f"Sending goes on. {_send_again(found, user, now)}")
    left = RunTarget.objects.filter(
        pk__in=[claim.target_id for claim in found], status=RunTarget.Status.UNCONFIRMED
    ).count()
    words = f"{left} recipients are unconfirmed: settle them on their runs' pages." if left else "Nothing is left open."
    return ControlResult(True, f"Sending goes on. {words}{paused}")


def machines_held_up() -> dict[str, Any]:
    """Return what the machines have found on the server that is to be confirmed."""
    return KnownServer.objects.filter(held=True).values_list("machines", flat=True).first() or {}


def next_generation(generation: int, machines: Mapping[str, Mapping[str, Any]]) -> int:
    """Return a number above all that were ever used, also after the point to which the database went back."""
    return max([generation, *(int(found.get("generation", 0)) for found in machines.values())]) + 1


def _send_again(claims: list[LostClaim], user: User, now: datetime) -> str:
    targets: dict[int, list[int]] = {}
    for claim in claims:
        targets.setdefault(claim.run_id, []).append(claim.target_id)
    sent = 0
    for run in Run.objects.filter(pk__in=targets).order_by("pk"):
        open_ones = run.targets.filter(pk__in=targets[run.pk], status=RunTarget.Status.UNCONFIRMED)
        ids = list(open_ones.values_list("pk", flat=True))
        sent += len(ids)
        corrections.settle(run, ids, delivered=False, user=user, now=now, words="lost by the database, send again")
    return f"{sent} recipients will be sent to once more."


# --- telling ----------------------------------------------------------------------------------------------

# All who may confirm it: administrators and operators.
TELL_ALL = """
INSERT INTO fanout_notification (user_id, title, body, level, created_at)
SELECT u.id, %(title)s, %(body)s, 'error', %(now)s FROM auth_user u
 WHERE u.is_active AND (u.is_superuser OR EXISTS (
   SELECT FROM auth_user_groups m JOIN auth_group_permissions g ON g.group_id = m.group_id
     JOIN auth_permission p ON p.id = g.permission_id AND p.codename = 'change_lostclaim' WHERE m.user_id = u.id))
"""


def tell_all(why: str, now: datetime) -> Statement:
    return TELL_ALL, {
        "title": STOPPED,
        "body": f"{why} Nothing is sent until one of you confirms: {CONFIRM}.",
        "now": now,
    }
