"""Measure how readable the product's code is: `python .ci/structure.py` prints a Markdown table.

python .ci/structure.py            the table that CONTRIBUTING.md shows
python .ci/structure.py --check    exits with 1 when docstrings and comments got harder to read (part of `make lint`)
python .ci/structure.py --where    every place that --check counts
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("accounts", "reminders", "fanout", "config")
RIDDLE = re.compile(r"\b(nobody|somebody|everybody|anybody|whoever|whosever|whatever)\b", re.IGNORECASE)
OPENING = re.compile(r"(What|Whether|Who|Whose|How|Of)\b")
#: Per 10,000 words, and per cent of docstrings. Lower them when the figures fall; never raise them.
MOST_RIDDLES = 0.5
MOST_OPENINGS = 0.8


class Module:
    """One Python file of the product with its docstrings, comments, functions and imports."""

    def __init__(self, path: Path) -> None:
        self.name = str(path.relative_to(ROOT))
        self.text = path.read_text()
        self.tree = ast.parse(self.text)
        self.lines = self.text.count("\n")

    def docstrings(self) -> Iterator[tuple[int, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield getattr(node, "lineno", 1), text

    def comments(self) -> Iterator[tuple[int, str]]:
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string.lstrip("#: ")

    def function_lengths(self) -> Iterator[int]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield (node.end_lineno or node.lineno) - node.lineno + 1

    def imported(self) -> Iterator[str]:
        """Yield the dotted names that this module imports."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules() -> list[Module]:
    paths = [path for app in PRODUCT for path in (ROOT / app).rglob("*.py") if "migrations" not in path.parts]
    return [Module(path) for path in sorted(paths)]


def prose(every: list[Module]) -> tuple[float, float, list[str]]:
    """Return riddle words per 10,000 words, odd openings in per cent of docstrings, and the places of both."""
    words = riddles = documented = odd = 0
    places = []
    for module in every:
        docstrings = list(module.docstrings())
        for line, text in (*docstrings, *module.comments()):
            words += len(text.split())
            found = RIDDLE.findall(text)
            riddles += len(found)
            places += [f"{module.name}:{line}: {word}" for word in found]
        for line, text in docstrings:
            documented += 1
            if OPENING.match(text):
                odd += 1
                places.append(f"{module.name}:{line}: {text.splitlines()[0][:60]}")
    return 10_000 * riddles / max(1, words), 100 * odd / max(1, documented), places


def quantiles(values: list[int]) -> str:
    ordered = sorted(values)
    return f"{statistics.median(ordered):.0f} / {ordered[int(len(ordered) * 0.9)]}"


def single_importers(every: list[Module]) -> int:
    """Count modules that exactly one other module imports."""
    names = {module.name.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for module in every}
    users: Counter[str] = Counter()
    for module in every:
        users.update(set(module.imported()) & names)
    return sum(1 for count in users.values() if count == 1)


def table(every: list[Module]) -> str:
    code = [module for module in every if module.lines]
    riddles, odd, _ = prose(every)
    small = sum(1 for module in code if module.lines <= 40)
    functions = [length for module in every for length in module.function_lengths()]
    rows = [
        ("product files / lines", f"{len(code)} / {sum(module.lines for module in code):,}"),
        ("file median / p90", quantiles([module.lines for module in code])),
        ("function median / p90", quantiles(functions)),
        ("files of 40 lines or fewer", f"{small}"),
        ("modules with a single importer", f"{single_importers(every)}"),
        ("nobody, somebody, whoever … per 10,000 words of docstrings and comments", f"{riddles:.1f}"),
        ("docstrings that open with What, Whether, Who, How or Of", f"{odd:.1f} %"),
    ]
    return "\n".join(["| measure | Crier |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)])


def main(arguments: list[str]) -> int:
    every = modules()
    if "--check" not in arguments and "--where" not in arguments:
        print(table(every))
        return 0
    riddles, odd, places = prose(every)
    if "--where" in arguments:
        print("\n".join(places))
    if riddles <= MOST_RIDDLES and odd <= MOST_OPENINGS:
        return 0
    print(
        f"Docstrings and comments: {riddles:.1f} riddle words per 10,000 (at most {MOST_RIDDLES:g}), {odd:.1f} % odd "
        f"openings (at most {MOST_OPENINGS:g}). `python .ci/structure.py --where` lists them; CONTRIBUTING.md says why."
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
