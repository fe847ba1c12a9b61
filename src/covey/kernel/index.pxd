cimport cython
from covey.kernel.table cimport Table

cdef long long ENOUGH, EVIDENCE_UNIT, EVIDENCE_RIGHT
cdef double LOWER_SHARE

@cython.locals(bound=cython.double, rest=cython.double, entropy=cython.double, q=cython.double, near=cython.double, excess=cython.double)
cdef double klucb(double accuracy, double labels, double level) noexcept


cdef class CachingTable(Table):
    cdef int bounds, parts, wanted
    cdef double[::1] values
    cdef long long[::1] stamps
    cdef int _has_grown(self, long long rows) except -1
    cdef int _is_reset(self, long long row) except -1
    cdef bint _is_waiting(self, long long row, long long slot) except -1
    cdef bint _needs_report(self, long long row, long long peer) except -1


cdef class IndexTable(CachingTable):
    cdef double scale
    cdef double[::1] bias
    cdef list _replies(self, long long row)
    cdef int _load_replies(self, long long row, list replies) except -1
    cdef int _has_changed(self, long long row, long long arm) except -1
    @cython.locals(chosen=cython.longlong)
    cdef int _choose(self, long long row, long long slot, bint is_fresh) except? -2
    @cython.final
    @cython.locals(value=cython.double, largest=cython.double, chosen=cython.longlong)
    cdef int _most_valuable(self, long long row, long long slot) except? -2
    cdef int _help(self, long long row) except? -2
    cdef int _make_report(self, long long row, long long slot) except -1
    cdef int _receive_report(self, long long row, long long peer, long long arrivals, double low, double high, long long slot) except -1
    cdef bint _is_credible(self, long long row, long long arm, long long gain, long long slot, bint is_served) noexcept
    cdef int _forget_all(self, long long end) except -1
    @cython.locals(promise=cython.double)
    cdef double _promise(self, long long row, long long peer, long long slot) noexcept
    @cython.final
    cdef double _upper_in(self, long long row, long long arm) noexcept
    @cython.locals(labels=cython.double, right=cython.double, most=cython.double, accuracy=cython.double)
    cdef double _bound_by(self, long long base, long long arm, long long under_way) noexcept
    @cython.final
    @cython.locals(smallest=cython.double, value=cython.double, under_way=cython.longlong)
    cdef double _patience(self, long long row, long long arm) noexcept
    @cython.locals(labels=cython.double, right=cython.double)
    cdef double _credit(self, long long base, long long arm) noexcept
    @cython.final
    @cython.locals(smallest=cython.double, value=cython.double)
    cdef double _upper(self, long long row, long long arm) noexcept
    @cython.final
    @cython.locals(smallest=cython.double, value=cython.double)
    cdef double _upper_by_labels(self, long long row, long long function) noexcept
    @cython.final
    cdef void _outdate(self, long long row, long long arm) noexcept
    @cython.final
    @cython.locals(largest=cython.double)
    cdef double _reply(self, long long row) noexcept
    @cython.locals(labels=cython.double, accuracy=cython.double, upper=cython.double)
    cdef long long _width(self, long long row, long long function) noexcept
    @cython.final
    @cython.locals(labels=cython.longlong, right=cython.double, believed=cython.double, share=cython.double, grounds=cython.double)
    cdef long long _change_evidence(self, long long row, long long arm, long long gain) noexcept
    @cython.final
    @cython.locals(value=cython.double, largest=cython.double, chosen=cython.longlong, at=cython.longlong, base=cython.longlong)
    cdef long long _most_promising(self, long long row) noexcept


cdef class FreshTable(IndexTable):
    cdef list _replies(self, long long row)
    cdef int _load_replies(self, long long row, list replies) except -1
    @cython.locals(chosen=cython.longlong)
    cdef int _choose(self, long long row, long long slot, bint is_fresh) except? -2
    cdef bint _needs_report(self, long long row, long long peer) except -1
    cdef bint _is_waiting(self, long long row, long long slot) except -1


cdef class RecentTable(FreshTable):
    cdef int _choose(self, long long row, long long slot, bint is_fresh) except? -2
    @cython.final
    @cython.locals(replies=cython.longlong)
    cdef bint _is_unheard(self, long long row, long long slot) noexcept
    @cython.locals(labels=cython.double, right=cython.double, most=cython.double, accuracy=cython.double)
    cdef double _bound_by(self, long long base, long long arm, long long under_way) noexcept
    @cython.locals(labels=cython.double, right=cython.double)
    cdef double _credit(self, long long base, long long arm) noexcept


cdef class BalanceTable(FreshTable):
    @cython.locals(promise=cython.double)
    cdef double _promise(self, long long row, long long peer, long long slot) noexcept
    @cython.final
    @cython.locals(labels=cython.double, tried=cython.double, right=cython.double, width=cython.double, mean=cython.double, promise=cython.double)
    cdef double _balance(self, long long row, long long peer) noexcept
