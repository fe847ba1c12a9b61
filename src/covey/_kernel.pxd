# The C types of kernel.py, for the compiled form `covey._kernel`; the file itself is plain Python.
cimport cython

cdef long long LEVEL, SINCE, ARRIVALS, OWN, BEST, BEST_OWN, CALM, COORDINATES
cdef long long TRAIN, EXPLORE, EXPLOIT, SERVE, NEVER, ARRIVED, LABELLED, USED
cdef long long ONE, KEEP_BITS, MASK, FACTOR, FEW, FAR
cdef double CLOSED


@cython.final
cdef class Clock:
    cdef double[::1] scales, powers
    cdef long long[::1] floors
    cdef long long start, end, stride
    cdef void move(self, long long slot) noexcept
    cdef void _look(self, long long slot) noexcept
    cdef bint _has_changed(self, long long slot) noexcept
    @cython.locals(value=cython.double)
    cdef long long _floor(self, int which, long long slot) noexcept


@cython.final
cdef class Table:
    cdef Clock clock
    cdef int dimension, functions, arms, levels, deepest, counted, labels, right, untrained
    cdef int underway, recent, recent_right, ring, stride, found
    cdef double[::1] costs, sides, limits, rewards, context
    cdef long long most_cells, state, window, keep, unit, blind, used
    cdef bint trains_first, explores_to_help, is_pending, is_random, inherits, forgets
    cdef bint is_supervised, has_rewards, is_direct, is_flat
    cdef long long[::1] rows, point, path
    cdef int[::1] index
    cpdef decide(self, tuple context, long long slot)
    cpdef resume(self, long long row, tuple context, long long slot)
    cpdef settle(self, long long decision, long long gain, tuple context, long long slot)
    cpdef serve(self, long long row, long long slot)
    cpdef decide_batch(self, double[::1] contexts, long long first_slot, long long[::1] decisions)
    @cython.locals(value=cython.double)
    cdef int _read(self, tuple context) except -1
    cdef tuple _point_now(self)
    @cython.locals(slice_=cython.longlong)
    cdef inline void _aim(self, long long level) noexcept
    cdef inline int _locate(self, long long slot) except -1
    @cython.locals(value=cython.longlong, side=cython.longlong)
    cdef inline long long _place(self, long long level) noexcept
    cdef inline long long _find(self, long long level) noexcept
    cdef inline bint _is_at(self, long long row, long long level) noexcept
    cdef inline int _open(self, long long level, long long slot) except -1
    cdef int _meet(self, Table other, long long row, long long slot) except -1
    cdef int _add(self, long long level, long long slot, long long place) except -1
    cdef int _grow(self, long long length) except -1
    cdef int _reindex(self) except -1
    cdef void _follow(self) noexcept
    cdef inline void _follow_on(self) noexcept
    cdef long long _choose(self, long long row, long long slot, bint is_fresh) noexcept
    cdef inline long long _tried(self, long long base, long long arm) noexcept
    cdef inline long long _wanting(self, long long base, long long field, long long first, long long end, long long limit) noexcept
    cdef inline long long _best(self, long long base) noexcept
    cdef inline long long _help(self, long long row) noexcept
    cdef long long _largest(self, long long base, long long end, bint is_net) noexcept
    cdef inline double _worth(self, long long arm, double accuracy) noexcept
    cdef void _record_recent(self, long long base, long long arm, long long gain) noexcept
    @cython.locals(old=cython.longlong)
    cdef void _push(self, long long base, long long arm, long long gain) noexcept
    cdef inline double _accuracy(self, long long base, long long arm) noexcept
    cdef bint _is_drawn(self, long long rivals) noexcept
    cdef void _refresh(self, long long row, long long peer, long long arrivals) noexcept
    cdef long long _begin(self, long long row, long long choice) noexcept
    cdef inline void _count_own(self, long long row, long long by) noexcept
    cdef inline void _count_served(self, long long row, long long by) noexcept
    cdef inline void _expect(self, long long row, long long arm, long long phase, long long by) noexcept
    cdef void _release(self, long long row, long long arm, long long phase) noexcept
    @cython.locals(is_own=cython.bint, is_counted=cython.bint)
    cdef void _learn_own(self, long long row, long long arm, long long phase, long long gain, long long slot) noexcept
    cdef void _record_finer(self, long long row, long long arm, long long gain, long long slot) noexcept
    cdef inline void _learn_served(self, long long row, long long function, long long gain) noexcept
    cdef inline void _record(self, long long base, long long arm, long long gain) noexcept


@cython.final
cdef class Arena:
    cdef Clock clock
    cdef list tables
    cdef int[:, ::1] peers, predictions, gains
    cdef int[::1] offsets, receives, labels, cells, arms, functions, correct
    cdef int hidden_from
    cdef long long wait, total, written
    cdef dict calendar
    cdef long long[::1] row, choice, helper, helper_row, function
    cdef double[::1] contexts
    cdef bint has_gains
    cdef signed char[::1] phases
    @cython.locals(at=cython.int[::1], delays=cython.longlong[::1], shown=cython.schar[:, ::1], first=cython.longlong,
                   end=cython.longlong, i=cython.longlong, delay=cython.longlong, is_shown=cython.bint)
    cpdef run(self, log, long long first_slot, trace)
    cdef int _open(self, log, trace) except -1
    cdef inline Table _table(self, long long learner)
    cdef int _decide(self, long long i, long long slot, long long t) except -1
    cdef int _ask(self, long long i, long long row, long long slot) except -1
    cdef int _consult(self, long long i, long long row, long long slot) except -1
    cdef inline long long _gain(self, long long function, long long t) noexcept
    cdef int _end(self, long long i, long long slot, long long t, long long delay) except -1
    cdef long long _delay(self, long long i, long long delay) noexcept
    cdef int _note(self, long long i, long long slot, long long gain, long long delay) except -1
    cdef int _deliver(self, long long slot) except -1
    cdef int _expect(self, tuple note, long long by) except -1
