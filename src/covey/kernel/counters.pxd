cimport cython
from covey.kernel.cells cimport Cells
from covey.kernel.history cimport History

cdef long long TRAIN, EXPLORE, EXPLOIT, SERVE, ARRIVED, LABELLED, USED
cdef long long ONE, KEEP_BITS, WAITS, MILLIONTHS, UNPAID
cdef double CLOSED, FOREVER


cdef class CellCounters(Cells):
    cdef int functions, arms, asked, counted, right, untrained, last, trained
    cdef int underway, underway_served, spent, times, recent, recent_right, ring, info, replied
    cdef long long state, window, keep, unit, blind, decided
    cdef bint explores_to_help, weighs, is_random, forgets, is_closing, learns_costs
    cdef bint adds_costs, remembers, ignores_prices, has_rewards, has_custom_rewards, once
    cdef bint dates_labels
    cdef readonly bint is_pending
    cdef double largest
    cdef History memory
    cdef list custom_rewards
    cdef double* costs
    cdef double* prices
    cdef double* rewards
    cdef double* told
    cdef int* active
    cdef long long* pending_of
    cdef long long* waits
    cdef long long* waits_there
    cdef int _has_changed(self, long long row, long long arm) except -1
    cdef list _replies(self, long long row)
    cdef int _load_replies(self, long long row, list replies) except -1
    cpdef combine(self, long long row, CellCounters other, long long by)
    cdef void _combine(self, long long row, CellCounters other, long long there, long long by) noexcept
    @cython.final
    cdef inline void _combine_at(self, long long at, CellCounters other, long long shift, long long by) noexcept
    @cython.final
    cdef double _cost_of(self, double cost) noexcept
    @cython.final
    cdef int _remember_around(self, label, answer, long long slot) except -1
    @cython.final
    cdef inline int _best(self, long long base) except -1
    @cython.final
    cdef inline long long _most_accurate(self, long long base) noexcept
    @cython.final
    cdef int _largest(self, long long base, long long end, bint is_net) except -1
    @cython.final
    @cython.locals(price=cython.double, times=cython.double)
    cdef inline double _price(self, long long base, long long arm) noexcept
    @cython.final
    @cython.locals(accuracy=cython.double, value=cython.double)
    cdef int _weigh(self, long long base, long long seen) except -1
    @cython.final
    cdef inline double _worth(self, long long base, long long arm, double accuracy) except? -2
    @cython.final
    @cython.locals(first=cython.double, value=cython.double, bound=cython.double)
    cdef double _custom_worth(self, long long arm, double accuracy, double price) except? -2
    @cython.final
    cdef inline double _net(self, long long arm, double accuracy, double price) except? -2
    @cython.final
    cdef double _reward(self, long long arm, double accuracy, double price) except? -2
    @cython.final
    cdef inline double _accuracy(self, long long base, long long arm) noexcept
    @cython.final
    cdef bint _is_drawn(self, long long rivals) noexcept
    @cython.final
    cdef int _close(self, bytes closed) except -1
    @cython.final
    cdef void _reopen(self) noexcept
    @cython.final
    cdef inline void _count_own(self, long long row, long long by) noexcept
    @cython.final
    cdef inline void _count_served(self, long long row, long long by) noexcept
    @cython.final
    cdef inline void _spend(self, long long base, long long arm, long long paid) noexcept
    @cython.final
    cdef inline void _take(self, long long base, long long function, long long gain, long long slot) noexcept
    @cython.final
    cdef inline void _record(self, long long base, long long arm, long long gain) noexcept
    @cython.final
    cdef void _record_recent(self, long long base, long long arm, long long gain) noexcept
    @cython.final
    @cython.locals(old=cython.longlong)
    cdef void _push(self, long long base, long long arm, long long gain) noexcept
