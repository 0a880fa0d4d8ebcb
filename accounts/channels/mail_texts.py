"""What somebody wrote in a mail, without what they answered to. Pure."""

from __future__ import annotations

import re
from contextlib import suppress
from html.parser import HTMLParser

# Everything from here on is the message that they answered to, or their signature.
ENDS = re.compile(
    r"""(?imx)^[ \t]*(?:
      -{2,}[ \t]*(?:original\ message|urspr.ngliche\ nachricht|message\ d.origine|mensaje\ original|messaggio\ originale
                    |mensagem\ original|oorspronkelijk\ bericht|pesan\ asli|forwarded\ message)[ \t]*-{2,}
    | _{10,}
    | --[ \t]?
    | (?:sent\ from\ my|get\ outlook\ for|von\ meinem\ .+\ gesendet|envoy.\ de\ mon|enviado\ desde\ mi)\b.*
    | \*?(?:from|von|de|da|van|dari)\*?[ \t]*:.+\n(?:.*\n){0,2}?\*?(?:sent|gesendet|envoy.|enviado|inviato|verzonden
                    |dikirim|date|datum)\*?[ \t]*:.*
    )[ \t]*$"""
)
# “On 1 June Bob <bob@…> wrote:”, which programs break into two lines, in the languages whose word for it we know.
WROTE = re.compile(
    r"(?im)^(?=[^\n]*(?:\n[^\n]*)?[\d@])[ \t]*\S[^\n]{0,200}(?:\n(?!>)[^\n]{0,200})?\b"
    r"(?:wrote|schrieb|a écrit|escribió|ha scritto|escreveu|schreef|menulis|skrev)\b[^\n:]{0,200}:[ \t]*$"
)
QUOTED = ">"
#: Nobody writes more; what stands behind is a quotation, or a program's.
LONGEST = 50_000


def own_words(text: str) -> str:
    """Above or below what is quoted. Nothing but a quotation stays as it is: better too much than nothing."""
    text = text[:LONGEST].replace("\r\n", "\n").replace("\r", "\n")
    end = ENDS.search(text)
    words = "\n".join(_unquoted(_without_attribution(text[: end.start()] if end else text)))
    return words.strip() or text.strip()


def _without_attribution(text: str) -> str:
    """Some programs mark what they quote, and the answer may stand below; of the others nothing behind is theirs."""
    wrote = WROTE.search(text)
    if wrote is None:
        return text
    behind = text[wrote.end() :]
    return text[: wrote.start()] + (behind if behind.lstrip().startswith(QUOTED) else "")


def _unquoted(text: str) -> list[str]:
    """In languages that we do not know, the line above a quotation ends in a colon."""
    kept, below = [], ""
    for line in reversed(text.split("\n")):
        introduces = line.rstrip().endswith(":") and below.startswith(QUOTED)
        if not line.startswith(QUOTED) and not introduces:
            kept.append(line)
        below = line if line.strip() else below
    return kept[::-1]


class _Words(HTMLParser):
    """The text of an HTML mail, without what it quotes."""

    LEFT_OUT = frozenset({"blockquote", "style", "script", "head", "title"})
    BREAKS = frozenset({"br", "p", "div", "tr", "li", "h1", "h2", "h3"})

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.inside = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside += tag in self.LEFT_OUT
        if tag in self.BREAKS:
            self.words.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self.inside = max(0, self.inside - (tag in self.LEFT_OUT))

    def handle_data(self, data: str) -> None:
        if not self.inside:
            self.words.append(data)


def text_of_html(html: str) -> str:
    """Return the text up to the first thing that Python's parser gives up on, such as "<![x"."""
    parser = _Words()
    with suppress(AssertionError):
        parser.feed(html)
    return "".join(parser.words)
