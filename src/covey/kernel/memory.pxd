from cpython.object cimport PyObject

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define COVEY_TOUCH(address) __builtin_prefetch((address), 1)
    #else
    #define COVEY_TOUCH(address) ((void) (address))
    #endif
    #define COVEY_ITEMS(list) (((PyListObject *) (list))->ob_item)
    static char *covey_start(PyObject *memory) {
        Py_buffer view;
        if (PyObject_GetBuffer(memory, &view, PyBUF_SIMPLE) < 0) return NULL;
        PyBuffer_Release(&view);  /* it is never resized */
        return (char *) view.buf;
    }
    """
    void touch "COVEY_TOUCH" (const void* address) noexcept
    PyObject** items_of "COVEY_ITEMS" (list items) noexcept
    char* start_of "covey_start" (object memory) except NULL

cdef inline double* doubles(object memory, long long first, long long count) except NULL
cdef inline long long* integers(object memory, long long first, long long count) except NULL
cdef inline int* halves(object memory, long long first, long long count) except NULL
