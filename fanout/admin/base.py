"""What every admin page of ours shares: rows by ownership, no facets, no full counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from zoneinfo import available_timezones

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import Group
from django.core.exceptions import BadRequest
from django.db.models import ForeignKey, Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from accounts import access
from accounts.access import OPERATORS, VIEWERS
from accounts.inputs import as_ids
from accounts.models import Account, Owned
from fanout.admin.generics import ModelForm
from fanout.admin.paginator import CappedPaginator
from fanout.admin.trailing import TrailedAdmin


class CrierAdmin(TrailedAdmin):
    show_facets = admin.ShowFacets.NEVER
    show_full_result_count = False
    paginator = CappedPaginator
    list_per_page = 50

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        chosen = request.POST.getlist(ACTION_CHECKBOX_NAME)
        if len(as_ids(chosen)) != len(chosen):
            raise BadRequest("The selection names something that is no row.")
        title = capfirst(str(self.opts.verbose_name_plural))
        return super().changelist_view(request, {"title": title} | (extra_context or {}))


class OwnedForm(ModelForm):
    """Sets the owner of a new object before validation, which checks what is unique per owner."""

    user: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if getattr(self.instance, "owner_id", 0) is None and self.user is not None:
            self.instance.owner = self.user

    def _get_validation_exclusions(self) -> set[str]:
        excluded: set[str] = super()._get_validation_exclusions()  # type: ignore[misc]  # not in the stubs
        return excluded - {"owner"}


class OwnedAdmin(CrierAdmin):
    """Rows that belong to an operator, directly or through `owned_by` (a foreign key's name)."""

    form = OwnedForm
    owned_by = ""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        if not self.owned_by:
            return access.visible(request.user, rows)
        if request.user.is_superuser:
            return rows
        parent: Any = self.model._meta.get_field(self.owned_by).related_model
        return rows.filter(**{f"{self.owned_by}__in": access.visible(request.user, parent.objects.all())})

    def owned_thing(self, obj: Any) -> Any:
        return getattr(obj, self.owned_by) if self.owned_by else obj

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_view_permission(request, obj) and self._ask(request, access.may_see, obj)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and self._ask(request, access.may_act, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and self._ask(request, access.may_act, obj)

    def _ask(self, request: HttpRequest, question: Callable[[Any, Any], bool], obj: Any) -> bool:
        """The answer to a permission question, asked once per request: the admin repeats it many times per page."""
        if obj is None:
            return True
        answers: dict[Any, bool] = request.__dict__.setdefault("_crier_answers", {})
        thing = self.owned_thing(obj)
        key = (question.__name__, type(thing), thing.pk)
        if key not in answers:
            answers[key] = question(request.user, thing)
        return answers[key]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change=change, **kwargs)
        return type(form.__name__, (form,), {"user": request.user})

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Without the owner, unless an administrator asks: only they change it."""
        if request.user.is_superuser:
            return super().get_fieldsets(request, obj)
        return [
            (name, options | {"fields": [field for field in options["fields"] if field != "owner"]})
            for name, options in super().get_fieldsets(request, obj)
        ]

    def formfield_for_foreignkey(self, db_field: ForeignKey[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        choices = choosable(request.user, db_field)
        if choices is not None:
            kwargs["queryset"] = choices
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


class ButtonsAdmin(OwnedAdmin):
    """A list whose last column has buttons: without it for people who may not press them."""

    def get_list_display(self, request: HttpRequest) -> Any:
        acting = self.has_change_permission(request) and not access.is_viewer(request.user)
        return self.list_display if acting else self.list_display[:-1]


def choosable(user: Any, field: ForeignKey[Any, Any]) -> QuerySet[Any] | None:
    """The choices for a foreign key: objects the person may see, teams they belong to; None for all."""
    model: type[Model] = field.related_model
    if issubclass(model, Owned):
        rows: QuerySet[Any] = access.visible(user, model._default_manager.all())
        return rows.filter(archived=False) if issubclass(model, Account) else rows
    if model is Group:
        return teams(user)
    return None


def teams(user: Any) -> QuerySet[Group]:
    """Those that a person belongs to; for administrators all. The groups of the two roles are no teams."""
    rows = Group.objects.exclude(name__in=[OPERATORS, VIEWERS]).order_by("name")
    return rows if user.is_superuser else rows.filter(user=user)


@lru_cache(maxsize=1)
def zone_list() -> SafeString:
    """A datalist of timezones, rendered once; others can be typed."""
    places = sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/"))
    options = format_html_join("", '<option value="{}">', ((name,) for name in ["UTC", *places]))
    return format_html('<datalist id="zones">{}</datalist>', options)
