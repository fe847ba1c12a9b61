cimport cython
from cpython.object cimport PyObject
from covey.kernel.calendar cimport LabelCalendar
from covey.kernel.spaces cimport Ledger
from covey.kernel.table cimport Table
from covey.kernel.thresholds cimport Clock

cdef long long AHEAD


@cython.final
cdef class Arena:
    cdef Clock clock
    cdef list ledgers
    cdef int[:, ::1] predictions, gains, costs
    cdef long long[:, ::1] busy
    cdef int[::1] offsets, starts, behind, cost_columns, receives, streams, lies
    cdef int[::1] labels, cells, arms, functions, correct, paid
    cdef LabelCalendar calendar
    cdef int count, spaces, stream_count, width
    cdef long long total, written, seen
    cdef dict known
    cdef long long[::1] slots
    cdef long long[::1] patience, rows, choices, met, served, helpers, ahead, answers
    cdef long long alike
    cdef list tables
    cdef PyObject** seats
    cdef double* contexts_at
    cdef int* columns_at
    cdef int* predictions_at
    cdef int* labels_at
    cdef int* cells_at
    cdef signed char* phases_at
    cdef int* arms_at
    cdef int* functions_at
    cdef int* correct_at
    cdef long long* rows_at
    cdef long long* choices_at
    cdef long long* met_at
    cdef long long* served_at
    cdef long long* helpers_at
    cdef long long* ahead_at
    cdef int* behind_at
    cdef int* starts_at
    cdef int* offsets_at
    cdef int* streams_at
    cdef long long* answers_at
    cdef int* columns
    cdef double[::1] contexts
    cdef bint has_slots
    cdef bint has_gains, has_costs, is_busy, is_batched, remembers, has_free, is_alike, looks_ahead
    cdef list free
    cdef tuple scores
    cdef signed char[::1] phases
    @cython.locals(at=cython.int[::1], delays=cython.longlong[::1], shown=cython.schar[:, ::1], first=cython.longlong,
                   end=cython.longlong, i=cython.longlong, delay=cython.longlong, is_shown=cython.bint, slot=cython.longlong)
    cpdef run(self, log, long long first_slot, trace)
    @cython.locals(due=cython.longlong)
    cpdef catch_up(self, long long slot)
    @cython.locals(k=cython.longlong)
    cdef inline int _move_clocks(self, long long slot) except -1
    cdef int _open(self, log, trace) except -1
    cdef inline Ledger _ledger(self, long long learner)
    @cython.locals(table=Table, t=cython.longlong, k=cython.longlong, is_usual=cython.bint)
    cdef bint _is_plain(self) except -1
    @cython.locals(t=cython.longlong, known=cython.longlong)
    cdef bint _are_known(self) except -1
    @cython.locals(t=cython.longlong, slots=cython.longlong, slot=cython.longlong)
    cdef int _run_plain(self, long long first_slot) except -1
    cdef void _set_pointers(self) except *
    @cython.locals(first=Table, table=Table)
    cdef bint _are_alike(self) except -1
    @cython.locals(first=Table, k=cython.longlong, i=cython.longlong, start=cython.longlong, at=cython.longlong)
    cdef void _look_ahead(self, long long t, long long count) noexcept
    @cython.locals(i=cython.longlong, here=cython.longlong, row=cython.longlong, choice=cython.longlong, who=cython.longlong)
    cdef int _decide_all(self, long long t, long long slot) except -1
    cdef inline int _meet(self, long long seat, Table table, long long row, long long slot) except -1
    @cython.locals(table=Table, at=cython.longlong)
    cdef int _locate(self, long long i, long long t, long long slot) except -1
    @cython.locals(i=cython.longlong, at=cython.longlong, row=cython.longlong, number=cython.int, label=cython.int, choice=cython.longlong, arm=cython.longlong, who=cython.longlong,
                   function=cython.longlong, line=cython.longlong, shown=cython.longlong, gain=cython.bint)
    cdef int _end_all(self, long long t, long long slot, long long slots) except -1
    @cython.locals(choice=cython.longlong, arm=cython.longlong, stream=cython.longlong, k=cython.longlong)
    cdef int _decide(self, Ledger ledger, long long i, long long slot, long long t) except -1
    @cython.locals(answer=cython.longlong, arm=cython.longlong)
    cdef inline int _call(self, Ledger ledger, long long i, long long slot, long long t) except -1
    @cython.locals(met=cython.longlong, who=cython.longlong, seat=cython.longlong, peer=Table)
    cdef int _ask(self, long long i, Table table, long long space, long long row, long long slot) except -1
    @cython.locals(arm=cython.longlong, seen=cython.longlong, chosen=cython.longlong, largest=cython.double)
    cdef int _consult(self, long long i, long long slot) except? -2
    @cython.locals(met=cython.longlong, base=cython.longlong, best=cython.longlong, seen=cython.longlong, count=cython.longlong, total=cython.longlong)
    cdef int _hear(self, long long i, long long k, long long slot) except -1
    cdef inline long long _gain(self, long long line, long long t) noexcept
    @cython.locals(helper=cython.longlong, function=cython.longlong, line=cython.longlong, first=cython.longlong, gain=cython.longlong, paid=cython.longlong)
    cdef int _end(self, Ledger ledger, long long i, long long slot, long long t, long long delay) except -1
    cdef list _gains(self, long long owner, long long line, long long chosen, long long t)
    @cython.locals(column=cython.longlong)
    cdef inline long long _cost(self, long long i, long long arm, long long t) noexcept
    @cython.locals(at=cython.longlong, arm=cython.longlong, shown=cython.longlong, row=cython.longlong, table=Table)
    cdef inline int _write(self, Ledger ledger, long long i, long long function, long long gain, long long t, long long paid) except -1
    @cython.locals(said=cython.longlong)
    cdef _said(self, long long line, long long t)
    cdef int _remember(self, long long i, long long slot, tuple told) except -1
