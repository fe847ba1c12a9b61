# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, cpow=True, infer_types=True, annotation_typing=False
"""Memory of the counters: zeroed, in huge pages if there is much of it.

`memory.pxd` adds what only C has: `touch` requests memory before it is needed, and `items_of`
reaches the items of a list.
"""

from __future__ import annotations

import mmap

MANY = 1 << 21  # bytes of a huge page


def zeros(size: int) -> memoryview:
    """Return `size` bytes of 0; if they are many, in huge pages where the system has them."""
    if size < 2 * MANY or not hasattr(mmap, "MADV_HUGEPAGE"):
        return memoryview(bytearray(size))
    private = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    private.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(private)
