cimport cython
from covey.kernel.cells cimport ARRIVALS, BEST, BEST_OWN, LEVEL, PARENT, Cells, doubles, integers
from covey.kernel.counters cimport CLOSED, EXPLOIT, EXPLORE, FOREVER, UNPAID, ArmCounters
from covey.kernel.table cimport Clock, CellPolicy

# The same as in `index.py`, as literals for C.
cdef enum:
    LARGE = 0
    SMALL = 1
    COUNT = 2
    UNTIL = 3
    LIMIT = 4
    ERRORS = 5
    VARIANCE = 6
    FILLED = 7
    RATIO = 8
    BLOCKS = 9
    WATCHED = 10
    PRODUCTS = 0
    SQUARES = 1
    RESIDUALS = 2
    RESIDUAL_COUNT = 3
    OF_SERVED = 4
    ARRIVING = 8
    ROUND = 9
    DECIDED = 10
    LEAD = 11
    COMPARED = 12
    ONE_CELL = 13
    BLOCK = 32
    USUAL_BLOCKS = 8
    LONGEST = 64
    PATIENCE = 100
    ENOUGH = 4
    TURN = 2147483647

cdef extern from *:
    long long WHOLE_LABEL "(1LL << 20)"
    long long EVIDENCE_UNIT "(1LL << 20)"
    long long GOLDEN "(1327217885LL)"
    long long SILVER "(889516852LL)"
    double PRIOR_LABELS "(1.0)"
    double PRIOR_MEAN "(0.5)"
    double LEAST_BELIEF "(0.02)"
    double LEAST_MEAN "(0.1)"
    double LOWER_SHARE "(0.75)"
    double LARGE_FALL "(0.5)"
    double SMALL_FALL "(0.85)"
    double USUAL_DEPENDENCE "(2.0)"
    double REMEMBERED "(0.75)"
    double SURE "(3.0)"
    double UNSURE "(8.99)"

cdef long long EVIDENCE_RIGHT
cdef double NEAR_NODE, FAR_NODE, AT_NEAR, AT_FAR, LOG_LARGE_FALL, LOG_SMALL_FALL, USUAL_MARGIN

@cython.locals(bound=cython.double, rest=cython.double, entropy=cython.double, q=cython.double,
               near=cython.double, excess=cython.double)
cdef double klucb(double accuracy, double labels, double level) noexcept
cdef inline long long whole(double value) noexcept
cdef inline long long fixed(double labels) noexcept
cdef inline double unfixed(long long number) noexcept
@cython.locals(rest=cython.double, bend=cython.double, root=cython.double, width=cython.double,
               near=cython.double, far=cython.double, q=cython.double, slope=cython.double)
cdef inline double upper(double mean, double bound) noexcept


cdef class ShareUcb(CellPolicy):
    cdef double scale
    cdef int wanted, values, reports
    @cython.locals(chosen=cython.longlong, base=cython.longlong)
    cdef int choose(self, long long row, long long slot, bint is_fresh) except? -2
    cdef bint is_waiting(self, long long row, long long slot) except -1
    cdef int wanted_from(self, long long row, long long peer) except? -2
    @cython.locals(value=cython.double, largest=cython.double, chosen=cython.longlong, arm=cython.longlong)
    cdef int _most_valuable(self, long long base, long long slot) except? -2
    @cython.locals(promise=cython.double, at=cython.longlong, under_way=cython.longlong)
    cdef double _promise(self, long long base, long long arm, long long slot) noexcept
    @cython.locals(labels=cython.double, right=cython.double)
    cdef double _credit(self, long long base, long long arm) noexcept
    @cython.locals(at=cython.longlong, under_way=cython.longlong)
    cdef double _upper(self, long long base, long long arm) noexcept
    @cython.locals(labels=cython.double, accuracy=cython.double, right=cython.double)
    cdef double _bound_by(self, long long base, long long arm, long long under_way) noexcept
    @cython.locals(value=cython.double, largest=cython.double, chosen=cython.longlong, at=cython.longlong, base=cython.longlong, function=cython.longlong)
    cdef int serve(self, long long row) except? -2
    @cython.locals(function=cython.longlong)
    cdef int report(self, long long row, long long slot) except -1
    cdef int hear(self, long long row, long long peer, long long arrivals, double low, double high, long long slot) except -1
    @cython.locals(evidence=cython.longlong, is_alarm=cython.bint)
    cdef bint is_credible(self, long long row, long long arm, long long gain, long long slot, bint is_served) noexcept
    @cython.locals(labels=cython.longlong, right=cython.double, believed=cython.double, share=cython.double, grounds=cython.double)
    cdef long long _change_evidence(self, long long base, long long arm, long long gain) noexcept


@cython.final
cdef class TreeBelief:
    cdef ArmCounters counters
    cdef Cells cells
    cdef int stride, labels, right, info, shrunk, underway, arms
    cdef bint is_pending, is_layered, uses_one_cell, tries_tree
    cdef long long unit, lead, compared, limit, standing, depth
    cdef double mean, variance, trust
    cdef object block
    cdef double* shrink
    cdef long long* chain
    @cython.locals(level=cython.longlong)
    cdef inline void climb(self, long long row) noexcept
    cdef inline bint is_alike(self) noexcept
    cdef inline int believe(self, long long row, long long arm) noexcept
    @cython.locals(right=cython.double, base=cython.longlong)
    cdef inline int believe_alike(self, long long row, long long arm) noexcept
    @cython.locals(level=cython.longlong, at=cython.longlong, mean=cython.double, variance=cython.double, part=cython.double)
    cdef inline int infer(self, long long row, long long arm) noexcept
    @cython.locals(at=cython.longlong, level=cython.longlong, most=cython.longlong, labels=cython.longlong, hidden=cython.double)
    cdef inline long long under_way(self, long long row, long long arm) noexcept
    @cython.locals(plain=cython.double, ratio=cython.double, lead=cython.longlong, is_better=cython.bint)
    cdef bint compare(self, long long row, long long arm, double correct, double fine) noexcept
    @cython.locals(worth=cython.longlong, right=cython.longlong, at=cython.longlong, base=cython.longlong, level=cython.longlong,
                   labels=cython.longlong, correct=cython.longlong, before=cython.double, after=cython.double)
    cdef inline int add_label(self, long long row, long long arm, long long gain, double expected) noexcept
    @cython.locals(level=cython.longlong, at=cython.longlong, to=cython.longlong)
    cdef void derive(self, long long row, long long arm) noexcept
    @cython.locals(row=cython.longlong, base=cython.longlong, arm=cython.longlong, k=cython.longlong)
    cdef void forget(self, long long first, long long end) noexcept
    cdef inline void outdate(self, long long arm) noexcept


@cython.final
cdef class FallTest:
    cdef double margin
    cdef int count
    cdef object block
    cdef long long* watch
    cdef double* units
    @cython.locals(unit=cython.double, errors=cython.double, large=cython.double, small=cython.double)
    cdef bint is_fall(self, double believed, double gain, long long first) noexcept
    @cython.locals(first=cython.longlong, weight=cython.double, measured=cython.double)
    cdef void set_units(self) noexcept
    cdef void restart(self, long long first) noexcept


@cython.final
cdef class ErrorRuns:
    cdef int arms
    cdef double slope, slope_served
    cdef object block
    cdef long long* sums
    cdef long long* moods
    cdef long long* mood_slots
    cdef double* fading
    @cython.locals(age=cython.longlong)
    cdef inline double mood(self, long long arm, long long slot) noexcept
    @cython.locals(mood=cython.double, expected=cython.double)
    cdef inline double note_error(self, long long arm, double error, long long slot) noexcept
    @cython.locals(mood=cython.double, expected=cython.double)
    cdef inline double note_served_error(self, long long function, double error) noexcept
    cdef inline void _regress(self, long long first, double mood, double error) noexcept
    @cython.locals(products=cython.double, squares=cython.double, residuals=cython.double, margin=cython.double, count=cython.double)
    cdef inline double sure_slope(self, long long first) noexcept


cdef class AutoPolicy(CellPolicy):
    cdef TreeBelief belief
    cdef FallTest changes
    cdef ErrorRuns runs
    cdef double scale, share, expected
    cdef long long offset, round
    cdef int wanted, values, reports
    cdef object block
    cdef double* offers
    cdef double* averages
    cdef double* alike
    cdef long long* labelled
    cdef long long* alike_versions
    @cython.locals(arm=cython.longlong, judged=cython.longlong)
    cdef int choose(self, long long row, long long slot, bint is_fresh) except? -2
    @cython.locals(arm=cython.longlong)
    cdef int choose_again(self, long long row, long long slot) except? -2
    cdef bint is_waiting(self, long long row, long long slot) except -1
    cdef int wanted_from(self, long long row, long long peer) except? -2
    @cython.final
    cdef inline void _start(self, long long slot) noexcept
    @cython.final
    @cython.locals(arm=cython.longlong)
    cdef void _outdate(self) noexcept
    @cython.final
    @cython.locals(arm=cython.longlong)
    cdef void _doubt(self) noexcept
    @cython.final
    @cython.locals(labels=cython.double, share=cython.double)
    cdef inline void _measure(self) noexcept
    @cython.final
    cdef inline void _try_tree(self, bint tries) noexcept
    @cython.final
    @cython.locals(part=cython.double)
    cdef inline bint _is_try(self, long long slot) noexcept
    @cython.final
    @cython.locals(bound=cython.double, arriving=cython.double)
    cdef inline double _index(self, long long under_way) noexcept
    @cython.final
    @cython.locals(at=cython.longlong, arm=cython.longlong)
    cdef inline void _refresh(self, long long row, long long first, long long end) noexcept
    @cython.final
    @cython.locals(at=cython.longlong)
    cdef inline void _believe(self, long long row, long long arm) noexcept
    @cython.final
    @cython.locals(arm=cython.longlong, base=cython.longlong, at=cython.longlong, value=cython.double, mean=cython.double, mood=cython.double, price=cython.double)
    cdef int _consider(self, long long row, long long first, long long end, long long judged, long long slot) except -1
    @cython.final
    @cython.locals(arm=cython.longlong, chosen=cython.longlong, best=cython.longlong, largest=cython.double, highest=cython.double)
    cdef inline int _pick(self, long long row, long long slot) noexcept
    @cython.final
    cdef inline bint _is_reported(self, long long arm) noexcept
    @cython.final
    @cython.locals(at=cython.longlong, mean=cython.double, highest=cython.double, is_pending=cython.bint)
    cdef inline double _promise(self, long long row, long long arm, long long slot) noexcept
    @cython.final
    @cython.locals(under_way=cython.longlong, own=cython.double, bound=cython.double)
    cdef double _check_promise(self, long long row, long long arm, double mean, double highest) noexcept
    @cython.locals(chosen=cython.longlong, largest=cython.double, value=cython.double, function=cython.longlong)
    cdef int serve(self, long long row) except? -2
    @cython.locals(at=cython.longlong, highest=cython.double, function=cython.longlong)
    cdef int report(self, long long row, long long slot) except -1
    cdef int hear(self, long long row, long long peer, long long arrivals, double low, double high, long long slot) except -1
    cdef int learn_now(self, long long row, long long arm, long long phase, long long gain, long long slot) except -1
    cdef int learn(self, long long row, long long arm, long long phase, long long gain, long long slot, long long paid) except -1
    cdef int learn_served(self, long long row, long long function, long long gain, long long slot) except -1
    cdef int score(self, long long row, long long function, long long gain, long long slot, bint is_served) except -1
    @cython.final
    @cython.locals(error=cython.double)
    cdef bint _is_rise(self, long long row, long long function, long long gain) noexcept
    @cython.final
    cdef inline bint _is_first(self, long long function, long long slot) noexcept
    @cython.locals(report=cython.longlong, first=cython.longlong, believed=cython.double, fine=cython.double, correct=cython.double)
    cdef bint is_credible(self, long long row, long long arm, long long gain, long long slot, bint is_served) noexcept
    cpdef int derive(self, long long row) except -1
    @cython.locals(row=cython.longlong, arm=cython.longlong, function=cython.longlong, peer=cython.longlong)
    cdef int forget(self, long long end) except -1
    cpdef list state(self)
    cpdef restore(self, list state)
