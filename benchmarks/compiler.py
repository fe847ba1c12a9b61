"""Compile what speed is compared with, in a folder that is gone afterwards."""

import functools
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).with_name("floor.py")


class NoFloor(Exception):
    """It could not be compiled; the message says what is missing."""


@functools.cache
def floor() -> ModuleType:
    """Return the compiled `floor` module.

    Raises `NoFloor` where there is no Cython or no C compiler.
    """
    return _compiled("floor", SOURCE.read_text(encoding="utf-8"))


def _compiled(name: str, text: str) -> ModuleType:
    if importlib.util.find_spec("Cython") is None:
        raise NoFloor("no Cython to compile with: pip install --group check")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"{name}.py"
        source.write_text(text, encoding="utf-8")
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
