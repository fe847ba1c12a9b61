cimport cython
from covey.kernel.cells cimport BEST_OWN
from covey.kernel.counters cimport CLOSED, EXPLOIT, EXPLORE, FOREVER, ArmCounters
from covey.kernel.table cimport CellPolicy, Clock, Said

# The same as in `index.py`, as literals for C.
cdef enum:
    ENOUGH = 4

cdef extern from *:
    long long EVIDENCE_UNIT "(1LL << 20)"
    double LEAST_MEAN "(0.1)"
    double LOWER_SHARE "(0.75)"

cdef long long EVIDENCE_RIGHT
cdef double NEAR_NODE, FAR_NODE, AT_NEAR, AT_FAR

cdef double klucb(double accuracy, double labels, double level) noexcept
cdef double upper(double mean, double bound) noexcept


cdef class ShareUcb(CellPolicy):
    cdef double scale
    cdef long long wanted, values, reports
    cdef int _most_valuable(self, long long base, long long slot) except? -2
    cdef double _promise(self, long long base, long long arm, long long slot) noexcept
    cdef double _credit(self, long long base, long long arm) noexcept
    cdef double _upper(self, long long base, long long arm) noexcept
    cdef double _bound_by(self, long long base, long long arm, long long under_way) noexcept
    @cython.locals(is_alarm=cython.bint)
    cdef bint is_credible(self, long long row, long long arm, long long gain, long long slot, bint is_served) noexcept
    cdef long long _change_evidence(self, long long base, long long arm, long long gain) noexcept
