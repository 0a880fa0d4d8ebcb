"""Accounts: their health, what they sent, their pace and where it comes from."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from asgiref.sync import async_to_sync
from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from accounts import access
from accounts.channels.base import Channel
from accounts.channels.registry import channels, offered
from accounts.crypto import CredentialError
from accounts.models import Account, DailyLimit
from accounts.presets import PRESETS, Preset
from accounts.signin import sign_in
from fanout.admin.accounts import page, pairing
from fanout.admin.accounts.standing import Standing, standings
from fanout.admin.answers import attempt, back, do_each, tell
from fanout.admin.badges import ACCOUNT, badge
from fanout.admin.base import ButtonsAdmin, OwnedForm, zone_list
from fanout.admin.generics import TabularInline
from fanout.admin.json_field import StorableJSONField
from fanout.admin.security.confirming import confirm_first, sensitive
from fanout.lanes import accounts, hooks
from fanout.models import Event
from fanout.runs import controls
from fanout.runs.controls import Answer
from fanout.runs.groups import synchronise_contacts, synchronise_groups
from fanout.templatetags.crier import percent, when

WEEKDAYS = [(1, "Mon"), (2, "Tue"), (3, "Wed"), (4, "Thu"), (5, "Fri"), (6, "Sat"), (7, "Sun")]


def renew_hook(account: Account, user: Any, now: datetime) -> Answer:
    try:
        hooks.renew(account, user, now)
    except ValidationError as problem:
        return Answer(False, " ".join(problem.messages))
    return Answer(True, f"{account.label} has a new webhook address. Tell its provider: the old one no longer works.")


CONTROLS = {"pause": controls.pause_account, "reactivate": controls.reactivate, "renew_hook": renew_hook}


class HealthFilter(admin.SimpleListFilter):
    title = "health"
    parameter_name = "health"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("down", "not active"), *((str(s.value), str(s.label)) for s in Account.Status)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Account]) -> QuerySet[Account]:
        if self.value() == "down":
            return queryset.exclude(status=Account.Status.ACTIVE)
        return queryset.filter(status=self.value()) if self.value() else queryset


def health_pills(request: HttpRequest) -> list[dict[str, Any]]:
    chosen = request.GET.get("health", "")
    tones = {"": "", "down": "bad"} | {str(status): tone for status, tone in ACCOUNT.items()}
    labels = {"": "All", "down": "Not active"} | {str(status.value): status.label for status in Account.Status}
    return [
        {"label": label, "tone": tones[name], "url": _with_health(request, name), "chosen": name == chosen}
        for name, label in labels.items()
    ]


def _with_health(request: HttpRequest, name: str) -> str:
    query = request.GET.copy()
    for key in ("health", "p", "e"):
        query.pop(key, None)
    if name:
        query["health"] = name
    return f"?{query.urlencode()}"


class HiddenAgain(forms.Textarea):
    """Never filled in: a form that comes back with an error does not repeat what was typed."""

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        return super().get_context(name, None, attrs)


class AccountForm(OwnedForm):
    channel = forms.ChoiceField()
    send_days = forms.TypedMultipleChoiceField(
        choices=WEEKDAYS,
        coerce=int,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="None selected: every day.",
        empty_value=None,
    )
    new_credentials = forms.CharField(
        required=False,
        widget=HiddenAgain(attrs={"rows": 3, "autocomplete": "off", "spellcheck": "false"}),
        help_text=(
            "One “name = value” per line, or JSON. It replaces what is stored and is never shown. "
            "Needed again when the account is pointed at another server or user."
        ),
    )

    class Meta:
        model = Account
        fields = "__all__"
        field_classes = {"config": StorableJSONField}
        widgets = {
            "config": forms.Textarea(attrs={"rows": 3}),
            "timezone": forms.TextInput(attrs={"list": "zones"}),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "channel" in self.fields:  # a viewer's page has no inputs
            choices: Any = self.fields["channel"]
            choices.choices = [(c.key, c.label) for c in (offered() | self._own_channel()).values()]

    def _own_channel(self) -> dict[str, Channel]:
        """An account of a channel that is no longer offered keeps it."""
        return {key: described for key, described in channels().items() if key == self.instance.channel}

    def clean_new_credentials(self) -> dict[str, Any] | None:
        text: str = self.cleaned_data["new_credentials"].strip()
        return read_credentials(text) if text else None

    def clean(self) -> dict[str, Any] | None:
        # Before the model's own checks, which look at them too.
        if self.cleaned_data.get("new_credentials") is not None:
            self.instance.credentials = self.cleaned_data["new_credentials"]
        return super().clean()

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]
        if not self.instance.pk or self.errors or self.cleaned_data["new_credentials"] is not None:
            return
        if problem := accounts.credentials_problem(self.instance):
            self.add_error("new_credentials", problem)

    def changed_columns(self) -> list[str]:
        return [name for name in self.changed_data if name != "new_credentials"]


def read_credentials(text: str) -> dict[str, Any]:
    """The credentials as typed; an error never repeats them, because they may be passwords."""
    if text.startswith("{"):
        try:
            return dict(json.loads(text))
        except (ValueError, RecursionError):
            raise forms.ValidationError("This is not valid JSON.") from None
    pairs = [line.partition("=") for line in text.splitlines() if line.strip()]
    if not all(name.strip() and equals for name, equals, _ in pairs):
        raise forms.ValidationError("Write one “name = value” per line.")
    return {name.strip(): value.strip() for name, _, value in pairs}


class DailyLimitInline(TabularInline):
    model = DailyLimit
    extra = 0
    verbose_name = "daily cap"
    verbose_name_plural = "Daily caps"


def account_action(name: str, description: str, past: str) -> Any:
    @admin.action(description=description, permissions=["change"])
    def action(model_admin: AccountAdmin, request: HttpRequest, queryset: QuerySet[Account]) -> None:
        now = timezone.now()
        do_each(request, queryset, lambda account: CONTROLS[name](account, request.user, now), past)

    action.__name__ = name
    return action


def preset_action(preset: Preset) -> Any:
    def apply(account: Account, user: Any, now: datetime) -> Answer:
        try:
            accounts.apply_preset(account, preset, user, now)
        except ValidationError as problem:
            return Answer(False, " ".join(problem.messages))
        return Answer(True, f"{account.label}: {preset.label}.")

    @admin.action(description=f"Apply the preset “{preset.label}”", permissions=["change"])
    def action(model_admin: AccountAdmin, request: HttpRequest, queryset: QuerySet[Account]) -> None:
        now = timezone.now()
        do_each(request, queryset, lambda account: apply(account, request.user, now), "Preset applied")

    action.__name__ = f"preset_{preset.name.replace('-', '_')}"
    return action


@admin.register(Account)
class AccountAdmin(ButtonsAdmin):
    notes_changes = False  # fanout.lanes.accounts does, for the shell as well
    form = AccountForm
    inlines = (DailyLimitInline,)
    list_display = ("name", "channel", "health", "rate_now", "queue", "today", "errors", "last_delivery", "buttons")
    list_display_links = None
    list_filter = (HealthFilter,)
    list_select_related = ("lane",)
    search_fields = ("label", "address")
    sortable_by = ()
    actions = (
        account_action("pause", "Pause the selected accounts", "Paused"),
        account_action("reactivate", "Reactivate the selected accounts", "Reactivated"),
        *(preset_action(preset) for preset in PRESETS.values()),
    )
    change_form_template = "admin/accounts/account/change_form.html"
    change_list_template = "admin/accounts/account/change_list.html"
    fieldsets = (
        (None, {"fields": ("label", "channel", "address", "timezone", "config", "new_credentials", "owner", "team")}),
        (
            "Pace (empty: the environment's value)",
            {
                "classes": ["collapse"],
                "fields": (
                    ("max_send_per_minute", "send_burst"),
                    "group_concurrency",
                    ("min_gap_seconds", "max_gap_seconds"),
                    ("batch_size", "batch_pause_seconds"),
                    ("part_jitter_min_ms", "part_jitter_max_ms"),
                    ("error_rate_slowdown", "circuit_breaker", "bounce_rate_pause"),
                    "retry_base_seconds",
                ),
            },
        ),
        ("Business hours", {"classes": ["collapse"], "fields": (("hours_start", "hours_end"), "send_days")}),
        ("Warm-up", {"classes": ["collapse"], "fields": (("warmup_started_on", "warmup_days", "warmup_floor"),)}),
    )

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # its activity proves what was sent; an account is paused instead

    def formfield_for_dbfield(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name == "warmup_started_on":
            kwargs["widget"] = forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change=change, **kwargs)
        return confirm_first(request, form, "new_credentials")

    def save_model(self, request: HttpRequest, obj: Account, form: Any, change: bool) -> None:
        if not change:
            accounts.add_account(obj, request.user, timezone.now())

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Saves the account together with its caps, so that both are noted in the timeline."""
        with accounts.changing(form.instance, request.user, timezone.now()) as stored:
            for name in form.changed_columns():
                setattr(stored.account, name, getattr(form.instance, name))
            if (entered := form.cleaned_data["new_credentials"]) is not None:
                stored.enter(entered, replace=True)
            super().save_related(request, form, formsets, change)

    # --- the list ---------------------------------------------------------------------------------------

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        return super().changelist_view(request, {"pills": health_pills(request)} | (extra_context or {}))

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changes = super().get_changelist_instance(request)
        changes.result_list = list(changes.result_list)
        standing = standings(changes.result_list, timezone.now())
        for account in changes.result_list:
            account.standing = standing[account.pk]
        return changes

    @admin.display(description="account")
    def name(self, account: Account) -> SafeString:
        url = reverse("admin:accounts_account_change", args=[account.pk])
        return format_html(
            '<a class="row-title" href="{}">{}</a> <span class="quiet">{}</span>',
            url,
            account.label,
            account.address,
        )

    @admin.display(description="health")
    def health(self, account: Account) -> SafeString:
        until = format_html(" until {}", when(account.status_until, account.timezone)) if account.status_until else ""
        return format_html('{} <span class="quiet">{}{}</span>', badge(account), account.status_reason, until)

    @admin.display(description="rate now")
    def rate_now(self, account: Any) -> SafeString | str:
        standing: Standing = account.standing
        words = standing.rate(account.settings()["max_send_per_minute"].value)
        lane = getattr(account, "lane", None)
        note = "slowed down" if lane and lane.holder and lane.slow_factor > 1 else (lane and lane.why) or ""
        return format_html('{} <span class="quiet">{}</span>', words, note) if note else words

    @admin.display(description="queue")
    def queue(self, account: Any) -> str:
        standing: Standing = account.standing
        return standing.queue

    @admin.display(description="sent today")
    def today(self, account: Any) -> str:
        standing: Standing = account.standing
        return standing.today

    @admin.display(description="errors today")
    def errors(self, account: Any) -> SafeString | str:
        standing: Standing = account.standing
        if not standing.failed:
            return "–"
        words = percent(standing.error_share)
        if not account.last_error:
            return words
        return format_html(
            '{} <span class="quiet" title="{}">{}</span>', words, account.last_error, when(account.last_error_at)
        )

    @admin.display(description="last delivery")
    def last_delivery(self, account: Any) -> SafeString | str:
        standing: Standing = account.standing
        return when(standing.last_at)

    @admin.display(description="", empty_value="")
    def buttons(self, account: Account) -> SafeString:
        name, label = ("pause", "Pause") if account.status == Account.Status.ACTIVE else ("reactivate", "Reactivate")
        return format_html(
            '<button type="submit" class="act" formmethod="post" formnovalidate formaction="{}">{}</button>',
            reverse("admin:accounts_account_do", args=[account.pk, name]),
            label,
        )

    # --- one account ------------------------------------------------------------------------------------

    def changeform_view(
        self, request: HttpRequest, object_id: Any = None, form_url: str = "", extra_context: Any = None
    ) -> Any:
        context = {"zones": zone_list()}
        account = self.get_object(request, object_id) if object_id else None
        if account is not None and self.has_view_permission(request, account):
            acting = self.has_change_permission(request, account)
            context |= page.page_context(account, request.user, timezone.now()) | {
                "may_act": acting,
                "stored": stored(account),
                "hook": hooks.address(account) if acting else "",
            }
        return super().changeform_view(request, object_id, form_url, context | (extra_context or {}))

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("<int:pk>/do/<str:name>/", wrap(require_POST(self.do_view)), name="accounts_account_do"),
            path("<int:pk>/test/", wrap(require_POST(self.test_view)), name="accounts_account_test"),
            path("<int:pk>/groups/", wrap(require_POST(self.groups_view)), name="accounts_account_groups"),
            path("<int:pk>/contacts/", wrap(require_POST(self.contacts_view)), name="accounts_account_contacts"),
            path("<int:pk>/pair/", wrap(sensitive(self.pair_view)), name="accounts_account_pair"),
            path("<int:pk>/pair/state/", wrap(self.pair_state_view), name="accounts_account_pair_state"),
            *super().get_urls(),
        ]

    def own_account(self, request: HttpRequest, pk: int) -> Account:
        account: Account | None = access.visible(request.user, Account.objects.all()).filter(pk=pk).first()
        if account is None:
            raise Http404
        if not self.has_change_permission(request, account):
            raise PermissionDenied
        return account

    def do_view(self, request: HttpRequest, pk: int, name: str) -> HttpResponse:
        account = self.own_account(request, pk)
        if name not in CONTROLS:
            raise Http404
        tell(request, attempt(lambda account: CONTROLS[name](account, request.user, timezone.now()), account))
        return back(request, reverse("admin:accounts_account_change", args=[pk]))

    def test_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Sign in at the provider; nothing is sent."""
        account = self.own_account(request, pk)
        answer = check(account)
        actor: Any = request.user
        Event.objects.create(account=account, actor=actor, at=timezone.now(), verb="tested", detail=answer.text)
        tell(request, answer)
        return back(request, reverse("admin:accounts_account_change", args=[pk]))

    def groups_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask the provider for the account's groups, and keep them as recipients."""
        tell(request, synchronise_groups(self.own_account(request, pk), request.user, timezone.now()))
        return back(request, reverse("admin:accounts_account_change", args=[pk]))

    def contacts_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask the provider for the account's address book, and add its people as recipients."""
        tell(request, synchronise_contacts(self.own_account(request, pk), request.user, timezone.now()))
        return back(request, reverse("admin:accounts_account_change", args=[pk]))

    def pair_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        return pairing.page(request, self.own_account(request, pk))

    def pair_state_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        return pairing.state(request, self.own_account(request, pk))


def stored(account: Account) -> str:
    """What can be said about the credentials without showing any."""
    try:
        names = sorted(account.credentials)
    except CredentialError:
        return "stored, but no key decrypts them: enter them again"
    return f"stored: {', '.join(names)}" if names else "none stored"


def check(account: Account) -> Answer:
    result = async_to_sync(sign_in)(account)
    return Answer(result.ok, f"{account.label}{'' if result.ok else ' could not sign in'}: {result.text}")
