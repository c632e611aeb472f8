"""Memory that ends: the arrays of NumPy are counted when they get their memory, and one of them gets none.

NumPy lets a program replace the functions that allocate the memory of arrays. Every array of the library, of NumPy and
of SciPy passes through them, so the n-th of these allocations is the n-th place where memory can end. Arrays of less
than 1 kB are not counted: they are many, and a machine without so little memory does not reach the next line.
"""

import contextlib
import ctypes

try:
    from numpy._core import _multiarray_umath
except ImportError:  # NumPy 1
    from numpy.core import _multiarray_umath

MIN_BYTES = 1024
SET_HANDLER, GET_HANDLER = 304, 305  # places in the table of NumPy's functions in C, the same in all releases
HANDLER_NAME = b"mem_handler"
POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t
Malloc = ctypes.CFUNCTYPE(POINTER, POINTER, SIZE)
Calloc = ctypes.CFUNCTYPE(POINTER, POINTER, SIZE, SIZE)
Realloc = ctypes.CFUNCTYPE(POINTER, POINTER, POINTER, SIZE)


class _Allocator(ctypes.Structure):
    """The struct PyDataMemAllocator of NumPy."""

    _fields_ = [("context", POINTER), ("malloc", Malloc), ("calloc", Calloc), ("realloc", Realloc), ("free", POINTER)]


class _Handler(ctypes.Structure):
    """The struct PyDataMem_Handler of NumPy."""

    _fields_ = [("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("allocator", _Allocator)]


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = POINTER, [ctypes.py_object, ctypes.c_char_p]
_make_capsule = ctypes.pythonapi.PyCapsule_New
_make_capsule.restype, _make_capsule.argtypes = ctypes.py_object, [POINTER, ctypes.c_char_p, POINTER]
_table = ctypes.cast(_get_pointer(_multiarray_umath._ARRAY_API, None), ctypes.POINTER(POINTER))
_set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(_table[SET_HANDLER])
_get_handler = ctypes.PYFUNCTYPE(ctypes.py_object)(_table[GET_HANDLER])
_usual = _Handler.from_address(_get_pointer(_get_handler(), HANDLER_NAME)).allocator
# These functions of NumPy expect the lock of the interpreter, so they are called with it.
_malloc, _calloc, _realloc = (
    ctypes.PYFUNCTYPE(kind._restype_, *kind._argtypes_)(ctypes.cast(function, POINTER).value)
    for kind, function in ((Malloc, _usual.malloc), (Calloc, _usual.calloc), (Realloc, _usual.realloc))
)
_current = []  # the memory that is limited now


class LimitedMemory:
    """Counts the arrays that get memory in a block of code; the array `number` gets none, so NumPy raises MemoryError.

    Attributes
    ----------
    count : int
        Number of arrays so far.
    """

    def __init__(self, number):
        self.number, self.count = number, 0

    @contextlib.contextmanager
    def attached(self):
        """Count until the end of the block."""
        _current.append(self)
        before = _set_handler(_CAPSULE)
        try:
            yield self
        finally:
            _set_handler(before)
            _current.remove(self)

    def ends(self, size):
        """Return whether an array of so many bytes gets no memory."""
        self.count += size >= MIN_BYTES
        return size >= MIN_BYTES and self.count == self.number


def _is_refused(size):
    return bool(_current) and _current[-1].ends(size)


# This object is never deleted, because arrays that outlive the block give their memory back through it. NumPy's own
# function does this, so that it also works while Python ends.
_HANDLER = _Handler(
    b"limited",
    1,
    _Allocator(
        _usual.context,
        Malloc(lambda context, size: None if _is_refused(size) else _malloc(context, size)),
        Calloc(lambda context, number, size: None if _is_refused(number * size) else _calloc(context, number, size)),
        Realloc(lambda context, old, size: None if _is_refused(size) else _realloc(context, old, size)),
        _usual.free,
    ),
)
_CAPSULE = _make_capsule(ctypes.addressof(_HANDLER), HANDLER_NAME, None)
