"""Which changes can be made to a module, and how one is made in a process that runs."""

import ast
import gc
import random
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

SOURCES = Path(__file__).parents[2] / "src" / "covey"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SKIPPED = (ast.Raise, ast.JoinedStr, ast.Assert, ast.Slice)  # most of it says what is wrong
OTHER: dict[type[ast.AST], str] = {  # of an operator
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
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "//",
    ast.And: "or",
    ast.Or: "and",
    ast.LShift: ">>",
    ast.RShift: "<<",
}
OTHER_NAME = {"min": "max", "max": "min", "any": "all", "all": "any"}


class Change(NamedTuple):
    """A part of a module's text, and what takes its place."""

    module: str  # its path in the package
    start: int
    end: int
    text: str

    def show(self) -> str:
        """Say where and what it is."""
        source = (SOURCES / self.module).read_text()
        line = source.count("\n", 0, self.start) + 1
        return f"{self.module}:{line}: {source[self.start : self.end]!r} -> {self.text!r}"


def planted(module: str, old: str, new: str) -> Change:
    """Return the change of a text that is there once."""
    source = (SOURCES / module).read_text()
    assert source.count(old) == 1, f"{module} has {old!r} {source.count(old)} times"
    start = source.index(old)
    return Change(module, start, start + len(old), new)


def drawn(module: str, count: int, seed: int) -> list[Change]:
    """Return so many changes of a module, or all if there are fewer."""
    every = sorted(set(of_source(module, (SOURCES / module).read_text())))
    chance = random.Random(f"{seed} {module}")  # noqa: S311 - repeatable is what counts
    return sorted(chance.sample(every, min(count, len(every))))


def of_source(module: str, source: str) -> Iterator[Change]:
    """Yield the changes of a module with this text."""
    text = _Text(module, source)
    for node in _inside_functions(ast.parse(source)):
        yield from _of_operators(node, text)
        yield from _of_values(node, text)


class _Text:
    """The text of a module, in which parts are found and replaced."""

    def __init__(self, module: str, source: str) -> None:
        self._module, self._source = module, source
        self._lines = source.splitlines(keepends=True)

    def _at(self, line: int | None, column: int | None) -> int:
        before = self._lines[: (line or 1) - 1]
        own = self._lines[(line or 1) - 1].encode()[:column].decode()  # columns are bytes
        return sum(map(len, before)) + len(own)

    def whole(self, node: ast.expr | ast.stmt, text: str) -> Change:
        """Return the change of a node; "..." in the text is what was there."""
        start = self._at(node.lineno, node.col_offset)
        end = self._at(node.end_lineno, node.end_col_offset)
        return Change(self._module, start, end, text.replace("...", self._source[start:end]))

    def between(self, left: ast.expr, right: ast.expr, operator: ast.AST) -> Iterator[Change]:
        """Yield the change of an operator, which stands between two operands."""
        if type(operator) in OTHER:
            start = self._at(left.end_lineno, left.end_col_offset)
            part = self._source[start : self._at(right.lineno, right.col_offset)]
            old = part.strip(" \n()")
            first = start + part.index(old)
            yield Change(self._module, first, first + len(old), OTHER[type(operator)])


def _of_operators(node: ast.AST, text: _Text) -> Iterator[Change]:
    match node:
        case ast.Compare(left=left, ops=operators, comparators=others):
            for before, operator, after in zip([left, *others], operators, others, strict=False):
                yield from text.between(before, after, operator)
        case ast.BinOp(left=left, op=operator, right=right):
            yield from text.between(left, right, operator)
        case ast.BoolOp(op=operator, values=[first, second, *_]):
            yield from text.between(first, second, operator)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield text.whole(node, "")._replace(end=text.whole(operand, "").start)


def _of_values(node: ast.AST, text: _Text) -> Iterator[Change]:
    match node:
        case ast.Constant(value=bool(value)):
            yield text.whole(node, str(not value))
        case ast.Constant(value=int() | float()):
            yield text.whole(node, "(... + 1)")
        case ast.Call(func=ast.Name(id=name) as function) if name in OTHER_NAME:
            yield text.whole(function, OTHER_NAME[name])
        case ast.If(test=ast.Name() | ast.Attribute() | ast.Call() as test):
            yield text.whole(test, "(not ...)")
        case ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield text.whole(node, "pass")


def _inside_functions(node: ast.AST, *, is_inside: bool = False) -> Iterator[ast.AST]:
    """Yield what is run in functions, but not types and what is said when they fail."""
    if isinstance(node, SKIPPED):
        return
    if is_inside:
        yield node
    is_function = isinstance(node, FUNCTIONS)
    for name, value in ast.iter_fields(node):
        parts = value if isinstance(value, list) else [value]
        if name == "annotation" or (is_function and name != "body"):
            continue
        for part in parts:
            if isinstance(part, ast.AST):
                yield from _inside_functions(part, is_inside=is_inside or is_function)


def make(change: Change) -> int:
    """Change the functions of this process; return how many have other code now."""
    path = SOURCES / change.module
    source = path.read_text()
    changed = source[: change.start] + change.text + source[change.end :]
    before, after = (compile(text, str(path), "exec") for text in (source, changed))
    different = {
        (old.co_qualname, old.co_firstlineno): new
        for old, new in zip(_codes(before), _codes(after), strict=False)
        if old != new
    }
    count = 0
    gc.unfreeze()  # what is frozen is not listed
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == str(path):
            code = function.__code__
            new = different.get((code.co_qualname, code.co_firstlineno))
            if new is not None:
                function.__code__ = new
                count += 1
    return count


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
