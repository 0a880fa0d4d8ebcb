"""Users and groups: every change is in the audit trail, and asks the administrator to confirm who they are."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.template.defaultfilters import pluralize
from django.utils import timezone

# Imported for their side effect, which is undone below.
from django_otp.plugins.otp_static import admin as _static  # noqa: F401
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp import admin as _totp  # noqa: F401
from django_otp.plugins.otp_totp.models import TOTPDevice

from accounts import second_factor
from fanout.admin.login import sensitive
from fanout.admin.model_admin import TrailedAdmin, UserAdmin
from fanout.models.trail import note

for model in (User, Group, TOTPDevice, StaticDevice):
    # Ours replace the first two; the others would show all users' keys to an administrator.
    admin.site.unregister(model)


class SensitiveAdmin(TrailedAdmin):
    """Pages whose every address asks for a recent confirmation."""

    def get_urls(self) -> list[Any]:
        urls = super().get_urls()
        for url in urls:
            url.callback = sensitive(url.callback)
        return urls


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
    list_display = ("username", "email", "is_active", "is_staff", "is_superuser", "last_login", "has_second_factor")
    list_filter = ("is_active", "is_superuser", "groups")
    actions = (remove_second_factor,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        app = TOTPDevice.objects.filter(user_id=OuterRef("pk"), confirmed=True)
        people: QuerySet[User] = super().get_queryset(request)
        return people.annotate(has_app=Exists(app))

    @admin.display(description="second factor", boolean=True)
    def has_second_factor(self, person: Any) -> bool:
        return bool(person.has_app)


@admin.register(Group)
class CrierGroupAdmin(SensitiveAdmin, GroupAdmin):
    pass
