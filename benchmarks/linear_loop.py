# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""Decisions and labels of the linear belief without an index: a loop in C over its methods.

Compiled at run time with the directives of the kernel; `compiler.py` does it.
"""

import cython
from cython.cimports.covey.kernel.linear import LinearBelief


def play(
    belief: LinearBelief,
    contexts: cython.double[:, ::1],
    gains: cython.int[:, ::1],
) -> None:
    """Per slot: all means, the variances of the two largest, and the label of the largest."""
    width: cython.longlong = contexts.shape[1]
    t: cython.longlong
    function: cython.longlong
    best: cython.longlong
    second: cython.longlong
    mean: cython.double
    largest: cython.double
    next_largest: cython.double
    for t in range(contexts.shape[0]):
        belief.features.take(cython.address(contexts[0, 0]), t * width)
        best = second = 0
        largest = next_largest = -9.0
        for function in range(gains.shape[1]):
            mean = belief.mean(function)
            if mean > largest:
                second, next_largest = best, largest
                best, largest = function, mean
            elif mean > next_largest:
                second, next_largest = function, mean
        belief.variance(second)
        belief.variance(best)
        belief.learn(best, gains[t, best])
