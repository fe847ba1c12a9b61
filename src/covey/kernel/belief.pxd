cimport cython
from covey.kernel.counters cimport CellCounters
from covey.kernel.index cimport CachingTable, klucb

cdef long long WHOLE_LABEL
cdef double PRIOR_LABELS, PRIOR_MEAN, NEAR_NODE, FAR_NODE, AT_NEAR, AT_FAR, LEAST_MEAN, LEAST_BELIEF, USUAL_MARGIN

cdef inline long long whole(double value) noexcept
cdef inline long long fixed(double labels) noexcept
cdef inline double unfixed(long long number) noexcept
@cython.locals(rest=cython.double, bend=cython.double, root=cython.double, width=cython.double,
               near=cython.double, far=cython.double, q=cython.double, slope=cython.double)
cdef double upper(double mean, double bound) noexcept


cdef class BeliefTable(CachingTable):
    cdef double mean, variance, expected, trust
    cdef long long standing, depth, lead, compared
    cdef bint uses_one_cell, tries_tree
    cdef double[::1] shrink
    cdef long long[::1] chain, versions
    @cython.final
    @cython.locals(level=cython.longlong)
    cdef inline void _climb(self, long long row) noexcept
    @cython.final
    @cython.locals(level=cython.longlong, at=cython.longlong, base=cython.longlong, mean=cython.double,
                   variance=cython.double, spread=cython.double, part=cython.double)
    cdef inline int _infer(self, long long row, long long arm) noexcept
    @cython.final
    @cython.locals(right=cython.double)
    cdef int _believe_alike(self, long long row, long long arm) noexcept
    @cython.final
    cdef inline int _believe(self, long long row, long long arm) noexcept
    @cython.final
    @cython.locals(at=cython.longlong, level=cython.longlong, most=cython.longlong, labels=cython.longlong, hidden=cython.double)
    cdef inline long long _under_way(self, long long row, long long arm) noexcept
    @cython.final
    @cython.locals(fine=cython.double, plain=cython.double, ratio=cython.double, limit=cython.longlong, is_better=cython.bint)
    cdef bint _compare(self, long long row, long long arm, double correct) noexcept
    @cython.final
    @cython.locals(worth=cython.longlong, right=cython.longlong, at=cython.longlong, base=cython.longlong, level=cython.longlong,
                   labels=cython.longlong, correct=cython.longlong, counted=cython.longlong, gained=cython.longlong, spread=cython.double, before=cython.double,
                   after=cython.double)
    cdef inline int _add_label(self, long long row, long long arm, long long gain, bint is_counted) noexcept
    cdef void _combine(self, long long row, CellCounters other, long long there, long long by) noexcept
