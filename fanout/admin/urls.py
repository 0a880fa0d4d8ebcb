"""Endpoints beside the admin's own pages. The admin site includes them."""

from django.contrib import admin
from django.urls import path
from django.views.decorators.http import require_GET

from fanout.admin.login import OwnPassword, confirm_page, enter_code, my_second_factor
from fanout.admin.media_files import media_file
from fanout.admin.notifications import bell_buttons, bell_history, bell_read, my_notifications
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
    path("components/", wrap(require_GET(components)), name="components"),
]
