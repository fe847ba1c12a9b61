cimport cython
from covey.kernel.cells cimport (
    ARRIVALS, BEST, BEST_OWN, COORDINATES, LEVEL, NEXT_TEST, OWN, PARENT, Cells, doubles, integers,
)

# The same as in `counters.py`, as literals for C.
cdef enum:
    TRAIN = 0, EXPLORE, EXPLOIT, SERVE
    WAITS = 14
    INSTANCES = 0, DUE, SINCE_SLOT, POOL, CAME, LAST_POOL, LAST_CAME, OF_PEERS
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
    cdef long long functions, arms, asked, labels, right, last, ring, beliefs, values
    cdef long long underway, underway_served, spent, times, recent, recent_right
    cdef long long window, keep, unit, decided
    cdef public long long expected_labels
    cdef readonly long long blind
    cdef bint explores_to_help, counts_labelled, weighs, forgets, is_closing, learns_costs
    cdef bint ignores_prices, has_rewards, has_custom_rewards, dates_labels, has_tree
    cdef bint is_pending
    cdef public bint once
    cdef double largest
    cdef list custom_rewards, summed
    cdef double *costs, *prices, *rewards, *told
    cdef long long version
    cdef long long *learnt, *pending_of, *waits, *waits_there
    cdef int best(self, long long base) except -1
    cdef long long most_accurate(self, long long base) noexcept
    @cython.locals(is_later=cython.bint)
    cdef int most(self, long long base, long long end, bint is_net) except -1
    cdef inline double price(self, long long base, long long arm) noexcept
    cdef int weigh(self, long long base, long long seen) except -1
    cdef inline double worth(self, long long base, long long arm, double accuracy) except? -2
    cdef inline double net(self, long long arm, double accuracy, double price) except? -2
    cdef double _reward(self, long long arm, double accuracy, double price) except? -2
    @cython.locals(bound=cython.double, first=cython.double)
    cdef double _custom_worth(self, long long arm, double accuracy, double price) except? -2
    cdef inline double accuracy(self, long long base, long long arm) noexcept
    cpdef set_cost(self, long long arm, double cost)
    cdef double _cost_of(self, double cost) noexcept
    cdef int close(self, bytes closed) except -1
    cdef void reopen(self) noexcept
    cdef void count_own(self, long long row, long long by) noexcept
    cdef void count_served(self, long long row, long long by) noexcept
    cdef inline void spend(self, long long base, long long arm, long long paid) noexcept
    cdef void take(self, long long base, long long function, long long gain, long long slot) noexcept
    cdef inline void outdate(self, long long base, long long arm) noexcept
    cdef void record(self, long long base, long long arm, long long gain) noexcept
    cpdef record_recent(self, long long base, long long arm, long long gain)
    cdef void _push(self, long long base, long long arm, long long gain) noexcept
    cdef int remember_around(self, label, answer, long long slot) except -1
    cdef long long forget(self, long long end) noexcept
    cdef long long tried(self, long long base, long long arm) noexcept
    cdef long long expected(self, long long base, long long arm) noexcept
    cdef long long _arriving(self, long long source, long long labels) noexcept
    cdef void begin_period(self, long long source, long long slot) noexcept
    cdef void note_arrival(self, long long phase, long long slot) noexcept
    @cython.locals(is_weighed=cython.bint)
    cdef void expect(self, long long row, long long arm, long long phase, long long by) noexcept
    cdef void release(self, long long row, long long arm, long long phase) noexcept
    cdef combine(self, long long row, ArmCounters other, long long by)
    @cython.locals(first=cython.longlong)
    cdef void _combine_row(self, long long base, ArmCounters other, long long there, long long by) noexcept
