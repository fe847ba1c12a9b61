cimport cython
from covey.kernel.table cimport Table


cdef class CustomTable(Table):
    cdef bint serves_best
    cdef object choosing, serving, view, title
    cdef list nothing, fixed
    cdef int _choose(self, long long row, long long slot, bint is_fresh) except? -2
    @cython.locals(labels=cython.longlong, value=cython.double, largest=cython.double, chosen=cython.longlong)
    cdef int _help(self, long long row) except? -2
    cdef bint _needs_report(self, long long row, long long peer) except -1
    @cython.final
    @cython.locals(arm=cython.longlong)
    cdef int _call(self, method, long long row, long long slot, long long end) except? -2
    @cython.final
    @cython.locals(base=cython.longlong, arm=cython.longlong)
    cdef int _show(self, long long row, long long slot) except -1
