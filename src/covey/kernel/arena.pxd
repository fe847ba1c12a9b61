cimport cython
from cpython.object cimport PyObject
from covey.kernel.cells cimport BEST, COORDINATES, LEVEL, OWN, Cells, doubles, halves, integers, octets
from covey.kernel.counters cimport EXPLOIT, SERVE, UNPAID, ArmCounters
from covey.kernel.table cimport CellPolicy, Clock, Said, Table

cdef extern from *:
    """
    #define COVEY_ITEMS(list) (((PyListObject *) (list))->ob_item)
    """
    PyObject** items_of "COVEY_ITEMS" (list items) noexcept

# The same as in `arena.py`, as literals for C.
cdef enum:
    NEVER = -1
    AHEAD = 16
    NEXT = 0, DUE, WHO, SLOT, GAIN, PAID, CODES
    NEAR = 32768
    HIDDEN = -1

cdef extern from *:
    long long WHO_MASK "((1LL << 32) - 1)"


@cython.final
cdef class Ledger:
    cdef readonly list tables
    cdef Table first, asked
    cdef object block
    cdef int *own, *places
    cdef long long count, chosen
    cdef long long *rows, *asked_rows
    cdef long long choice, helper, function, stand_in
    cdef inline Table at(self, long long k)
    cdef inline Table table(self, long long space)
    cdef int space(self, long long k) except? -2
    cdef int coordinates(self) except -1
    cdef bint needs_points(self) except -1
    cdef int locate(self, double* contexts, long long start, long long slot) except -1
    cdef int aim(self, double* contexts, long long start) except -1
    cdef int choose(self, long long slot, long long fresh) except? -2
    cdef int open_for(self, Ledger asker, long long slot) except -1
    cdef int serve(self, Ledger asker) except? -2
    @cython.locals(count=cython.longlong, total=cython.longlong, answer=cython.longlong, largest=cython.double)
    cdef int recall(self, Ledger asker) except? -2
    cdef int best_own(self) except? -2
    cpdef int count_own(self) except -1
    cdef int _choose_open(self, long long slot, long long fresh, bytes closed) except? -2
    cdef tuple held(self)
    cdef int hold(self, tuple held) except -1


@cython.final
cdef class LateLabels:
    cdef list tables, policies, misleads, peers
    cdef PyObject** table_at
    cdef PyObject** policy_at
    cdef object block, list_block, own_block
    cdef dict extras
    cdef long long wait, room, used, free, pending, now, far, last_far
    cdef long long width, points, size, spaces
    cdef bint is_honest, is_pending, remembers, has_extras
    cdef int *lists, *own
    cdef long long* numbers
    cdef double* reals
    cdef int _take_block(self, object memory) except -1
    cdef inline int make(self, long long i, long long helper, long long slot, long long delay, long long gain, long long paid) except? -2
    cdef int _grow(self) except -1
    cdef inline int keep(self, long long record) except -1
    cdef int expect(self, long long record, long long by) except -1
    cdef inline long long _append(self, long long record, long long due) noexcept
    cdef inline void _release(self, long long record) noexcept
    @cython.locals(is_next=cython.bint)
    cdef long long move(self, long long slot) noexcept
    cdef int deliver(self, long long slot) except -1
    cdef inline int settle(self, long long record) except -1
    cdef int tell(self, long long i, long long space, long long slot) except -1
    cdef int told(self, long long i, long long gain) except? -2
    @cython.locals(table=Table, function=cython.longlong, gain=cython.longlong)
    cdef int _settle_more(self, more, long long i, long long helper, long long code, long long asked, long long slot, long long space) except -1


@cython.final
cdef class RowNumbers:
    cdef Cells cells
    cdef object block
    cdef long long count, room
    cdef int* at
    cdef int catch_up(self, long long space, dict known) except -1


@cython.locals(differ=cython.bint)
cdef bint is_like(Cells cells, Cells other, long long first) noexcept
cdef inline void touch_row(Cells cells, long long row) noexcept
@cython.locals(slice_=cython.longlong)
cdef inline void aim_at(Cells cells, double* contexts, int* columns, long long start) noexcept


@cython.final
cdef class Arena:
    cdef Clock clock
    cdef list ledgers, tables, policies, numbers, free
    cdef dict known
    cdef LateLabels late
    cdef Said nothing_said
    cdef PyObject** table_at
    cdef PyObject** policy_at
    cdef PyObject** number_at
    cdef long long count, spaces, stream_count, width, hidden_from
    cdef long long total, written, seen, alike, slots
    cdef bint has_receivers, has_delays, has_shown, has_gains, has_costs, is_busy, is_batched, is_prompt
    cdef bint remembers, has_free, is_alike, looks_ahead, is_wide
    cdef list kept
    cdef tuple opened
    cdef bint all_receive
    cdef int *offsets, *starts, *behind, *cost_columns, *receives, *streams, *lies, *receivers, *labels
    cdef int *cells, *arms, *functions, *correct, *paid, *recalled, *columns, *predictions, *gains, *costs
    cdef long long *patience, *rows, *choices, *met, *served, *helpers, *ahead, *answers, *delays, *busy
    cdef signed char *phases, *shown
    cdef double* contexts
    cdef int* _whole(self, numbers) except NULL
    cdef long long* _long(self, numbers) except NULL
    cdef list _answers(self, list seats)
    cdef inline Ledger _ledger(self, long long learner)
    @cython.locals(is_shared=cython.bint)
    cpdef run(self, log, long long first_slot, trace)
    cdef inline int _move_clocks(self, long long slot) except -1
    cdef int _open(self, log, trace) except -1
    @cython.locals(is_usual=cython.bint)
    cdef bint _is_usual(self) except -1
    @cython.locals(table=Table)
    cdef bint _are_alike(self) except -1
    cdef void _look_ahead(self, long long t, long long count) noexcept
    cdef int _decide_all(self, long long t, long long slot, long long first, long long end) except -1
    cdef inline int _meet(self, long long seat, long long own, long long row, long long slot) except -1
    cdef int _locate(self, long long i, long long t, long long slot) except -1
    @cython.locals(gain=cython.longlong, is_prompt=cython.bint)
    cdef int _end_all(self, long long t, long long slot, long long first, long long end) except -1
    cdef int _aim(self, long long i, long long who, long long t) except -1
    cdef inline int _end_late(self, long long i, long long t, long long slot, long long gain, long long at) except -1
    cdef int _decide(self, Ledger ledger, long long i, long long slot, long long t) except -1
    cdef int _call(self, Ledger ledger, long long i, long long slot, long long t) except -1
    cdef int _ask(self, long long i, CellPolicy policy, long long space, long long row, long long slot) except -1
    @cython.locals(is_blind=cython.bint)
    cdef int _consult(self, Ledger ledger, long long i, long long slot) except? -2
    @cython.locals(seen=cython.longlong, count=cython.longlong, total=cython.longlong)
    cdef int _hear(self, Ledger ledger, long long i, long long k, long long slot) except -1
    cdef inline long long _gain(self, long long line, long long t) noexcept
    @cython.locals(gain=cython.longlong, is_helped=cython.bint)
    cdef int _end(self, Ledger ledger, long long i, long long slot, long long t) except -1
    cdef inline long long _delay(self, long long i, long long t, long long busy) noexcept
    @cython.locals(is_helped=cython.bint)
    cdef int _note(self, Ledger ledger, long long record) except -1
    cdef inline long long _said(self, long long i, long long line, long long t) noexcept
    cdef list _gains(self, long long owner, long long line, long long chosen, long long t)
    cdef inline long long _cost(self, long long i, long long arm, long long t) noexcept
    cdef int _write(self, Ledger ledger, long long i, long long function, long long gain, long long t, long long paid) except -1
    cdef int _play_batch(self, long long first, long long end, long long slot) except -1
