"""The routes of the API, each behind the door. Its documentation is open: it has no data."""

from typing import Any

from fanout.api.door import door
from fanout.api.site import OPEN, api

app_name = api.urls_namespace
urlpatterns: list[Any] = list(api.urls[0])
for route in urlpatterns:
    if route.name not in OPEN:
        route.callback = door(route.callback)
