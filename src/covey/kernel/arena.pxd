cimport cython
from cpython.object cimport PyObject
from covey.kernel.cells cimport BEST, COORDINATES, LEVEL, OWN, Cells, doubles, halves, integers, octets
from covey.kernel.counters cimport SERVE, UNPAID, ArmCounters
from covey.kernel.table cimport CellPolicy, Clock, Said, Table

# The same as in `arena.py`, as literals for C.
cdef enum:
    NEVER = -1
    AHEAD = 16
    LINKS = 0, OWNER, DUE, SLOT, GAIN, PAID, CODE, ASKED, POINT
    NEAR = 32768
    HIDDEN = -1


@cython.final
cdef class LateLabels:
    cdef list tables, policies, hearers
    cdef PyObject** table_at
    cdef PyObject** policy_at
    cdef object block, list_block, truth_block
    cdef long long wait, room, used, free, pending, near, far, last_far, points, size
    cdef bint is_pending
    cdef signed char* misleads
    cdef int *lists, *links
    cdef long long* numbers
    cdef double* reals
    cdef int _take_block(self, object memory) except -1
    cdef inline int make(self) except -1
    cdef inline int keep(self, long long at, long long due) except -1
    cdef int expect(self, long long at, long long by) except -1
    @cython.locals(is_pending=cython.bint)
    cdef int move(self, long long slot) except -1
    cdef int deliver(self, long long slot) except -1
    cdef int _aim(self, long long at) except -1
    cdef inline long long told(self, long long own, long long gain) noexcept
    cdef int tell(self, long long own, long long slot) except -1


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
    cdef list clocks, tables, policies, numbers, kept, peers
    cdef dict known
    cdef LateLabels late
    cdef Said nothing_said
    cdef PyObject** table_at
    cdef PyObject** policy_at
    cdef PyObject** number_at
    cdef long long count, spaces, stream_count, width, hidden_from, total, written, alike, slots, wait
    cdef bint has_receivers, has_delays, has_shown, has_gains, has_costs, has_waits, is_batched, is_prompt
    cdef bint is_alike, looks_ahead, is_wide, all_receive
    cdef tuple opened
    cdef int *own, *columns, *columns_from, *offsets, *starts, *asked, *cost_columns
    cdef int *receives, *streams, *lies, *receivers, *labels, *predictions, *gains, *costs
    cdef int *cells, *arms, *functions, *correct, *paid
    cdef long long *rows, *choices, *met, *served, *helpers, *chosen, *ahead, *answers, *traced, *lines
    cdef long long *delays, *waits
    cdef signed char *phases, *shown
    cdef double* contexts
    cdef int* _whole(self, numbers) except NULL
    cdef long long* _long(self, numbers) except NULL
    cpdef run(self, log, long long first_slot, trace)
    cdef void _move_clocks(self, long long slot) noexcept
    cdef int _open(self, log, trace) except -1
    @cython.locals(table=Table)
    cdef bint _are_alike(self) except -1
    cdef void _look_ahead(self, long long t, long long count) noexcept
    cdef int _decide_all(self, long long t, long long slot, long long first, long long end) except -1
    cdef int _ask(self, long long i, CellPolicy policy, long long row, long long slot) except -1
    cdef inline int _meet(self, long long there, long long own, long long row, long long slot) except -1
    cdef inline int _locate(self, long long i, long long t, long long slot) except -1
    cdef inline void _take_point(self, long long i, long long t) noexcept
    @cython.locals(gain=cython.longlong, is_prompt=cython.bint)
    cdef int _end_all(self, long long t, long long slot, long long first, long long end) except -1
    cdef void _aim(self, long long i, long long there, long long t) noexcept
    cdef int _end_late(self, long long i, long long t, long long slot, long long gain, long long at) except -1
    cdef inline long long _delay(self, long long i, long long t) noexcept
