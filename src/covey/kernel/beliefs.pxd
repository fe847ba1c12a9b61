cimport cython
from covey.kernel.cells cimport BEST, BEST_OWN, LEVEL, PARENT, Cells, doubles, integers
from covey.kernel.counters cimport ArmCounters

# The same as in `beliefs.py`, as literals for C.
cdef enum:
    KNOWN_LOGS = 4096
    WORTH = 0, RIGHT, COIN, BELOW, BOTH, KEPT
    PART = 0, PULL, STOP, HEADS, SECOND, DERIVED
    LABELS = 0, GAINED
    FINEST = 32
    CELLS = 63

cdef extern from *:
    long long WHOLE_LABEL "(1LL << 20)"
    long long LOG_UNIT "(1LL << 30)"
    double FAR_APART "(40.0)"

cdef long long LOG_HALF
cdef long long* LOGS

cdef inline long long whole(double value) noexcept
cdef inline long long log_of_half(long long count) noexcept
cdef inline long long log_of_next(long long count) noexcept
cdef inline long long rise(long long before, long long by, long long unit) noexcept
cdef inline long long part_of(long long number, long long share, long long unit) noexcept
cdef inline void weigh(long long* rows, double* reals, long long at, long long to, bint is_finest) noexcept
cdef inline void toss(double* reals, long long to, long long labels, long long gained, long long unit) noexcept
cdef inline void shrink(long long* rows, double* reals, long long at, long long to, double spread) noexcept


@cython.final
cdef class CellBeliefs:
    cdef ArmCounters counters
    cdef Cells cells
    cdef long long stride, labels, right, kept, derived, finest, functions, asked, unjudged
    cdef long long unit, standing, depth
    cdef object block
    cdef double *shrink, *tails
    cdef long long* chain
    cdef double *means, *variances
    cdef inline long long seat(self, long long arm) noexcept
    cdef inline void climb(self, long long row) noexcept
    cdef long long root(self, long long row) noexcept
    cdef long long believe(self, long long row, long long arm) noexcept
    cdef long long add(self, long long row, long long arm, long long gain) noexcept
    cdef long long count(self, long long row, long long arm, long long gain) noexcept
    cdef void derive(self, long long row, long long arm) noexcept
    cdef void forget(self, long long first, long long end) noexcept

@cython.final
cdef class CoordinateTrees:
    cdef readonly long long dimension, functions, unit
    cdef long long stride
    cdef object block
    cdef long long *rows, *places
    cdef double *reals, *weights
    cdef readonly double mean, variance
    cdef void take(self, double* coordinates, long long first) noexcept
    cdef void believe(self, long long function) noexcept
    cdef void learn(self, long long function, long long gain) noexcept
    @cython.locals(is_finest=cython.bint)
    cdef void _add(self, long long function, long long coordinate, long long place, long long gain) noexcept
    cdef void _weigh(self, long long function) noexcept
    cdef void forget(self, long long function) noexcept
    cpdef list state(self, long long function)
    cpdef restore(self, long long function, list state)
    cdef long long _coin(self, long long at) noexcept
