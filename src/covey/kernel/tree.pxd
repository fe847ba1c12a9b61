cimport cython
from covey.kernel.counters cimport CellCounters
from covey.kernel.index cimport CachingTable, klucb

cdef long long WHOLE_LABEL, GOLDEN, TURN, BLOCK, USUAL_BLOCKS, WATCHED
cdef long long LARGE, SMALL, COUNT, UNTIL, LIMIT, ERRORS, VARIANCE, FILLED, RATIO, BLOCKS
cdef long long LONGEST, PRODUCTS, SQUARES, RESIDUALS, RESIDUAL_COUNT, ARRIVING, ROUND, DECIDED, PATIENCE
cdef double REMEMBERED, SURE, LOG_LARGE_FALL, LOG_SMALL_FALL
cdef double PRIOR_LABELS, PRIOR_MEAN, LARGE_FALL, SMALL_FALL, LEAST_BELIEF, USUAL_DEPENDENCE


cdef inline long long whole(double value) noexcept


cdef class TreeTable(CachingTable):
    cdef double scale, margin, share, mean, strength, slope, slope_served, expected
    cdef long long offset, round
    cdef double[::1] shrink, fading
    cdef long long[::1] chain, labelled, versions, watch, runs, moods, mood_slots
    cdef int _has_changed(self, long long row, long long arm) except -1
    cdef list _replies(self, long long row)
    cdef int _load_replies(self, long long row, list replies) except -1
    @cython.final
    @cython.locals(last=cython.longlong, k=cython.longlong, at=cython.longlong, base=cython.longlong,
                   strength=cython.double, right=cython.double, labels=cython.double, correct=cython.double,
                   spread=cython.double, below=cython.double, correct_below=cython.double, part=cython.double)
    cdef int _believe(self, long long row, long long arm) noexcept
    @cython.final
    @cython.locals(worth=cython.longlong, right=cython.longlong, at=cython.longlong, base=cython.longlong,
                   labels=cython.longlong, correct=cython.longlong, spread=cython.double, before=cython.double,
                   after=cython.double)
    cdef int _add_label(self, long long row, long long arm, long long gain, bint is_counted) noexcept
    @cython.final
    @cython.locals(expected=cython.double)
    cdef inline double _index(self, long long row, long long arm, long long under_way) noexcept
    @cython.final
    @cython.locals(at=cython.longlong, under_way=cython.longlong)
    cdef long long _refresh(self, long long row, long long arm) noexcept
    @cython.final
    cdef inline void _start(self, long long slot) noexcept
    @cython.final
    @cython.locals(labels=cython.double, share=cython.double)
    cdef inline void _measure(self) noexcept
    @cython.final
    @cython.locals(age=cython.longlong)
    cdef inline double _mood(self, long long arm, long long slot) noexcept
    @cython.final
    @cython.locals(mood=cython.double, expected=cython.double)
    cdef double _note_error(self, long long arm, double error, long long slot) noexcept
    @cython.final
    @cython.locals(mood=cython.double, expected=cython.double)
    cdef double _note_served_error(self, long long function, double error) noexcept
    @cython.final
    cdef inline void _regress(self, long long first, double mood, double error) noexcept
    @cython.final
    @cython.locals(squares=cython.double, variance=cython.double, slope=cython.double, margin=cython.double, count=cython.longlong)
    cdef double _sure_slope(self, long long first) noexcept
    @cython.locals(mood=cython.double, base=cython.longlong, at=cython.longlong, arm=cython.longlong, chosen=cython.longlong,
                   best=cython.longlong, largest=cython.double, highest=cython.double, value=cython.double, mean=cython.double)
    cdef int _choose(self, long long row, long long slot, bint is_fresh) except? -2
    @cython.final
    @cython.locals(at=cython.longlong, under_way=cython.longlong, mean=cython.double, highest=cython.double)
    cdef double _promise(self, long long row, long long arm, long long slot) noexcept
    @cython.locals(at=cython.longlong, chosen=cython.longlong, largest=cython.double)
    cdef int _help(self, long long row) except? -2
    cdef int _make_report(self, long long row, long long slot) except -1
    cdef int _receive_report(self, long long row, long long peer, long long arrivals, double low, double high, long long slot) except -1
    @cython.locals(is_own=cython.bint, is_counted=cython.bint)
    cdef void _learn_own(self, long long row, long long arm, long long phase, long long gain, long long slot, long long paid) noexcept
    cdef void _learn_served(self, long long row, long long function, long long gain, long long slot) noexcept
    cdef int _score(self, long long row, long long function, long long gain, long long slot, bint is_served) except -1
    @cython.final
    cdef inline bint _is_first(self, long long function, long long slot) noexcept
    cdef void _combine(self, long long row, CellCounters other, long long there, long long by) noexcept
    @cython.locals(at=cython.longlong, believed=cython.double, correct=cython.double)
    cdef bint _is_credible(self, long long row, long long arm, long long gain, long long slot, bint is_served) noexcept
    @cython.final
    @cython.locals(weight=cython.double, measured=cython.double, unit=cython.double,
                   limit=cython.double, errors=cython.double, large=cython.double, small=cython.double, sum_=cython.longlong)
    cdef bint _is_fall(self, double believed, double gain, long long first) noexcept
    cdef int _forget_all(self, long long end) except -1
    @cython.final
    cdef void _restart(self, long long first) noexcept
