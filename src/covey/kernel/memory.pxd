from cpython.object cimport PyObject

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define COVEY_TOUCH(address) __builtin_prefetch((address), 1)
    #else
    #define COVEY_TOUCH(address) ((void) (address))
    #endif
    #define COVEY_ITEMS(list) (((PyListObject *) (list))->ob_item)
    """
    void touch "COVEY_TOUCH" (const void* address) noexcept
    PyObject** items_of "COVEY_ITEMS" (list items) noexcept
