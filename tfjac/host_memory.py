"""Freed memory kept by the process: an opt-in, for large results on CPU."""

from __future__ import annotations

import ctypes
import platform
import warnings

# Numbers of mallopt's parameters, from glibc's <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -3, -4, -8
_LARGEST_INT = 2**31 - 1


def keep_freed_memory() -> bool:
    """Returns whether freed memory is kept by this process from now on, for reuse.

    glibc gives every freed block above 32 MB back to the kernel, so that each call with a large
    Jacobian pays a page fault for every 4096 bytes of its result. After this call such blocks are
    kept and reused. It changes the allocation of the whole process, for good, and its resident
    memory stays at the peak; importing tfjac never does it. Call it before the first large tensor:
    what threads have allocated until then stays where it is.

    Args:
      None.

    Returns:
      True where it is set. False where it cannot be, with a warning that says why: it does nothing
      except on Linux with glibc.

    Raises:
      Nothing; where it does nothing there is a RuntimeWarning.

    Cost:
      A call of the C library. What it saves is in BUILD_NOTES.md, "Host memory".

    Example:
      >>> kept = tfjac.keep_freed_memory()  # doctest: +SKIP

    References:
      mallopt(3): M_MMAP_THRESHOLD, M_MMAP_MAX, M_TRIM_THRESHOLD, M_ARENA_MAX.
    """
    library, version = platform.libc_ver()
    if platform.system() != "Linux" or library != "glibc":
        where = f"{platform.system()} with {library or 'another C library'}"
        return _does_nothing(f"it needs Linux with glibc, and this is {where}")
    mallopt = ctypes.CDLL(None).mallopt
    # glibc before 2.35 limits the threshold to 32 MB; there no block is to be mapped at all. One
    # arena, for those of further threads are made of mapped pieces of 64 MB.
    mapped = mallopt(_M_MMAP_THRESHOLD, 2**30) or mallopt(_M_MMAP_MAX, 0)
    if not (mapped and mallopt(_M_TRIM_THRESHOLD, _LARGEST_INT) and mallopt(_M_ARENA_MAX, 1)):
        return _does_nothing(f"glibc {version} refused one of the settings")
    return True


def _does_nothing(why: str) -> bool:
    warnings.warn(f"keep_freed_memory did nothing: {why}.", RuntimeWarning, stacklevel=3)
    return False
