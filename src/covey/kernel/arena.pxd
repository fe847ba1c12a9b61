cimport cython
from cpython.object cimport PyObject
from covey.kernel.cells cimport BEST, COORDINATES, LEVEL, OWN, Cells, doubles, halves, integers, octets
from covey.kernel.counters cimport EXPLOIT, SERVE, UNPAID, ArmCounters
from covey.kernel.table cimport Clock, CellPolicy, Table

cdef extern from *:
    """
    #define COVEY_ITEMS(list) (((PyListObject *) (list))->ob_item)
    """
    PyObject** items_of "COVEY_ITEMS" (list items) noexcept

# The same as in `arena.py`, as literals for C.
cdef enum:
    NEVER = -1
    AHEAD = 16
    NEXT = 0
    DUE = 1
    WHO = 2
    SLOT = 3
    CHOICE = 4
    HELPER = 5
    FUNCTION = 6
    GAIN = 7
    PAID = 8
    ROWS = 9
    NEAR = 32768
    HIDDEN = -1


@cython.final
cdef class Ledger:
    cdef readonly list tables
    cdef Table first, asked
    cdef object block
    cdef int* own
    cdef int* places
    cdef int count, chosen
    cdef long long* rows
    cdef long long* asked_rows
    cdef long long choice, helper, function, stand_in
    cdef inline Table at(self, long long k)
    cdef inline Table table(self, long long space)
    cdef int coordinates(self) except -1
    cdef bint needs_points(self) except -1
    @cython.locals(at=cython.longlong, k=cython.longlong, n=cython.longlong)
    cdef int locate(self, double* contexts, long long start, long long slot) except -1
    @cython.locals(candidate=cython.longlong, choice=cython.longlong, largest=cython.double, value=cython.double)
    cdef int choose(self, long long slot, long long fresh) except? -2
    cdef int open_for(self, Ledger asker, long long slot) except -1
    @cython.locals(function=cython.longlong, chosen=cython.longlong, largest=cython.double, value=cython.double, base=cython.longlong)
    cdef int serve(self, Ledger asker) except? -2
    @cython.locals(count=cython.longlong, total=cython.longlong, answer=cython.longlong, largest=cython.double)
    cdef int recall(self, Ledger asker) except? -2
    @cython.locals(function=cython.longlong, chosen=cython.longlong, largest=cython.double, value=cython.double, base=cython.longlong)
    cdef int best_own(self) except? -2
    @cython.locals(row=cython.longlong)
    cdef int score(self, Ledger asker, scores, long long slot, bint is_served) except -1
    cpdef int count_own(self) except -1
    cdef int expect(self, Ledger helper) except -1
    cdef int learn(self, long long gain, long long slot, long long paid) except -1
    cdef int _choose_open(self, long long slot, long long fresh, bytes closed) except? -2
    cdef tuple held(self)
    cdef int hold(self, tuple held) except -1


@cython.final
cdef class LateLabels:
    cdef list ledgers
    cdef object block
    cdef dict extras
    cdef long long wait, room, used, free, pending, now, far, last_far
    cdef int width, points, size
    cdef bint is_honest, remembers, is_pending, is_usual
    cdef list policies
    cdef PyObject** policy_at
    cdef object list_block
    cdef list misleads
    cdef int* lists
    cdef long long* numbers
    cdef double* reals
    cdef inline Ledger _ledger(self, long long learner)
    cdef int _take_block(self, object memory) except -1
    cdef long long told(self, long long i, long long gain) noexcept
    @cython.locals(record=cython.longlong, at=cython.longlong)
    cdef int make(self, long long i, long long slot, long long due, long long choice) except -1
    cdef int _grow(self) except -1
    @cython.locals(place=cython.longlong)
    cdef inline int _append(self, long long record, long long due) noexcept
    @cython.locals(record=cython.longlong, after=cython.longlong, is_next=cython.bint)
    cdef int move(self, long long slot) noexcept
    @cython.locals(place=cython.longlong, record=cython.longlong, at=cython.longlong, after=cython.longlong)
    cdef int deliver(self, long long slot) except -1
    @cython.locals(choice=cython.longlong, slot=cython.longlong, gain=cython.longlong, gained=cython.longlong, paid=cython.longlong,
                   helper=cython.longlong, function=cython.longlong, point=cython.longlong, row=cython.longlong, met=cython.longlong,
                   k=cython.longlong, n=cython.longlong)
    cdef int _settle(self, long long at, long long record) except -1
    @cython.locals(slot=cython.longlong, choice=cython.longlong, gain=cython.longlong)
    cdef int _settle_usual(self, long long at) noexcept
    @cython.locals(choice=cython.longlong)
    cdef int _expect_usual(self, long long at, long long by) noexcept
    @cython.locals(helper=cython.longlong)
    cdef int _settle_more(self, long long at, more) except -1
    cdef int remember(self, Ledger ledger, long long helper, more, long long slot) except -1
    cdef int score(self, Ledger ledger, long long i, long long helper, scores, long long slot) except -1
    @cython.locals(choice=cython.longlong, helper=cython.longlong, function=cython.longlong, row=cython.longlong, met=cython.longlong, k=cython.longlong)
    cdef int expect(self, long long at, long long by) except -1
    @cython.locals(choice=cython.longlong, helper=cython.longlong, function=cython.longlong, row=cython.longlong, met=cython.longlong, k=cython.longlong)
    cdef int _release(self, long long at) except -1


@cython.final
cdef class RowNumbers:
    cdef Cells cells
    cdef object block
    cdef long long count, room
    cdef int* at
    @cython.locals(used=cython.longlong, row=cython.longlong)
    cdef int catch_up(self, long long space, dict known) except -1


@cython.locals(row=cython.longlong, base=cython.longlong, there=cython.longlong, k=cython.longlong, differ=cython.bint)
cdef bint is_like(Cells cells, Cells other, long long first) noexcept
@cython.locals(first=cython.longlong)
cdef inline void touch_row(Cells cells, long long row) noexcept
@cython.locals(slice_=cython.longlong, k=cython.longlong, side=cython.double)
cdef inline void aim_at(Cells cells, double* contexts, int* columns, long long start) noexcept


@cython.final
cdef class Arena:
    cdef Clock clock
    cdef list ledgers, tables, policies, numbers, free
    cdef dict known
    cdef LateLabels late
    cdef PyObject** table_at
    cdef PyObject** policy_at
    cdef PyObject** number_at
    cdef int count, spaces, stream_count, width, hidden_from
    cdef long long total, written, seen, alike, slots
    cdef bint has_receivers, has_delays, has_shown, has_gains, has_costs, is_busy, is_batched
    cdef bint remembers, has_free, is_alike, looks_ahead
    cdef list kept
    cdef tuple opened
    cdef bint all_receive
    cdef int* offsets
    cdef int* starts
    cdef int* behind
    cdef int* cost_columns
    cdef int* receives
    cdef int* streams
    cdef int* lies
    cdef int* receivers
    cdef int* labels
    cdef int* cells
    cdef int* arms
    cdef int* functions
    cdef int* correct
    cdef int* paid
    cdef int* columns
    cdef int* predictions
    cdef int* gains
    cdef int* costs
    cdef long long* patience
    cdef long long* rows
    cdef long long* choices
    cdef long long* met
    cdef long long* served
    cdef long long* helpers
    cdef long long* ahead
    cdef long long* answers
    cdef long long* delays
    cdef long long* busy
    cdef signed char* phases
    cdef signed char* shown
    cdef double* contexts
    cdef int* _whole(self, numbers) except NULL
    cdef long long* _long(self, numbers) except NULL
    cdef list _answers(self, list seats)
    cdef inline Ledger _ledger(self, long long learner)
    @cython.locals(t=cython.longlong, slot=cython.longlong, first=cython.longlong, end=cython.longlong, i=cython.longlong, is_usual=cython.bint, is_shared=cython.bint)
    cpdef run(self, log, long long first_slot, trace)
    @cython.locals(k=cython.longlong)
    cdef inline int _move_clocks(self, long long slot) except -1
    cdef int _open(self, log, trace) except -1
    @cython.locals(k=cython.longlong, is_usual=cython.bint)
    cdef bint _is_usual(self) except -1
    @cython.locals(table=Table)
    cdef bint _are_alike(self) except -1
    @cython.locals(k=cython.longlong, i=cython.longlong, start=cython.longlong, at=cython.longlong)
    cdef void _look_ahead(self, long long t, long long count) noexcept
    @cython.locals(i=cython.longlong, here=cython.longlong, row=cython.longlong, choice=cython.longlong, who=cython.longlong)
    cdef int _decide_all(self, long long t, long long slot, long long first, long long end) except -1
    cdef inline int _meet(self, long long seat, long long own, long long row, long long slot) except -1
    @cython.locals(at=cython.longlong, n=cython.longlong)
    cdef int _locate(self, long long i, long long t, long long slot) except -1
    @cython.locals(i=cython.longlong, at=cython.longlong, row=cython.longlong, number=cython.int, label=cython.int, choice=cython.longlong, arm=cython.longlong, who=cython.longlong,
                   function=cython.longlong, line=cython.longlong, shown=cython.longlong, gain=cython.longlong, is_prompt=cython.bint)
    cdef int _end_all(self, long long t, long long slot, long long first, long long end) except -1
    @cython.locals(row=cython.longlong, choice=cython.longlong, who=cython.longlong, paid=cython.longlong, delay=cython.longlong)
    cdef int _end_late(self, long long i, long long t, long long slot, long long gain, long long at) except -1
    @cython.locals(choice=cython.longlong, arm=cython.longlong, stream=cython.longlong, k=cython.longlong)
    cdef int _decide(self, Ledger ledger, long long i, long long slot, long long t) except -1
    @cython.locals(answer=cython.longlong, arm=cython.longlong)
    cdef int _call(self, Ledger ledger, long long i, long long slot, long long t) except -1
    @cython.locals(met=cython.longlong, who=cython.longlong, seat=cython.longlong, place=cython.longlong)
    cdef int _ask(self, long long i, CellPolicy policy, long long space, long long row, long long slot) except -1
    @cython.locals(arm=cython.longlong, chosen=cython.longlong, largest=cython.double, blind=cython.longlong, before=cython.longlong, is_blind=cython.bint)
    cdef int _consult(self, Ledger ledger, long long i, long long slot) except? -2
    @cython.locals(arm=cython.longlong, met=cython.longlong, base=cython.longlong, best=cython.longlong, seen=cython.longlong, count=cython.longlong, total=cython.longlong)
    cdef int _hear(self, Ledger ledger, long long i, long long k, long long slot) except -1
    cdef inline long long _gain(self, long long line, long long t) noexcept
    @cython.locals(helper=cython.longlong, function=cython.longlong, line=cython.longlong, first=cython.longlong, gain=cython.longlong, paid=cython.longlong,
                   delay=cython.longlong, busy=cython.longlong, is_helped=cython.bint, k=cython.longlong)
    cdef int _end(self, Ledger ledger, long long i, long long slot, long long t) except -1
    @cython.locals(delay=cython.longlong)
    cdef long long _delay(self, long long i, long long t, long long busy) noexcept
    @cython.locals(at=cython.longlong, point=cython.longlong, k=cython.longlong, n=cython.longlong, due=cython.longlong, record=cython.longlong)
    cdef int _keep(self, Ledger ledger, long long i, long long slot, long long gain, long long delay, long long paid, more) except -1
    @cython.locals(said=cython.longlong)
    cdef _said(self, long long line, long long t)
    cdef list _gains(self, long long owner, long long line, long long chosen, long long t)
    @cython.locals(column=cython.longlong)
    cdef inline long long _cost(self, long long i, long long arm, long long t) noexcept
    @cython.locals(at=cython.longlong, arm=cython.longlong, shown=cython.longlong, row=cython.longlong, space=cython.longlong)
    cdef int _write(self, Ledger ledger, long long i, long long function, long long gain, long long t, long long paid) except -1
    cdef int _play_batch(self, long long first, long long end, long long slot) except -1
