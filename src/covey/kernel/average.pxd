cimport cython
from cpython.object cimport PyObject
from covey.kernel.beliefs cimport CellBeliefs, CoordinateTrees
from covey.kernel.cells cimport ARRIVALS, COORDINATES, LEVEL, WIDE_SIDE, Cells, doubles, integers
from covey.kernel.counters cimport CLOSED, EXPLOIT, EXPLORE, FOREVER, OF_PEERS, SERVE, UNPAID, ArmCounters
from covey.kernel.index cimport upper
from covey.kernel.linear cimport FeatureMap, LinearBelief
from covey.kernel.table cimport CellPolicy, Clock, Said

# The same as in `average.py`, as literals for C.
cdef enum:
    FAST = 0, SLOW, LATEST, FAST_FAST, FAST_SLOW, SLOW_SLOW, FAST_ERROR, SLOW_ERROR, RECORDED
    AGES = 512
    SUM = 0, COUNT, SQUARES, VARIANCES, NEW_SQUARES, NEW_VARIANCES, ERRORS, VARIANCE, FILLED, WATCHED
    BLOCK = 32
    CALIBRATED = 256
    TURN = 2147483647
    MOST_BEHIND = 3145728

cdef extern from *:
    long long UNIT "(1LL << 20)"
    long long GOLDEN "(1327217885LL)"
    double LEAST_BELIEF "(0.02)"
    double LEAST_MEAN "(0.001)"
    double LEAST_VARIANCE "(4e-9)"
    double APART "(1e-9)"
    double NEAR "(1e-6)"
    double UNTOLD "(-1e301)"
    double RECORD_PRIOR "(25.0)"
    double FALL "(0.75)"
    double USUAL "(50.0)"

cdef double LOG_FALL
cdef double* DECAYS

cdef inline long long fixed(double value) noexcept
cdef inline double clipped(double mean, double least) noexcept
cdef inline double share_at(long long slot, long long offset) noexcept
cdef inline double doubt_of(double variance) noexcept
cdef long long likelihood(double mean, double correct) noexcept
cdef void hold_back(long long* logs, long long first, long long count) noexcept


@cython.final
cdef class Record:
    cdef object block
    cdef long long* numbers
    cdef double fast, slow, shift, variance
    cdef long long looked, slot
    cdef long long look(self, long long function, long long slot) noexcept
    cdef long long learn(self, long long function, double error, long long slot, bint is_prompt) noexcept
    cdef void forget(self, long long function) noexcept


@cython.final
cdef class Average:
    cdef ArmCounters counters
    cdef Cells cells
    cdef CellBeliefs tree
    cdef FeatureMap features
    cdef LinearBelief linear
    cdef CoordinateTrees coordinates
    cdef bint has_coordinates
    cdef Record record
    cdef long long stride, functions, asked, trees, kinds, judged, peers, counted, width, stored
    cdef bint is_reporting, is_early, uses_told, is_noting
    cdef list early, notes, dues, noted
    cdef object block
    cdef long long unit, version, place
    cdef double mean, variance, plain, belief_in_record
    cdef long long *logs, *labelled, *told, *sums, *weighed, *heard
    cdef double* weights
    cdef long long* stamps
    cdef double* values
    cdef long long aim(self, long long row) noexcept
    @cython.locals(is_same=cython.bint)
    cdef long long judge(self, long long row, long long arm, long long slot) noexcept
    cdef long long _believe(self, long long row, long long arm) noexcept
    cdef long long _average(self, long long arm, long long slot) noexcept
    cdef double narrowed(self, long long row, long long arm) noexcept
    cdef inline bint is_first(self, long long function, long long slot) noexcept
    cdef inline long long seat(self, long long arm) noexcept
    @cython.locals(is_new=cython.bint)
    cdef int learn(self, long long row, long long arm, long long gain, long long slot, bint is_prompt) except -1
    cdef int _keep(self, long long function, long long gain) except -1
    cdef int _make(self) except -1
    cdef int _learn_at(self, list place, long long function, long long gain) except -1
    cdef void hear(self, long long peer, long long* logs, long long first) noexcept
    cdef void reweigh(self) noexcept
    cdef double narrow(self, long long row, long long arm, double mean, double highest) noexcept
    cdef inline int hear_other(self, long long peer, Average other) noexcept
    cdef void hear_anew(self) noexcept
    cdef void _sum_told(self) noexcept
    cdef void forget(self, long long arms) noexcept
    cdef list state(self)
    cdef list belief(self, long long function)
    cdef long long linears(self) noexcept
    cdef list news(self)
    cdef long long _note_width(self) noexcept
    cdef _restore(self, long long function, list numbers)
    cdef take_belief(self, long long function, list belief)
    cdef adopt(self, Average old, list arms)
    cdef list _place_now(self)
    cdef list restore(self, list state)


@cython.final
cdef class FallTest:
    cdef double margin
    cdef object block
    cdef long long* watch
    cdef bint is_change(self, double believed, double correct) noexcept
    cdef void restart(self) noexcept


@cython.final
cdef class Replies:
    cdef object block
    cdef double* bounds
    cdef long long functions, slot, first, low, high
    cdef double low_end, high_begin
    cdef inline long long pick(self, long long first, double share) noexcept
    @cython.locals(is_clear=cython.bint)
    cdef int divide(self, long long first, long long slot) noexcept
    cdef inline long long taken(self, double share) noexcept


@cython.final
cdef class Friends:
    cdef AutoPolicy policy
    cdef list peers
    cdef PyObject** peer_at
    cdef bint are_alike
    @cython.locals(policy=AutoPolicy, is_pending=cython.bint)
    cdef int choose(self, long long row, long long slot) except? -2
    @cython.locals(cells=Cells)
    cdef int _prepare(self, long long number, long long row, long long slot) except -1


cdef class AutoPolicy(CellPolicy):
    cdef Average average
    cdef FallTest changes
    cdef double scale, share, largest
    cdef long long reports
    cdef long long latest
    cdef long long told_version
    cdef object block
    cdef double *offers, *means, *bounds
    cdef long long* judged
    cdef Replies replies
    cdef Friends friends
    cdef readonly bint is_simple
    @cython.final
    cdef int prepare(self, long long row, long long slot) except -1
    @cython.final
    cdef bint _is_usual(self) noexcept
    @cython.final
    @cython.locals(is_same=cython.bint)
    cdef inline long long _judge(self, long long row, long long slot) noexcept
    @cython.final
    cdef long long _judge_anew(self, long long row, long long slot, long long first) noexcept
    @cython.final
    cdef double _index(self, long long row, long long arm, long long slot) noexcept
    @cython.final
    cdef inline int _offer(self, long long row, long long arm, double mean, double highest) except -1
    @cython.final
    cdef int _consider(self, long long row, long long arm, long long slot) except -1
    @cython.locals(auto=AutoPolicy)
    cpdef adopt(self, CellPolicy old, list arms)
