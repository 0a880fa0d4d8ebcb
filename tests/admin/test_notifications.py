"""The bell and the list of notifications, and a person's own settings for them."""

from __future__ import annotations

from datetime import timedelta

import time_machine
from django.urls import reverse
from django.utils import timezone

from fanout.admin.notifications import bell_state, with_buttons
from fanout.models import Notification, Run, Subscription
from tests.admin.conftest import login
from tests.factories import NotificationFactory, RunFactory


def test_the_bell_counts_and_is_read_by_a_post(operator, colleague):
    NotificationFactory.create_batch(2, user=operator)
    NotificationFactory.create(user=colleague)
    assert bell_state(operator)["unread"] == 2
    client = login(operator)
    client.get(reverse("admin:fanout_notification_changelist"))
    assert bell_state(operator)["unread"] == 2
    client.get(reverse("admin:bell_history"))
    assert bell_state(operator)["unread"] == 2
    assert client.post(reverse("admin:bell_read")).json()["unread"] == 0
    assert bell_state(operator)["unread"] == 0
    assert bell_state(colleague)["unread"] == 1


def test_only_own_notifications_are_marked_as_read(operator, colleague):
    mine, other = NotificationFactory.create_batch(2, user=operator)
    foreign = NotificationFactory.create(user=colleague)
    answer = login(operator).post(reverse("admin:bell_read"), {"id": [mine.pk, foreign.pk]})
    assert answer.json()["unread"] == 1
    assert list(Notification.objects.filter(read_at=None)) == [foreign, other]


def paused_run(owner, team=None):
    facts = {"reminder__owner": owner, "reminder__account__owner": owner, "team": team}
    return RunFactory.create(status="paused", pause_reason="operator", targets={"pending": 1, "sent": 1}, **facts)


def test_a_notification_links_to_nothing_that_the_person_may_not_open(operator):
    notification = NotificationFactory.create(user=operator, run=paused_run(operator))
    page = login(operator).get(reverse("admin:fanout_notification_change", args=[notification.pk])).content.decode()
    assert reverse("admin:fanout_run_change", args=[notification.run_id]) in page
    assert reverse("admin:auth_user_change", args=[operator.pk]) not in page


def test_a_notification_of_a_paused_run_has_its_button(operator):
    run = paused_run(operator)
    notification = NotificationFactory.create(user=operator, run=run)
    client = login(operator)
    for path in (reverse("admin:bell_history"), reverse("admin:bell_buttons", args=[notification.pk])):
        assert reverse("admin:fanout_run_do", args=[run.pk, "resume"]) in client.get(path).content.decode()
    client.post(reverse("admin:fanout_run_do", args=[run.pk, "resume"]))
    assert "button" not in client.get(reverse("admin:bell_buttons", args=[notification.pk])).content.decode()


def test_outside_the_window_the_button_waits_for_its_opening(operator):
    run = paused_run(operator)
    night = timezone.now().replace(hour=3)
    Run.objects.update(window_start_hour=6, window_end_hour=18, window_closes_at=night - timedelta(hours=9))
    with time_machine.travel(night, tick=False):
        ((_, _, buttons),) = with_buttons(operator, [NotificationFactory.create(user=operator, run=run)], night)
    assert [button.name for button in buttons] == ["resume_when_open"]


def test_people_who_may_not_resume_get_no_button(operator, viewer, colleague, team):
    run = paused_run(operator, team)
    for person in (viewer, colleague):
        notification = NotificationFactory.create(user=person, run=run)
        page = login(person).get(reverse("admin:bell_buttons", args=[notification.pk]))
        assert (page.status_code, "button" in page.content.decode()) == (200, False)
        assert login(operator).get(reverse("admin:bell_buttons", args=[notification.pk])).status_code == 404


def test_the_list_marks_as_read_what_was_chosen(operator, colleague):
    mine, foreign = NotificationFactory.create(user=operator), NotificationFactory.create(user=colleague)
    data = {"action": "mark_read", "_selected_action": [mine.pk, foreign.pk]}
    login(operator).post(reverse("admin:fanout_notification_changelist"), data)
    assert list(Notification.objects.filter(read_at=None)) == [foreign]


def test_each_person_has_their_own_settings(operator, colleague):
    client = login(operator)
    client.post(reverse("admin:my_notifications"), {"email": "mei@example.com", "only_problems": "on"})
    assert Subscription.objects.get().user == operator
    assert "mei@example.com" not in login(colleague).get(reverse("admin:my_notifications")).content.decode()
