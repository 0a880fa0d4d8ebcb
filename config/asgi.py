"""The web application, as uvicorn loads it."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

django_application = get_asgi_application()

# After Django is set up: they know its models. The pages are loaded now and not by the first request.
import config.urls  # noqa: E402, F401
from config.health import Probes  # noqa: E402
from config.web import BoundedBodies, BoundedRequests  # noqa: E402
from fanout.inbound.webhooks import Webhooks  # noqa: E402

application = Webhooks(Probes(BoundedBodies(BoundedRequests(django_application))))
