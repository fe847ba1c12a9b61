# The C types of the frozen kernel, for comparisons of speed; the tests run it as plain Python.
cimport cython

cdef long long LEVEL, SINCE, ARRIVALS, OWN, BEST, BEST_OWN, CALM, COORDINATES
cdef long long TRAIN, EXPLORE, EXPLOIT, SERVE, NEVER, ARRIVED, LABELLED, USED
cdef long long ONE, KEEP_BITS, MASK, FACTOR, FEW, FAR, MILLIONTHS
cdef long long UNPAID, PARENT, ENOUGH, DOUBTS, RELIEF
cdef double FEARED
cdef double FOREVER
cdef tuple NOTHING

@cython.locals(bound=cython.double, rest=cython.double, entropy=cython.double, q=cython.double, near=cython.double, excess=cython.double)
cdef double klucb(double accuracy, double labels, double level) noexcept
cdef double CLOSED


@cython.final
cdef class Clock:
    cdef double[::1] scales, powers
    cdef long long[::1] floors
    cdef long long start, end, stride, before, rounded
    cdef double logarithm
    @cython.locals(step=cython.longlong)
    cdef void round_up(self, long long slot) noexcept
    cdef void move(self, long long slot) noexcept
    cdef void _look(self, long long slot) noexcept
    cdef bint _has_changed(self, long long slot) noexcept
    @cython.locals(value=cython.double)
    cdef long long _floor(self, int which, long long slot) noexcept


@cython.final
cdef class Table:
    cdef Clock clock
    cdef int dimension, functions, arms, asked, levels, deepest, counted, labels, right, untrained
    cdef int bounds, last, trained, wanted, most_functions
    cdef double scale, confidence, slack, cap
    cdef double[::1] bias, values, low, high
    cdef long long[::1] stamps, heard, fine, firsts
    cdef int[::1] active
    cdef bint is_indexed, is_balanced, is_lazy, is_layered, once, eliminates, is_wary, is_recent
    cdef long long alarm, doubt, doubt_served, forgotten
    cdef int underway, spent, times, recent, recent_right, ring, stride, found
    cdef double[::1] costs, sides, limits, rewards, context, told
    cdef double largest
    cdef dict memory
    cdef long long most_cells, state, window, keep, unit, blind, used
    cdef bint trains_first, explores_to_help, is_pending, is_random, inherits, forgets
    cdef bint floors_training, is_supervised, learns_costs, remembers, asked_only, has_rewards, is_direct, is_flat
    cdef long long[::1] rows, point, path
    cdef int[::1] index
    cpdef decide(self, tuple context, long long slot)
    cpdef resume(self, long long row, tuple context, long long slot)
    cpdef settle(self, long long decision, long long gain, tuple context, long long slot, long long paid=*)
    cpdef serve(self, long long row, long long slot)
    cpdef decide_batch(self, double[::1] contexts, long long first_slot, long long[::1] decisions)
    @cython.locals(row=cython.longlong, arm=cython.longlong, base=cython.longlong)
    cpdef count_batch(self, double[::1] contexts, long long first_slot, long long[::1] decisions, long long by)
    @cython.locals(row=cython.longlong, arm=cython.longlong, phase=cython.longlong)
    cpdef settle_batch(self, double[::1] contexts, long long[::1] slots, long long[::1] decisions, long long[::1] gains, long long[::1] paid)
    cpdef forget_batch(self, long long[::1] decisions)
    cdef inline void _take_context(self, double[::1] contexts, long long k) noexcept
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
    @cython.locals(scale=cython.double)
    cdef int _open_layers(self, long long finest, long long slot) except -1
    cdef int _grow_index(self, long long rows) except -1
    cdef int _add(self, long long level, long long slot, long long place) except -1
    cdef int _grow(self, long long length) except -1
    cdef int _reindex(self) except -1
    cdef void _follow(self) noexcept
    cdef inline void _follow_on(self) noexcept
    cdef inline long long _choose(self, long long row, long long slot, bint is_fresh) noexcept
    @cython.locals(explore=cython.longlong, train=cython.longlong, explore_peers=cython.longlong, most=cython.longlong)
    cdef long long _choose_by_phase(self, long long row, long long slot, bint is_fresh) noexcept
    @cython.locals(value=cython.double, largest=cython.double, chosen=cython.longlong, replies=cython.longlong, is_asking=cython.bint)
    cdef long long _choose_by_index(self, long long row, long long slot) noexcept
    @cython.locals(replies=cython.longlong)
    cdef inline bint _is_unheard(self, long long row, long long slot) noexcept
    @cython.locals(promise=cython.double)
    cdef inline double _promise(self, long long row, long long peer, long long slot) noexcept
    cdef inline double _upper_in(self, long long row, long long arm) noexcept
    @cython.locals(labels=cython.double, right=cython.double, most=cython.double, accuracy=cython.double)
    cdef double _bound_by(self, long long base, long long arm, long long under_way) noexcept
    @cython.locals(smallest=cython.double, value=cython.double, under_way=cython.longlong)
    cdef double _patience(self, long long row, long long arm) noexcept
    @cython.locals(labels=cython.double, right=cython.double)
    cdef double _credit(self, long long base, long long arm) noexcept
    @cython.locals(labels=cython.double, tried=cython.double, right=cython.double, width=cython.double, mean=cython.double, promise=cython.double)
    cdef inline double _balance(self, long long row, long long peer) noexcept
    @cython.locals(smallest=cython.double, value=cython.double)
    cdef inline double _upper(self, long long row, long long arm) noexcept
    @cython.locals(smallest=cython.double, value=cython.double)
    cdef double _upper_by_labels(self, long long row, long long function) noexcept
    cdef inline void _outdate(self, long long row, long long arm) noexcept
    cdef inline void _outdate_recent(self, long long row) noexcept
    @cython.locals(largest=cython.double)
    cdef double _reply(self, long long row) noexcept
    @cython.locals(labels=cython.double, accuracy=cython.double, upper=cython.double)
    cdef long long _width(self, long long row, long long function) noexcept
    cdef void _hear(self, long long row, long long peer, long long arrivals, double low, double high, long long slot) noexcept
    @cython.locals(level=cython.double, labels=cython.double, accuracy=cython.double, radius=cython.double)
    cdef double _bound(self, long long base, long long slot) noexcept
    @cython.locals(level=cython.double, best=cython.double)
    cdef long long _eliminate(self, long long row, long long slot) noexcept
    @cython.locals(cap=cython.double)
    cdef long long _retrain(self, long long row, long long limit) noexcept
    @cython.locals(value=cython.double, largest=cython.double, chosen=cython.longlong, at=cython.longlong, base=cython.longlong)
    cdef long long _most_promising(self, long long row) noexcept
    cdef inline void _take(self, long long base, long long function, long long gain, long long slot) noexcept
    cdef inline long long _tried(self, long long base, long long arm) noexcept
    cdef inline long long _wanting(self, long long base, long long field, long long first, long long end, long long limit) noexcept
    cdef inline long long _best(self, long long base) noexcept
    cdef inline long long _help(self, long long row) noexcept
    cdef inline long long _unexplored(self, long long row) noexcept
    cdef inline long long _most_accurate(self, long long base) noexcept
    cdef long long _largest(self, long long base, long long end, bint is_net) noexcept
    @cython.locals(price=cython.double, times=cython.double)
    cdef inline double _price(self, long long base, long long arm) noexcept
    @cython.locals(accuracy=cython.double, value=cython.double)
    cdef long long _weigh(self, long long base, long long seen) noexcept
    @cython.locals(price=cython.double)
    cdef inline double _worth(self, long long base, long long arm, double accuracy) noexcept
    cdef void _record_recent(self, long long base, long long arm, long long gain) noexcept
    @cython.locals(old=cython.longlong)
    cdef void _push(self, long long base, long long arm, long long gain) noexcept
    cdef inline double _accuracy(self, long long base, long long arm) noexcept
    cdef bint _is_drawn(self, long long rivals) noexcept
    @cython.locals(sent=cython.longlong)
    cdef void _refresh(self, long long row, long long peer, long long arrivals) noexcept
    cdef long long _begin(self, long long row, long long choice) noexcept
    cdef inline void _count_own(self, long long row, long long by) noexcept
    cdef inline void _count_served(self, long long row, long long by) noexcept
    cdef inline void _expect(self, long long row, long long arm, long long phase, long long by) noexcept
    cdef void _release(self, long long row, long long arm, long long phase) noexcept
    @cython.locals(is_own=cython.bint, is_counted=cython.bint)
    cdef void _learn_own(self, long long row, long long arm, long long phase, long long gain, long long slot, long long paid) noexcept
    cdef void _record_finer(self, long long row, long long arm, long long gain, long long slot, long long paid) noexcept
    cdef void _record_around(self, long long row, long long arm, long long gain, long long slot) noexcept
    @cython.locals(doubt=cython.longlong, is_alarm=cython.bint)
    cdef bint _is_credible(self, long long row, long long arm, long long gain, long long slot, bint is_served) noexcept
    @cython.locals(labels=cython.longlong, right=cython.double, believed=cython.double, share=cython.double, grounds=cython.double)
    cdef long long _surprise(self, long long row, long long arm, long long gain) noexcept
    cdef void _forget_all(self, long long end) noexcept
    cdef inline void _spend(self, long long base, long long arm, long long paid) noexcept
    @cython.locals(count=cython.longlong, total=cython.longlong, seen=cython.longlong)
    cdef int _remember(self, long long row, label) except -1
    cdef int _remember_around(self, label, long long slot) except -1
    cdef inline void _learn_served(self, long long row, long long function, long long gain, long long slot) noexcept
    cdef inline void _record(self, long long base, long long arm, long long gain) noexcept


@cython.final
cdef class Ledger:
    cdef readonly list tables
    cdef Table first, asked
    cdef int[::1] own, places
    cdef int count, chosen
    cdef long long[::1] rows, asked_rows
    cdef long long choice, helper, function, stand_in, width
    cdef inline Table _at(self, long long k)
    cdef inline Table _table(self, long long space)
    cdef inline int _locate(self, double[::1] contexts, long long start, long long slot) except -1
    @cython.locals(one=cython.longlong, choice=cython.longlong, largest=cython.double, value=cython.double)
    cdef inline int _choose(self, long long slot, long long fresh) except? -2
    cdef inline int _meet(self, Ledger asker, long long slot) except -1
    @cython.locals(function=cython.longlong, chosen=cython.longlong, largest=cython.double, value=cython.double)
    cdef inline int _help(self, Ledger asker) except? -2
    @cython.locals(count=cython.longlong, total=cython.longlong, answer=cython.longlong, largest=cython.double)
    cdef int _recall(self, Ledger asker) except? -2
    @cython.locals(function=cython.longlong, chosen=cython.longlong, largest=cython.double, value=cython.double)
    cdef int _best_own(self) except? -2
    cdef inline int _count(self) except -1
    cdef inline int _learn(self, long long gain, long long slot, long long paid) except -1


@cython.final
cdef class Arena:
    cdef Clock clock
    cdef list ledgers
    cdef int[:, ::1] predictions, gains, costs
    cdef long long[:, ::1] busy
    cdef int[::1] offsets, starts, behind, cost_columns, receives, streams, lies
    cdef int[::1] labels, cells, arms, functions, correct, paid
    cdef int hidden_from, count, spaces, stream_count, width
    cdef long long wait, total, written
    cdef dict calendar
    cdef long long[::1] patience
    cdef double[::1] contexts
    cdef bint has_gains, has_costs, is_busy, remembers
    cdef signed char[::1] phases
    @cython.locals(at=cython.int[::1], delays=cython.longlong[::1], shown=cython.schar[:, ::1], first=cython.longlong,
                   end=cython.longlong, i=cython.longlong, delay=cython.longlong, is_shown=cython.bint, slot=cython.longlong)
    cpdef run(self, log, long long first_slot, trace)
    cdef int _open(self, log, trace) except -1
    cdef inline Ledger _ledger(self, long long learner)
    @cython.locals(choice=cython.longlong, arm=cython.longlong, stream=cython.longlong)
    cdef int _decide(self, Ledger ledger, long long i, long long slot, long long t) except -1
    @cython.locals(answer=cython.longlong, arm=cython.longlong)
    cdef inline int _call(self, Ledger ledger, long long i, long long slot, long long t) except -1
    @cython.locals(row=cython.longlong, met=cython.longlong, who=cython.longlong, arrivals=cython.longlong, is_stale=cython.bint)
    cdef int _ask(self, long long i, long long k, long long slot) except -1
    @cython.locals(met=cython.longlong, who=cython.longlong, high=cython.double)
    cdef int _sound_out(self, long long i, long long k, long long slot) except -1
    @cython.locals(base=cython.longlong, low=cython.double, high=cython.double)
    cdef int _compare(self, Table table, long long place, Table peer, long long met, long long slot) except -1
    @cython.locals(arm=cython.longlong, seen=cython.longlong, chosen=cython.longlong, largest=cython.double)
    cdef int _consult(self, long long i, long long slot) except? -2
    @cython.locals(met=cython.longlong, base=cython.longlong, best=cython.longlong, seen=cython.longlong, count=cython.longlong, total=cython.longlong)
    cdef int _hear(self, long long i, long long k, long long slot) except? -2
    cdef inline long long _gain(self, long long function, long long t) noexcept
    @cython.locals(helper=cython.longlong, function=cython.longlong, gain=cython.longlong, paid=cython.longlong)
    cdef int _end(self, Ledger ledger, long long i, long long slot, long long t, long long delay) except -1
    cdef inline long long _row(self, long long i, long long function) noexcept
    @cython.locals(column=cython.longlong)
    cdef inline long long _cost(self, long long i, long long arm, long long t) noexcept
    @cython.locals(at=cython.longlong, arm=cython.longlong, shown=cython.longlong, space=cython.longlong)
    cdef inline int _write(self, Ledger ledger, long long i, long long function, long long gain, long long t, long long paid) except -1
    cdef int _remember(self, long long i, long long slot, long long label) except -1
    cdef long long _delay(self, long long i, long long delay) noexcept
    cdef long long _later(self, long long delay, long long busy) noexcept
    cdef int _note(self, long long i, long long slot, long long gain, long long delay, long long label, long long paid) except -1
    cdef int _deliver(self, long long slot) except -1
    cdef int _settle(self, note, long long gain, long long decided, points, long long label, long long paid) except -1
    cdef int _settle_served(self, tuple asked, long long gain, long long decided, long long label) except -1
    cdef int _release(self, tuple note) except -1
    cdef int _expect(self, tuple note, long long by) except -1
