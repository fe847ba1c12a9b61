"""Compile what speed is compared with, in a folder that is gone afterwards."""

import functools
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).with_name("floor.py")
FROZEN = Path(__file__).parent.parent / "tests" / "frozen" / "kernel.py"
DIRECTIVES = """\
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""
IN_C = {
    "# ruff: noqa\n": DIRECTIVES,
    "from math import exp, log, sqrt\n": "from cython.cimports.libc.math import "
    "exp, log, rint, sqrt\n",
    "rint = round\n": "",
}


class NoFloor(Exception):
    """It could not be compiled; the message says what is missing."""


@functools.cache
def floor() -> ModuleType:
    """Return the compiled `floor` module.

    Raises `NoFloor` where there is no Cython or no C compiler.
    """
    return _compiled("floor", SOURCE.read_text(encoding="utf-8"))


@functools.cache
def frozen() -> ModuleType:
    """Return the compiled kernel of 0.1.0, which the tests keep as plain Python.

    Raises `NoFloor` where there is no Cython or no C compiler.
    """
    sys.path.insert(0, str(FROZEN.parent.parent))  # for its records
    text = FROZEN.read_text(encoding="utf-8")
    for plain, compiled in IN_C.items():
        assert plain in text
        text = text.replace(plain, compiled, 1)
    types = FROZEN.with_suffix(".pxd").read_text(encoding="utf-8")
    return _compiled("frozen_kernel", text, types)


def _compiled(name: str, text: str, types: str = "") -> ModuleType:
    if importlib.util.find_spec("Cython") is None:
        raise NoFloor("no Cython to compile with: pip install --group check")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"{name}.py"
        source.write_text(text, encoding="utf-8")
        if types:
            source.with_suffix(".pxd").write_text(types, encoding="utf-8")
        command = [sys.executable, "-m", "Cython.Build.Cythonize", "--inplace", str(source)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        built = [path for path in Path(folder).glob(f"{name}.*") if path.suffix in (".so", ".pyd")]
        if done.returncode or not built:
            last = (done.stderr.strip() or "nothing was built").splitlines()[-1]
            raise NoFloor(f"{name} did not compile, is there a C compiler? ({last})")
        return _load(name, built[0])


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
