"""Base classes of all our admin pages: rows by ownership, changes in the audit trail, no facets and no full counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zoneinfo import available_timezones

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth import admin as auth
from django.contrib.auth.models import Group
from django.core.exceptions import BadRequest
from django.core.paginator import Paginator as DjangoPaginator
from django.db import connection, transaction
from django.db.models import ForeignKey, Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from accounts import access
from accounts.inputs import as_ids
from accounts.models import Account, Owned
from fanout.models.trail import note, note_all

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
    StackedInline = admin.StackedInline[Any, Any]
    TabularInline = admin.TabularInline[Any, Any]
    ModelForm = forms.ModelForm[Any]
    BaseInlineFormSet = forms.BaseInlineFormSet[Any, Any, Any]
    Paginator = DjangoPaginator[Any]
    UserAdmin = auth.UserAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin
    StackedInline = admin.StackedInline
    TabularInline = admin.TabularInline
    ModelForm = forms.ModelForm
    BaseInlineFormSet = forms.BaseInlineFormSet
    Paginator = DjangoPaginator
    UserAdmin = auth.UserAdmin


# --- counting without reading a big table -----------------------------------------------------------------


MOST_COUNTED = 10_000


class CappedPaginator(Paginator):
    """Counts up to a cap; pages beyond it would be slow because of their OFFSET."""

    cap = MOST_COUNTED

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        if not isinstance(rows, QuerySet):
            return min(len(rows), self.cap)
        return rows.order_by()[: self.cap].count()


class ShallowPaginator(CappedPaginator):
    """Counts up to a lower cap, for lists over all runs, where every counted row costs a page read."""

    cap = 500


def capped_counts(rows: Mapping[Any, QuerySet[Any]], cap: int) -> dict[Any, int]:
    """Return the number of rows of each queryset, up to cap + 1, in one query."""
    if not rows:
        return {}
    pieces: list[str] = []
    parameters: list[Any] = []
    for queryset in rows.values():
        sql, params = queryset.order_by().values("pk")[: cap + 1].query.sql_with_params()
        pieces.append(f"(SELECT count(*) FROM ({sql}) AS capped)")
        parameters += params
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(pieces)}", parameters)
        return dict(zip(rows, cursor.fetchone()))


def capped_kinds(rows: Mapping[Any, QuerySet[Any]], cap: int) -> dict[Any, Counter[str]]:
    """Return how many recipients of each kind of address each queryset has, of its first cap + 1, in one query."""
    kinds: dict[Any, Counter[str]] = {key: Counter() for key in rows}
    pieces: list[str] = []
    parameters: list[Any] = []
    for number, queryset in enumerate(rows.values()):
        sql, params = queryset.order_by().values("kind")[: cap + 1].query.sql_with_params()
        pieces.append(f"SELECT {number}, kind, count(*) FROM ({sql}) AS capped GROUP BY kind")
        parameters += params
    keys = list(rows)
    with connection.cursor() as cursor:
        if pieces:
            cursor.execute(" UNION ALL ".join(pieces), parameters)
        for number, kind, n in cursor.fetchall() if pieces else ():
            kinds[keys[number]][kind] = n
    return kinds


# --- changes in the audit trail ---------------------------------------------------------------------------


class TrailedAdmin(ModelAdmin):
    #: off where the code that saves notes the change itself
    notes_changes = True

    # Never for viewers, even if another of their groups allows it. List actions ask without an object, so `OwnedAdmin`
    # alone would not stop them.

    def has_add_permission(self, request: HttpRequest) -> bool:
        return super().has_add_permission(request) and acts(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and acts(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and acts(request)

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        """Offer no saving on a page on which nothing can be changed."""
        if not context["adminform"].form.fields and not context["inline_admin_formsets"]:
            context |= {"show_save": False, "show_save_and_continue": False, "show_save_and_add_another": False}
        return super().render_change_form(request, context, *args, **kwargs)

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._note("added", request, obj)
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._note("changed", request, obj, changed_fields(message))
        return super().log_change(request, obj, message)

    def _note(self, verb: str, request: HttpRequest, obj: Any, detail: str = "") -> None:
        if self.notes_changes:
            note(verb, obj, request.user, timezone.now(), detail)

    @transaction.atomic
    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        note("deleted", obj, request.user, timezone.now())
        super().delete_model(request, obj)

    @transaction.atomic
    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        note_all("deleted", list(queryset), request.user, timezone.now())
        super().delete_queryset(request, queryset)


def acts(request: HttpRequest) -> bool:
    """Return whether the person changes anything at all, or only reads. Asked once per request."""
    answers: dict[Any, bool] = request.__dict__.setdefault("_crier_answers", {})
    if "acts" not in answers:
        answers["acts"] = request.user.is_superuser or not access.is_viewer(request.user)
    return answers["acts"]


def changed_fields(message: Any) -> str:
    """Return the names of the changed fields, from the message of Django's own log; never a value."""
    if not isinstance(message, list):
        return str(message)
    return ", ".join(words for step in message for verb, facts in step.items() if (words := _words(verb, facts)))


def _words(verb: str, facts: dict[str, Any]) -> str:
    fields = ", ".join(facts.get("fields", []))
    of = facts.get("name", "")
    return f"{verb} {of} {fields}".replace("  ", " ").strip() if of else fields


# --- pages and forms --------------------------------------------------------------------------------------


class CrierAdmin(TrailedAdmin):
    show_facets = admin.ShowFacets.NEVER
    show_full_result_count = False
    paginator = CappedPaginator
    list_per_page = 50

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        chosen = request.POST.getlist(ACTION_CHECKBOX_NAME)
        if len(as_ids(chosen)) != len(chosen):
            raise BadRequest("Invalid selection.")
        title = capfirst(str(self.opts.verbose_name_plural))
        return super().changelist_view(request, {"title": title} | (extra_context or {}))


class ReadOnlyAdmin(CrierAdmin):
    """Rows that are only shown."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class OwnedForm(ModelForm):
    """Sets the owner of a new object before validation, which checks what is unique per owner. The team of another
    operator's object stays as it is."""

    user: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if getattr(self.instance, "owner_id", 0) is None and self.user is not None:
            self.instance.owner = self.user
        if "team" in self.fields and self.instance.pk is not None and not access.owns(self.user, self.instance):
            # What is posted for a disabled field is ignored.
            self.fields["team"].disabled = True
            self.fields["team"].help_text = "Only its owner or an administrator moves it to another team."

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
        return super().has_change_permission(request, obj) and self._ask(request, access.may_see, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and self._ask(request, access.may_see, obj)

    def _ask(self, request: HttpRequest, question: Callable[[Any, Any], bool], obj: Any) -> bool:
        """Return the answer to a permission question, asked once per request: the admin asks many times per page."""
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
        """Hide the owner from everyone but administrators, who alone may change it."""
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

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Choose owner and team without Django's four buttons beside them, which lead away from the form."""
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if field is not None and db_field.name in ("owner", "team"):
            widget = field.widget
            widget.can_add_related = widget.can_change_related = False
            widget.can_delete_related = widget.can_view_related = False
        return field


class ButtonsAdmin(OwnedAdmin):
    """A list whose last column has buttons, hidden from people who may not press them."""

    def get_list_display(self, request: HttpRequest) -> Any:
        return self.list_display if self.has_change_permission(request) else self.list_display[:-1]


def choosable(user: Any, field: ForeignKey[Any, Any]) -> QuerySet[Any] | None:
    """Return the choices for a foreign key: visible objects, or own teams; None for all."""
    model: type[Model] = field.related_model
    if issubclass(model, Owned):
        rows: QuerySet[Any] = access.visible(user, model._default_manager.all())
        return rows.filter(archived=False) if issubclass(model, Account) else rows
    if model is Group:
        return teams(user)
    return None


def teams(user: Any) -> QuerySet[Group]:
    """Return the teams of a person; all of them for administrators. The groups of the two roles are not teams."""
    rows = access.teams()
    return rows if user.is_superuser else rows.filter(user=user)


@lru_cache(maxsize=1)
def zone_list() -> SafeString:
    """Return a datalist of timezones, rendered once; others can be typed."""
    places = sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/"))
    options = format_html_join("", '<option value="{}">', ((name,) for name in ["UTC", *places]))
    return format_html('<datalist id="zones">{}</datalist>', options)
