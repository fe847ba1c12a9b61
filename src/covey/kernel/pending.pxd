cimport cython
from covey.kernel.counters cimport CellCounters

cdef long long FIRST_PERIOD, LONGEST_PERIOD, OF_PEERS
cdef long long INSTANCES, DUE, SINCE_SLOT, POOL, CAME, LAST_POOL, LAST_CAME


cdef class PendingCounters(CellCounters):
    @cython.final
    cdef inline long long _tried(self, long long base, long long arm) noexcept
    @cython.final
    @cython.locals(own=cython.longlong, served=cython.longlong, count=cython.longlong)
    cdef long long _expected(self, long long base, long long arm) noexcept
    @cython.final
    @cython.locals(pool=cython.longlong, came=cython.longlong)
    cdef inline long long _arriving(self, long long source, long long labels) noexcept
    @cython.final
    @cython.locals(length=cython.longlong)
    cdef void _begin_period(self, long long source, long long slot) noexcept
    @cython.final
    @cython.locals(source=cython.longlong)
    cdef inline void _note_arrival(self, long long phase, long long slot) noexcept
    @cython.final
    cdef inline void _expect(self, long long row, long long arm, long long phase, long long by) noexcept
    @cython.final
    cdef void _release(self, long long row, long long arm, long long phase) noexcept
