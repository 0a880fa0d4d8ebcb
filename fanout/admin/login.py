"""Proving who one is: confirmation before sensitive changes, the second factor, and logins in the audit trail."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

import django_otp
from axes.signals import user_locked_out
from django import forms
from django.contrib import admin, messages
from django.contrib.admin.forms import AdminPasswordChangeForm
from django.contrib.auth import authenticate, get_user_model
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.contrib.auth.views import PasswordChangeView
from django.db import transaction
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse, reverse_lazy
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from accounts import second_factor
from fanout.models import TrailEntry
from fanout.models.trail import note

# --- confirmation before a sensitive change: password or code once more, unless given minutes ago ---------


CONFIRMED_FOR = timedelta(minutes=15)
SESSION_KEY = "crier_confirmed_at"

View = Callable[..., HttpResponse]


def is_confirmed(request: HttpRequest, now: datetime) -> bool:
    return timedelta(0) < confirmed_until(request) - now <= CONFIRMED_FOR


def confirmed_until(request: HttpRequest) -> datetime:
    return datetime.fromtimestamp(request.session.get(SESSION_KEY, 0), UTC) + CONFIRMED_FOR


def remember(request: HttpRequest, now: datetime) -> None:
    request.session[SESSION_KEY] = now.timestamp()


@receiver(user_logged_in, dispatch_uid="confirmed at login")
def confirm_at_login(request: HttpRequest, **kwargs: Any) -> None:
    remember(request, timezone.now())


def sensitive(view: View) -> View:
    """Wrap the view: people who have not confirmed recently are asked first and then led back.

    A form that they sent is kept by the question, and sent again with the answer.
    """

    @wraps(view)
    def asking(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        # Visitors too: the view sends them to the login.
        if not request.user.is_authenticated or is_confirmed(request, timezone.now()):
            return view(request, *args, **kwargs)
        if request.method != "POST":
            return HttpResponseRedirect(confirm_url(request))
        return question_in_between(request) or view(request, *args, **kwargs)

    return asking


def confirm_url(request: HttpRequest) -> str:
    """Return the address of the confirmation page, which leads back to the page of this request."""
    return f"{reverse('admin:confirm')}?{urlencode({'next': request.get_full_path()})}"


PROOF = "proof"


def confirm_first(form: type[Any], request: HttpRequest, *names: str) -> type[Any]:
    """Return the form class with an input for the person's password, which a change of these fields needs unless they
    have confirmed recently. It is asked in the form itself, because secrets that were typed cannot be kept anywhere
    else."""
    now = timezone.now()
    until = confirmed_until(request) if is_confirmed(request, now) else now

    def clean_proof(self: Any) -> None:
        typed = any(self.data.get(self.add_prefix(name)) or self.files.get(self.add_prefix(name)) for name in names)
        if not typed or is_confirmed(request, timezone.now()):
            return
        if problem := proof_problem(request, self.cleaned_data[PROOF]):
            raise forms.ValidationError(problem)

    box = forms.PasswordInput(
        attrs={"autocomplete": "current-password", "data-asked-from": f"{until:%Y-%m-%dT%H:%M:%SZ}"}
    )
    field = forms.CharField(
        required=False,
        max_length=200,
        widget=box,
        label="Confirm that it is you: your password, or a code from your app if you have one",
        help_text="A new secret needs it when you last proved who you are more than 15 minutes ago.",
    )
    return type(form.__name__, (form,), {PROOF: field, "clean_proof": clean_proof})


def proof_label(request: HttpRequest) -> str:
    return "your password, or a code from your app" if second_factor.app_of(request.user) else "your password"


def proof_problem(request: HttpRequest, proof: str) -> str:
    """Return why this is no proof; "" after it was accepted, which counts for the next minutes."""
    if not proof:
        return "Enter your password: a change of secrets needs it."
    if _proves_identity(request, proof):
        remember(request, timezone.now())
        return ""
    note("confirmation failed", request.user, request.user, timezone.now())
    return "That is not right."


class ConfirmForm(forms.Form):
    proof = forms.CharField(
        max_length=200, widget=forms.PasswordInput(attrs={"autocomplete": "current-password", "autofocus": True})
    )


@sensitive_post_parameters(PROOF)
def confirm_page(request: HttpRequest) -> HttpResponse:
    """Ask for the password, or for a code of the second factor."""
    return ask_for_proof(request) or HttpResponseRedirect(next_page(request))


#: parts of the names of inputs that a page must not repeat
SECRETS = ("password", "secret", "code", PROOF, "csrf")


def question_in_between(request: HttpRequest) -> HttpResponse | None:
    """Return the question to a person who sent a form, with all that they sent except secrets; None once it was
    answered."""
    kept = [(k, v) for k, values in request.POST.lists() for v in values if not any(word in k for word in SECRETS)]
    return ask_for_proof(request, kept)


def ask_for_proof(request: HttpRequest, kept: list[tuple[str, str]] | None = None) -> HttpResponse | None:
    """Return the page that asks; None once the person has confirmed."""
    form = ConfirmForm(request.POST if PROOF in request.POST else None)
    form.fields[PROOF].label = proof_label(request).capitalize()
    if form.is_valid():
        if not (problem := proof_problem(request, form.cleaned_data[PROOF])):
            return None
        form.add_error(PROOF, problem)
    context = admin.site.each_context(request) | {"title": "Confirm that it is you", "form": form, "kept": kept}
    return TemplateResponse(request, "crier/security/confirm.html", context)


def _proves_identity(request: HttpRequest, proof: str) -> bool:
    """Check with the login's own back ends, so that guessing is slowed down and locked out in the same way."""
    if second_factor.is_app_code(second_factor.tidy(proof)) and second_factor.accepted(request.user, proof):
        return True
    return knows_password(request, proof)


def knows_password(request: HttpRequest, password: str) -> bool:
    user: Any = request.user
    person = authenticate(request, username=user.get_username(), password=password)
    return person is not None and person.pk == user.pk


def next_page(request: HttpRequest) -> str:
    """Return the page that the person wanted to visit, if it belongs to this site."""
    wanted = request.GET.get("next", "")
    mine = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, request.is_secure())
    return wanted if mine else reverse("admin:index")


# --- one's own password -----------------------------------------------------------------------------------


class OwnPasswordForm(AdminPasswordChangeForm):
    """Django's form, whose old password can be guessed no more often than at the login."""

    def __init__(self, *args: Any, request: HttpRequest, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.request = request

    def clean_old_password(self) -> str:
        typed: str = self.cleaned_data["old_password"]
        if not knows_password(self.request, typed):
            note("password change failed", self.user, self.user, timezone.now())
            raise forms.ValidationError(self.error_messages["password_incorrect"], code="password_incorrect")
        return typed


class OwnPassword(PasswordChangeView):
    form_class = OwnPasswordForm
    success_url = reverse_lazy("admin:password_change_done")

    def get_form_kwargs(self) -> dict[str, Any]:
        return super().get_form_kwargs() | {"request": self.request}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | admin.site.each_context(self.request)

    @transaction.atomic
    def form_valid(self, form: Any) -> HttpResponse:
        note("changed the password", self.request.user, self.request.user, timezone.now())
        return super().form_valid(form)


# --- one's own second factor: setting it up, recovery codes, and the code at login ------------------------


WRONG_CODE = (
    "This code is not right, or was used already. After each wrong one it takes longer until the next is accepted."
)


class CodeForm(forms.Form):
    code = forms.CharField(
        max_length=20,
        widget=forms.TextInput(attrs={"autocomplete": "one-time-code", "autofocus": True, "spellcheck": "false"}),
    )


@never_cache
@sensitive_post_parameters("code")
def enter_code(request: HttpRequest) -> HttpResponse:
    """After the password: a code from the app, or a recovery code."""
    if second_factor.app_of(request.user) is None:
        return HttpResponseRedirect(next_page(request))
    form = CodeForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        if (device := second_factor.accepted(request.user, form.cleaned_data["code"])) is not None:
            let_in(request, device)
            return HttpResponseRedirect(next_page(request))
        note("wrong code", request.user, request.user, timezone.now())
        form.add_error("code", WRONG_CODE)
    # Without the header's menu and bell: this session may see nothing yet.
    context = admin.site.each_context(request) | {"title": "Second factor", "form": form, "has_permission": False}
    return TemplateResponse(request, "crier/security/code.html", context)


def let_in(request: HttpRequest, device: Any) -> None:
    django_otp.login(request, device)
    # A session id that was stolen before the code was given becomes useless.
    request.session.cycle_key()
    if not second_factor.is_app(device):
        left = second_factor.recovery_codes_left(request.user)
        note("used a recovery code", request.user, request.user, timezone.now(), f"{left} left")
        messages.warning(request, f"You used a recovery code; {left} are left.")


@never_cache
@sensitive_post_parameters("code")
@sensitive
def my_second_factor(request: HttpRequest) -> HttpResponse:
    if request.method == "POST":
        return SECOND_FACTOR_STEPS.get(request.POST.get("step", ""), second_factor_page)(request)
    return second_factor_page(request)


def second_factor_page(request: HttpRequest, **extra: Any) -> HttpResponse:
    app, begun = second_factor.app_of(request.user), second_factor.begun(request.user)
    context = admin.site.each_context(request) | {
        "title": "Second factor",
        "app": app,
        "codes_left": second_factor.recovery_codes_left(request.user),
        "required": second_factor.required_of(request.user),
        "form": CodeForm(),
    }
    if begun is not None:
        context |= {"qr": second_factor.qr_code(begun), "key": key_words(begun)}
    return TemplateResponse(request, "crier/security/second_factor.html", context | extra)


def key_words(app: Any) -> str:
    """Return the key in groups of four characters, for people without a camera."""
    key = base64.b32encode(app.bin_key).decode()
    return " ".join(key[start : start + 4] for start in range(0, len(key), 4))


def begin_second_factor(request: HttpRequest) -> HttpResponse:
    second_factor.begin(request.user)
    return HttpResponseRedirect(reverse("admin:second_factor"))


def finish_second_factor(request: HttpRequest) -> HttpResponse:
    form = CodeForm(request.POST)
    app = second_factor.finish(request.user, form.cleaned_data["code"]) if form.is_valid() else None
    if app is None:
        form.add_error("code", WRONG_CODE)
        return second_factor_page(request, form=form)
    django_otp.login(request, app)
    note("turned on the second factor", request.user, request.user, timezone.now())
    return second_factor_page(request, codes=second_factor.new_recovery_codes(request.user))


def renew_recovery_codes(request: HttpRequest) -> HttpResponse:
    """Show new recovery codes. They are shown once and cannot be looked up later."""
    if second_factor.app_of(request.user) is None:
        return second_factor_page(request)
    note("made new recovery codes", request.user, request.user, timezone.now())
    return second_factor_page(request, codes=second_factor.new_recovery_codes(request.user))


@transaction.atomic
def remove_own_second_factor(request: HttpRequest) -> HttpResponse:
    second_factor.remove(request.user)
    note("turned off the second factor", request.user, request.user, timezone.now())
    messages.success(request, "The second factor is off.")
    return HttpResponseRedirect(reverse("admin:second_factor"))


SECOND_FACTOR_STEPS = {
    "begin": begin_second_factor,
    "finish": transaction.atomic(finish_second_factor),
    "renew": transaction.atomic(renew_recovery_codes),
    "remove": remove_own_second_factor,
}


# --- logins, failed ones and lockouts as entries of the audit trail ---------------------------------------


LOGIN_FAILED, LOCKED_OUT = "login failed", "locked out"
#: Entries a minute about one person, and about all unknown names together, of each kind. Failed logins must not be
#: able to fill the table, and guesses at made-up names must not use up the room of those at a person's. As many as
#: LOCKOUT_CEILINGS allow guesses at a name: each of them is listed.
MOST_FAILURES_PER_MINUTE = 25


@receiver(user_logged_in, dispatch_uid="trail of logins")
def note_login(user: Any, **kwargs: Any) -> None:
    note("logged in", user, user, timezone.now())


@receiver(user_logged_out, dispatch_uid="trail of logouts")
def note_logout(user: Any, **kwargs: Any) -> None:
    if user is not None:
        note("logged out", user, user, timezone.now())


@receiver(user_login_failed, dispatch_uid="trail of failed logins")
def note_failed_login(credentials: dict[str, Any], request: Any = None, **kwargs: Any) -> None:
    # Not while the name or the address is locked out: `note_lockout` does that.
    if getattr(request, "counted_guess", False):
        note_failure(LOGIN_FAILED, str(credentials.get("username") or ""), timezone.now())


@receiver(user_locked_out, dispatch_uid="trail of lockouts")
def note_lockout(username: str | None = None, **kwargs: Any) -> None:
    note_failure(LOCKED_OUT, username or "", timezone.now())


def note_failure(verb: str, name: str, now: datetime) -> None:
    """Note a failed login, with the name only if such a user exists: people type passwords into that field."""
    person = get_user_model().objects.filter(username=name[:150].replace("\0", "")).first()
    room = MOST_FAILURES_PER_MINUTE - failures_since(now - timedelta(minutes=1), verb, person)
    if room > 0:
        detail = "" if person else "unknown name"
        note(verb, person, None, now, detail if room > 1 else f"{detail} (further ones in this minute are not listed)")


def failures_since(moment: datetime, verb: str, person: Any) -> int:
    subject = str(person.pk) if person else ""
    recent = TrailEntry.objects.filter(at__gt=moment, verb=verb, subject_id=subject).order_by()
    return len(recent.values_list("pk")[:MOST_FAILURES_PER_MINUTE])
