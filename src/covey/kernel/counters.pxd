cimport cython
from covey.kernel.cells cimport (
    ARRIVALS, BEST, BEST_OWN, COORDINATES, LEVEL, NEXT_TEST, OWN, PARENT, Cells, doubles, integers,
)

# The same as in `counters.py`, as literals for C.
cdef enum:
    TRAIN = 0
    EXPLORE = 1
    EXPLOIT = 2
    SERVE = 3
    WAITS = 14
    INSTANCES = 0
    DUE = 1
    SINCE_SLOT = 2
    POOL = 3
    CAME = 4
    LAST_POOL = 5
    LAST_CAME = 6
    OF_PEERS = 7
    FIRST_PERIOD = 16
    LONGEST_PERIOD = 4096
    MILLIONTHS = 1000000
    ONE = 65536
    KEEP_BITS = 30

cdef extern from *:
    long long UNPAID "(-(1LL << 60))"
    double CLOSED "(1e300)"
    double FOREVER "(1.0 / 0.0)"


@cython.final
cdef class ArmCounters:
    cdef readonly Cells cells
    cdef object block
    cdef int functions, arms, asked, labels, right, last, ring, info, values
    cdef int underway, underway_served, spent, times, recent, recent_right
    cdef long long window, keep, unit, decided
    cdef public long long expected_labels
    cdef readonly long long blind
    cdef bint explores_to_help, counts_labelled, weighs, forgets, is_closing, learns_costs
    cdef bint ignores_prices, has_rewards, has_custom_rewards, once, dates_labels, has_tree
    cdef bint is_pending
    cdef double largest
    cdef list custom_rewards, summed
    cdef double* costs
    cdef double* prices
    cdef double* rewards
    cdef double* told
    cdef long long* versions
    cdef long long* learnt
    cdef long long* pending_of
    cdef long long* waits
    cdef long long* waits_there
    cdef int best(self, long long base) except -1
    cdef int most_accurate(self, long long base) noexcept
    @cython.locals(chosen=cython.longlong, arm=cython.longlong, value=cython.double, largest=cython.double, is_later=cython.bint)
    cdef int most(self, long long base, long long end, bint is_net) except -1
    @cython.locals(price=cython.double, times=cython.double)
    cdef double price(self, long long base, long long arm) noexcept
    @cython.locals(accuracy=cython.double, value=cython.double, arm=cython.longlong)
    cdef int weigh(self, long long base, long long seen) except -1
    cdef inline double worth(self, long long base, long long arm, double accuracy) except? -2
    cdef inline double net(self, long long arm, double accuracy, double price) except? -2
    cdef double _reward(self, long long arm, double accuracy, double price) except? -2
    @cython.locals(first=cython.double, value=cython.double, bound=cython.double)
    cdef double _custom_worth(self, long long arm, double accuracy, double price) except? -2
    @cython.locals(labels=cython.double)
    cdef double accuracy(self, long long base, long long arm) noexcept
    @cython.locals(row=cython.longlong, base=cython.longlong)
    cpdef set_cost(self, long long arm, double cost)
    cdef double _cost_of(self, double cost) noexcept
    cdef int close(self, bytes closed) except -1
    cdef void reopen(self) noexcept
    @cython.locals(k=cython.longlong)
    cdef void count_own(self, long long row, long long by) noexcept
    cdef void count_served(self, long long row, long long by) noexcept
    cdef inline void spend(self, long long base, long long arm, long long paid) noexcept
    cdef void take(self, long long base, long long function, long long gain, long long slot) noexcept
    cdef inline void outdate(self, long long base, long long arm) noexcept
    cdef void record(self, long long base, long long arm, long long gain) noexcept
    @cython.locals(k=cython.longlong)
    cpdef record_recent(self, long long base, long long arm, long long gain)
    @cython.locals(old=cython.longlong, place=cython.longlong)
    cdef void _push(self, long long base, long long arm, long long gain) noexcept
    cdef int remember_around(self, label, answer, long long slot) except -1
    @cython.locals(row=cython.longlong, base=cython.longlong, arm=cython.longlong)
    cdef int forget(self, long long end) noexcept
    cdef long long tried(self, long long base, long long arm) noexcept
    @cython.locals(own=cython.longlong, count=cython.longlong, served=cython.longlong)
    cdef long long expected(self, long long base, long long arm) noexcept
    @cython.locals(pool=cython.longlong, came=cython.longlong)
    cdef long long _arriving(self, long long source, long long labels) noexcept
    @cython.locals(length=cython.longlong)
    cdef void begin_period(self, long long source, long long slot) noexcept
    cdef void note_arrival(self, long long phase, long long slot) noexcept
    @cython.locals(at=cython.longlong, stride=cython.longlong, is_weighed=cython.bint)
    cdef void expect(self, long long row, long long arm, long long phase, long long by) noexcept
    cdef void release(self, long long row, long long arm, long long phase) noexcept
    cdef list kept_waits(self)
    cdef take_waits(self, list waits)
    @cython.locals(k=cython.longlong)
    cdef combine(self, long long row, ArmCounters other, long long by)
    @cython.locals(function=cython.longlong, first=cython.longlong, at=cython.longlong)
    cdef void _combine_row(self, long long base, ArmCounters other, long long there, long long by) noexcept
