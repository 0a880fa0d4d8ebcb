"""Reminders: the list, the form with its forecast, and firing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Count, Max, QuerySet, prefetch_related_objects
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.defaultfilters import pluralize
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst, get_text_list
from django.views.decorators.http import require_GET, require_POST

from accounts import access
from accounts.addresses import MAILBOX, counted_as
from accounts.channels.registry import channel
from accounts.inputs import as_ids, counted
from accounts.models import Account
from fanout.admin.list_actions import (
    ArchivedFilter,
    Question,
    archive_actions,
    ask_once,
    asking_action,
    attempt,
    confirmed,
    tell,
)
from fanout.admin.model_admin import ButtonsAdmin, StackedInline, capped_kinds, zone_list
from fanout.admin.reminder_draft import PREVIEWED, Chosen, Draft, DraftTexts, of_kinds, posted_senders
from fanout.admin.reminder_form import (
    CRONS,
    KEEP_AS_DRAFT,
    SWITCH_ON,
    PartForm,
    PartFormSet,
    ReminderForm,
    channel_facts,
    list_file_text,
)
from fanout.admin.reminder_targets import REMINDER_FILTER, proposed_tags
from fanout.admin.reminder_templates import outlook, persons
from fanout.admin.run_status import my_zone
from fanout.admin.widgets import capped_number, look
from fanout.models import Run
from fanout.plans.audience import audience, kinds_by_reminder
from fanout.runs import controls, corrections, firing, self_test
from fanout.runs.freezing import frozen_part
from fanout.templatetags.crier import relative, when
from reminders import imports, readiness, schedule, targets
from reminders.models import FollowUpPart, Reminder, ReminderMessage, ReplyPart, Segment
from reminders.moments import moment
from reminders.part_templates import Choice
from reminders.readiness import missing, missing_in_words

RECENTLY = timedelta(hours=24)
#: recipients whose own fields are offered for insertion
FIELDS_FROM = 1_000
#: targets that the form names
NAMED = 6


#: posted by the button that fires at the next opening instead of now
AT_OPENING = "opening"


def fire_label(reminder: Reminder, now: datetime) -> str:
    return "Fire when the window opens" if firing.when_closed(reminder, now) else "Fire now"


def fire_if_open(reminder: Reminder, user: Any, now: datetime) -> controls.ControlResult:
    """Fire the reminder unless its window is closed: it would only fail."""
    return (
        controls.ControlResult(False, _closed(reminder, now))
        if _closed(reminder, now)
        else controls.fire(reminder, user, now)
    )


def what_was_queued(answers: list[controls.ControlResult], now: datetime) -> str:
    made = [answer.run for answer in answers if answer.ok and answer.run is not None]
    ready = [run for run in made if run.status != Run.Status.PREPARING]
    preparing = counted(len(made) - len(ready), "run")
    sentences = [
        capfirst(controls.queued(ready)) if ready else "",
        f"{preparing} still being prepared." if len(ready) < len(made) else "",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _closed(reminder: Reminder, now: datetime) -> str:
    if reminder.window.is_open(now):
        return ""
    return f"Its delivery window opens {moment(reminder.window.next_opening(now), reminder.timezone, now)}."


def about_firing(reminders: Sequence[Reminder], now: datetime) -> Question:
    fired = [reminder for reminder in reminders if not _closed(reminder, now)]
    closed = [reminder for reminder in reminders if _closed(reminder, now)]
    kinds = kinds_by_reminder(fired, now)
    everyone = sum(kinds.values(), Counter[str]())
    news = _recent_runs(fired, now)
    sentences = [
        f"{of_kinds(everyone)} in all.",
        f"Sent in the last 24 hours, or going out now: {counted(len(news), 'reminder')}." if news else "",
        f"{counted(len(closed), 'reminder')} will not be fired: outside the delivery window." if closed else "",
    ]
    rows = [(one.title, _row_text(one, kinds[one.pk], news.get(one.pk, ""))) for one in fired]
    rows += [(one.title, _closed(one, now)) for one in closed]
    title = f"Fire {counted(len(fired), 'reminder')} now?"
    return Question(title, [text for text in sentences if text], title.rstrip("?") if everyone else "", rows)


def _row_text(reminder: Reminder, kinds: Counter[str], news: str) -> str:
    return f"{of_kinds(kinds)} via {reminder.account}" + (f"; {news}" if news else "")


def _recent_runs(reminders: Sequence[Reminder], now: datetime) -> dict[int, str]:
    """Return for each reminder that went out recently, or is going out now, the words for it."""
    runs = Run.objects.filter(reminder__in=reminders, answers=None).order_by()
    recent = runs.filter(sent__gt=0, finished_at__gte=now - RECENTLY)
    sent = recent.values_list("reminder_id").annotate(at=Max("finished_at"))
    live = runs.filter(status__in=Run.UNDER_WAY).values_list("reminder_id", flat=True)
    words = {pk: f"was sent {relative(at, now)}" for pk, at in sent}
    return words | dict.fromkeys(live, "is going out already")


TARGETS_CAP = 2_000
TO_WHOM = "To whom"
CHOOSE_BELOW = "choose recipients below"
RESTORE = '<button type="submit" class="act" formmethod="post" formnovalidate formaction="{}">Restore</button>'


class PartInline(StackedInline):
    model = ReminderMessage
    form = PartForm
    formset = PartFormSet
    fields = (("kind", "order"), "text", "upload", "template_key", "html", "media", "template_values")
    verbose_name = "part"
    verbose_name_plural = "Parts"

    def get_extra(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> int:
        """Show an empty first part; a draft may be saved without it."""
        return 0 if obj is not None and obj.messages.all() else 1

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("media")

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        senders = posted_senders(request.POST, request.user) or (obj.senders if obj else [])
        described = [channel(account.channel) for account in senders]
        given = {"user": request.user, "channels": described, "choice": Choice(senders)}
        kwargs["form"] = type("PartForm", (PartForm,), given)
        kwargs["formset"] = type("PartFormSet", (PartFormSet,), {"request": request})
        return super().get_formset(request, obj, **kwargs)

    def formfield_for_foreignkey(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        # A plain hidden field: the admin's wrapper would add links to it.
        return db_field.formfield(**kwargs)


class ReplyPartInline(PartInline):
    model = ReplyPart  # type: ignore[assignment]
    classes = ("collapse",)
    verbose_name = "part of Message 2"
    verbose_name_plural = "Message 2: sent to people who reply within 24 hours"

    def get_extra(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> int:
        return 0


class FollowUpInline(PartInline):
    model = FollowUpPart  # type: ignore[assignment]
    classes = ("collapse",)
    fields = (("step", "kind", "order"), *PartInline.fields[1:])  # type: ignore[assignment]
    verbose_name = "part of a follow-up"
    verbose_name_plural = "Follow-ups: sent some days later to people who have not replied"

    def get_extra(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> int:
        return 0

    def formfield_for_dbfield(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name == "step":
            choices = [(n, f"{word} follow-up") for n, word in enumerate(("first", "second", "third"), start=1)]
            return forms.TypedChoiceField(choices=choices, coerce=int, label="Of the", initial=1)
        return super().formfield_for_dbfield(db_field, request, **kwargs)


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("on", "On"), ("off", "Off")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Reminder]) -> QuerySet[Reminder]:
        return queryset.filter(enabled=self.value() == "on") if self.value() else queryset


@admin.register(Reminder)
class ReminderAdmin(ButtonsAdmin):
    form = ReminderForm
    inlines = (PartInline, ReplyPartInline, FollowUpInline)
    list_display = ("name", "sent_through", "fires", "next_firing", "target_count", "last_run", "buttons")
    list_display_links = None
    list_filter = (StateFilter, "schedule", ArchivedFilter)
    search_fields = ("title",)
    sortable_by = ()
    actions = (
        asking_action(
            "fire_selected", "Fire the selected reminders now", "Fired", about_firing, fire_if_open, what_was_queued
        ),
        *archive_actions(corrections.archive_reminder, corrections.restore_reminder, "reminders"),
    )
    change_form_template = "admin/reminders/reminder/change_form.html"
    change_list_template = "admin/reminders/reminder/change_list.html"
    fieldsets = (
        ("Message", {"fields": ("title", "account", "further", "subject", "connect", "inmail")}),
        (TO_WHOM, {"fields": ("segment", "tag", "paste", "list_file", "chosen", "clear")}),
        (
            "When",
            {
                "fields": (
                    "schedule",
                    "fire_at",
                    "cron",
                    ("delivery_window_start_hour", "delivery_window_end_hour"),
                    "timezone",
                    "even_if_late",
                    "auto_resume",
                    "resume_after_limit",
                )
            },
        ),
        (
            "Follow-up and sharing",
            {"classes": ("collapse",), "fields": ("follow_up_days", "follow_up", "urgency", "owner", "team")},
        ),
    )

    class Media:
        js = ("crier/form_pieces.js", "crier/parts.js", "crier/people.js", "crier/reminder.js")
        css = {"all": ("crier/reminder.css",)}

    # --- the list ---------------------------------------------------------------------------------------

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow deleting only reminders that never fired: runs prove what was sent."""
        return super().has_delete_permission(request, obj) and (obj is None or not obj.runs.exists())

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Remove Django's bulk delete, which would fail for reminders that have fired."""
        actions: dict[str, Any] = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def get_queryset(self, request: HttpRequest) -> QuerySet[Reminder]:
        rows: QuerySet[Reminder] = super().get_queryset(request)
        return rows.select_related("account", "owner", "segment").prefetch_related("further_senders")

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changes = super().get_changelist_instance(request)
        rows = changes.result_list = list(changes.result_list)
        now = timezone.now()
        kinds = capped_kinds({row.pk: audience(row, now) for row in rows}, TARGETS_CAP)
        last, written = firing.last_runs([row.pk for row in rows]), self._written(rows)
        for row in rows:
            row.kinds_shown, row.target_n = kinds[row.pk], kinds[row.pk].total()
            row.targets_shown = capped_number(row.target_n, TARGETS_CAP)
            row.last, row.part_n = last.get(row.pk), written[row.pk]
        return changes

    def _written(self, rows: list[Reminder]) -> Counter[int]:
        """Return the number of parts of each reminder."""
        parts = ReminderMessage.objects.filter(reminder__in=rows).order_by().values_list("reminder")
        return Counter(dict(parts.annotate(n=Count("pk"))))

    @admin.display(description="reminder")
    def name(self, reminder: Any) -> SafeString:
        url = reverse("admin:reminders_reminder_change", args=[reminder.pk])
        people = reminder.target_n or bool(reminder.segment_id)
        word = "draft" if missing(reminder.part_n, people, reminder.timed) else "off"
        word = "archived" if reminder.archived else word
        off = "" if reminder.enabled else format_html(' <span class="badge mute">{}</span>', word)
        if reminder.firing_problem and not reminder.archived:
            word = "set aside" if reminder.set_aside else "not fired"
            off = format_html(' <span class="badge bad" title="{}">{}</span>', reminder.firing_problem, word)
        return format_html('<a class="row-title" href="{}">{}</a>{}', url, reminder.title, off)

    @admin.display(description="account")
    def sent_through(self, reminder: Reminder) -> str:
        return ", ".join(str(account) for account in reminder.senders)

    @admin.display(description="fires")
    def fires(self, reminder: Reminder) -> str:
        return schedule.describe(reminder.cron) if reminder.schedule == Reminder.Schedule.CRON else "once"

    @admin.display(description="next firing")
    def next_firing(self, reminder: Reminder) -> SafeString | str:
        return when(reminder.next_fire_at, reminder.timezone)

    @admin.display(description="targets")
    def target_count(self, reminder: Any) -> SafeString:
        url = segment_url(reminder.segment) if reminder.segment else targets_url(reminder)
        return format_html('<a href="{}">{}</a>', url, reminder.targets_shown)

    @admin.display(description="last run")
    def last_run(self, reminder: Any) -> SafeString | str:
        run = reminder.last
        if run is None:
            return "–"
        url = reverse("admin:fanout_run_change", args=[run.pk])
        tone, word = look(run)
        return format_html('<a class="badge {}" href="{}">{}</a>', tone, url, word)

    @admin.display(description="", empty_value="")
    def buttons(self, reminder: Any) -> SafeString | str:
        if reminder.archived:
            url = reverse("admin:reminders_reminder_archive", args=[reminder.pk])
            return format_html(RESTORE, url)
        if not reminder.target_n or not reminder.part_n:
            return ""
        url = reverse("admin:reminders_reminder_fire", args=[reminder.pk])
        asked = firing.question(reminder, of_kinds(reminder.kinds_shown, TARGETS_CAP), reminder.last, timezone.now())
        return format_html(
            '<button type="submit" class="act" formmethod="post" formnovalidate '
            'formaction="{}" data-confirm="{}" name="when" value="{}">{}</button>',
            url,
            asked,
            AT_OPENING if firing.when_closed(reminder, timezone.now()) else "now",
            fire_label(reminder, timezone.now()),
        )

    # --- the form ---------------------------------------------------------------------------------------

    readonly_fields = ("goes_to",)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Show the present recipients above the ways to add others."""
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None:
            return fieldsets
        return [
            (name, {**options, "fields": ("goes_to", *options["fields"])} if name == TO_WHOM else options)
            for name, options in fieldsets
        ]

    @admin.display(description="Goes to")
    def goes_to(self, reminder: Reminder) -> SafeString | str:
        kinds = kinds_of(reminder)
        if not kinds:
            return f"No one yet: {f'the segment {reminder.segment} is empty' if reminder.segment else CHOOSE_BELOW}."
        if reminder.segment:
            return self._goes_to_segment(reminder, kinds)
        named = list(reminder.targets.select_related("recipient").order_by("position")[:NAMED])
        names = [str(target.recipient) for target in named]
        if more := kinds.total() - len(names):
            names.append(f"{more:,} more")
        counts = get_text_list([counted_as(n, [kind]) for kind, n in kinds.most_common()], "and")
        text = '<b>{}</b>: {}. <a href="{}">See them all</a>'
        return format_html(text, counts, get_text_list(names, "and"), targets_url(reminder))

    def _goes_to_segment(self, reminder: Reminder, kinds: Counter[str]) -> SafeString:
        assert reminder.segment is not None
        fixed = reminder.targets.count()
        counts = get_text_list([counted_as(n, [kind]) for kind, n in kinds.most_common()], "and")
        also = format_html(' and <a href="{}">{} chosen by name</a>', targets_url(reminder), f"{fixed:,}")
        text = '<b>{}</b> now: everyone in <a href="{}">{}</a>{}. Who is in it is decided anew at each firing.'
        return format_html(text, counts, segment_url(reminder.segment), reminder.segment, also if fixed else "")

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Reminder | None:
        """Read the reminder once per page view, with its parts and files. A posted form reads its own."""
        if request.method != "GET":
            return super().get_object(request, object_id, from_field)
        objects: dict[str, Reminder | None] = request.__dict__.setdefault("_crier_reminders", {})
        if object_id not in objects:
            objects[object_id] = reminder = super().get_object(request, object_id, from_field)
            if reminder is not None:
                prefetch_related_objects([reminder], "messages__media", "reply_parts__media")
        return objects[object_id]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change=change, **kwargs)
        return type(form.__name__, (form,), {"request": request})

    def changeform_view(
        self, request: HttpRequest, object_id: Any = None, form_url: str = "", extra_context: Any = None
    ) -> Any:
        reminder = self.get_object(request, object_id) if object_id else None
        context: dict[str, Any] = {
            "zones": zone_list(),
            "tags": proposed_tags(request.user),
            "crons": [(cron, schedule.describe(cron)) for cron in CRONS],
            "channel_facts": channel_facts(),
        }
        if reminder is not None and self.has_view_permission(request, reminder):
            context |= self._beside_the_form(request, reminder)
        return super().changeform_view(request, object_id, form_url, context | (extra_context or {}))

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if (form := context["adminform"].form).is_bound:
            form.show_list_file()
        return super().render_change_form(request, context, *args, **kwargs)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Propose the operator's own timezone, and their account if they have only one."""
        accounts = list(access.visible(request.user, Account.objects.all())[:2])
        only = {"account": accounts[0].pk} if len(accounts) == 1 else {}
        zone = {"timezone": timezone.get_current_timezone_name()}
        return zone | only | super().get_changeform_initial_data(request)

    def _beside_the_form(self, request: HttpRequest, reminder: Reminder) -> dict[str, Any]:
        kinds, now = kinds_of(reminder), timezone.now()
        count = kinds.total()
        parts = [frozen_part(reminder, part) for part in reminder.messages.all()]
        runs = list(reminder.runs.filter(answers=None, is_test=False).defer("parts", "reply_parts")[:8])
        lacks = missing(len(parts), count or bool(reminder.segment_id), reminder.timed)
        return {
            "reminder": reminder,
            "may_act": self.has_change_permission(request, reminder),
            "parts": parts,
            "target_total": f"{count:,}",
            "target_n": count,
            "targets_url": segment_url(reminder.segment) if reminder.segment else targets_url(reminder),
            "reply_parts": [frozen_part(reminder, part) for part in reminder.reply_parts.all()],
            "runs": runs,
            "lacks": missing_in_words(lacks),
            "fire_label": fire_label(reminder, now),
            "fire_when": AT_OPENING if firing.when_closed(reminder, now) else "now",
            "can_fire": bool(parts and count and not reminder.archived),
            "question": firing.question(reminder, of_kinds(kinds), runs[0] if runs else None, now),
            "test_address": self_test.last_address(request.user, reminder.account) or _own_address(request, reminder),
            "test_takes": channel(reminder.account.channel).takes(),
            "test": self._test_of(request, reminder, explain=False),
        }

    def _test_of(self, request: HttpRequest, reminder: Reminder, explain: bool) -> self_test.SelfTestStatus | None:
        run = self_test.last_test(reminder, request.user)
        return self_test.status_of_test(run, timezone.now(), my_zone(), explain) if run is not None else None

    def save_model(self, request: HttpRequest, obj: Reminder, form: Any, change: bool) -> None:
        obj.next_fire_at = obj.firing_after(timezone.now())
        if obj.enabled:
            obj.forgive()
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        reminder: Reminder = form.instance
        reminder.set_further_senders(form.cleaned_data["further"])
        if form.cleaned_data.get("clear"):
            reminder.targets.all().delete()
        entries, tags = form.entries, form.cleaned_data.get("tag") or []
        if entries or tags:
            added = targets.add_listed(reminder, request.user, entries)
            added += sum(targets.add_tagged(reminder, request.user, tag) for tag in tags)
            messages.info(request, f"{added} target{pluralize(added)} added.")
        for tag in tags:
            self._tell_left_out(request, reminder, tag)
        if warning := readiness.replies_not_received(reminder):
            messages.warning(request, warning)

    def _tell_left_out(self, request: HttpRequest, reminder: Reminder, tag: str) -> None:
        senders = reminder.senders
        if left_out := targets.tagged_out_of_reach(request.user, tag, senders).count():
            messages.warning(request, f"{left_out} with the tag “{tag}” left out: {targets.what_they_reach(senders)}.")

    def response_add(self, request: HttpRequest, obj: Reminder, post_url_continue: str | None = None) -> HttpResponse:
        return self._stay(request, obj) or super().response_add(request, obj, post_url_continue)

    def response_change(self, request: HttpRequest, obj: Reminder) -> HttpResponse:
        return self._stay(request, obj) or super().response_change(request, obj)

    def _stay(self, request: HttpRequest, reminder: Reminder) -> HttpResponse | None:
        """Return to the reminder's page after keeping a draft or switching it on."""
        if KEEP_AS_DRAFT in request.POST:
            people = bool(reminder.segment_id) or reminder.targets.exists()
            lacks = missing(reminder.messages.count(), people, reminder.timed)
            state = "is kept as a draft" if lacks else "is off"
            messages.success(request, f"“{reminder}” {state}: it does not fire by itself.")
        elif SWITCH_ON in request.POST:
            messages.success(request, f"“{reminder}” is on.")
        else:
            return None
        return HttpResponseRedirect(reverse("admin:reminders_reminder_change", args=[reminder.pk]))

    # --- endpoints --------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("forecast/", wrap(require_POST(self.forecast_view)), name="reminders_reminder_forecast"),
            path("list/", wrap(require_POST(self.list_view)), name="reminders_reminder_list"),
            path("<int:pk>/fire/", wrap(require_POST(self.fire_view)), name="reminders_reminder_fire"),
            path("<int:pk>/test/", wrap(require_POST(self.test_view)), name="reminders_reminder_test"),
            path("<int:pk>/archive/", wrap(require_POST(self.archive_view)), name="reminders_reminder_archive"),
            path("<int:pk>/tested/", wrap(require_GET(self.tested_view)), name="reminders_reminder_tested"),
            path(
                "<int:pk>/duplicate/",
                wrap(require_POST(self.duplicate_view)),
                name="reminders_reminder_duplicate",
            ),
            *super().get_urls(),
        ]

    def own_reminder(self, request: HttpRequest, pk: int) -> Reminder:
        rows = access.visible(request.user, Reminder.objects.select_related("account"))
        reminder: Reminder | None = rows.filter(pk=pk).first()
        if reminder is None:
            raise Http404
        if not self.has_change_permission(request, reminder):
            raise PermissionDenied
        return reminder

    def forecast_view(self, request: HttpRequest) -> JsonResponse:
        """Return the forecast and the next firings for the form as it stands, without saving anything."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        now, chosen = timezone.now(), Chosen.posted(request, PREVIEWED)
        heads = chosen.heads(now)
        people: dict[str, Any] = {"nothing": heads.nothing, "tags": chosen.tag_counts(), "lines": chosen.lines()}
        people["partial"] = chosen.partial
        people["segment"] = chosen.segment_now()
        people["fields"] = chosen.audience.fields(FIELDS_FROM)
        words = DraftTexts.posted(request, lambda: chosen.audience).preview()
        draft = Draft.posted(request, chosen, heads.kinds, now)
        by_template = outlook(request, chosen, persons(heads.kinds), draft.starts(now), now)
        forecast = draft.forecast(now)
        lines = people["lines"]["problems"]
        wrong = [forecast["problem"], forecast["passed"], words["wording"], *map(capfirst, lines)]
        return JsonResponse(forecast | people | words | by_template | {"wrong": [one for one in wrong if one]})

    def list_view(self, request: HttpRequest) -> JsonResponse:
        """Return the list in an uploaded file as text, for the box in which every line can be seen and changed."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            text = list_file_text(request.FILES["list_file"]) if "list_file" in request.FILES else ""
        except ValidationError as problem:
            return JsonResponse({"problem": " ".join(problem.messages)})
        return JsonResponse({"text": text.strip(), "header": imports.has_header(text)})

    def fire_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        reminder = self.own_reminder(request, pk)
        if not confirmed(request):
            return ask_once(self, request, self._about_firing(reminder), self._url(reminder))
        now, when = timezone.now(), request.POST.get("when", "")
        at = reminder.window.next_opening(now) if when == AT_OPENING else None
        # The run after which the person wants another one, from the question below.
        after = next(iter(as_ids([request.POST.get("after", "")])), None)
        answer = attempt(lambda reminder: controls.fire(reminder, request.user, now, at, after=after), reminder)
        if answer.asks and answer.run is not None:
            question = Question("Fire again", [answer.text], "Fire again")
            return ask_once(self, request, question, self._url(reminder), after=str(answer.run.pk), when=when)
        return self._after(request, answer, reminder)

    def _url(self, reminder: Reminder) -> str:
        return reverse("admin:reminders_reminder_change", args=[reminder.pk])

    def _about_firing(self, reminder: Reminder) -> Question:
        last, kinds = firing.last_runs([reminder.pk]).get(reminder.pk), kinds_of(reminder)
        asked = firing.question(reminder, of_kinds(kinds), last, timezone.now())
        label = fire_label(reminder, timezone.now())
        return Question(label, [asked], label)

    def test_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        reminder, address = self.own_reminder(request, pk), request.POST.get("address", "")
        answer = attempt(
            lambda reminder: self_test.send_test(reminder, address, request.user, timezone.now()), reminder
        )
        tell(request, answer)
        return HttpResponseRedirect(reverse("admin:reminders_reminder_change", args=[reminder.pk]))

    def tested_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return the state of the person's last test, which the page fetches again and again."""
        test = self._test_of(request, self.own_reminder(request, pk), explain=True)
        return TemplateResponse(request, "admin/reminders/reminder/test.html", {"test": test})

    def archive_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Archive the reminder, or restore an archived one."""
        reminder = self.own_reminder(request, pk)
        control = corrections.restore_reminder if reminder.archived else corrections.archive_reminder
        return self._after(request, attempt(lambda one: control(one, request.user, timezone.now()), reminder), reminder)

    def duplicate_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        reminder = self.own_reminder(request, pk)
        if problem := readiness.rights_problem(reminder, request.user):
            return self._after(request, controls.ControlResult(False, problem), reminder)
        copy = readiness.duplicate(reminder, request.user)
        self.log_addition(request, copy, f"Copied from reminder {pk}.")
        messages.success(request, "Copied. The copy is off: check it, then switch it on.")
        return HttpResponseRedirect(reverse("admin:reminders_reminder_change", args=[copy.pk]))

    def _after(self, request: HttpRequest, answer: controls.ControlResult, reminder: Reminder) -> HttpResponse:
        """Redirect to the new run, or back to the reminder."""
        tell(request, answer)
        if answer.run is not None:
            return HttpResponseRedirect(reverse("admin:fanout_run_change", args=[answer.run.pk]))
        return HttpResponseRedirect(reverse("admin:reminders_reminder_change", args=[reminder.pk]))


def _own_address(request: HttpRequest, reminder: Reminder) -> str:
    mail = channel(reminder.account.channel).reaches(MAILBOX)
    return getattr(request.user, "email", "") if mail else ""


def kinds_of(reminder: Any) -> Counter[str]:
    """Count the reminder's recipients by kind of address, once per object: head and form show them."""
    if not hasattr(reminder, "kinds_n"):
        reminder.kinds_n = targets.count_kinds(audience(reminder, timezone.now()))
    kinds: Counter[str] = reminder.kinds_n
    return kinds


def segment_url(segment: Segment) -> str:
    return reverse("admin:reminders_segment_change", args=[segment.pk])


def targets_url(reminder: Reminder) -> str:
    return f"{reverse('admin:reminders_remindertarget_changelist')}?{REMINDER_FILTER}={reminder.pk}"
