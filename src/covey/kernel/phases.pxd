cimport cython
from covey.kernel.table cimport Table


cdef class PhaseTable(Table):
    cdef bint trains_first, is_sure
    cdef int _choose(self, long long row, long long slot, bint is_fresh) except? -2
    @cython.final
    cdef int _test(self, long long row, long long explore, long long train, long long explore_peers, bint is_fresh) except? -2
    cdef int _help(self, long long row) except? -2
    cdef int _unexplored(self, long long row) except? -2
    cdef bint _needs_report(self, long long row, long long peer) except -1
    cdef bint _is_waiting(self, long long row, long long slot) except -1
    cdef int _receive_report(self, long long row, long long peer, long long arrivals, double low, double high, long long slot) except -1
    @cython.final
    cdef inline long long _wanting(self, long long base, long long field, long long first, long long end, long long limit) noexcept
    @cython.final
    @cython.locals(fewest=cython.longlong, tried=cython.longlong, limit=cython.longlong)
    cdef long long _doubtful(self, long long base, long long end, long long explore, long long explore_peers) noexcept
    @cython.final
    @cython.locals(sent=cython.longlong)
    cdef void _refresh(self, long long row, long long peer, long long arrivals) noexcept


cdef class PlainPhaseTable(PhaseTable):
    cdef int _choose(self, long long row, long long slot, bint is_fresh) except? -2
    cdef int _help(self, long long row) except? -2
    cdef int _on_label(self, long long row, long long arm, long long phase, long long gain, long long slot) except -1
    cdef int _on_served_label(self, long long row, long long function, long long gain, long long slot) except -1
    @cython.final
    cdef inline void _add_label(self, long long base, long long arm, long long gain) noexcept


cdef class OneQueryTable(PhaseTable):
    cdef dict wanted, heard
    @cython.locals(arm=cython.longlong, first=cython.longlong)
    cdef int _choose(self, long long row, long long slot, bint is_fresh) except? -2
    @cython.final
    cdef int _after_training(self, long long base, bint is_trained) except? -2
    @cython.final
    @cython.locals(peer=cython.longlong)
    cdef bint _is_untrained(self, long long row) except -1
    cdef bint _needs_report(self, long long row, long long peer) except -1
    cdef int _receive_report(self, long long row, long long peer, long long arrivals, double low, double high, long long slot) except -1


cdef class ChildrenMeanTable(OneQueryTable):
    cdef bint asks_one
    @cython.locals(choice=cython.longlong)
    cdef int _choose(self, long long row, long long slot, bint is_fresh) except? -2
    cdef bint _needs_report(self, long long row, long long peer) except -1
    cdef double _value(self, long long base, long long arm) except? -2
    @cython.locals(value=cython.double, largest=cython.double)
    cdef int _best_of(self, long long base, long long end) except -1
    @cython.final
    @cython.locals(total=cython.double, means=cython.longlong, level=cython.longlong, row=cython.longlong)
    cdef double _average(self, long long base, long long arm) noexcept


cdef class EliminationTable(PhaseTable):
    cdef double confidence, slack, cap
    cdef int most_functions
    cdef double[::1] low, high
    cdef long long[::1] heard
    @cython.locals(explore=cython.longlong, explore_peers=cython.longlong, train=cython.longlong, most=cython.longlong)
    cdef int _choose(self, long long row, long long slot, bint is_fresh) except? -2
    cdef bint _needs_report(self, long long row, long long peer) except -1
    cdef bint _is_waiting(self, long long row, long long slot) except -1
    cdef int _make_report(self, long long row, long long slot) except -1
    cdef int _receive_report(self, long long row, long long peer, long long arrivals, double low, double high, long long slot) except -1
    cdef int _receive_false_report(self, long long row, long long peer, long long slot) except -1
    @cython.final
    @cython.locals(level=cython.double, labels=cython.double, accuracy=cython.double, radius=cython.double)
    cdef double _bound(self, long long base, long long slot) noexcept
    @cython.final
    @cython.locals(labels=cython.double, accuracy=cython.double, most=cython.double)
    cdef int _limit(self, long long base, double level) except -1
    @cython.final
    @cython.locals(level=cython.double, best=cython.double)
    cdef long long _eliminate(self, long long row, long long slot) noexcept
    @cython.final
    @cython.locals(cap=cython.double)
    cdef long long _retrain(self, long long row, long long limit) noexcept
