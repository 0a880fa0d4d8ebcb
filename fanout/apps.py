from django.apps import AppConfig


class FanoutConfig(AppConfig):
    name = "fanout"
