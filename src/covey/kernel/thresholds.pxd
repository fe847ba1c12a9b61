cimport cython

cdef long long FAR


@cython.final
cdef class Clock:
    cdef double[::1] scales, powers
    cdef long long[::1] floors
    cdef long long now, start, end, stride, before, rounded
    cdef readonly long long alarms
    cdef double logarithm
    @cython.locals(step=cython.longlong)
    cdef void round_up(self, long long slot) noexcept
    cdef void move(self, long long slot) noexcept
    cdef void _look(self, long long slot) noexcept
    cdef bint _has_changed(self, long long slot) noexcept
    @cython.locals(value=cython.double)
    cdef long long _floor(self, int which, long long slot) noexcept
