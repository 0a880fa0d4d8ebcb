"""Endpoints beside the admin's own pages. The admin site includes them."""

from django.contrib import admin
from django.urls import path

from fanout.admin import clock, notifications, views
from fanout.admin.security import confirming, second_factor

wrap = admin.site.admin_view

urlpatterns = [
    # Without admin_view, which is not made for async: the view checks the person itself.
    path("live/", views.live, name="live_stream"),
    path("bell/", wrap(views.bell_history), name="bell_history"),
    path("bell/<int:pk>/buttons/", wrap(views.bell_buttons), name="bell_buttons"),
    path("bell/read/", wrap(views.bell_read), name="bell_read"),
    path("notifications/", wrap(notifications.my_notifications), name="my_notifications"),
    path("timezone/", wrap(clock.my_timezone), name="my_timezone"),
    path("second-factor/", wrap(second_factor.my_second_factor), name="second_factor"),
    path("second-factor/code/", wrap(second_factor.enter_code), name="second_factor_code"),
    path("confirm/", wrap(confirming.confirm_page), name="confirm"),
    path("media/<int:pk>/", wrap(views.media_file), name="media_file"),
]
