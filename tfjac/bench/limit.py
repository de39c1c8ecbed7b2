"""What the machine can do: the rates of which the floor of a workload is made."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import mmap
import os
import time
from collections.abc import Callable

import numpy as np

MATMUL_SIZE = 2048
_WRITTEN_BYTES = 128 * 2**20


@dataclasses.dataclass(frozen=True)
class Limit:
    """Rates of this machine, each the best of several tries.

    Args:
      flops: of a float32 matrix product, per second, by the fastest of the peers.
      fresh_bytes: written per second into memory that comes from the kernel.
      warm_bytes: the same into memory that was written before.
    """

    flops: float
    fresh_bytes: float
    warm_bytes: float

    def floor_seconds(self, flops: float, answer_bytes: float) -> float:
        """Returns the time below which no answer can come, be its memory warm or fresh.

        Args:
          flops: the fewest known for it.
          answer_bytes: its size.
        """
        return flops / self.flops + answer_bytes / self.warm_bytes


def matmul_flops(matmul: Callable[[int], Callable[[], None]]) -> float:
    """Returns the FLOPs per second of a peer's matrix product."""
    multiply = matmul(MATMUL_SIZE)
    return 2 * MATMUL_SIZE**3 / _best(multiply, tries=5)


def write_rates() -> tuple[float, float]:
    """Returns bytes per second written by all cores: to fresh memory, and to warm."""
    cores = os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(cores) as pool:

        def write(memory: mmap.mmap) -> None:
            array = np.frombuffer(memory, np.uint8)
            list(pool.map(lambda part: part.fill(1), np.array_split(array, cores)))

        # Mapped as glibc does for blocks above 32 MB. np.empty would ask for huge pages.
        warm = mmap.mmap(-1, _WRITTEN_BYTES)
        return (
            _WRITTEN_BYTES / _best(lambda: write(mmap.mmap(-1, _WRITTEN_BYTES)), tries=15),
            _WRITTEN_BYTES / _best(lambda: write(warm), tries=15),
        )


def _best(task: Callable[[], object], tries: int) -> float:
    """Returns the least time of several: a virtual machine's first touches are far slower."""
    seconds = []
    for _ in range(tries):
        start = time.perf_counter()
        task()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
