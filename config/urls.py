from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from fanout.inbound import views
from fanout.ops import metrics

admin.autodiscover()  # registers the pages with the site before its addresses are listed

handler500 = "config.problems.server_error"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("api/v1/", include("fanout.api.site")),
    path("metrics", metrics.metrics, name="metrics"),
    path("hooks/bounces", views.bounce_webhook, name="bounce_webhook"),
    path("files/<str:token>", views.media_file, name="media_file"),
    path("unsubscribe/<str:token>", views.unsubscribe_page, name="unsubscribe"),
]
