"""Builds the compiled kernel where it can; everything else is in pyproject.toml.

Without a C compiler the extension is left out and the plain kernel runs instead.
COVEY_BUILD=plain leaves it out on purpose; COVEY_BUILD=compiled makes its failure fatal.
"""

import os

from setuptools import Extension, setup

WISH = os.environ.get("COVEY_BUILD", "")


def extensions():
    if WISH == "plain":
        return []
    from Cython.Build import cythonize

    built = cythonize(
        [Extension("covey.kernel._compiled", ["src/covey/kernel/kernel.py"])], build_dir="build"
    )
    for extension in built:
        extension.optional = WISH != "compiled"
    return built


setup(ext_modules=extensions())
