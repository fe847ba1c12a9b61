cimport cython
from covey.kernel.table cimport Table
from covey.kernel.thresholds cimport Clock

cdef long long NEVER


@cython.final
cdef class Ledger:
    cdef readonly list tables
    cdef Table first, asked
    cdef int[::1] own, places
    cdef int count, chosen
    cdef long long[::1] rows, asked_rows
    cdef long long choice, helper, function, stand_in, width
    cdef inline Table _at(self, long long k)
    cdef inline Table _table(self, long long space)
    cdef inline int _locate(self, double[::1] contexts, long long start, long long slot) except -1
    @cython.locals(one=cython.longlong, choice=cython.longlong, largest=cython.double, value=cython.double)
    cdef inline int _choose(self, long long slot, long long fresh) except? -2
    cdef inline int _meet(self, Ledger asker, long long slot) except -1
    @cython.locals(function=cython.longlong, chosen=cython.longlong, largest=cython.double, value=cython.double)
    cdef inline int _help(self, Ledger asker) except? -2
    @cython.locals(count=cython.longlong, total=cython.longlong, answer=cython.longlong, largest=cython.double)
    cdef int _recall(self, Ledger asker) except? -2
    @cython.locals(function=cython.longlong, chosen=cython.longlong, largest=cython.double, value=cython.double)
    cdef int _best_own(self) except? -2
    cdef inline int _count(self) except -1
    cdef inline int _learn(self, long long gain, long long slot, long long paid) except -1


@cython.final
cdef class Arena:
    cdef Clock clock
    cdef list ledgers
    cdef int[:, ::1] predictions, gains, costs
    cdef long long[:, ::1] busy
    cdef int[::1] offsets, starts, behind, cost_columns, receives, streams, lies
    cdef int[::1] labels, cells, arms, functions, correct, paid
    cdef int hidden_from, count, spaces, stream_count, width
    cdef long long wait, total, written, seen
    cdef dict calendar
    cdef long long[::1] patience, rows, choices, helpers, met, served
    cdef int[::1] columns
    cdef double[::1] contexts
    cdef bint has_gains, has_costs, is_busy, remembers
    cdef signed char[::1] phases
    @cython.locals(at=cython.int[::1], delays=cython.longlong[::1], shown=cython.schar[:, ::1], first=cython.longlong,
                   end=cython.longlong, i=cython.longlong, delay=cython.longlong, is_shown=cython.bint, slot=cython.longlong)
    cpdef run(self, log, long long first_slot, trace)
    cdef int _open(self, log, trace) except -1
    cdef inline Ledger _ledger(self, long long learner)
    @cython.locals(table=Table, t=cython.longlong, k=cython.longlong, is_usual=cython.bint)
    cdef bint _is_plain(self) except -1
    @cython.locals(tables=list, t=cython.longlong, i=cython.longlong, slot=cython.longlong)
    cdef int _run_plain(self, long long first_slot) except -1
    @cython.locals(table=Table, other=Table, row=cython.longlong, choice=cython.longlong, arm=cython.longlong, helper=cython.longlong, met=cython.longlong, n=cython.longlong)
    cdef inline int _decide_plain(self, list tables, long long i, long long slot, long long t) except -1
    @cython.locals(table=Table, other=Table, row=cython.longlong, choice=cython.longlong, helper=cython.longlong, arm=cython.longlong, at=cython.longlong, function=cython.longlong, gain=cython.bint)
    cdef inline int _end_plain(self, list tables, long long i, long long slot, long long t) except -1
    @cython.locals(choice=cython.longlong, arm=cython.longlong, stream=cython.longlong)
    cdef int _decide(self, Ledger ledger, long long i, long long slot, long long t) except -1
    @cython.locals(answer=cython.longlong, arm=cython.longlong)
    cdef inline int _call(self, Ledger ledger, long long i, long long slot, long long t) except -1
    @cython.locals(row=cython.longlong, met=cython.longlong, who=cython.longlong)
    cdef int _ask(self, long long i, long long k, long long slot) except -1
    @cython.locals(arm=cython.longlong, seen=cython.longlong, chosen=cython.longlong, largest=cython.double)
    cdef int _consult(self, long long i, long long slot) except? -2
    @cython.locals(met=cython.longlong, base=cython.longlong, best=cython.longlong, seen=cython.longlong, count=cython.longlong, total=cython.longlong)
    cdef int _hear(self, long long i, long long k, long long slot) except -1
    cdef inline long long _gain(self, long long function, long long t) noexcept
    @cython.locals(helper=cython.longlong, function=cython.longlong, gain=cython.longlong, paid=cython.longlong)
    cdef int _end(self, Ledger ledger, long long i, long long slot, long long t, long long delay) except -1
    cdef inline long long _row(self, long long i, long long function) noexcept
    @cython.locals(column=cython.longlong)
    cdef inline long long _cost(self, long long i, long long arm, long long t) noexcept
    @cython.locals(at=cython.longlong, arm=cython.longlong, shown=cython.longlong, space=cython.longlong)
    cdef inline int _write(self, Ledger ledger, long long i, long long function, long long gain, long long t, long long paid) except -1
    cdef int _remember(self, long long i, long long slot, long long label) except -1
    cdef long long _delay(self, long long i, long long delay) noexcept
    cdef long long _later(self, long long delay, long long busy) noexcept
    cdef int _note(self, long long i, long long slot, long long gain, long long delay, long long label, long long paid) except -1
    cdef int _deliver(self, long long slot) except -1
    cdef int _settle(self, note, long long gain, long long decided, points, long long label, long long paid) except -1
    cdef int _settle_served(self, tuple asked, long long gain, long long decided, long long label) except -1
    cdef int _release(self, tuple note) except -1
    cdef int _expect(self, tuple note, long long by) except -1
