from django.apps import AppConfig
from django.contrib.admin import apps as admin_apps
from django.db.models.signals import post_migrate


class ConfigConfig(AppConfig):
    name = "config"
    default = True

    def ready(self) -> None:
        from accounts.access import ensure_roles
        from config import logins  # noqa: F401 - importing it registers its check

        post_migrate.connect(ensure_roles, dispatch_uid="roles")


class CrierAdminConfig(admin_apps.SimpleAdminConfig):
    """Django's admin with our site class, which sets the name and the first page. `config.urls` loads the pages:
    commands and clusters, which show none, start without them in half the time."""

    default_site = "config.admin_site.CrierAdminSite"
    default = False
