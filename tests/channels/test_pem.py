"""Certificates as people paste them."""

from __future__ import annotations

import pytest

from accounts.channels import pem
from accounts.channels.smtp.channel import CHANNEL
from accounts.channels.smtp.client import tls_context
from tests.channels.mail_server import certificate


@pytest.fixture
def authority(tmp_path):
    text = certificate(tmp_path).read_text()
    start = text.index("-----BEGIN CERTIFICATE-----")
    return text[start:].strip() + "\n"


@pytest.mark.parametrize("line_end", ["\n", " ", "\r\n", ""], ids=["lines", "spaces", "windows", "nothing"])
def test_however_the_lines_came_they_are_read(authority, line_end):
    assert tls_context(True, pem.certificates(authority.replace("\n", line_end) * 2)).get_ca_certs()


BROKEN = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"


@pytest.mark.parametrize("text", ["/etc/passwd", BROKEN, "-" * 200_000], ids=["path", "broken", "long"])
def test_anything_else_is_refused_when_it_is_saved(text):
    (problem,) = CHANNEL.setting_problems({"host": "mail.example.com", "ca_pem": text})
    assert "must be one or more certificates" in problem
    assert len(problem) < 300


def test_a_path_on_the_server_is_no_setting():
    problems = CHANNEL.setting_problems({"host": "mail.example.com", "ca_file": "/run/crier.pipe"})
    assert "There is no setting “ca_file”" in problems[0]
