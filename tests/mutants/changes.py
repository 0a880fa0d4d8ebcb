"""The changes that a module can suffer: small, each of them wrong, and none that only changes words.

Python is changed by its syntax tree, SQL inside strings by its conditions. A mutant is a piece of the source and what
stands there instead, so that everybody can read it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

TURNED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
SWAPPED: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.FloorDiv: "*"}
#: calls that only tell somebody
TELLS = re.compile(r"^(await )?(log|logging|logger|super\(\)|self\.stdout)\b")

IS_SQL = re.compile(r"\b(SELECT|UPDATE|INSERT INTO|DELETE FROM|WHERE|CASE WHEN)\b")
#: where a condition begins
OPENS = re.compile(r"\b(?:WHERE|AND|OR|WHEN|SELECT)\b|\((?=\s*[\w(])")
#: where it ends, unless brackets or a CASE are still open
ENDS = re.compile(
    r"(AND|OR|THEN|ELSE|END|WHEN|RETURNING|(ORDER|GROUP) BY|LIMIT|FOR (NO KEY )?UPDATE|UNION"
    r"|FROM|(LEFT )?JOIN|WHERE|AS|EXECUTE)\b|;"
)
SQL_OPERATOR = re.compile(r"(?<![<>=!:|&@-])(<=|>=|<|>)(?![<>=@])")
SQL_NUMBER = re.compile(r"(?<![\w.$%{'-])(?<!SELECT )(?<!PERFORM )(\d+)(?![\w.}'])")
TURNED_SQL = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


@dataclass(frozen=True, slots=True)
class Mutant:
    file: str
    start: int  # of the piece, in bytes of the source
    line: int
    before: str
    after: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} [{self.start}] {_short(self.before)} → {_short(self.after)}"

    def applied(self, source: bytes) -> bytes:
        end = self.start + len(self.before.encode())
        if source[self.start : end] != self.before.encode():
            raise ValueError(f"{self.file} is not what it was: {self.before!r} is gone.")
        return source[: self.start] + self.after.encode() + source[end:]


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 90 else f"{words[:60]} … {words[-25:]}"


def mutants(file: str, source: bytes) -> list[Mutant]:
    """Every change of this module that still compiles, in the order of its text."""
    maker = _Maker(file, source)
    maker.visit(ast.parse(source))
    return sorted(set(filter(None, maker.made)), key=lambda mutant: (mutant.start, mutant.after))


class _Maker(ast.NodeVisitor):
    def __init__(self, file: str, source: bytes) -> None:
        self.file = file
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.made: list[Mutant | None] = []

    # --- pieces of the source ---------------------------------------------------------------------------

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._span(node)
        return self.source[start:end].decode()

    def _put(self, node: ast.expr | ast.stmt, after: str) -> None:
        start, end = self._span(node)
        self._change(start, end, after)

    def _change(self, start: int, end: int, after: str) -> None:
        before = self.source[start:end].decode()
        mutant = Mutant(self.file, start, self.source.count(b"\n", 0, start) + 1, before, after)
        try:
            compile(mutant.applied(self.source), self.file, "exec")
        except SyntaxError:
            return
        if before != after:
            self.made.append(mutant)

    # --- what is left alone -----------------------------------------------------------------------------

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """An annotation means nothing when it runs."""

    def _visit_def(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        for statement in node.body:
            self.visit(statement)

    visit_FunctionDef = _visit_def
    visit_AsyncFunctionDef = _visit_def

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:  # not its decorators: frozen or not is no behaviour
            self.visit(statement)

    def visit_Raise(self, node: ast.Raise) -> None:
        """That it raises is asked by the condition above; its words are nobody's promise."""

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._turn(node.test)
        self.generic_visit(node)

    # --- Python -----------------------------------------------------------------------------------------

    def _turn(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare):  # turned where it stands
            self._put(test, f"not ({self._text(test)})")

    def visit_While(self, node: ast.While) -> None:
        # Turned, a loop that waits would never end, and only the time limit would notice.
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._turn(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._put(condition, f"({self._text(condition)} or True)")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators):
            if type(operator) in TURNED:
                start, end = self._span(left)[1], self._span(right)[0]
                gap = self.source[start:end].decode()
                turned = re.sub(r"not\s+in|is\s+not|in|is|[<>=!]+", TURNED[type(operator)], gap, count=1)
                self._change(start, end, turned)
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        neutral, word, other = ("True", "and", "or") if isinstance(node.op, ast.And) else ("False", "or", "and")
        for value in node.values:
            self._put(value, neutral)
        for left, right in zip(node.values, node.values[1:]):
            start, end = self._span(left)[1], self._span(right)[0]
            gap = self.source[start:end].decode()
            self._change(start, end, re.sub(rf"\b{word}\b", other, gap, count=1))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._put(node, f"bool({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in SWAPPED and not any(isinstance(side, ast.JoinedStr) for side in (node.left, node.right)):
            start, end = self._span(node.left)[1], self._span(node.right)[0]
            gap = self.source[start:end].decode()
            self._change(start, end, re.sub(r"//|[+*-]", SWAPPED[type(node.op)], gap, count=1))
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call):
            if TELLS.match(self._text(node)):
                return
            self._put(node, "pass")
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        value = node.value
        if value is None:
            return
        if isinstance(value, ast.BoolOp | ast.Name | ast.Call | ast.Attribute | ast.Await):
            self._put(value, f"(None if True else {self._text(value)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._put(node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._put(node, f"({self._text(node)} + 1)" if abs(node.value) < 1000 else f"({self._text(node)} * 2)")
        elif isinstance(node.value, str):
            self._change_sql(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._change_sql(node)

    # --- SQL --------------------------------------------------------------------------------------------

    def _change_sql(self, node: ast.expr) -> None:
        text = self._text(node)
        if not IS_SQL.search(text):
            return
        at = self._span(node)[0]
        for start, end, after in sql_conditions(text):
            condition = text[start:end]
            # Its parameters stay, and so do their types.
            dropped = f"(false AND ({condition}))" if after == "OR" else f"(true OR ({condition}))"
            self._replace_in(text, at, start, end, dropped)
            self._replace_in(text, at, start, end, f"(NOT ({condition}))")
        for pattern, changed in ((SQL_OPERATOR, TURNED_SQL.__getitem__), (SQL_NUMBER, lambda n: str(int(n) + 1))):
            for match in pattern.finditer(_without_comments(text)):
                self._replace_in(text, at, *match.span(1), changed(match[1]))

    def _replace_in(self, text: str, at: int, start: int, end: int, after: str) -> None:
        first = at + len(text[:start].encode())
        self._change(first, first + len(text[start:end].encode()), after)


def sql_conditions(text: str) -> Iterator[tuple[int, int, str]]:
    """Where each condition of a statement stands, up to what follows it, and the word or bracket before it."""
    plain = _without_comments(text)
    for opening in OPENS.finditer(plain):
        start = opening.end() + len(plain[opening.end() :]) - len(plain[opening.end() :].lstrip())
        end = _end_of_condition(plain, start)
        condition = plain[start:end].rstrip()
        # The first of several: what stands alone in a bracket or a list is no condition.
        first = opening[0] in ("(", "SELECT")
        if condition and not (first and (_NO_CONDITION.match(condition) or not _GOES_ON.match(plain, end))):
            yield start, start + len(condition), opening[0]


_NO_CONDITION = re.compile(r"SELECT\b|.*,", re.DOTALL)
_GOES_ON = re.compile(r"(AND|OR)\b")


def _end_of_condition(text: str, start: int) -> int:
    """A CASE with its END is like a pair of brackets."""
    depth, position = 0, start
    while position < len(text):
        word = _WORD.match(text, position)
        if depth == 0 and ENDS.match(text, position) and text[position - 1] in " \n(":
            return position
        depth += {"(": 1, ")": -1, "CASE": 1, "END": -1}.get(word[0] if word else text[position], 0)
        if depth < 0 or text.startswith(('"""', "'''"), position):
            return position
        position += len(word[0]) if word else 1
    # The quote that closes the string is no part of it.
    return len(text.rstrip("\"'"))


_WORD = re.compile(r"[A-Za-z_]+")


def _without_comments(text: str) -> str:
    """The same length, with blanks where comments and quoted words stand."""
    return re.sub(r"--[^\n]*", lambda comment: " " * len(comment[0]), text)
