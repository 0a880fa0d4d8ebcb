"""Django settings. Every value that a site may choose comes from the environment through config.env."""

from __future__ import annotations

import os
from datetime import timedelta
from urllib.parse import urlsplit

from csp.constants import NONE, SELF

from accounts.knobs import KNOBS
from config import env, problems

BASE_DIR = env.BASE_DIR
VAR_DIR = env.VAR_DIR
EMBEDDED_DATABASE = not env.is_set("DATABASE_URL")

SECRET_KEY = env.secret("SECRET_KEY", "secret_key", env.new_secret_key)
# Encrypts provider credentials.
CREDENTIAL_KEYS = env.credential_keys("CREDENTIAL_KEYS")
# Earlier keys: links in sent mails, and sessions, stay valid with them.
SECRET_KEY_FALLBACKS = env.words("SECRET_KEY_FALLBACKS", [])

DEBUG = env.flag("DEBUG", False)
# Behind HTTPS, unless the embedded database shows that this is a developer's machine.
HTTPS = env.flag("HTTPS", not EMBEDDED_DATABASE)
# Always including this machine: probes and a local Prometheus use these names.
ALLOWED_HOSTS = [*env.words("ALLOWED_HOSTS", []), "localhost", "127.0.0.1", "[::1]"]
# Whose X-Forwarded-For is believed. Behind HTTPS there is a proxy, and it is usually on this machine.
TRUSTED_PROXIES = env.networks("TRUSTED_PROXIES", default="127.0.0.1/32,::1/128" if HTTPS else "no")
CSRF_TRUSTED_ORIGINS = env.words("CSRF_TRUSTED_ORIGINS", [])
# Where notifications by mail go out, for example smtp+tls://user:password@mail.example.com:587.
_mail = env.email_url("EMAIL_URL", "smtp://localhost:25")
EMAIL_HOST, EMAIL_PORT = _mail["EMAIL_HOST"], _mail["EMAIL_PORT"]
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = _mail["EMAIL_HOST_USER"] or "", _mail["EMAIL_HOST_PASSWORD"] or ""
EMAIL_USE_TLS, EMAIL_USE_SSL = _mail.get("EMAIL_USE_TLS", False), _mail.get("EMAIL_USE_SSL", False)
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.text("DEFAULT_FROM_EMAIL", "crier@localhost")
# The address that links in mails and notifications start with.
SITE_URL = env.url("SITE_URL", env.last_site() or "http://127.0.0.1:8000")
# Where recipients reach the site: unsubscribe links start with it, and RFC 8058 wants HTTPS. Empty: no such links.
PUBLIC_URL = env.url("PUBLIC_URL", schemes=("https",))
if PUBLIC_URL:
    # Otherwise every link that recipients have would answer 400.
    ALLOWED_HOSTS.append(str(urlsplit(PUBLIC_URL).hostname))
# Adds a visible unsubscribe link to every mail that has none, with these words.
UNSUBSCRIBE_FOOTER = env.flag("UNSUBSCRIBE_FOOTER", False)
UNSUBSCRIBE_TEXT = env.text("UNSUBSCRIBE_TEXT", "Unsubscribe")
# Networks that accounts and webhooks may connect to besides public addresses; none on a server by default.
ALLOW_PRIVATE_NETWORKS = env.networks("ALLOW_PRIVATE_NETWORKS", default="yes" if EMBEDDED_DATABASE else "no")
# Offers the sandbox as a channel, and lets a provider's address be one of this machine: for the demo and tests.
SANDBOX = env.flag("SANDBOX", EMBEDDED_DATABASE)
# Lets a mail server post bounces to /hooks/bounces. Empty: that address does not exist.
BOUNCE_TOKEN = env.text("BOUNCE_TOKEN")
# Of the mailbox that `ingest_bounces` reads.
BOUNCE_IMAP_PASSWORD = env.text("BOUNCE_IMAP_PASSWORD")

INSTALLED_APPS = [
    "config",
    "accounts",
    "reminders",
    "fanout",
    "config.apps.CrierAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "django.forms",
    "django_q",
    "csp",
    "axes",
    "django_otp",
    "django_otp.plugins.otp_totp",
    "django_otp.plugins.otp_static",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "fanout.api.door.straight_to_the_door",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "config.logins.IdleLimit",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django_otp.middleware.OTPMiddleware",
    "fanout.admin.middleware.client_address_in_trail",
    "fanout.admin.middleware.NulMiddleware",
    "fanout.admin.middleware.SecondFactorMiddleware",
    "fanout.admin.timezones.TimezoneMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    # Last, so that it sees the answer of a refused login.
    "axes.middleware.AxesMiddleware",
    # The very last: keeps all of them on one thread.
    "config.web.stay_on_thread",
]

# Requests that one web process works on at the same time; each thread has a database connection.
WEB_THREADS = env.integer("WEB_THREADS", 10, 1, 200)

ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# Widgets, too, look into templates/ first.
FORM_RENDERER = "django.forms.renderers.TemplatesSetting"

DATABASE_URL = env.database_url()
# Seconds after which PostgreSQL ends what waits for a locked row, and a session that does nothing inside a transaction,
# which may have locked rows that drivers and operators wait for. 0: no limit. Drivers have limits of their own.
DATABASE_LOCK_SECONDS = env.number("DATABASE_LOCK_SECONDS", 15, 0, 86_400)
DATABASE_IDLE_SECONDS = env.number("DATABASE_IDLE_SECONDS", 60, 0, 86_400)
BEHIND_A_PROXY = problems.BEHIND_A_PROXY
DATABASES = {
    "default": env.database_settings(DATABASE_URL, DATABASE_LOCK_SECONDS, DATABASE_IDLE_SECONDS)
    # Without health checks a PostgreSQL restart makes a finished django-q2 task run again; with a fresh
    # connection per task the broker does a quarter of the work. Never add OPTIONS["pool"]: the forked
    # workers of a cluster share it and stall. In a web process the threads are the pool (config.web).
    | {"ENGINE": "django.db.backends.postgresql", "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}
}
DATABASES["default"]["OPTIONS"]["application_name"] = f"crier:{os.getpid()}"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}", "OPTIONS": options}
    for name, options in {
        "UserAttributeSimilarityValidator": {},
        "MinimumLengthValidator": {"min_length": 12},
        "CommonPasswordValidator": {},
        "NumericPasswordValidator": {},
    }.items()
]
# A session ends after twelve hours without a page (config.logins); an open stream does not count.
SESSION_COOKIE_AGE = 12 * 60 * 60
LOGIN_URL = "admin:login"
# The first one checks passwords. The second one is named by sessions that were begun before it existed.
AUTHENTICATION_BACKENDS = ["config.logins.CountingBackend", "django.contrib.auth.backends.ModelBackend"]
# Wrong passwords before fifteen minutes' rest: five for one name from one address (the person can still log in from
# elsewhere), 25 for a name, and 25 from an address.
AXES_ENABLED = True
AXES_FAILURE_LIMIT = 5
LOCKOUT_CEILINGS = (AXES_FAILURE_LIMIT, 25, 25)
AXES_HANDLER = "config.logins.LockoutHandler"
AXES_CLIENT_IP_CALLABLE = "config.web.client_address"
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"], "username", "ip_address"]
AXES_RESET_ON_SUCCESS = True
AXES_DISABLE_ACCESS_LOG = True
AXES_VERBOSE = False

# Administrators without a second factor can only set one up. It is optional for other people.
REQUIRE_SECOND_FACTOR = env.flag("REQUIRE_SECOND_FACTOR", False)
# The name that an authenticator app shows above the codes.
OTP_TOTP_ISSUER = "Crier"
AUDIT_TRAIL_DAYS = env.integer("AUDIT_TRAIL_DAYS", 730, 30, 36_500)

# Days that provider reports, and the texts of replies in them, are kept by `manage.py retention`.
INBOUND_KEEP_DAYS = env.integer("INBOUND_KEEP_DAYS", 180, 7, 36_500)
REPLY_TEXT_KEEP_DAYS = env.integer("REPLY_TEXT_KEEP_DAYS", 90, 1, 36_500)

LANGUAGE_CODE = "en"
USE_I18N = False
TIME_ZONE = "UTC"
USE_TZ = True
FORMAT_MODULE_PATH = ["config.formats"]

STATIC_URL = "static/"
STATIC_ROOT = VAR_DIR / "static"
MEDIA_ROOT = VAR_DIR / "media"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
# Independent of the umask: uploads must not be readable by other users of the machine.
FILE_UPLOAD_PERMISSIONS, FILE_UPLOAD_DIRECTORY_PERMISSIONS = 0o600, 0o700
# Size of a form without its files: a list of recipients (reminders.tables.MOST_BYTES) and the other fields.
DATA_UPLOAD_MAX_MEMORY_SIZE = 8_000_000
MEDIA_MAX_MB = env.integer("MEDIA_MAX_MB", 64, 1, 2_000)

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# No inline script or style, nothing from another host.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "media-src": [SELF],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
    }
}
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
# A local Prometheus comes from the machine itself, without HTTPS.
SECURE_REDIRECT_EXEMPT = [r"^metrics$"]

# The pace knobs as the environment sets them; accounts override them one by one (accounts.knobs).
BOT = {
    name: (
        env.integer(knob.variable, int(min(knob.default, knob.high)), int(knob.low), int(knob.high))
        if knob.whole
        else env.number(knob.variable, knob.default, knob.low, knob.high)
    )
    for name, knob in KNOBS.items()
    if env.is_set(knob.variable) and not name.startswith("part_jitter")
} | env.jitter("BOT_PART_JITTER_MS")
env.in_order(BOT, KNOBS, "min_gap_seconds", "max_gap_seconds")
BOT_FIRE_CONCURRENCY = env.integer("BOT_FIRE_CONCURRENCY", 8, 1, 100_000)
BOT_DAILY_LIMITS = {
    "email": env.integer("BOT_DAILY_LIMIT_EMAIL", 20),
    "message": env.integer("BOT_DAILY_LIMIT_MESSAGE", 50),
    "connection_request": env.integer("BOT_DAILY_LIMIT_CONNECT", 20),
    "inmail": env.integer("BOT_DAILY_LIMIT_INMAIL", 20),
}
BOT_FOLLOW_UP_MAX_ATTEMPTS = env.integer("BOT_FOLLOW_UP_MAX_ATTEMPTS", 3, 1, 1_000)
# A person who wrote within so many hours is in a conversation and gets no automatic follow-up.
BOT_ACTIVE_CHAT_HOURS = env.integer("BOT_ACTIVE_CHAT_HOURS", 24, 0, 10_000)
BOT_FOLLOW_UP_COOLDOWN_HOURS = env.integer("BOT_FOLLOW_UP_COOLDOWN_HOURS", 48, 0, 10_000)
# Days for which an address with repeated soft bounces is suppressed.
SOFT_BOUNCE_SUPPRESS_DAYS = env.integer("SOFT_BOUNCE_SUPPRESS_DAYS", 30, 1, 3_650)
# A message that is only one of these opts its sender out, instead of the built-in words (reminders/opt_out_words.py).
OPT_OUT_WORDS = env.words("OPT_OUT_WORDS", [])
BOT_BACKPRESSURE_THRESHOLD = env.integer("BOT_BACKPRESSURE_THRESHOLD", 200, 1)
BOT_QUEUE_MAX = env.integer("BOT_QUEUE_MAX", 5_000, 1)

SANDBOX_URL = env.url("SANDBOX_URL", env.sandbox_url())
# The bridge to WhatsApp that this machine's processes ask first. Empty: the one that runs here, wherever it listens.
WHATSAPP_BRIDGE_URL = env.url("WHATSAPP_BRIDGE_URL")
# Folder (in CRIER_VAR, or absolute) of a scripted WhatsApp, for demonstrations and tests. Empty: the real one.
WHATSAPP_SCRIPT = str(VAR_DIR / env.text("WHATSAPP_SCRIPT")) if env.is_set("WHATSAPP_SCRIPT") else ""
DRIVER_SLOTS = env.integer("DRIVER_SLOTS", 2, 1, 64)
DRIVER_SLICE_SECONDS = env.number("DRIVER_SLICE_SECONDS", 40, 1, 40)

# Each value is measured: see "Why these cluster settings" in docs/decisions.md.
Q_CLUSTER = {
    "name": "main",
    "label": "Tasks",
    "orm": "default",
    "broker_class": "fanout.ops.broker.CrierBroker",
    # One always works on what providers report (fanout.inbound.worker); where there are webhooks, another posts.
    "workers": 4,
    "queue_limit": 1,
    "bulk": 1,
    "poll": 0.2,
    "guard_cycle": 0.5,
    "timeout": 60,
    "retry": 300,
    "max_attempts": 3,
    "save_limit": -1,
    "recycle": 500,
    "catch_up": False,
    "time_zone": "UTC",
    "ALT_CLUSTERS": {
        "drivers": {
            "workers": DRIVER_SLOTS,
            "queue_limit": 1,
            # A slice of 40 s, 35 s in which slow lanes end first, the last calls, and a database that is away.
            "timeout": 120,
            "retry": 135,
            "max_attempts": 0,
            "ack_failures": True,
            "recycle": 200,
            "scheduler": False,
        }
    },
}

# Calls of the HTTP API that one token may make in a minute.
API_CALLS_PER_MINUTE = env.integer("API_CALLS_PER_MINUTE", 20_000, 1, 10_000_000)

# Lets a scraper read /metrics. Without HTTPS this machine may always.
METRICS_TOKEN = env.text("METRICS_TOKEN")

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
# Django's names for requests that any stranger can send
REFUSED_REQUESTS = ("DisallowedHost", "RequestDataTooBig", "TooManyFieldsSent", "TooManyFilesSent")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "config.logs.Line"}, "json": {"()": "config.logs.Json"}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": env.choice("LOG_FORMAT", "line", ("line", "json")),
        }
    },
    "filters": {"no_query": {"()": "config.logs.NoQuery"}, "one_line": {"()": "config.logs.InOneLine"}},
    "root": {"handlers": ["stderr"], "level": env.choice("LOG_LEVEL", "INFO", LOG_LEVELS)},
    "loggers": {
        # It writes four lines for every login.
        "axes": {"level": "WARNING"},
        "django.request": {"filters": ["one_line"]},
        **{f"django.security.{name}": {"filters": ["one_line"]} for name in REFUSED_REQUESTS},
        # It writes a line for every detector and mail, and a traceback for mails that one of them cannot read.
        "flufl.bounce": {"level": "CRITICAL"},
        # uvicorn has handlers of its own, which would write addresses and tokens as they come.
        "uvicorn": {"handlers": [], "propagate": True},
        "uvicorn.access": {"handlers": [], "propagate": True, "filters": ["no_query"]},
    },
}
