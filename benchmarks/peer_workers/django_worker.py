"""django-post_office and django-mailer: mails in their queue, sent by their own command."""

# mypy: ignore-errors
import os
import sys
import time

import book
import django
from django.conf import settings
from django.core.mail.backends.base import BaseEmailBackend

PEER, WHAT, JOBS = sys.argv[1], sys.argv[2], int(sys.argv[3])


class Backend(BaseEmailBackend):
    """Notes each mail; nothing leaves the machine."""

    def send_messages(self, messages):
        for message in messages:
            book.send(int(message.subject))
        return len(messages)


def configure() -> None:
    backend = "django_worker.Backend"
    settings.configure(
        SECRET_KEY="benchmark",
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", PEER],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": os.environ["PGDATABASE"],
                "USER": os.environ["PGUSER"],
                "HOST": os.environ["PGHOST"],
                "CONN_MAX_AGE": None,
            }
        },
        EMAIL_BACKEND=backend,
        MAILER_EMAIL_BACKEND=backend,
        MAILER_EMAIL_MAX_BATCH=None,
        POST_OFFICE={
            "BACKENDS": {"default": backend},
            "BATCH_SIZE": 5000,
            "THREADS_PER_PROCESS": 5,
            "LOG_LEVEL": 0,
            "MAX_RETRIES": 3,
        },
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    )
    django.setup()


def enqueue() -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    if PEER == "post_office":
        from post_office import mail
        from post_office.models import PRIORITY

        mails = (
            {
                "sender": "a@example.com",
                "recipients": ["b@example.com"],
                "subject": str(n),
                "message": "hello",
                "priority": PRIORITY.medium,
            }
            for n in range(JOBS)
        )
        mail.send_many(list(mails))
    else:
        from mailer import send_mail

        for n in range(JOBS):
            send_mail(str(n), "hello", "a@example.com", ["b@example.com"])


def work() -> None:
    """The command again and again, as their documentation has cron do it."""
    from django.core.management import call_command

    while True:
        if PEER == "post_office":
            call_command("send_queued_mail", processes=int(os.environ["PROCESSES"]), verbosity=0)
        else:
            from mailer.engine import send_all

            send_all()
        time.sleep(0.2)


sys.modules["django_worker"] = sys.modules["__main__"]
configure()
enqueue() if WHAT == "enqueue" else work()
