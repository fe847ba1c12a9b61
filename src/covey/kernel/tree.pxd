cimport cython
from covey.kernel.belief cimport BeliefTable, fixed, unfixed, upper, whole

cdef long long GOLDEN, TURN, BLOCK, USUAL_BLOCKS, WATCHED
cdef long long LARGE, SMALL, COUNT, UNTIL, LIMIT, ERRORS, VARIANCE, FILLED, RATIO, BLOCKS
cdef long long LONGEST, PRODUCTS, SQUARES, RESIDUALS, RESIDUAL_COUNT, ARRIVING, ROUND, DECIDED, PATIENCE, LEAD, COMPARED, ONE_CELL, SILVER
cdef double REMEMBERED, SURE, UNSURE, LOG_LARGE_FALL, LOG_SMALL_FALL
cdef double LARGE_FALL, SMALL_FALL, USUAL_DEPENDENCE


cdef class TreeTable(BeliefTable):
    cdef double scale, margin, share, slope, slope_served
    cdef long long offset, round
    cdef double[::1] fading, units, offers
    cdef long long[::1] labelled, watch, runs, moods, mood_slots
    cdef int _has_changed(self, long long row, long long arm) except -1
    cdef list _replies(self, long long row)
    cdef int _load_replies(self, long long row, list replies) except -1
    @cython.final
    @cython.locals(bound=cython.double)
    cdef inline double _index(self, long long under_way) noexcept
    @cython.final
    @cython.locals(at=cython.longlong, arm=cython.longlong)
    cdef inline void _refresh(self, long long row, long long first, long long end) noexcept
    @cython.final
    cdef inline bint _is_reported(self, long long arm) noexcept
    @cython.final
    cdef inline void _start(self, long long slot) noexcept
    @cython.final
    cdef void _outdate(self) noexcept
    @cython.final
    cdef inline void _try_tree(self, bint tries) noexcept
    @cython.final
    @cython.locals(part=cython.double)
    cdef inline bint _is_try(self, long long slot) noexcept
    @cython.final
    @cython.locals(labels=cython.double, share=cython.double)
    cdef inline void _measure(self) noexcept
    @cython.final
    @cython.locals(age=cython.longlong)
    cdef inline double _mood(self, long long arm, long long slot) noexcept
    @cython.final
    @cython.locals(mood=cython.double, expected=cython.double)
    cdef inline double _note_error(self, long long arm, double error, long long slot) noexcept
    @cython.final
    @cython.locals(mood=cython.double, expected=cython.double)
    cdef inline double _note_served_error(self, long long function, double error) noexcept
    @cython.final
    cdef inline void _regress(self, long long first, double mood, double error) noexcept
    @cython.final
    @cython.locals(products=cython.double, squares=cython.double, residuals=cython.double, margin=cython.double, count=cython.double)
    cdef inline double _sure_slope(self, long long first) noexcept
    @cython.locals(arm=cython.longlong, judged=cython.longlong)
    cdef int _choose(self, long long row, long long slot, bint is_fresh) except? -2
    cdef int _choose_again(self, long long row, long long slot) except? -2
    @cython.final
    @cython.locals(at=cython.longlong, value=cython.double, mean=cython.double, mood=cython.double, price=cython.double)
    cdef inline int _consider(self, long long row, long long arm, long long slot, bint is_reported) except -1
    @cython.final
    @cython.locals(arm=cython.longlong, chosen=cython.longlong, best=cython.longlong, largest=cython.double, highest=cython.double)
    cdef inline int _pick(self, long long row, long long slot) noexcept
    @cython.final
    @cython.locals(at=cython.longlong, highest=cython.double)
    cdef inline double _promise(self, long long row, long long arm, long long slot) noexcept
    @cython.final
    @cython.locals(under_way=cython.longlong, own=cython.double)
    cdef double _check_promise(self, long long row, long long arm, double mean, double highest) noexcept
    @cython.locals(chosen=cython.longlong, largest=cython.double, value=cython.double)
    cdef int _help(self, long long row) except? -2
    @cython.locals(at=cython.longlong, mean=cython.double, highest=cython.double)
    cdef int _make_report(self, long long row, long long slot) except -1
    cdef int _receive_report(self, long long row, long long peer, long long arrivals, double low, double high, long long slot) except -1
    cdef int _on_label(self, long long row, long long arm, long long phase, long long gain, long long slot) except -1
    @cython.locals(is_own=cython.bint, is_counted=cython.bint)
    cdef void _learn_own(self, long long row, long long arm, long long phase, long long gain, long long slot, long long paid) noexcept
    cdef void _learn_served(self, long long row, long long function, long long gain, long long slot) noexcept
    cdef int _score(self, long long row, long long function, long long gain, long long slot, bint is_served) except -1
    @cython.final
    @cython.locals(first=cython.longlong)
    cdef bint _is_rise(self, long long row, long long function, long long gain) noexcept
    @cython.final
    @cython.locals(row=cython.longlong, base=cython.longlong, k=cython.longlong)
    cdef void _forget_function(self, long long function) noexcept
    @cython.final
    cdef inline bint _is_first(self, long long function, long long slot) noexcept
    @cython.locals(at=cython.longlong, believed=cython.double, correct=cython.double)
    cdef bint _is_credible(self, long long row, long long arm, long long gain, long long slot, bint is_served) noexcept
    @cython.final
    @cython.locals(unit=cython.double, limit=cython.double, errors=cython.double, large=cython.double, small=cython.double, sum_=cython.longlong)
    cdef inline bint _is_fall(self, double believed, double gain, long long first) noexcept
    @cython.final
    @cython.locals(first=cython.longlong, weight=cython.double, measured=cython.double)
    cdef inline void _set_units(self) noexcept
    cdef int _forget_all(self, long long end) except -1
    @cython.final
    cdef inline void _restart(self, long long first) noexcept
