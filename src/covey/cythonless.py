"""Stand-in for the `cython` module where Cython is not installed, which only the build needs."""

compiled = False
