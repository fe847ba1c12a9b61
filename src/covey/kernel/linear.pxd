cimport cython
from covey.kernel.cells cimport doubles, halves, integers, octets, shorts

# The same as in `linear.py`, as literals for C.
cdef enum:
    INPUTS = 1
    ONE = 4096
    CUT = 16384
    TURN = 1024
    PHASE_BITS = 15
    MAP = 0, UNIT, LABELS, DUE, NEWS, RENEWALS, REPAIRS, HAS_MOVED, HEAD
    MOST_STEP = 65536
    MOST_NEWS = 8192

cdef extern from *:
    long long OFFSET "(1LL << 33)"
    double LARGEST "(2147483647.0)"
    double ROUNDING "(8589934592.5)"
    double WEIGHT "(5.820766091346741e-11)"
    double MOVE "(4194304.0)"

cdef inline double dot(double* left, long long at, double* right, long long first, long long count) noexcept
cdef inline void add_multiple(double* target, long long at, double factor, double* source, long long first, long long count) noexcept
cdef inline void subtract(double* rows, long long at, long long first, long long width, double a0, double a1, double a2, double a3, long long count) noexcept
cdef inline long long nearest(double value) noexcept
cdef inline long long cut(double value) noexcept
@cython.locals(n=cython.longlong)
cpdef tuple principal_directions(points)
@cython.locals(first=cython.longlong, k=cython.longlong)
cdef void _multiply(double* rows, long long count, double* now, double* then, long long width) noexcept
@cython.locals(first=cython.longlong, other=cython.longlong)
cdef void _orthonormalise(double* rows, long long width) noexcept


@cython.final
cdef class FeatureMap:
    cdef readonly long long dimension, inputs, cosines, size, width
    cdef readonly long long version, fingerprint
    cdef bint is_projected
    cdef long long points
    cdef object block
    cdef double *context, *arriving, *means, *scales, *point, *prior, *inverse, *source, *target, *factor
    cdef double *spreads
    cdef short *phi, *coordinates, *input, *directions, *table
    cdef int* phases
    cdef signed char* projection
    cpdef read(self, tuple context)
    @cython.locals(is_same=cython.bint)
    cdef void take(self, double* coordinates, long long first) noexcept
    @cython.locals(total=cython.longlong)
    cdef void _project(self) noexcept
    @cython.locals(turn=cython.int)
    cdef void _turn(self) noexcept
    cpdef list features(self)


@cython.final
cdef class LinearBelief:
    cdef readonly FeatureMap features
    cdef readonly long long functions
    cdef readonly long long unit, most
    cdef long long size, width
    cdef double a0, a1, a2, a3
    cdef long long labelled, moves, products, roots, marks, weighs, stride
    cdef object block
    cdef long long* numbers
    cdef double* reals
    cdef int* words
    cpdef double mean(self, long long function) noexcept
    cpdef double variance(self, long long function) noexcept
    @cython.locals(total=cython.longlong, weight=cython.longlong)
    cdef inline long long _product(self, long long first) noexcept
    @cython.locals(is_due=cython.bint)
    cpdef void learn(self, long long function, long long gain, double variance) noexcept
    @cython.locals(value=cython.short)
    cdef void _add(self, long long base, long long worth) noexcept
    cpdef void renew(self, long long function) noexcept
    cdef void _factorise(self, long long base) noexcept
    cdef inline void _take_factors(self, long long k, long long i) noexcept
    cdef void _invert(self, long long base) noexcept
    cdef void _solve(self, long long base) noexcept
    cdef void _move(self, long long base) noexcept
    cpdef void forget(self, long long function) noexcept
    cdef long long numbers_kept(self) noexcept
    cpdef bytes state(self, long long function)
    cpdef restore(self, long long function, bytes state)
