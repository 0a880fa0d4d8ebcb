"""The admin site: its name, its dashboard, and the endpoints that belong to every page."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib.admin import AdminSite, ShowFacets
from django.http import HttpRequest
from django.urls import URLPattern, URLResolver, path
from django.utils import timezone

#: our own apps first, the machinery last
APP_ORDER = ("fanout", "reminders", "accounts", "auth", "django_q", "axes")


class CrierAdminSite(AdminSite):
    site_header = "Crier"
    site_title = "Crier"
    index_title = "Overview"
    site_url = None
    enable_nav_sidebar = False  # the few places operators go to are in the header
    index_template = "admin/crier_index.html"

    def register(self, *args: Any, **kwargs: Any) -> None:
        """No page anywhere counts facets or a whole table: any user could ask for it by the address."""
        super().register(*args, **kwargs)
        for model_admin in self._registry.values():
            for name, value in {"show_facets": ShowFacets.NEVER, "show_full_result_count": False}.items():
                setattr(model_admin, name, value)

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[dict[str, Any]]:
        apps = super().get_app_list(request, app_label)
        return sorted(apps, key=lambda app: APP_ORDER.index(app["app_label"]) if app["app_label"] in APP_ORDER else 99)

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        from fanout.admin import notices

        context = super().each_context(request)
        if context["has_permission"]:
            context["news"] = notices.bell(request.user)
        return context

    def index(self, request: HttpRequest, extra_context: Any = None) -> Any:
        from fanout.admin import dashboard

        return super().index(request, dashboard.page(request.user, timezone.now()) | (extra_context or {}))

    def get_urls(self) -> list[URLPattern | URLResolver]:
        # Imported here: the admin site is made before the models are loaded.
        from fanout.admin import views
        from fanout.admin.notifications import my_news

        return [
            # Without admin_view, which is not made for async: the view asks for itself.
            path("live/", views.live, name="news_stream"),
            path("news/", self.admin_view(views.bell_history), name="news_history"),
            path("news/read/", self.admin_view(views.news_read), name="news_read"),
            path("news/mine/", self.admin_view(partial(my_news, site=self)), name="my_news"),
            path("media/<int:pk>/", self.admin_view(views.media_file), name="media_file"),
            *super().get_urls(),
        ]
