"""Builds the compiled kernel where it can; everything else is in pyproject.toml.

The parts of the kernel are compiled as one module, so that C can inline calls between them: they
are joined in the order of `PARTS`, without the imports of one part by another.
Without a C compiler the extension is left out and the plain kernel runs instead.
COVEY_BUILD=plain leaves it out on purpose; COVEY_BUILD=compiled makes its failure fatal.
"""

import ast
import os
from pathlib import Path

from setuptools import Extension, setup

WISH = os.environ.get("COVEY_BUILD", "")
KERNEL = Path("src/covey/kernel")
JOINED = Path("build/kernel")
PARTS = (
    *("memory", "thresholds", "cells", "history", "counters", "pending", "table"),
    *("phases", "index", "tree", "custom", "spaces", "candidates", "tickets", "arena"),
    "batches",
)


def lines_of(part):
    """Return the lines of a part without its imports of other parts."""
    text = (KERNEL / f"{part}.py").read_text()
    lines = text.splitlines()
    parts = [f"covey.kernel.{other}" for other in PARTS]
    others = {"__future__", *parts, *(f"cython.cimports.{other}" for other in parts)}
    for stmt in ast.walk(ast.parse(text)):
        if isinstance(stmt, ast.ImportFrom) and stmt.module in others:
            nothing = " " * stmt.col_offset + "pass"
            count = stmt.end_lineno - stmt.lineno + 1
            lines[stmt.lineno - 1 : stmt.end_lineno] = [nothing] + [""] * (count - 1)
    return [line for line in lines if not line.startswith("# cython:")]


def types_of(part):
    """Return the C types of a part without its imports of other parts."""
    lines = (KERNEL / f"{part}.pxd").read_text().splitlines()
    return [line for line in lines if " cimport " not in line and line != "cimport cython"]


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
    for part in PARTS:
        code += lines_of(part)
        types += types_of(part)
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
