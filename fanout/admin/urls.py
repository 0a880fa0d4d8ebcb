"""Endpoints beside the admin's own pages. The admin site includes them."""

from django.contrib import admin
from django.urls import path
from django.views.decorators.http import require_GET

from fanout.admin.calendar_feed import calendar_ics, my_calendar_feed
from fanout.admin.calendar_page import calendar_page
from fanout.admin.login import OwnPassword, confirm_page, enter_code, my_second_factor
from fanout.admin.media_files import media_file
from fanout.admin.notifications import bell_buttons, bell_history, bell_read, my_notifications
from fanout.admin.replies_page import replies_page, reply_do
from fanout.admin.results_page import compare_page, results_page
from fanout.admin.stream import live
from fanout.admin.timezones import my_timezone
from fanout.admin.tokens import token_page
from fanout.admin.users import Invitation
from fanout.admin.widgets import components

wrap = admin.site.admin_view

urlpatterns = [
    # Without admin_view, which is not made for async: the view checks the person itself.
    path("live/", live, name="live_stream"),
    path("bell/", wrap(bell_history), name="bell_history"),
    path("bell/<int:pk>/buttons/", wrap(bell_buttons), name="bell_buttons"),
    path("bell/read/", wrap(bell_read), name="bell_read"),
    path("notifications/", wrap(my_notifications), name="my_notifications"),
    path("tokens/", wrap(token_page), name="my_tokens"),
    path("tokens/<int:pk>/", wrap(token_page), name="tokens"),
    path("timezone/", wrap(my_timezone), name="my_timezone"),
    path("second-factor/", wrap(my_second_factor), name="second_factor"),
    path("second-factor/code/", wrap(enter_code), name="second_factor_code"),
    path("confirm/", wrap(confirm_page), name="confirm"),
    # Before Django's own page of that address.
    path("password_change/", wrap(OwnPassword.as_view()), name="password_change"),
    # For people who are not logged in.
    path("invitation/<uidb64>/<token>/", Invitation.as_view(), name="invitation"),
    path("media/<int:pk>/", wrap(media_file), name="media_file"),
    path("replies/", wrap(replies_page), name="replies"),
    path("replies/<int:pk>/", wrap(reply_do), name="reply_do"),
    path("results/", wrap(results_page), name="results"),
    path("results/compare/", wrap(compare_page), name="results_compare"),
    path("calendar/", wrap(require_GET(calendar_page)), name="calendar"),
    path("calendar/address/", wrap(my_calendar_feed), name="calendar_feed"),
    # For calendar programs, by the secret in the address.
    path("calendar/<str:token>.ics", require_GET(calendar_ics), name="calendar_ics"),
    path("components/", wrap(require_GET(components)), name="components"),
]
