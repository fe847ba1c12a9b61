cimport cython
from covey.kernel.pending cimport PendingCounters
from covey.kernel.thresholds cimport Clock


cdef class Table(PendingCounters):
    cdef Clock clock
    cdef bint is_supervised, floors_training, tells_widths, ignores_reports
    cdef long long arrived, alarm, evidence, evidence_served
    cdef double lowest, highest
    cdef readonly long long alarm_count, forgotten
    cdef readonly list alarms
    cdef list spare_waits
    cdef int _choose(self, long long row, long long slot, bint is_fresh) except? -2
    cdef int _choose_again(self, long long row, long long slot) except? -2
    cdef int _help(self, long long row) except? -2
    cdef int _unexplored(self, long long row) except? -2
    cdef bint _needs_report(self, long long row, long long peer) except -1
    cdef double _value(self, long long base, long long arm) except? -2
    cdef int _best_of(self, long long base, long long end) except -1
    cdef bint _is_waiting(self, long long row, long long slot) except -1
    cdef int _make_report(self, long long row, long long slot) except -1
    cdef int _receive_report(self, long long row, long long peer, long long arrivals, double low, double high, long long slot) except -1
    cdef int _receive_false_report(self, long long row, long long peer, long long slot) except -1
    cdef long long _width(self, long long row, long long function) noexcept
    cdef bint _is_credible(self, long long row, long long arm, long long gain, long long slot, bint is_served) noexcept
    cdef int _on_label(self, long long row, long long arm, long long phase, long long gain, long long slot) except -1
    cdef int _on_served_label(self, long long row, long long function, long long gain, long long slot) except -1
    cdef int _score(self, long long row, long long function, long long gain, long long slot, bint is_served) except -1
    cdef int _forget_all(self, long long end) except -1
    @cython.final
    cdef void _note_alarm(self, long long slot) noexcept
    cpdef decide(self, tuple context, long long slot, bytes closed=*)
    cpdef resume(self, long long row, tuple context, long long slot, bytes closed=*)
    cpdef retract(self, long long decision, tuple context, long long slot)
    @cython.final
    cdef void _retract(self, long long decision, long long slot) noexcept
    cpdef settle(self, long long decision, long long gain, tuple context, long long slot, long long paid=*)
    cpdef score(self, long long decision, long long function, long long gain, tuple context, long long slot)
    cpdef serve(self, long long row, long long slot, long long function=*)
    @cython.final
    @cython.locals(choice=cython.longlong)
    cdef int _choose_open(self, long long row, long long slot, bint is_fresh, bytes closed) except -2
    cpdef decide_batch(self, double[::1] contexts, long long first_slot, long long[::1] decisions, bytes closed=*)
    @cython.final
    cdef int _decide_batch(self, double[::1] contexts, long long first_slot, long long[::1] decisions) except -1
    cpdef count_batch(self, double[::1] contexts, long long[::1] decisions)
    cpdef retract_batch(self, double[::1] contexts, long long first_slot, long long[::1] decisions)
    @cython.locals(row=cython.longlong, arm=cython.longlong, phase=cython.longlong)
    cpdef settle_batch(self, double[::1] contexts, long long[::1] slots, long long[::1] decisions, long long[::1] gains, long long[::1] paid)
    cpdef forget_batch(self, long long[::1] decisions)
    @cython.final
    cdef long long _begin(self, long long row, long long choice) noexcept
    @cython.locals(is_own=cython.bint, is_counted=cython.bint)
    cdef void _learn_own(self, long long row, long long arm, long long phase, long long gain, long long slot, long long paid) noexcept
    @cython.final
    cdef void _record_finer(self, long long row, long long arm, long long gain, long long slot, long long paid) noexcept
    @cython.final
    cdef void _record_around(self, long long row, long long arm, long long gain, long long slot) noexcept
    cdef void _learn_served(self, long long row, long long function, long long gain, long long slot) noexcept
