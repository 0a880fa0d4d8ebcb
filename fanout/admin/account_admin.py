"""Accounts: their list with health, queue and rate, and the pages of one account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from asgiref.sync import async_to_sync
from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import connection
from django.db.models import Count, QuerySet, Sum
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from accounts import access, message_templates
from accounts.actions import Action
from accounts.channels.base import Channel
from accounts.channels.registry import channel, offered
from accounts.crypto import CredentialError
from accounts.inputs import counted
from accounts.models import Account, status_in_words
from accounts.presets import PRESETS, Preset
from accounts.signin import SignIn, sign_in
from fanout.admin.account_form import FORGET, SECRET, AccountForm, form_class, sections
from fanout.admin.account_page import (
    PRESET,
    PROVIDER,
    caps_in_words,
    pace_rows,
    page_context,
    start_links,
    start_values,
)
from fanout.admin.account_pairing import pairing_page, pairing_state
from fanout.admin.list_actions import (
    ArchivedFilter,
    Question,
    archive_actions,
    asking_action,
    attempt,
    back,
    do_each,
    tell,
)
from fanout.admin.login import confirm_first, is_confirmed, question_in_between, sensitive
from fanout.admin.model_admin import ButtonsAdmin, zone_list
from fanout.admin.widgets import ACCOUNT, badge, capped_number
from fanout.lanes import accounts, tuning
from fanout.lanes.accounts import note_test, renew_webhook, sign_in_result, webhook_address
from fanout.models import PauseReason, Run
from fanout.plans.queue import MOST_PENDING, pending_by_account
from fanout.runs import controls, corrections, progress
from fanout.runs.controls import ControlResult, synchronise_contacts, synchronise_groups
from fanout.runs.self_test import send_account_test
from fanout.templatetags.crier import percent, when
from reminders.window import local_day_bounds


def renew_hook(account: Account, user: Any, now: datetime) -> ControlResult:
    try:
        renew_webhook(account, user, now)
    except ValidationError as problem:
        return ControlResult(False, " ".join(problem.messages))
    return ControlResult(
        True, f"{account.label} has a new webhook address. Tell its provider: the old one no longer works."
    )


CONTROLS = {
    "pause": controls.pause_account,
    "reactivate": controls.reactivate,
    "archive": corrections.archive_account,
    "restore": corrections.restore_account,
    "renew_hook": renew_hook,
}
#: controls that need a recent confirmation, as credentials do
SENSITIVE = {"renew_hook"}


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
    """Return a link for each health state, and one to the archive."""
    archive = request.GET.get(ArchivedFilter.parameter_name) == "yes"
    chosen = "archived" if archive else request.GET.get("health", "")
    tones = {"": "", "down": "bad", "archived": "mute"} | {str(status): tone for status, tone in ACCOUNT.items()}
    healths = {str(status.value): status.label for status in Account.Status}
    labels = {"": "All", "down": "Not active"} | healths | {"archived": "Archived"}
    return [
        {"label": label, "tone": tones[name], "url": _pill_url(request, name), "chosen": name == chosen}
        for name, label in labels.items()
    ]


def _pill_url(request: HttpRequest, name: str) -> str:
    query = request.GET.copy()
    for key in ("health", ArchivedFilter.parameter_name, "p", "e"):
        query.pop(key, None)
    if name == "archived":
        query[ArchivedFilter.parameter_name] = "yes"
    elif name:
        query["health"] = name
    return f"?{query.urlencode()}"


def account_action(name: str, description: str, past: str) -> Any:
    @admin.action(description=description, permissions=["change"])
    def action(model_admin: AccountAdmin, request: HttpRequest, queryset: QuerySet[Account]) -> None:
        now = timezone.now()
        do_each(request, queryset, lambda account: CONTROLS[name](account, request.user, now), past)

    action.__name__ = name
    return action


def preset_action(preset: Preset) -> Any:
    def apply(account: Account, user: Any, now: datetime) -> ControlResult:
        try:
            accounts.apply_preset(account, preset, user, now)
        except ValidationError as problem:
            return ControlResult(False, " ".join(problem.messages))
        return ControlResult(True, f"{account.label}: {preset.label}.")

    @admin.action(description=f"Apply the preset “{preset.label}”", permissions=["change"])
    def action(model_admin: AccountAdmin, request: HttpRequest, queryset: QuerySet[Account]) -> None:
        now = timezone.now()
        do_each(request, queryset, lambda account: apply(account, request.user, now), "Preset applied")

    action.__name__ = f"preset_{preset.name.replace('-', '_')}"
    return action


def about_reactivating(accounts: Sequence[Account], now: datetime) -> Question:
    not_active = [account for account in accounts if account.status != Account.Status.ACTIVE]
    down = [account for account in not_active if not account.needs_pairing]
    unpaired = [account for account in not_active if account.needs_pairing]
    active = len(accounts) - len(not_active)
    sentences = [
        "Each begins with a single trial message." if down else "",
        _held(down) if down else "",
        f"{counted(active, 'selected account')} {'is' if active == 1 else 'are'} active already." if active else "",
        _unpaired(unpaired) if unpaired else "",
    ]
    title = f"Reactivate {counted(len(down), 'account')}?" if down else "Nothing to reactivate"
    rows = [(account.label, status_in_words(account.status, account.status_reason)) for account in down]
    links = [
        (f"Pair {account.label}", reverse("admin:accounts_account_pair", args=[account.pk])) for account in unpaired
    ]
    return Question(title, [text for text in sentences if text], title.rstrip("?") if down else "", rows, links=links)


def _unpaired(accounts: Sequence[Account]) -> str:
    words = "is not connected to its phone" if len(accounts) == 1 else "are not connected to their phones"
    return f"{counted(len(accounts), 'selected account')} {words}: pair instead of reactivating."


def _held(accounts: Sequence[Account]) -> str:
    """Return a sentence about the paused runs that these accounts hold up."""
    held = Run.objects.filter(
        status=Run.Status.PAUSED,
        pause_reason=PauseReason.ACCOUNT_DOWN,
        lanes__overlap=[account.pk for account in accounts],
    )
    sums = held.order_by().aggregate(runs=Count("pk"), pending=Sum("pending", default=0))
    if not sums["runs"]:
        return ""
    runs = counted(sums["runs"], "paused run")
    return f"{runs} with {sums['pending']:,} still to send can then be resumed from the Activity page."


@admin.register(Account)
class AccountAdmin(ButtonsAdmin):
    notes_changes = False  # fanout.lanes.accounts does, for the shell as well
    form = AccountForm
    list_display = ("name", "through", "health", "rate_now", "queue", "today", "errors", "last_delivery", "buttons")
    list_display_links = None
    list_filter = (HealthFilter, ArchivedFilter)
    list_select_related = ("lane",)
    search_fields = ("label", "address")
    sortable_by = ()
    actions = (
        account_action("pause", "Pause the selected accounts", "Paused"),
        asking_action(
            "reactivate",
            "Reactivate the selected accounts",
            "Reactivated",
            about_reactivating,
            controls.reactivate,
        ),
        *archive_actions(corrections.archive_account, corrections.restore_account, "accounts"),
        *(preset_action(preset) for preset in PRESETS.values()),
    )
    change_form_template = "admin/accounts/account/change_form.html"
    change_list_template = "admin/accounts/account/change_list.html"

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # its activity proves what was sent; an account is archived instead

    def formfield_for_dbfield(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name == "warmup_started_on":
            kwargs["widget"] = forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Propose the operator's own timezone: business hours and caps follow it."""
        zone = {"timezone": timezone.get_current_timezone_name()}
        return zone | super().get_changeform_initial_data(request)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        channel = chosen_channel(request, obj)
        start = start_values(channel, request.GET)
        form = form_class(channel, obj, start, getattr(request, "crier_tested", None))
        secrets = [name for name in form.base_fields if name.startswith(SECRET) or name == FORGET]
        kwargs["form"] = confirm_first(form, request, *secrets) if secrets else form
        return super().get_form(request, obj, change=change, **kwargs)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is not None and not self.has_change_permission(request, obj):
            return [(None, {"fields": ["label", "address", "timezone", "team", "connection"]})]
        return sections(chosen_channel(request, obj), obj, request.user.is_superuser)

    @admin.display(description="how to reach it")
    def connection(self, account: Account) -> SafeString:
        """Return the stored settings of the channel, for people who may only view."""
        rows = (
            (f.label, account.config[f.name]) for f in channel(account.channel).settings if f.name in account.config
        )
        return format_html_join("", "<div>{}: {}</div>", rows) or SafeString("–")

    def save_model(self, request: HttpRequest, obj: Account, form: Any, change: bool) -> None:
        if not change:
            accounts.add_account(obj, request.user, timezone.now())

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save the account together with its caps, so that both are noted in the timeline."""
        with accounts.changing(form.instance, request.user, timezone.now()) as stored:
            for name in form.changed_columns():
                setattr(stored.account, name, getattr(form.instance, name))
            if form.entered or form.forgets:
                stored.enter(form.entered, replace=form.forgets)
            tuning.assign(stored.account, form.changed_caps())
            super().save_related(request, form, formsets, change)
        if form.tested is not None:
            tell_result(request, form.instance, form.tested, timezone.now())

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

    @admin.display(description="channel")
    def through(self, account: Account) -> str:
        return channel(account.channel).label

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
        if account.archived:
            name, label = "restore", "Restore"
        elif account.needs_pairing:
            url = reverse("admin:accounts_account_pair", args=[account.pk])
            return format_html('<a class="act primary" href="{}">Pair</a>', url)
        return format_html(
            '<button type="submit" class="act" formmethod="post" formnovalidate formaction="{}">{}</button>',
            reverse("admin:accounts_account_do", args=[account.pk, name]),
            label,
        )

    # --- one account ------------------------------------------------------------------------------------

    def changeform_view(
        self, request: HttpRequest, object_id: Any = None, form_url: str = "", extra_context: Any = None
    ) -> Any:
        if object_id is None and not chosen_channel(request, None).key:
            return self.choose_channel(request)
        context = {"zones": zone_list()}
        account = self.get_object(request, object_id) if object_id else None
        if account is not None and self.has_view_permission(request, account):
            acting = self.has_change_permission(request, account)
            context |= page_context(account, request.user, timezone.now()) | {
                "may_act": acting,
                "stored": stored(account),
                "hook": webhook_address(account) if acting else "",
            }
        if "_test" in request.POST:
            request.crier_tested = self.test_typed(request, object_id)  # type: ignore[attr-defined]
        return super().changeform_view(request, object_id, form_url, context | (extra_context or {}))

    def choose_channel(self, request: HttpRequest) -> HttpResponse:
        """Show the first step of a new account."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        context = self.admin_site.each_context(request) | {
            "title": "Add account",
            "opts": self.opts,
            "channels": sorted(offered().values(), key=lambda one: (one.demo, one.label.lower())),
        }
        return TemplateResponse(request, "admin/accounts/account/choose_channel.html", context)

    def test_typed(self, request: HttpRequest, object_id: Any) -> SignIn | None:
        """Sign in at the provider with the typed values, before the transaction that saves them.

        Returns None if the form is not valid, or the person may not save it.
        """
        account = self.get_object(request, object_id) if object_id else None
        may_change = account is not None and self.has_change_permission(request, account)
        if not (may_change if object_id else self.has_add_permission(request)):
            return None
        typed = self.get_form(request, account, change=account is not None)
        form = typed(request.POST, request.FILES, instance=account)
        return async_to_sync(sign_in)(form.instance) if form.is_valid() else None

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        described = chosen_channel(request, kwargs.get("obj"))
        # Not the form's own account: that one has the typed values, which may be wrong.
        account = context.get("account") or Account(channel=described.key)
        context |= {
            "described": described,
            "pace_rows": (rows := pace_rows(account, context["adminform"].form, timezone.now())),
            "caps_in_words": caps_in_words(rows),
            "providers": start_links(described, request.GET, PROVIDER),
            "presets": start_links(described, request.GET, PRESET),
        }
        return super().render_change_form(request, context, *args, **kwargs)

    def response_post_save_add(self, request: HttpRequest, obj: Account) -> HttpResponseRedirect:
        return HttpResponseRedirect(reverse("admin:accounts_account_change", args=[obj.pk]))

    response_post_save_change = response_post_save_add

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("<int:pk>/do/<str:name>/", wrap(require_POST(self.do_view)), name="accounts_account_do"),
            path("<int:pk>/test/", wrap(require_POST(self.test_view)), name="accounts_account_test"),
            path("<int:pk>/send-test/", wrap(require_POST(self.send_test_view)), name="accounts_account_send_test"),
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
        now, page = timezone.now(), reverse("admin:accounts_account_change", args=[pk])
        if name in SENSITIVE and not is_confirmed(request, now) and (question := question_in_between(request)):
            return question
        tell(request, attempt(lambda account: CONTROLS[name](account, request.user, now), account))
        return back(request, page)

    def test_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Sign in at the provider; nothing is sent."""
        account, asked_at = self.own_account(request, pk), timezone.now()
        tell_result(request, account, async_to_sync(sign_in)(account), asked_at)
        return back(request, reverse("admin:accounts_account_change", args=[pk]))

    def send_test_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Send a test message through the account's lane, and show its run."""
        account = self.own_account(request, pk)
        address, now = request.POST.get("to", "").strip(), timezone.now()
        answer = attempt(lambda account: send_account_test(account, address, now, request.user), account)
        tell(request, answer)
        if answer.run is None:
            return back(request, reverse("admin:accounts_account_change", args=[pk]))
        return HttpResponseRedirect(reverse("admin:fanout_run_change", args=[answer.run.pk]))

    def groups_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Read the account's groups from the provider, and store them as recipients."""
        tell(request, synchronise_groups(self.own_account(request, pk), request.user, timezone.now()))
        return back(request, reverse("admin:accounts_account_change", args=[pk]))

    def contacts_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Read the account's address book from the provider, and add its people as recipients."""
        tell(request, synchronise_contacts(self.own_account(request, pk), request.user, timezone.now()))
        return back(request, reverse("admin:accounts_account_change", args=[pk]))

    def pair_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        return pairing_page(request, self.own_account(request, pk))

    def pair_state_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        return pairing_state(request, self.own_account(request, pk))


def chosen_channel(request: HttpRequest, account: Account | None) -> Channel:
    """Return the account's channel, or the one chosen for a new account; without a key if none is chosen yet."""
    if account is not None:
        return channel(account.channel)
    key = request.POST.get("channel") or request.GET.get("channel", "")
    return offered().get(key) or Channel(key="", label="")


def stored(account: Account) -> str:
    """Describe the stored credentials without showing any."""
    try:
        names = sorted(account.credentials)
    except CredentialError:
        return "stored, but no key decrypts them: enter them again"
    return f"stored: {', '.join(names)}" if names else "none stored"


def tell_result(request: HttpRequest, account: Account, result: SignIn, asked_at: datetime) -> None:
    note_test(account, result, request.user, asked_at)
    words = sign_in_result(account, result)
    if result.ok and channel(account.channel).lists_templates:
        words = f"{words}; {message_templates.refresh(account, asked_at)}"
    tell(request, ControlResult(result.ok, words))


# --- how accounts stand now, for their list ---------------------------------------------------------------


MOST_COUNTED = 1_000  # messages of one account's day

# Each lookup uses an index that ends with the time, and reads at most a thousand rows of the day.
COUNTS_TODAY = """
SELECT a.id, coalesce(sum(d.sent), 0), coalesce(sum(d.failed), 0), max(d.read), max(l.at)
  FROM unnest(%(accounts)s::bigint[], %(starts)s::timestamptz[]) AS a(id, starts)
 CROSS JOIN unnest(%(actions)s::varchar[]) AS k(action)
 CROSS JOIN LATERAL (
   SELECT count(*) FILTER (WHERE s.outcome = 'sent') AS sent, count(*) FILTER (WHERE s.outcome = 'failed') AS failed,
          count(*) AS read
     FROM (SELECT v.outcome FROM fanout_activity v
            WHERE v.account_id = a.id AND v.action = k.action AND v.at >= a.starts
            ORDER BY v.at DESC LIMIT %(most)s) AS s) AS d
  LEFT JOIN LATERAL (SELECT v.at FROM fanout_activity v
                      WHERE v.account_id = a.id AND v.action = k.action AND v.outcome = 'sent'
                      ORDER BY v.at DESC LIMIT 1) AS l ON true
 GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class Standing:
    sent: int = 0
    failed: int = 0
    read: int = 0  # activities of one action that were counted: beyond the cap there may be more
    last_at: datetime | None = None
    pending: int = 0
    per_minute: float | None = None

    @property
    def today(self) -> str:
        return f"{self.sent:,}" if self.read <= MOST_COUNTED else f"{min(self.sent, MOST_COUNTED):,}+"

    @property
    def queue(self) -> str:
        return capped_number(self.pending, MOST_PENDING) if self.pending else "–"

    @property
    def error_share(self) -> float:
        tried = self.sent + self.failed
        return self.failed / tried if tried else 0.0

    def rate(self, limit: float) -> str:
        """Return the rate of the last minutes and its limit, in words."""
        now = progress.rate_in_words(self.per_minute).removesuffix(" / min")
        most = f"{limit:g} / min" if limit else "no limit"
        return f"{now} of {most}" if self.per_minute else most


def standings(accounts: Sequence[Account], now: datetime) -> dict[int, Standing]:
    """Read the figures of these accounts in three queries."""
    ids = [account.pk for account in accounts]
    if not ids:
        return {}
    pending, rates = pending_by_account(ids), progress.rates_of_accounts(ids, now)
    return {
        pk: Standing(sent, failed, read, last_at, pending.get(pk, 0), rates.get(pk))
        for pk, sent, failed, read, last_at in _counts_today(accounts, now)
    }


def _counts_today(accounts: Sequence[Account], now: datetime) -> list[tuple[int, int, int, int, datetime | None]]:
    parameters: dict[str, Any] = {
        "accounts": [account.pk for account in accounts],
        "starts": [local_day_bounds(account.timezone, now)[0] for account in accounts],
        "actions": Action.values,
        "most": MOST_COUNTED + 1,
    }
    with connection.cursor() as cursor:
        cursor.execute(COUNTS_TODAY, parameters)
        return [(pk, int(sent), int(failed), read, last_at) for pk, sent, failed, read, last_at in cursor.fetchall()]
