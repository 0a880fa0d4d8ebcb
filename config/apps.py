import sys

from django.apps import AppConfig
from django.contrib import admin
from django.contrib.admin import apps as admin_apps
from django.db.models.signals import post_migrate


class ConfigConfig(AppConfig):
    name = "config"
    default = True

    def ready(self) -> None:
        from accounts.access import ensure_roles
        from config import logins  # noqa: F401 - importing it registers its check

        post_migrate.connect(ensure_roles, dispatch_uid="roles")


#: Commands that show no pages and start without them, in half the time: lanes wait for a bridge that was killed.
WITHOUT_PAGES = ("whatsapp_bridge",)


class CrierAdminConfig(admin_apps.SimpleAdminConfig):
    """Django's admin with our site class, which sets the name and the first page."""

    default_site = "config.admin_site.CrierAdminSite"
    default = False

    def ready(self) -> None:
        super().ready()
        if not set(sys.argv[1:2]) & set(WITHOUT_PAGES):
            admin.autodiscover()
