"""What a provider counts per day."""

from __future__ import annotations

from django.db import models


class Action(models.TextChoices):
    EMAIL = "email", "e-mail"
    MESSAGE = "message", "message"
    CONNECTION_REQUEST = "connection_request", "connection request"
    INMAIL = "inmail", "InMail"
