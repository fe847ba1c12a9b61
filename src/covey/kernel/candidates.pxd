cimport cython
from covey.kernel.counters cimport CellCounters
from covey.kernel.spaces cimport Ledger
from covey.kernel.table cimport Table


cdef class CandidateTable(Table):
    cdef Ledger ledger
    cdef list known_cells, columns
    cdef dict by_cell, by_rows, found_rows
    cdef set strangers, changed
    cdef int count
    cpdef layers(self, long long row)
    cdef int _register(self, cell, bint is_foreign) except -1
    cdef list _parts(self, cell)
    cdef tuple _open_all(self, long long row, long long slot)
    cdef tuple _rows(self, long long row)
    cdef int _row_now(self) except -1
    cdef Table _table(self, long long k)
    cdef tuple _point(self, long long k)
    @cython.locals(table=Table)
    cdef int _note(self, long long k, long long row, bint is_served) except -1
    cpdef decide(self, tuple context, long long slot, bytes closed=*)
    cpdef resume(self, long long row, tuple context, long long slot, bytes closed=*)
    @cython.locals(code=cython.longlong)
    cdef long long _decide(self, long long slot, long long fresh, bytes closed) except? -4611686018427387904
    @cython.locals(choice=cython.longlong, row=cython.longlong)
    cdef long long _pick(self, long long slot, long long fresh, bytes closed) except? -4611686018427387904
    cpdef decide_batch(self, double[::1] contexts, long long first_slot, long long[::1] decisions, bytes closed=*)
    @cython.locals(table=Table)
    cpdef count_batch(self, double[::1] contexts, long long[::1] decisions)
    @cython.locals(table=Table)
    cpdef serve(self, long long row, long long slot, long long function=*)
    cpdef combine(self, long long row, CellCounters other, long long by)
    cpdef retract(self, long long decision, tuple context, long long slot)
    cdef int _retract_all(self, long long decision, long long slot) except -1
    cpdef settle(self, long long decision, long long gain, tuple context, long long slot, long long paid=*)
    cdef int _settle_all(self, long long decision, long long gain, long long slot, long long paid) except -1
    cpdef score(self, long long decision, long long function, long long gain, tuple context, long long slot)
    cpdef retract_batch(self, double[::1] contexts, long long first_slot, long long[::1] decisions)
    cpdef settle_batch(self, double[::1] contexts, long long[::1] slots, long long[::1] decisions, long long[::1] gains, long long[::1] paid)
    cpdef forget_batch(self, long long[::1] decisions)
