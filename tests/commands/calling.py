"""Calling commands as scripts do: one JSON object back, or the sentence and the exit code of a refusal."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command


def text(*words: str) -> str:
    out = StringIO()
    call_command(words[0], *words[1:], stdout=out, stderr=StringIO())
    return out.getvalue()


def data(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text(*words, "--json"))
    return found


def refusal(code: int, *words: str) -> str:
    """Return the message of a command that ends with this exit code."""
    with pytest.raises(CommandError) as caught:
        text(*words)
    # argparse's own complaints carry no code here; on the command line it ends with 2.
    assert getattr(caught.value, "returncode", None) in (code, 1 if code == 2 else code), caught.value
    return str(caught.value)


def bad_input(*words: str) -> str:
    return refusal(2, *words)


def not_done(*words: str) -> str:
    return refusal(1, *words)


def written(tmp_path, content: str) -> str:
    path = tmp_path / "list.csv"
    path.write_text(content)
    return str(path)
