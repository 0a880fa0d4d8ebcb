"""A second factor in a real browser: the QR code is drawn, its key makes the right codes, a lost phone is no end."""

from __future__ import annotations

import base64
import time
from typing import Any

from django.contrib.auth.models import User
from django_otp.oath import hotp
from playwright.sync_api import expect

from tests.browser.conftest import PASSWORD, Server


def half_minute() -> int:
    return int(time.time()) // 30


def app_code(key: str, step: int) -> str:
    """Return the code that an app with this key shows now."""
    return f"{hotp(base64.b32decode(key.replace(' ', '')), step):06d}"


def password_only(page: Any, server: Server) -> None:
    page.context.clear_cookies()
    page.goto(server.url())
    page.fill("#id_username", "mei")
    page.fill("#id_password", PASSWORD)
    page.click("input[type=submit]")
    expect(page.locator("#id_code")).to_be_visible()
    expect(page.locator("#bell")).to_have_count(0)


def enter(page: Any, code: str) -> None:
    page.fill("#id_code", code)
    page.click("text=Log in >> nth=0")


def test_enrol_log_in_and_recover(operator: User, server: Server, page: Any) -> None:
    page.goto(server.url())
    page.click("details.me summary")
    page.click("text=Second factor")
    page.click("text=Set up")
    # Drawn, and not blocked by the content security policy.
    assert page.locator("#qr svg").bounding_box()["width"] > 100
    key = page.inner_text("#key")
    step = half_minute()
    page.fill("#id_code", app_code(key, step))
    page.click("text=Turn on")
    codes = page.inner_text("#recovery-codes").split()
    assert len(codes) == 10
    # With the app: the next code after the one used, because one works only once. Not "the one after now": when a half
    # minute ended in between, the server has learnt that this app is late.
    password_only(page, server)
    enter(page, app_code(key, step + 1))
    expect(page.locator("#bell")).to_be_visible()
    # Without it: each recovery code once.
    password_only(page, server)
    enter(page, codes[0])
    expect(page.locator(".messagelist")).to_contain_text("9 are left")
    password_only(page, server)
    enter(page, codes[0])
    expect(page.locator(".errorlist")).to_contain_text("This code is not right")
    time.sleep(1.5)  # a wrong code costs a second
    enter(page, codes[1])
    expect(page.locator("#bell")).to_be_visible()
