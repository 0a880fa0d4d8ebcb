"""Where a notification leads."""

from __future__ import annotations

from django import template

from fanout.admin import notices

register = template.Library()
register.filter("news_link", notices.link)
