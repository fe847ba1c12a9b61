cimport cython
from cpython.object cimport PyObject

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define COVEY_TOUCH(address) __builtin_prefetch((address), 1)
    #else
    #define COVEY_TOUCH(address) ((void) (address))
    #endif
    #define COVEY_ITEMS(list) (((PyListObject *) (list))->ob_item)
    static inline char *covey_start(PyObject *memory) {
        Py_buffer view;
        if (PyObject_GetBuffer(memory, &view, PyBUF_SIMPLE) < 0) return NULL;
        PyBuffer_Release(&view);  /* it is never resized */
        return (char *) view.buf;
    }
    """
    void touch "COVEY_TOUCH" (const void* address) noexcept
    PyObject** items_of "COVEY_ITEMS" (list items) noexcept
    char* start_of "covey_start" (object memory) except NULL

# The same as in `cells.py`, as literals for C.
cdef enum:
    SINCE = 1
    NEXT_TEST = 3
    ARRIVALS = 4
    OWN = 5
    COORDINATES = 6
    LEVEL = 0, PARENT
    BEST = 4
    BEST_OWN = 5
    LEAF_BITS = 14
    FEW = 4096
    FACTOR = 1000003
    WIDE_SIDE = 256

cdef long long MASK

cdef signed char* octets(object memory, long long first, long long count) except NULL
cdef double* doubles(object memory, long long first, long long count) except NULL
cdef long long* integers(object memory, long long first, long long count) except NULL
cdef int* halves(object memory, long long first, long long count) except NULL
cdef short* shorts(object memory, long long first, long long count) except NULL


@cython.final
cdef class Cells:
    cdef long long grid, dimension, axes, levels, deepest, found, labels, stride
    cdef long long most_cells, capacity, places
    cdef readonly long long used, foreign
    cdef readonly bint is_wide
    cdef bint is_direct, is_flat, is_layered, inherits, has_tree, follows
    cdef object block, row_block, index_block
    cdef readonly object memory
    cdef double *sides, *limits, *context, *reals
    cdef long long *rows, *point, *fine, *path, *firsts
    cdef int *index, *marks, *leaves
    cdef tuple shown
    cdef int _take_rows(self, object memory, long long capacity) except -1
    cpdef cell(self, long long row)
    cpdef int meet(self, cell, long long slot) except -1
    cpdef int find(self, cell) except -2
    cpdef bint is_foreign(self, long long row) noexcept
    cpdef bint is_split(self, long long row) noexcept
    cpdef list layers(self, long long row)
    cpdef list around(self, tuple context)
    cpdef set around_batch(self, contexts, long long count)
    cpdef long long own(self, long long row) noexcept
    cpdef int restore_row(self, cell, long long since) except -1
    cpdef long long arrivals(self, long long row) noexcept
    cpdef list numbers(self, long long row, long long first, long long end)
    cpdef put(self, long long row, long long first, list numbers)
    cdef int read(self, tuple context) except -1
    cdef void take_context(self, double* contexts, long long k) noexcept
    @cython.locals(is_same=cython.bint)
    cdef tuple point_now(self)
    cdef int _point_at(self, cell) except -1
    @cython.locals(slice_=cython.longlong)
    cdef void round_context(self) noexcept
    cdef void take_place(self, Cells other) noexcept
    cpdef place_of(self, long long row, tuple context)
    cdef long long since(self, long long base) noexcept
    @cython.locals(slice_=cython.longlong)
    cdef inline void _aim(self, long long level) noexcept
    @cython.locals(side=cython.longlong, place=cython.longlong, slice_=cython.longlong, leaf=cython.longlong)
    cdef int locate(self, long long slot) except -1
    cdef int _descend(self, long long slot, long long leaf) except -1
    cdef void forget_leaves(self) noexcept
    @cython.locals(side=cython.longlong, value=cython.longlong)
    cdef long long place(self, long long level) noexcept
    cdef long long seek(self, long long level) noexcept
    @cython.locals(is_same=cython.bint)
    cdef inline bint _is_at(self, long long row, long long level) noexcept
    cdef inline int _open(self, long long level, long long slot) except -1
    cdef int _adopt(self, long long row, long long slot) except -1
    cdef int _check_room(self) except -1
    @cython.locals(side=cython.longlong, place=cython.longlong)
    cdef int open_for(self, Cells other, long long row, long long slot) except -1
    cdef int _open_layers(self, long long finest, long long slot) except -1
    cdef int _add(self, long long level, long long slot, long long place) except -1
    cdef int _reindex(self) except -1
    cdef void follow(self) noexcept
    cdef void follow_on(self) noexcept
