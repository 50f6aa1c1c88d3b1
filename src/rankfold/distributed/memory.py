"""How the C library keeps freed memory."""

import ctypes
import sys

_MMAP_THRESHOLD = 2**21  # bytes; a larger block goes back to the system when it is freed
_TRIM_THRESHOLD = 2**24  # bytes of free memory that a process keeps at most


def return_freed_memory() -> None:
    """From now on, return freed tables to the system.

    By default glibc keeps freed blocks of up to 32 MiB, in holes. With shards and groups of that
    size, a rank would hold twice what it uses. Getting such memory again takes time, so this is for
    runs that divide what one process cannot hold.
    """
    if sys.platform != "linux":
        return
    trim_threshold, mmap_threshold = -1, -3  # as in malloc.h
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # not in musl
        library.mallopt(mmap_threshold, _MMAP_THRESHOLD)
        library.mallopt(trim_threshold, _TRIM_THRESHOLD)
