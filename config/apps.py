from django.apps import AppConfig
from django.contrib.admin import apps as admin_apps


class ConfigConfig(AppConfig):
    name = "config"
    default = True


class CrierAdminConfig(admin_apps.AdminConfig):
    """Django's own admin on our site object, which carries the name and the dashboard."""

    default_site = "config.admin_site.CrierAdminSite"
    default = False
