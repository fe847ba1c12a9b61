cimport cython
from covey.kernel.cells cimport integers
from covey.kernel.counters cimport UNPAID
from covey.kernel.table cimport Table

# The same as in `tickets.py`, as literals for C.
cdef enum:
    SLOT = 0, CODE, ROWS, INTEGERS
    CONTEXT = 0, ANSWER, TRUTH, SOURCE, NOTE, OBJECTS
    NOT_HERE = -1
    ASKED = -2


@cython.final
cdef class Tickets:
    cdef Table table
    cdef object other, unknown, close, gain_of
    cdef bint remembers, is_pending
    cdef public long long pending
    cdef readonly long long first, next, due
    cdef long long wait, mask
    cdef object block
    cdef long long* integers
    cdef list objects
    cpdef hold(self, long long code, long long slot, long long now, tuple context, answer, source=*, note=*)
    @cython.locals(gain=cython.longlong)
    cpdef settle(self, ticket, label, long long paid=*, bint is_told=*)
    cpdef request(self, ticket)
    cpdef row(self, long long ticket)
    cpdef requests(self)
    cpdef pending_codes(self)
    @cython.locals(number=cython.longlong)
    cdef inline int _place(self, ticket) except -2
    cdef inline int _add(self, long long slot, long long rows) except -1
    cdef int _grow(self) except -1
    cpdef int expire(self, long long now) except -1
    cdef inline int _clear(self, long long place) except -1
