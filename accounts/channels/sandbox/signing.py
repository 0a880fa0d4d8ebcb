"""How the sandbox provider signs its reports."""

from __future__ import annotations

import hashlib
import hmac

SIGNATURE_HEADER = "X-Sandbox-Signature"


def signature(key: str, body: bytes) -> str:
    return hmac.new(key.encode(), body, hashlib.sha256).hexdigest()
