"""Builds the compiled kernel where it can; everything else is in pyproject.toml.

The parts of the kernel are compiled as one module, so that C can inline calls between them: they
are joined in the order of `PARTS`, without the imports of one part by another. C gets their
constants as literals.
Without a C compiler the extension is left out and the plain kernel runs instead.
COVEY_BUILD=plain leaves it out on purpose; COVEY_BUILD=compiled makes its failure fatal.
"""

import ast
import operator
import os
import re
from pathlib import Path

from setuptools import Extension, setup

WISH = os.environ.get("COVEY_BUILD", "")
KERNEL = Path("src/covey/kernel")
JOINED = Path("build/kernel")
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.LShift: operator.lshift}
PARTS = (
    *("memory", "thresholds", "cells", "history", "counters", "pending", "table"),
    *("phases", "index", "belief", "tree", "custom", "spaces", "candidates", "tickets"),
    *("calendar", "arena", "batches"),
)


def constants_of(part, known):
    """Return where a part sets constants that have a C type, and these as literals of C.

    What needs a function is left to the running module: its last digit depends on the machine.
    """
    statements, literals = [], {}
    declared = re.findall(r"^cdef (long long|double) ([\w, ]+)$", types_in(part), re.MULTILINE)
    kinds = {name: kind for kind, names in declared for name in names.split(", ")}
    for stmt in ast.parse((KERNEL / f"{part}.py").read_text()).body:
        if not isinstance(stmt, ast.Assign):
            continue
        names = [node.id for node in ast.walk(stmt.targets[0]) if isinstance(node, ast.Name)]
        values = value_of(stmt.value, known)
        if values is None or not set(names) <= set(kinds):
            continue
        for name, value in zip(names, [values] if len(names) == 1 else values, strict=True):
            known[name] = value
            suffix = "LL" if kinds[name] == "long long" else ""
            literals[name] = kinds[name], f"({value}{suffix})"
        statements.append(stmt)
    return statements, literals


def value_of(node, known):
    """Return the value of an expression of numbers; None if it is another one."""
    value, parts = None, ()
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        value = node.value
    elif isinstance(node, ast.Name):
        value = known.get(node.id)
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range":
        value = range(value_of(node.args[0], known))
    elif isinstance(node, ast.Tuple):
        parts, work = node.elts, lambda *values: values
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        parts, work = (node.operand,), operator.neg
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        parts, work = (node.left, node.right), OPERATORS[type(node.op)]
    values = [value_of(part, known) for part in parts]
    return work(*values) if parts and None not in values else value


def lines_of(part, constants):
    """Return the lines of a part without its imports of other parts and without constants."""
    text = (KERNEL / f"{part}.py").read_text()
    lines = text.splitlines()
    parts = [f"covey.kernel.{other}" for other in PARTS]
    others = {"__future__", *parts, *(f"cython.cimports.{other}" for other in parts)}
    left_out = [
        stmt
        for stmt in ast.walk(ast.parse(text))
        if isinstance(stmt, ast.ImportFrom) and stmt.module in others
    ]
    for stmt in left_out + constants:
        nothing = " " * stmt.col_offset + "pass"
        count = stmt.end_lineno - stmt.lineno + 1
        lines[stmt.lineno - 1 : stmt.end_lineno] = [nothing] + [""] * (count - 1)
    return [line for line in lines if not line.startswith("# cython:")]


def types_in(part):
    return (KERNEL / f"{part}.pxd").read_text()


def types_of(part, literals):
    """Return the C types of a part without its imports of other parts; constants are literals."""
    lines = []
    for line in types_in(part).splitlines():
        if " cimport " in line or line == "cimport cython":
            continue
        declared = re.fullmatch(r"cdef (long long|double) ([\w, ]+)", line)
        rest = (
            [name for name in declared[2].split(", ") if name not in literals] if declared else []
        )
        if not declared:
            lines.append(line)
        elif rest:
            lines.append(f"cdef {declared[1]} {', '.join(rest)}")
    if literals:
        lines.append("cdef extern from *:")
        lines += [f'    {kind} {name} "{text}"' for name, (kind, text) in literals.items()]
    return lines


def join():
    """Write the parts as one module and return its path."""
    folder = JOINED / "covey" / "kernel"
    folder.mkdir(parents=True, exist_ok=True)
    for package in (folder.parent, folder):
        (package / "__init__.py").touch()
    first = (KERNEL / f"{PARTS[0]}.py").read_text().splitlines()
    head = [line for line in first if line.startswith("# cython:")]
    code = [*head, "from __future__ import annotations"]
    types = ["cimport cython", "from cpython.object cimport PyObject"]
    known = {}
    for part in PARTS:
        constants, literals = constants_of(part, known)
        code += lines_of(part, constants)
        types += types_of(part, literals)
    path = folder / "_compiled.py"
    for target, lines in ((path, code), (folder / "_compiled.pxd", types)):
        text = "\n".join(lines) + "\n"
        if not target.exists() or target.read_text() != text:  # else it need not be compiled again
            target.write_text(text)
    return path


def extensions():
    if WISH == "plain":
        return []
    from Cython.Build import cythonize

    built = cythonize(
        [Extension("covey.kernel._compiled", [str(join())])],
        build_dir="build",
        include_path=[str(JOINED)],
    )
    for extension in built:
        extension.optional = WISH != "compiled"
    return built


setup(ext_modules=extensions())
