"""Builds the kernel in C where it can, each module beside its source.

Without a C compiler the plain sources run instead. COVEY_BUILD=plain leaves the extensions out on
purpose; COVEY_BUILD=compiled makes a failure fatal.
"""

import os

from setuptools import Extension, setup

HOT = ("cells", "counters", "table", "phases", "index", "tickets", "arena")
WISH = os.environ.get("COVEY_BUILD", "")
# Those of the interpreter (-O3 -g) take three times as long and make nothing faster.
FLAGS = ["-O2", "-g0", "-Wno-unused-function"]


def extensions():
    if WISH == "plain":
        return []
    from Cython.Build import cythonize

    parts = [
        Extension(f"covey.kernel.{part}", [f"src/covey/kernel/{part}.py"], extra_compile_args=FLAGS)
        for part in HOT
    ]
    directives = {"auto_pickle": False}  # tables are saved as records, never pickled
    built = cythonize(parts, build_dir="build", compiler_directives=directives)
    for extension in built:
        extension.optional = WISH != "compiled"
    return built


setup(ext_modules=extensions())
