"""Check that the documents name things that exist: linked files and headings, commands, and environment variables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.management import get_commands

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "deploy" / "README.md",
]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
COMMAND = re.compile(r"manage\.py ([a-z_]+)")
VARIABLE = re.compile(
    r"`((?:BOT|CRIER|DRIVER|WEB|SOFT_BOUNCE|INBOUND|REPLY_TEXT|BOUNCE|MEDIA|LOG)_[A-Z_]+)(?:=[^`]*)?`"
)


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def anchors(document: Path) -> set[str]:
    """Return the anchors of the document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_lead_somewhere(document: Path) -> None:
    for path, anchor in LINK.findall(document.read_text()):
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_commands_exist(document: Path) -> None:
    assert set(COMMAND.findall(document.read_text())) <= set(get_commands())


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_variables_are_explained(document: Path) -> None:
    explained = (ROOT / ".env.example").read_text()
    named = set(VARIABLE.findall(document.read_text()))
    assert sorted(variable for variable in named if variable not in explained) == []
