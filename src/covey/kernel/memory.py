# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Memory of the counters: zeroed, in huge pages if there is much of it.

An object that has many arrays keeps them in one block of memory. C reaches each by its address, so
it takes 8 bytes there; plain Python uses views. `memory.pxd` adds what only C has: `touch` requests
memory before it is needed, `items_of` reaches the items of a list, `start_of` those of a block.
"""

from __future__ import annotations

import mmap
from typing import Any

try:
    import cython
except ModuleNotFoundError:
    from types import SimpleNamespace

    cython = SimpleNamespace(compiled=False)

if cython.compiled:
    from cython.cimports.covey.kernel.memory import start_of

MANY = 1 << 21  # bytes of a huge page


def block(size: int) -> Any:
    """Return `size` bytes of 0; if they are many, in huge pages where the system has them."""
    if size < 2 * MANY or not hasattr(mmap, "MADV_HUGEPAGE"):
        return bytearray(size)
    private = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    private.madvise(mmap.MADV_HUGEPAGE)
    return private


def zeros(size: int) -> memoryview:
    """Return a view of a new block."""
    return memoryview(block(size))


def doubles(memory: Any, first: int, count: int) -> memoryview[float]:
    """Return an array of `count` floats in a block, which begins at its integer `first`."""
    if cython.compiled:
        return cython.cast(cython.p_double, start_of(memory)) + first  # type: ignore[no-any-return]
    return memoryview(memory)[8 * first : 8 * (first + count)].cast("d")


def integers(memory: Any, first: int, count: int) -> memoryview[int]:
    """Return an array of `count` integers of 64 bits in a block, from its integer `first` on."""
    if cython.compiled:
        return cython.cast(cython.p_longlong, start_of(memory)) + first  # type: ignore[no-any-return]
    return memoryview(memory)[8 * first : 8 * (first + count)].cast("q")


def halves(memory: Any, first: int, count: int) -> memoryview[int]:
    """Return an array of `count` integers of 32 bits in a block, from its integer `first` on."""
    if cython.compiled:
        start = cython.cast(cython.p_longlong, start_of(memory)) + first
        return cython.cast(cython.p_int, start)  # type: ignore[no-any-return]
    return memoryview(memory)[8 * first : 8 * first + 4 * count].cast("i")
