cimport cython
from covey.kernel.table cimport Table


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
    cdef long long choice, helper, function, stand_in, width
    cdef tuple _own_rows(self)
    cdef tuple _met_rows(self)
    cdef inline Table _at(self, long long k)
    cdef inline Table _table(self, long long space)
    cdef inline int _locate(self, double* contexts, long long start, long long slot) except -1
    @cython.locals(one=cython.longlong, choice=cython.longlong, largest=cython.double, value=cython.double)
    cdef inline int _choose(self, long long slot, long long fresh) except? -2
    cdef inline int _open_for(self, Ledger asker, long long slot) except -1
    @cython.locals(function=cython.longlong, chosen=cython.longlong, largest=cython.double, value=cython.double)
    cdef inline int _help(self, Ledger asker) except? -2
    @cython.locals(count=cython.longlong, total=cython.longlong, answer=cython.longlong, largest=cython.double)
    cdef int _recall(self, Ledger asker) except? -2
    @cython.locals(function=cython.longlong, chosen=cython.longlong, largest=cython.double, value=cython.double)
    cdef int _best_own(self) except? -2
    @cython.locals(table=Table)
    cdef int _score(self, Ledger asker, tuple rows, scores, long long slot, bint is_served) except -1
    cdef inline int _count(self) except -1
    cdef inline int _learn(self, long long gain, long long slot, long long paid) except -1
