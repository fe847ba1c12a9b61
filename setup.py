"""Builds the compiled kernel where it can; everything else is in pyproject.toml.

Without a C compiler the extension is left out and the plain kernel runs instead.
COVEY_BUILD=plain leaves it out on purpose; COVEY_BUILD=compiled makes its failure fatal.
"""

import os

from setuptools import Extension, setup

wish = os.environ.get("COVEY_BUILD", "")
kernel = Extension("covey._kernel", ["src/covey/kernel.py"], optional=wish != "compiled")


def extensions():
    if wish == "plain":
        return []
    from Cython.Build import cythonize

    return cythonize([kernel], build_dir="build")


setup(ext_modules=extensions())
