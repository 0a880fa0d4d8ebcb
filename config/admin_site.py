"""The admin site: its name, its first page, and the endpoints that belong to every page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib.admin import AdminSite, ShowFacets
from django.contrib.admin.views.main import SEARCH_VAR, ChangeList, ChangeListSearchForm
from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.db.models.constants import LOOKUP_SEP
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, include, path
from django.utils.text import capfirst

#: our own apps first, then Django's and its packages', by what operators call them
APPS = {
    "fanout": "Deliveries",
    "reminders": "Reminders",
    "accounts": "Accounts",
    "auth": "People and roles",
    "axes": "Refused logins",
}
#: Apps without pages. django-q2's would let an administrator of the website name a function for the workers to run,
#: and showing its rows unpickles what is in the database.
NO_PAGES = ("django_q",)
#: lookups that the query string of a list may use
LOOKUPS = (["exact"], ["in"], ["isnull"])
PLAIN = (models.BooleanField, models.CharField, models.IntegerField, models.ForeignKey, models.ManyToManyField)
#: Characters of a search. Every word becomes a condition, and thousands of them take PostgreSQL and Django minutes.
MOST_SEARCHED = 200


class SearchForm(ChangeListSearchForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        too_long = {"max_length": f"Search for at most {MOST_SEARCHED} characters."}
        self.fields[SEARCH_VAR] = forms.CharField(
            required=False, strip=False, max_length=MOST_SEARCHED, error_messages=too_long
        )


class CrierChangeList(ChangeList):
    """Refuse long searches and find nothing then, so that an action or an export does not apply to all rows."""

    search_form_class = SearchForm

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.opts = self.model_admin.opts  # of a page that has its own words for its model
        self.title = capfirst(str(self.opts.verbose_name_plural))

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> models.QuerySet[Any]:
        rows = super().get_queryset(request, exclude_parameters)
        return rows.none() if len(request.GET.get(SEARCH_VAR, "")) > MOST_SEARCHED else rows


class CrierAdminSite(AdminSite):
    site_header = "Crier"
    site_title = "Crier"
    index_title = "Overview"
    empty_value_display = "–"
    site_url = None
    enable_nav_sidebar = False  # the few places operators go to are in the header
    index_template = "admin/crier_index.html"

    def register(self, model_or_iterable: Any, *args: Any, **kwargs: Any) -> None:
        """Switch off facets, full counts, unusual lookups and long searches on every page: any user could ask for them
        by the query string."""
        given: list[Any] = [model_or_iterable] if isinstance(model_or_iterable, type) else list(model_or_iterable)
        super().register([model for model in given if model._meta.app_label not in NO_PAGES], *args, **kwargs)
        for model_admin in self._registry.values():
            ours: dict[str, Any] = {
                "show_facets": ShowFacets.NEVER,
                "show_full_result_count": False,
                "date_hierarchy": None,
                "lookup_allowed": _plain_lookups(model_admin),
                "list_filter": _usable_filters(model_admin),
                "get_changelist": lambda *_, **__: CrierChangeList,
            }
            for name, value in ours.items():
                setattr(model_admin, name, value)

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[dict[str, Any]]:
        apps = super().get_app_list(request, app_label)
        order = {label: place for place, label in enumerate(APPS)}
        for app in apps:
            app["name"] = APPS.get(app["app_label"], app["name"])
            for model in app["models"]:
                model["name"] = capfirst(str(self._registry[model["model"]].opts.verbose_name_plural))
        return sorted(apps, key=lambda app: order.get(app["app_label"], len(order)))

    def app_index(self, request: HttpRequest, app_label: str, extra_context: Any = None) -> TemplateResponse:
        title = {"title": APPS.get(app_label, app_label.capitalize())}
        return super().app_index(request, app_label, title | (extra_context or {}))

    def get_urls(self) -> list[URLPattern | URLResolver]:
        return [path("", include("fanout.admin.urls")), *super().get_urls()]


def _plain_lookups(model_admin: Any) -> Callable[..., bool]:
    """Allow what Django allows, but only whole values of plain fields: patterns may be slow, years invalid."""

    def lookup_allowed(lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        allowed: bool = type(model_admin).lookup_allowed(model_admin, lookup, value, request)
        return allowed and _is_plain(model_admin.model, lookup.split(LOOKUP_SEP))

    return lookup_allowed


def _usable_filters(model_admin: Any) -> tuple[Any, ...]:
    """Return the filters of a list without those whose lookups are refused: the dates of a package's pages."""
    return tuple(
        one
        for one in model_admin.list_filter
        if not isinstance(one, str) or _is_plain(model_admin.model, one.split(LOOKUP_SEP))
    )


def _is_plain(model: Any, names: list[str]) -> bool:
    """Return whether the lookup names a plain field, or one of our own filters."""
    field = None
    for place, name in enumerate(names):
        try:
            field = (field.related_model if field else model)._meta.get_field(name)
        except (AttributeError, FieldDoesNotExist):  # after a field that is no relation, or a lookup
            return field is None or (isinstance(field, PLAIN) and names[place:] in LOOKUPS)
    return isinstance(field, PLAIN)
