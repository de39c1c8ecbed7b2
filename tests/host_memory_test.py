"""Freed memory is kept where it is asked for, and only there."""

from __future__ import annotations

import platform
import subprocess
import sys
import warnings

import pytest

from tfjac import host_memory

# How many pages five blocks of 80 MB, one after another, take from the kernel.
COUNT = """
import ctypes, resource
{first}
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def use():
    block = libc.malloc(ctypes.c_size_t(80_000_000))
    ctypes.memset(block, 1, 80_000_000)
    libc.free(ctypes.c_void_p(block))
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES_OF_FIVE_BLOCKS = 5 * 80_000_000 // 4096

needs_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="glibc gives large blocks back to the kernel"
)


def faults(first):
    done = subprocess.run(
        [sys.executable, "-c", COUNT.format(first=first)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return int(done.stdout.splitlines()[-1])


@needs_glibc
def test_a_large_block_that_was_freed_is_used_again():
    assert faults("import tfjac; assert tfjac.keep_freed_memory()") < PAGES_OF_FIVE_BLOCKS / 100


@needs_glibc
def test_importing_does_not_keep_freed_memory():
    assert faults("import tfjac") > PAGES_OF_FIVE_BLOCKS / 2


@pytest.mark.parametrize(
    ("system", "library"), [("Darwin", ""), ("Windows", ""), ("Linux", "musl")]
)
def test_elsewhere_it_does_nothing_and_says_so(monkeypatch, system, library):
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "libc_ver", lambda: (library, "1"))
    monkeypatch.setattr(host_memory.ctypes, "CDLL", None)  # not even loaded
    with pytest.warns(RuntimeWarning, match=f"did nothing: it needs Linux with glibc.*{system}"):
        assert host_memory.keep_freed_memory() is False


def test_a_refusal_of_the_c_library_is_told(monkeypatch):
    class Refuses:
        @staticmethod
        def mallopt(parameter, value):
            return parameter != host_memory._M_ARENA_MAX

    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.0"))
    monkeypatch.setattr(host_memory.ctypes, "CDLL", lambda _: Refuses)
    with pytest.warns(RuntimeWarning, match="glibc 2.0 refused one of the settings"):
        assert host_memory.keep_freed_memory() is False


def test_a_glibc_that_limits_the_threshold_is_told_to_map_nothing(monkeypatch):
    calls = []

    class Old:
        @staticmethod
        def mallopt(parameter, value):
            calls.append((parameter, value))
            return parameter != host_memory._M_MMAP_THRESHOLD

    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.28"))
    monkeypatch.setattr(host_memory.ctypes, "CDLL", lambda _: Old)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert host_memory.keep_freed_memory()
    assert (host_memory._M_MMAP_MAX, 0) in calls
