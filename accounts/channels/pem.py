"""Certificates as people paste them. Pure."""

from __future__ import annotations

import base64
import re

from cryptography import x509

LONGEST = 100_000
BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]++)-----END CERTIFICATE-----")


def certificates(text: str) -> str:
    """The certificates in it, in PEM with line breaks as they belong: in JSON people write spaces instead. Raises
    ValueError where there are none, or one cannot be read."""
    if len(text) > LONGEST:
        raise ValueError
    blocks = [base64.b64decode("".join(block.split()), validate=True) for block in BLOCK.findall(text)]
    if not blocks:
        raise ValueError
    return "".join(_pem(block) for block in blocks)


def _pem(der: bytes) -> str:
    x509.load_der_x509_certificate(der)
    lines = base64.encodebytes(der).decode()
    return f"-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n"
