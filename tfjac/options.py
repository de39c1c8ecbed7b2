"""What `prepare` is asked for, and the checks of it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tfjac import errors, planning, problems, shapes
from tfjac import independence as independence_lib
from tfjac.call_signature import InputSignature
from tfjac.strategies import Strategy

# Of the option `autotune`: two ways are compared once that repays; see `autotune.trial`.
TUNED_BY_ITSELF = "auto"


@dataclasses.dataclass(frozen=True)
class Options:
    """What `prepare` was asked for, apart from the function; its docstring says what each is."""

    batch: bool
    strategy: str | Strategy
    argnums: int | tuple[int, ...]
    chunk_size: int | str | None
    jit_compile: bool
    device: str | None
    input_signature: InputSignature | None
    unconnected_gradients: str
    holomorphic: bool
    independence: str
    structured: bool
    memory_budget: int | None
    autotune: bool | str

    def check(self) -> None:
        """Raises unless all are known and go together."""
        if self.device is not None and not isinstance(self.device, str):
            raise errors.InvalidTypeError(
                errors.message(
                    "device", "a string or None", repr(self.device), 'Write it as "/CPU:0".'
                )
            )
        shapes.check_chunk_size(self.chunk_size)
        planning.check_strategy(self.strategy, self.chunk_size)
        planning.within(self.memory_budget, self.chunk_size)
        if self.autotune not in (False, TUNED_BY_ITSELF) and self.strategy != planning.AUTO:
            raise errors.InvalidValueError(
                errors.message(
                    "autotune",
                    'False or "auto" unless strategy is "auto"',
                    repr(self.autotune),
                    "It chooses one.",
                )
            )
        problems.zeros_wanted(self.unconnected_gradients)
        independence_lib.check_option(self.independence)


def checked_argnums(argnums: int | Sequence[int]) -> int | tuple[int, ...]:
    """Returns the index or the indices of arguments, or raises."""
    is_several = isinstance(argnums, Sequence) and not isinstance(argnums, str)
    numbers = tuple(argnums) if is_several else (argnums,)
    if not numbers or not all(type(i) is int and i >= 0 for i in numbers):
        raise errors.InvalidValueError(
            errors.message(
                "argnums",
                "the index of a positional argument, from 0, or several of them",
                repr(argnums),
                "Name at least one.",
            )
        )
    if len(set(numbers)) < len(numbers):
        raise errors.InvalidValueError(
            errors.message("argnums", "distinct", repr(argnums), "Name each argument once.")
        )
    return argnums if isinstance(argnums, int) else numbers


def on_device(device: str | None) -> contextlib.AbstractContextManager:
    """Returns a context that places ops on a device, where one is given, or raises."""
    if device is None:
        return contextlib.nullcontext()
    check_device(device)
    return tf.device(device)


def check_device(device: str) -> None:
    """Raises unless the machine has the device."""
    known = [d.name for d in tf.config.list_logical_devices()]
    try:
        wanted = tf.DeviceSpec.from_string(device)
    except ValueError:
        wanted = None
    # Merging fills in what the short name leaves out: "/CPU:1" names one of several full names.
    if wanted is None or not any(
        tf.DeviceSpec.from_string(name).make_merged_spec(wanted).to_string() == name
        for name in known
    ):
        raise errors.InvalidValueError(
            errors.message(
                "device",
                "a device of this machine: " + ", ".join(known),
                repr(device),
                "Leave it out to let TensorFlow place the ops.",
            )
        )
