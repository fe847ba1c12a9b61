cimport cython
from covey.kernel.spaces cimport Ledger
from covey.kernel.table cimport Table

cdef long long NEVER


@cython.final
cdef class LabelCalendar:
    cdef list ledgers
    cdef dict due
    cdef list slots
    cdef int hidden_from
    cdef long long wait
    cdef int[::1] misleads
    cdef bint has_free, is_honest
    cdef inline Ledger _ledger(self, long long learner)
    cdef inline long long _told(self, long long i, long long gain) noexcept
    cdef long long _delay(self, long long i, long long delay) noexcept
    cdef long long _later(self, long long delay, long long busy) noexcept
    cdef int _note(self, long long i, long long slot, long long gain, long long delay, tuple told, long long paid) except -1
    cdef int _schedule(self, long long slot, kept) except -1
    cdef int _deliver(self, long long slot) except -1
    cdef int _settle(self, note, long long gain, long long decided, points, tuple told, long long paid) except -1
    cdef int _settle_served(self, tuple asked, long long gain, long long decided, tuple told) except -1
    cdef int _score(self, long long i, long long helper, tuple rows, tuple met, scores, long long slot) except -1
    cdef int _release(self, tuple note) except -1
    cdef int _expect(self, tuple note, long long by) except -1

