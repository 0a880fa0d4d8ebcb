"""Users with their roles and teams: every change is in the audit trail, and asks the administrator to confirm who they
are. New users set their own password by an invitation link."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from copy import copy
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.admin import GroupAdmin
from django.contrib.auth.models import Group, User
from django.contrib.auth.tokens import default_token_generator
from django.contrib.auth.views import PasswordResetConfirmView
from django.core.mail import send_mail
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import pluralize
from django.template.response import TemplateResponse
from django.urls import path, reverse, reverse_lazy
from django.utils import timezone
from django.utils.encoding import force_bytes
from django.utils.html import format_html
from django.utils.http import urlsafe_base64_encode
from django.utils.safestring import SafeString
from django.views.decorators.cache import never_cache

# Imported for their side effect, which is undone below.
from django_otp.plugins.otp_static import admin as _static  # noqa: F401
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp import admin as _totp  # noqa: F401
from django_otp.plugins.otp_totp.models import TOTPDevice

from accounts import access, second_factor
from accounts.access import Role
from accounts.inputs import as_ids
from fanout.admin.login import sensitive
from fanout.admin.model_admin import ModelForm, TrailedAdmin, UserAdmin
from fanout.models.trail import note
from fanout.templatetags.crier import when

log = logging.getLogger("crier.users")

for model in (User, Group, TOTPDevice, StaticDevice):
    # Ours replace the first two; the others would show all users' keys to an administrator.
    admin.site.unregister(model)


class LoginForm(AdminAuthenticationForm):
    """Django's form, which says what is missing to people whose name and password are right."""

    error_messages = AdminAuthenticationForm.error_messages | {
        "invalid_login": "Please enter the correct user name and password. Both may be case-sensitive.",
        "no_role": "This user has no role yet. Ask an administrator to choose one on the page “Users”.",
    }

    def confirm_login_allowed(self, user: Any) -> None:
        if user.is_active and not user.is_staff:
            raise forms.ValidationError(self.error_messages["no_role"], code="no_role")
        super().confirm_login_allowed(user)


admin.site.login_form = LoginForm


class SensitiveAdmin(TrailedAdmin):
    """Pages whose every address asks for a recent confirmation."""

    def get_urls(self) -> list[Any]:
        urls = super().get_urls()
        for url in urls:
            url.callback = sensitive(url.callback)
        return urls


# --- users ------------------------------------------------------------------------------------------------


WHAT_ROLES_DO = {
    Role.ADMINISTRATOR: "everything, also users, opt-out phrases and other people's reminders",
    Role.OPERATOR: "sends: accounts, recipients and reminders of their own and of their teams",
    Role.VIEWER: "reads what belongs to their teams, and changes nothing",
}
ROLE_CHOICES = [(role.value, f"{role.label}: {words}") for role, words in WHAT_ROLES_DO.items()]
EXPERT = "expert"  # in the query string: Django's own form with single permissions


def for_experts(request: HttpRequest) -> bool:
    return EXPERT in request.GET and request.user.is_superuser


class RoleFilter(admin.SimpleListFilter):
    title = "role"
    parameter_name = "role"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [*((role.value, role.label) for role in Role), ("none", "No role")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[User]) -> QuerySet[User]:
        if self.value() == Role.ADMINISTRATOR:
            return queryset.filter(is_superuser=True)
        if self.value() == "none":
            return queryset.filter(is_superuser=False).exclude(groups__name__in=access.ROLE_GROUPS.values())
        name = access.ROLE_GROUPS.get(self.value())  # type: ignore[call-overload]
        return queryset.filter(is_superuser=False, groups__name=name) if name else queryset


class TeamFilter(admin.SimpleListFilter):
    title = "team"
    parameter_name = "team"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(team.pk), team.name) for team in access.teams()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[User]) -> QuerySet[User]:
        return queryset.filter(groups__in=as_ids([self.value() or ""])) if self.value() else queryset


class UserForm(ModelForm):
    role = forms.ChoiceField(choices=ROLE_CHOICES, widget=forms.RadioSelect)
    teams = forms.ModelMultipleChoiceField(
        Group.objects.none(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="People of one team see and use what is shared with it.",
    )
    user: Any = None  # the administrator

    class Meta:
        model = User
        fields = ("username", "first_name", "last_name", "email", "is_active")
        labels = {"username": "User name", "email": "Mail", "is_active": "May log in"}
        help_texts = {
            "username": "For the login, such as “mei”.",
            "email": "The invitation to set a password goes there.",
            "is_active": "Switch it off instead of deleting the user: what they did stays theirs.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        teams: Any = self.fields.get("teams")
        if teams is not None:
            teams.queryset = access.teams()
        if self.instance.pk is not None:
            self.initial["role"] = access.role_of(self.instance)
            self.initial["teams"] = list(access.teams().filter(user=self.instance))

    def clean_role(self) -> str:
        role: str = self.cleaned_data["role"]
        before = access.role_of(self.instance) if self.instance.pk else None
        if role != before and Role.ADMINISTRATOR in (role, before) and not self.user.is_superuser:
            raise forms.ValidationError("Only an administrator makes administrators.")
        if role != before and self.instance.pk == self.user.pk:
            raise forms.ValidationError("You cannot change your own role: ask another administrator.")
        return role

    def clean_is_active(self) -> bool:
        active: bool = self.cleaned_data["is_active"]
        if not active and self.instance.pk == self.user.pk:
            raise forms.ValidationError("You cannot lock yourself out: ask another administrator.")
        return active


@admin.action(description="Turn off the second factor of the selected users", permissions=["change"])
def remove_second_factor(model_admin: Any, request: HttpRequest, queryset: QuerySet[User]) -> None:
    """Help people who have lost their app and their recovery codes."""
    now, people = timezone.now(), list(queryset)
    for person in people:
        with transaction.atomic():
            second_factor.remove(person)
            note("turned off the second factor", person, request.user, now)
    messages.success(request, f"Second factor turned off for {len(people)} user{pluralize(len(people))}.")


@admin.register(User)
class CrierUserAdmin(SensitiveAdmin, UserAdmin):
    list_display = ("name", "mail", "role", "teams", "state", "seen", "has_second_factor")
    list_display_links = None
    list_filter = (RoleFilter, TeamFilter, "is_active")
    actions = (remove_second_factor,)
    add_form_template = "admin/auth/user/change_form.html"
    change_form_template = "admin/auth/user/change_form.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        app = TOTPDevice.objects.filter(user_id=OuterRef("pk"), confirmed=True)
        people: QuerySet[User] = super().get_queryset(request).prefetch_related("groups")
        return people.annotate(has_app=Exists(app))

    # --- the list ---------------------------------------------------------------------------------------

    @admin.display(description="mail", ordering="email")
    def mail(self, user: User) -> str:
        return user.email or "–"

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        return super().changelist_view(request, {"title": "Users"} | (extra_context or {}))

    @admin.display(description="user", ordering="username")
    def name(self, person: User) -> SafeString:
        url = reverse("admin:auth_user_change", args=[person.pk])
        return format_html(
            '<a class="row-title" href="{}">{}</a> <span class="quiet">{}</span>',
            url,
            person.get_full_name() or person.username,
            person.username if person.get_full_name() else "",
        )

    @admin.display(description="role")
    def role(self, person: User) -> SafeString | str:
        role = access.role_of(person)
        return role.label if role else format_html('<span class="badge warn">{}</span>', "No role")

    @admin.display(description="teams")
    def teams(self, person: User) -> str:
        roles = access.ROLE_GROUPS.values()
        return ", ".join(group.name for group in person.groups.all() if group.name not in roles) or "–"

    @admin.display(description="login")
    def state(self, person: User) -> SafeString:
        return format_html('<span class="badge {}">{}</span>', *state_of(person))

    @admin.display(description="last login", ordering="last_login")
    def seen(self, person: User) -> SafeString | str:
        return when(person.last_login) if person.last_login else "–"

    @admin.display(description="second factor")
    def has_second_factor(self, person: Any) -> SafeString | str:
        return format_html('<span class="badge good">{}</span>', "On") if person.has_app else "–"

    # --- one user ---------------------------------------------------------------------------------------

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        if not for_experts(request):
            kwargs |= {"form": type("UserForm", (UserForm,), {"user": request.user})}
        return super().get_form(request, obj, change=change, **kwargs)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if for_experts(request):
            return super().get_fieldsets(request, obj)
        writing = self.has_change_permission(request, obj) if obj else self.has_add_permission(request)
        chosen = [*(["role"] if writing else []), *(["teams"] if writing and access.teams().exists() else [])]
        who = ["username", ("first_name", "last_name"), "email", *(["is_active"] if obj else [])]
        return [(None, {"fields": who}), *([("What they may do", {"fields": chosen})] if chosen else [])]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # People who may change an administrator could become one.
        above = obj is not None and obj.is_superuser and not request.user.is_superuser
        return super().has_change_permission(request, obj) and not above

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        above = obj is not None and obj.is_superuser and not request.user.is_superuser
        return super().has_delete_permission(request, obj) and not above

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if not change:
            obj.set_unusable_password()
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        if not isinstance(form, UserForm):
            return
        person, role = form.instance, form.cleaned_data["role"]
        before = form.initial.get("role") or "no role"
        access.give_role(person, role, form.cleaned_data.get("teams", ()))
        if role != before:
            note("changed the role", person, request.user, timezone.now(), f"{before} → {role}")

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: Any = None) -> HttpResponse:
        messages.success(request, f"“{obj}” was added. Now invite them to set a password.")
        return HttpResponseRedirect(reverse("admin:auth_user_invitation", args=[obj.pk]))

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        person = kwargs.get("obj")
        context |= {"expert": for_experts(request), "state": state_of(person) if person else None}
        return super().render_change_form(request, context, *args, **kwargs)

    # --- the invitation -----------------------------------------------------------------------------------

    def get_urls(self) -> list[Any]:
        invitation = never_cache(self.admin_site.admin_view(sensitive(self.invitation_view)))
        return [path("<int:pk>/invitation/", invitation, name="auth_user_invitation"), *super().get_urls()]

    def invitation_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Make the link with which a person sets their password, to be copied or sent by mail."""
        person = self.get_queryset(request).filter(pk=pk).first()
        if person is None or not self.has_change_permission(request, person):
            raise Http404
        context = self.admin_site.each_context(request) | {
            "title": f"Invite {person}",
            "opts": self.opts,
            "invited": person,
            "state": state_of(person),
            "days": settings.PASSWORD_RESET_TIMEOUT // 86_400,
        }
        if request.method == "POST" and person.is_active:
            context["link"] = invitation_link(request, person)
            sends = "mail" in request.POST and bool(person.email)
            problem = send_invitation(person, context["link"], request.user) if sends else ""
            context |= {"sent": sends and not problem, "problem": problem}
            note("invited", person, request.user, timezone.now(), "by mail" if context["sent"] else "by a copied link")
        return TemplateResponse(request, "admin/auth/user/invitation.html", context)


def state_of(person: User) -> tuple[str, str]:
    """Return the tone and the words for whether a person can log in."""
    if not person.is_active or not person.is_staff:
        return "mute", "May not log in"
    if not person.has_usable_password():
        return "warn", "Invited: no password yet"
    return "good", "Can log in"


def invitation_link(request: HttpRequest, person: User) -> str:
    """Return a link that works until the person sets a password or logs in, or its time is over."""
    words = {
        "uidb64": urlsafe_base64_encode(force_bytes(person.pk)),
        "token": default_token_generator.make_token(person),
    }
    page = reverse("admin:invitation", kwargs=words)
    return f"{settings.PUBLIC_URL.rstrip('/')}{page}" if settings.PUBLIC_URL else request.build_absolute_uri(page)


def send_invitation(person: User, link: str, sender: Any) -> str:
    """Send the link by mail. Returns the problem; "" if there is none."""
    days = settings.PASSWORD_RESET_TIMEOUT // 86_400
    text = (
        f"Hello {person.first_name or person.username},\n\n"
        f"{sender.get_full_name() or sender.get_username()} has made a login to Crier for you. Your user name is "
        f"{person.username}.\nSet your password here, within {days} days:\n\n{link}\n"
    )
    try:
        send_mail("Your login to Crier", text, None, [person.email])
    except OSError as error:  # SMTPException is one, too
        log.warning("an invitation could not be sent", exc_info=True, extra={"user": person.pk})
        return f"The mail could not be sent ({error}). Copy the link instead."
    return ""


class Invitation(PasswordResetConfirmView):
    """The page behind the link. Django keeps the token in the session, so that no other site learns it."""

    template_name = "crier/security/set_password.html"
    success_url = reverse_lazy("admin:login")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        # Without the header's menu and bell: the person has not logged in.
        words = {"title": "Set your password", "has_permission": False, "invited": self.user}
        return super().get_context_data(**kwargs) | admin.site.each_context(self.request) | words

    @transaction.atomic
    def form_valid(self, form: Any) -> HttpResponse:
        note("set a password by invitation", self.user, self.user, timezone.now())
        messages.success(self.request, "Your password is set. Log in with it.")
        return super().form_valid(form)


# --- teams ------------------------------------------------------------------------------------------------


class GroupFilter(admin.SimpleListFilter):
    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("roles", "Roles")]

    def choices(self, changelist: Any) -> Iterator[Any]:
        teams, *others = super().choices(changelist)
        yield teams | {"display": "Teams"}
        yield from others

    def queryset(self, request: HttpRequest, queryset: QuerySet[Group]) -> QuerySet[Group]:
        roles = Q(name__in=access.ROLE_GROUPS.values())
        return queryset.filter(roles if self.value() == "roles" else ~roles)


class TeamForm(ModelForm):
    members = forms.ModelMultipleChoiceField(
        User.objects.order_by("username"), required=False, widget=forms.CheckboxSelectMultiple
    )

    class Meta:
        model = Group
        fields = ("name",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is not None:
            self.initial["members"] = list(self.instance.user_set.all())


@admin.register(Group)
class CrierGroupAdmin(SensitiveAdmin, GroupAdmin):
    """Teams. The groups of the roles are shown to experts only, with Django's permissions."""

    list_display = ("name", "members")
    list_filter = (GroupFilter,)
    change_form_template = "admin/auth/group/change_form.html"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The pages say "team"; the model is Django's and keeps its name.
        self.opts = copy(self.opts)
        self.opts.verbose_name, self.opts.verbose_name_plural = "team", "teams"

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        context |= {"expert": for_experts(request)}
        return super().render_change_form(request, context, *args, **kwargs)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Count the teams only: their memberships are no things of their own to a person."""
        deleted, _, lacking, protected = super().get_deleted_objects(objs, request)
        return deleted, {self.opts.verbose_name_plural: len(objs)}, lacking, protected

    def get_queryset(self, request: HttpRequest) -> QuerySet[Group]:
        rows: QuerySet[Group] = super().get_queryset(request)
        return rows.prefetch_related("user_set")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Keep the names of the roles' groups: the code finds them by it."""
        return ["name"] if obj is not None and obj.name in access.ROLE_GROUPS.values() else []

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        if not for_experts(request):
            kwargs |= {"form": TeamForm, "fields": ["name", "members"]}
        return super().get_form(request, obj, change=change, **kwargs)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return ["name", "permissions"] if for_experts(request) else ["name", "members"]

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        if isinstance(form, TeamForm):
            form.instance.user_set.set(form.cleaned_data["members"])

    @admin.display(description="members")
    def members(self, team: Group) -> str:
        names = [person.get_full_name() or person.username for person in team.user_set.all()]
        return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
