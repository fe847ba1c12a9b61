cimport cython
from covey.kernel.arena cimport Arena
from covey.kernel.spaces cimport Ledger
from covey.kernel.table cimport Table


@cython.final
cdef class Batches:
    cdef Arena arena
    @cython.locals(rows=cython.longlong, first=cython.longlong, end=cython.longlong, slot=cython.longlong)
    cpdef run(self, log, long long first_slot, trace)
    @cython.locals(arena=Arena, t=cython.longlong, i=cython.longlong, delay=cython.longlong, is_shown=cython.bint)
    cdef int _play(self, log, long long first, long long end, long long slot) except -1
    @cython.locals(table=Table)
    cdef tuple _hold(self, Ledger ledger)
    @cython.locals(ledger=Ledger, table=Table)
    cdef int _restore(self, long long i, tuple held) except -1
