"""Builds the kernel in C where it can, each module beside its source.

Without a C compiler the plain sources run instead. COVEY_BUILD=plain leaves the extensions out on
purpose; COVEY_BUILD=compiled makes a failure fatal.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

KERNEL = Path("src/covey/kernel")
WISH = os.environ.get("COVEY_BUILD", "")
# Those of the interpreter (-O3 -g) take three times as long and make nothing faster.
# A product and a sum that become one instruction have other bits than in plain Python.
FLAGS = ["-O2", "-g0", "-Wno-unused-function", "-ffp-contract=off"]
MORE = {"linear": ["-O3", "-funroll-loops"]}  # its loops over integers of 16 bits are worth vectors


def extensions():
    if WISH == "plain":
        return []
    from Cython.Build import cythonize

    parts = [
        Extension(
            f"covey.kernel.{part.stem}",
            [str(part.with_suffix(".py"))],
            extra_compile_args=FLAGS + MORE.get(part.stem, []),
        )
        for part in sorted(KERNEL.glob("*.pxd"))
    ]
    directives = {"auto_pickle": False}  # tables are saved as records, never pickled
    built = cythonize(parts, build_dir="build", compiler_directives=directives)
    for extension in built:
        extension.optional = WISH != "compiled"
    return built


setup(ext_modules=extensions())
