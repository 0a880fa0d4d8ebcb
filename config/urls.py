from django.contrib import admin
from django.urls import path
from django.views.generic import RedirectView

from config import health
from fanout import inbound_views, metrics

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
    path("hooks/bounces", inbound_views.bounce_webhook, name="bounce_webhook"),
    path("unsubscribe/<str:token>", inbound_views.unsubscribe_page, name="unsubscribe"),
]
