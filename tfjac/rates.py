"""What the kernels of a machine reach, in seconds: one table for all costs."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import os
import pathlib
import platform
import tempfile
import warnings

from tfjac import errors


class Kernel(enum.Enum):
    """Classes of kernels that are told apart."""

    PRODUCT = "product"
    BATCHED = "batched"
    CONVOLUTION = "convolution"
    DEPTHWISE = "depthwise"
    POOLING = "pooling"
    FUNCTION = "function"
    ELEMENTWISE = "elementwise"
    TRANSPOSE = "transpose"


@dataclasses.dataclass(frozen=True)
class Rates:
    """What kernels reach; the defaults were measured on two CPU cores, see BUILD_NOTES.md, "Costs".

    Args:
      product: of large float32 matrices, in FLOP/s.
      half_side: smallest side of matrices at which half of that is reached.
      batched_start: what a batch of products takes at least, in s.
      batched_each: what each of them takes at least, in s.
      convolution: of many channels, in FLOP/s.
      half_channels: number of them at which half of that is reached.
      depthwise: of convolutions of each channel by itself, in FLOP/s.
      window_start: what a convolution or pooling takes at least, in s.
      weights: bytes of a convolution's filter, which is put in another order each time, in B/s.
      pooling: entries that pooling and its gradient go through, in 1/s.
      function: entries for which tanh, exp and the like are evaluated, in 1/s.
      written: bytes of new tensors, in B/s.
      read: bytes of tensors that are read, in B/s.
      transposed: bytes of tensors whose axes are moved, in B/s.
      transpose_start: what that takes at least, in s.
      op: what a kernel takes at least, in s.
      turn: of a loop of the graph, in s.
      built: an op that the graph gains, in s: construction, not evaluation.
      call: of a prepared function, in s.
    """

    product: float = 1.9e11
    half_side: float = 48.0
    batched_start: float = 4e-5
    batched_each: float = 1e-7
    convolution: float = 2e11
    half_channels: float = 16.0
    depthwise: float = 4e10
    window_start: float = 5e-5
    weights: float = 2e9
    pooling: float = 4e8
    function: float = 1.5e9
    written: float = 1.2e10
    read: float = 4e10
    transposed: float = 6e9
    transpose_start: float = 3.5e-5
    op: float = 2e-6
    turn: float = 6e-5
    built: float = 2e-4
    call: float = 1.7e-4

    def seconds(
        self,
        kernel: Kernel,
        flops: float,
        read: float,
        written: float,
        side: float = 64.0,
        width: int = 4,
        count: float = 1.0,
        weights: float = 0.0,
    ) -> float:
        """Returns how long a kernel takes: its arithmetic or its memory traffic, and its start.

        Args:
          kernel: its class.
          flops: its floating-point operations, or entries for those classes that count entries.
          read: bytes.
          written: bytes.
          side: the smallest side of the matrices, or the number of channels.
          width: bytes of an entry: arithmetic in float64 takes twice as long.
          count: how many products are in a batch.
          weights: bytes of the filter of a convolution.
        """
        if kernel is Kernel.TRANSPOSE:
            return self.transpose_start + (read + written) / 2 / self.transposed
        rate = self._rate(kernel, max(side, 1.0)) * 4.0 / max(width, 4)
        traffic = read / self.read + written / self.written
        start = self._start(kernel, count) + weights / self.weights
        return start + max(flops / rate, traffic)

    def _start(self, kernel: Kernel, count: float) -> float:
        if kernel is Kernel.BATCHED:
            return self.batched_start + self.batched_each * count
        is_window = kernel in (Kernel.CONVOLUTION, Kernel.DEPTHWISE, Kernel.POOLING)
        return self.window_start if is_window else self.op

    def _rate(self, kernel: Kernel, side: float) -> float:
        if kernel in (Kernel.PRODUCT, Kernel.BATCHED):
            return self.product * side / (side + self.half_side)
        if kernel is Kernel.CONVOLUTION:
            return self.convolution * side / (side + self.half_channels)
        if kernel is Kernel.ELEMENTWISE:
            return self.product  # bytes tell
        return getattr(self, kernel.value)


@functools.cache
def current() -> Rates:
    """Returns the rates to reckon with: those that were measured on this machine, if they are kept.

    From the file that the environment variable TFJAC_RATES names, or `write` puts there by itself;
    read once. Warns with `RatesIgnoredWarning` where the file does not serve.
    """
    path = file()
    if not path.exists():
        return Rates()
    try:
        kept = json.loads(path.read_text())
        machine, values = kept["machine"], kept["rates"]
        wanted = {field.name for field in dataclasses.fields(Rates)}
        damaged = set(values) != wanted or not all(0 < v < math.inf for v in values.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        machine, damaged = None, True
    if damaged or machine != this_machine():
        why = "damaged" if damaged else f"of another machine ({machine}, not {this_machine()})"
        warnings.warn(
            f"the rates of kernels in {path} are {why} and not used; python -m tfjac calibrate "
            "measures them anew",
            errors.RatesIgnoredWarning,
            stacklevel=2,
        )
        return Rates()
    return Rates(**values)


def write(found: Rates, path: str | None = None) -> pathlib.Path:
    """Keeps rates for this machine, and returns the path of the file, replaced as a whole.

    Args:
      found: the rates.
      path: of the file; None for the one that `current` reads.
    """
    target = file() if path is None else pathlib.Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    kept = {"machine": this_machine(), "rates": dataclasses.asdict(found)}
    with tempfile.NamedTemporaryFile("w", dir=target.parent, delete=False) as part:
        part.write(json.dumps(kept, indent=1) + "\n")
    os.replace(part.name, target)
    current.cache_clear()
    return target


def file() -> pathlib.Path:
    """Returns the path of the file in which rates are kept."""
    named = os.environ.get("TFJAC_RATES")
    if named:
        return pathlib.Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "tfjac" / "rates.json"


def this_machine() -> str:
    """Returns what tells this machine's processor from others."""
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.partition(":")[2] for line in lines if line.startswith("model name")), "")
    name = model.strip() or platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"


def moving(read: float, written: float) -> float:
    """Returns the seconds of a kernel that reads and writes so many bytes."""
    return current().seconds(Kernel.ELEMENTWISE, 0.0, read, written)


def transposing(size: float) -> float:
    """Returns the seconds that it takes to move the axes of a tensor of so many bytes."""
    return current().seconds(Kernel.TRANSPOSE, 0.0, size, size)
