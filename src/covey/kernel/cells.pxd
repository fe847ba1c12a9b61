cimport cython

cdef long long LEVEL, SINCE, ARRIVALS, OWN, BEST, BEST_OWN, NEXT_TEST, PARENT, COORDINATES
cdef long long MASK, FACTOR, FEW, FEW_BITS


cdef class Cells:
    cdef int grid, dimension, levels, deepest, labels, stride, found
    cdef long long most_cells, foreign, used, numbered, capacity, places, spare, numerable
    cdef bint is_direct, is_flat, is_layered, inherits, has_tree, follows
    cdef object block, row_block, index_block, number_block
    cdef double* sides
    cdef double* limits
    cdef double* context
    cdef long long* rows
    cdef long long* point
    cdef long long* fine
    cdef long long* path
    cdef long long* firsts
    cdef int* index
    cdef int* marks
    cdef int* numbers
    cdef int* leaves
    cdef tuple shown
    @cython.final
    cdef inline long long _leaf_count(self) noexcept
    @cython.final
    cdef int _take_rows(self, object memory, long long capacity) except -1
    cdef int _has_grown(self, long long rows) except -1
    cdef int _is_reset(self, long long row) except -1
    cpdef bint is_split(self, long long row)
    cpdef layers(self, long long row)
    cpdef around(self, tuple context)
    cpdef around_batch(self, double[::1] contexts, long long count)
    @cython.final
    cdef inline void _take_context(self, double[::1] contexts, long long k) noexcept
    @cython.final
    @cython.locals(value=cython.double)
    cdef int _read(self, tuple context) except -1
    @cython.final
    cdef int _point_at(self, cell) except -1
    @cython.final
    @cython.locals(since=cython.longlong)
    cdef inline long long _since(self, long long base) noexcept
    @cython.final
    @cython.locals(is_same=cython.bint)
    cdef tuple _point_now(self)
    @cython.final
    @cython.locals(slice_=cython.longlong)
    cdef inline void _aim(self, long long level) noexcept
    @cython.final
    @cython.locals(side=cython.longlong, place=cython.longlong, slice_=cython.longlong)
    cdef inline long long _leaf_place(self) noexcept
    @cython.final
    cdef void _forget_leaves(self) noexcept
    @cython.final
    @cython.locals(side=cython.longlong, place=cython.longlong, slice_=cython.longlong, leaf=cython.longlong, row=cython.longlong)
    cdef int _locate(self, long long slot) except -1
    @cython.final
    @cython.locals(row=cython.longlong, level=cython.longlong)
    cdef int _descend(self, long long slot, long long leaf) except -1
    @cython.final
    cdef int _number_rows(self, long long space, dict known) except -1
    @cython.final
    cdef inline void _stand_at(self, long long row) noexcept
    @cython.final
    @cython.locals(row=cython.longlong, differ=cython.longlong)
    cdef bint _is_like(self, Cells other, long long first) noexcept
    @cython.final
    @cython.locals(differ=cython.bint)
    cdef inline bint _is_other(self, long long base, Cells other, long long there) noexcept
    @cython.final
    cdef void _look_ahead(self, double* contexts, long long start, int* columns, long long width, long long* ahead, long long at, long long count) noexcept
    @cython.final
    @cython.locals(slice_=cython.longlong)
    cdef inline void _aim_at(self, double* contexts, int* columns, long long start) noexcept
    @cython.final
    cdef inline void _touch(self, long long row) noexcept
    @cython.final
    @cython.locals(value=cython.longlong, side=cython.longlong)
    cdef inline long long _place(self, long long level) noexcept
    @cython.final
    cdef inline long long _find(self, long long level) noexcept
    @cython.final
    cdef inline bint _is_at(self, long long row, long long level) noexcept
    @cython.final
    cdef inline int _open(self, long long level, long long slot) except -1
    @cython.final
    cdef int _adopt(self, long long row, long long slot) except -1
    @cython.final
    cdef int _check_room(self) except -1
    @cython.final
    @cython.locals(side=cython.longlong, place=cython.longlong)
    cdef int _open_for(self, Cells other, long long row, long long slot) except -1
    @cython.final
    @cython.locals(scale=cython.double)
    cdef int _open_layers(self, long long finest, long long slot) except -1
    @cython.final
    cdef int _add(self, long long level, long long slot, long long place) except -1
    @cython.final
    cdef int _grow(self, long long length) except -1
    @cython.final
    cdef int _reindex(self) except -1
    @cython.final
    cdef void _follow(self) noexcept
    @cython.final
    cdef inline void _follow_on(self) noexcept
