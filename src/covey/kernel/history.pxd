cimport cython

cdef tuple NOTHING
cdef dict EMPTY


cdef class History:
    cdef dict cells
    cdef readonly long long unseen
    cdef dict _own_cells(self)
    cpdef recall(self, long long row)
    cpdef forget(self, long long row)
    cpdef take_own(self, long long row, label, answer)
    @cython.locals(count=cython.longlong, total=cython.longlong, seen=cython.longlong)
    cpdef take(self, long long row, label, answer)


cdef class AskedHistory(History):
    cpdef take_own(self, long long row, label, answer)
    cpdef take(self, long long row, label, answer)


cdef class PredictionHistory(History):
    cpdef recall(self, long long row)
    cpdef take(self, long long row, label, answer)
