cimport cython
from covey.kernel.cells cimport (
    ARRIVALS, BEST, BEST_OWN, COORDINATES, LEVEL, NEXT_TEST, OWN,
)
from covey.kernel.counters cimport CLOSED, EXPLOIT, EXPLORE, OF_PEERS, TRAIN
from covey.kernel.table cimport CellPolicy, Clock, Said


cdef class Phases(CellPolicy):
    cdef bint is_sure
    @cython.final
    cdef int _test(self, long long row, long long explore, long long train, long long explore_peers, bint is_fresh) except? -2
    @cython.locals(is_open=cython.bint)
    cdef int wanted_from(self, long long row, long long peer) except? -2
    @cython.final
    cdef inline long long _wanting(self, long long base, long long field, long long first, long long end, long long limit) noexcept
    @cython.final
    cdef long long _doubtful(self, long long base, long long end, long long explore, long long explore_peers) noexcept
    @cython.final
    cdef void _refresh(self, long long row, long long peer, long long arrivals) noexcept


cdef class PlainPhases(Phases):
    @cython.final
    cdef inline void _add_label(self, long long base, long long arm, long long gain) noexcept


cdef class PaperPhases(Phases):
    cdef dict wanted, heard
    @cython.locals(peer=cython.longlong, is_open=cython.bint)
    cdef int choose(self, long long row, long long slot, bint is_fresh) except? -2
    @cython.final
    cdef int _after_training(self, long long base, bint is_trained) except? -2
    @cython.locals(wanted=cython.longlong, is_open=cython.bint)
    cdef int wanted_from(self, long long row, long long peer) except? -2
    @cython.final
    cdef int _best_here(self, long long base) except -1
    @cython.final
    cdef double _average(self, long long base, long long arm) noexcept
