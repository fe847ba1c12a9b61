cimport cython
from covey.kernel.cells cimport ARRIVALS, COORDINATES, LEVEL, NEXT_TEST, OWN, Cells, doubles, integers
from covey.kernel.counters cimport CLOSED, EXPLOIT, EXPLORE, FOREVER, SERVE, TRAIN, UNPAID, WAITS, ArmCounters

cdef extern from *:
    long long FAR "(1LL << 60)"


@cython.final
cdef class Clock:
    cdef object block
    cdef double *scales, *powers
    cdef long long* floors
    cdef long long now, start, end, stride, before, rounded
    cdef readonly long long alarms
    cdef double logarithm
    @cython.locals(step=cython.longlong)
    cdef void round_up(self, long long slot) noexcept
    cpdef advance(self, long long slot)
    cdef void move(self, long long slot) noexcept
    @cython.locals(is_same=cython.bint)
    cdef bint is_within(self, long long slot) noexcept
    cdef void _look(self, long long slot) noexcept
    cdef bint _has_changed(self, long long slot) noexcept
    cdef long long _floor(self, int which, long long slot) noexcept


@cython.final
cdef class Said:
    cdef long long arrived, count
    cdef double lowest, highest
    cdef object block
    cdef long long* numbers


# A method of a subclass that overrides one of these is declared here alone, unless it has locals.
cdef class CellPolicy:
    cdef Clock clock
    cdef readonly ArmCounters counters
    cdef readonly Cells cells
    cdef long long stride, functions, arms, asked, labels, right, untrained, trained, underway, levels
    cdef bint is_pending, weighs, floors_training, inherits, ignores_reports, has_context, has_alarmed
    cdef long long alarm, evidence, evidence_served, offset, asker
    cdef Said said
    cdef readonly long long alarm_count, forgotten
    cdef public list alarms
    cdef list spare_waits
    cdef int choose(self, long long row, long long slot, bint is_fresh) except? -2
    cdef int choose_again(self, long long row, long long slot) except? -2
    cdef int wanted_from(self, long long row, long long peer) except? -2
    cdef bint is_waiting(self, long long row, long long slot) except -1
    cdef double accuracy(self, long long row, long long arm) noexcept
    cdef long long basis(self, long long row) noexcept
    cdef long long labelled_times(self, long long row, long long arm) noexcept
    cdef int most_accurate(self, long long row) except -1
    cdef double value(self, long long base, long long arm) except? -2
    cdef int best_of(self, long long base, long long end) except -1
    cdef int serve(self, long long row) except? -2
    cdef int unexplored(self, long long row) except? -2
    cdef int report(self, long long row, long long slot) except -1
    cdef int hear(self, long long row, long long peer, Said said, long long slot) except -1
    cdef bint is_credible(self, long long row, long long arm, long long gain, long long slot, bint is_served) noexcept
    @cython.locals(is_own=cython.bint)
    cdef int learn(self, long long row, long long arm, long long phase, long long gain, long long slot, long long paid) except -1
    cdef void _record_finer(self, long long base, long long arm, long long gain, long long slot, long long paid) noexcept
    cdef int learn_served(self, long long row, long long function, long long gain, long long slot) except -1
    cdef int count_own(self, long long row) except -1
    cdef int learn_now(self, long long row, long long arm, long long phase, long long gain, long long slot) except -1
    cdef int learn_served_now(self, long long row, long long function, long long gain, long long slot) except -1
    cdef int score(self, long long row, long long function, long long gain, long long slot, bint is_served) except -1
    cpdef int derive(self, long long row) except -1
    cdef int forget(self, long long end) except -1
    cdef void hear_alarm(self, long long slot) noexcept
    cdef void note_alarm(self, long long slot) noexcept
    cpdef list state(self)
    cpdef restore(self, list state)
    cpdef adopt(self, CellPolicy old, list arms)


cdef class OwnPolicy(CellPolicy):
    cdef bint asks_peers
    cdef object choosing, serving, learning, keeping, restoring, view, title, arm_names
    cdef list nothing
    cdef dict reports
    @cython.locals(slot=cython.longlong)
    cdef int wanted_from(self, long long row, long long peer) except? -2
    cdef int _call(self, method, long long row, long long slot, long long end, context) except? -2
    cdef int _show(self, long long row, long long slot) except -1
    cdef tuple _middle(self, long long row)
    cdef int _teach(self, long long row, long long arm, long long phase, long long gain, context) except -1


@cython.final
cdef class Table:
    cdef Clock clock
    cdef readonly object layout
    cdef readonly CellPolicy policy
    cdef readonly ArmCounters counters
    cdef readonly Cells cells
    cdef bint is_supervised, needs_path
    cpdef decide(self, tuple context, long long slot, bytes closed=*)
    cpdef resume(self, long long row, tuple context, long long slot, bytes closed=*)
    cpdef retract(self, long long decision, tuple context, long long slot)
    cpdef settle(self, long long decision, long long gain, tuple context, long long slot, long long paid=*)
    cdef int _settle(self, long long decision, long long gain, long long slot, long long paid) except -1
    cpdef score(self, long long decision, long long function, long long gain, tuple context, long long slot)
    cpdef serve(self, long long row, long long slot, long long function=*, long long asker=*)
    cpdef forget(self, long long decision)
    cpdef long long choose(self, long long row, long long slot, bint is_fresh, bytes closed=*) except *
    cdef long long _begin(self, long long decision) noexcept
    cpdef count(self, long long decision, tuple context)
    cpdef int answer(self, long long row, long long slot, long long asker=*) except? -2
    cpdef decide_batch(self, contexts, long long first_slot, decisions, bytes closed=*)
    cpdef settle_batch(self, contexts, slots, decisions, gains, paid)
