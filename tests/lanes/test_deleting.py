"""Deleting accounts: refused by the database itself where they have targets, and cheap where they have none."""

from __future__ import annotations

import threading

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import ProtectedError

from accounts.models import Account
from fanout.models import RunTarget
from tests.factories import AccountFactory, RunFactory, RunTargetFactory

pytestmark = pytest.mark.django_db


def scans(table: str) -> int:
    """Full reads of a table in this transaction so far."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_get_xact_numscans(%s::regclass)", [table])
        (count,) = cursor.fetchone()
    return int(count)


def delete_raw(*accounts: int) -> None:
    """Behind Django's back, but not behind the database's."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM accounts_account WHERE id = ANY(%s)", [list(accounts)])


def test_accounts_are_deleted_without_reading_all_targets_for_each():
    RunFactory.create(targets={"sent": 3})
    accounts = AccountFactory.create_batch(20)
    before = scans("fanout_runtarget")
    Account.objects.filter(pk__in=[account.pk for account in accounts]).delete()
    connection.check_constraints()
    assert scans("fanout_runtarget") - before <= 2


@pytest.mark.parametrize("moved", [False, True], ids=["its own", "offloaded to it"])
def test_an_account_with_targets_stays(moved):
    account = AccountFactory.create()
    # The run's own account is kept by the run; this one only by the target.
    target = RunTargetFactory.create(**({} if moved else {"account": account}))
    if moved:
        RunTarget.objects.filter(pk=target.pk).update(account=account)
    with pytest.raises(ProtectedError):
        account.delete()
    with pytest.raises(IntegrityError, match=f"account {account.pk} still has run targets"):
        delete_raw(account.pk)
    RunTarget.objects.filter(pk=target.pk).delete()
    delete_raw(account.pk)


def test_a_target_of_no_account_is_refused():
    target = RunTargetFactory.create()
    refused = pytest.raises(IntegrityError, match="names an account that does not exist")
    with refused, transaction.atomic():
        RunTargetFactory.create(run=target.run, account_id=-1)
    with refused, transaction.atomic():
        RunTarget.objects.filter(pk=target.pk).update(account_id=-1)


@pytest.mark.django_db(transaction=True)
def test_a_delete_that_meets_a_firing_waits_and_is_refused():
    account, run = AccountFactory.create(), RunFactory.create()
    problems: list[Exception] = []

    def delete() -> None:
        try:
            delete_raw(account.pk)
        except IntegrityError as problem:
            problems.append(problem)
        finally:
            connection.close()

    with transaction.atomic():
        RunTargetFactory.create(run=run, account=account)
        other = threading.Thread(target=delete)
        other.start()
        other.join(1)
        assert other.is_alive()
    other.join(20)
    assert [str(problem).splitlines()[0] for problem in problems] == [f"account {account.pk} still has run targets"]
    assert Account.objects.filter(pk=account.pk).exists()
