"""What a rule may say of an op: how each output depends on each input."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Hashable, Sequence

import tensorflow as tf

from tfjac.rules import known


class Kind(enum.Enum):
    """The local Jacobian of one output by one input."""

    ZERO = "zero"  # no derivative
    IDENTITY = "identity"  # the output is the input
    DIAGONAL = "diagonal"  # each entry from the entry at its place, broadcast where the input is
    SELECTION = "selection"  # a movement: each entry is one entry of the input, or a constant
    MIXING = "mixing"  # dense over the axes that are not linked
    WINDOW = "window"  # convolution or pooling: neighbors along the axes that are not linked
    OPAQUE = "opaque"  # may depend on everything


@dataclasses.dataclass(frozen=True)
class Local:
    """How an output depends on an input.

    Args:
      kind: the kind of the local Jacobian.
      links: pairs of an output axis and an input axis, of one size, along which nothing mixes: an
        entry at position p of the output axis uses entries at position p of the input axis alone.
    """

    kind: Kind
    links: tuple[tuple[int, int], ...] = ()


ZERO = Local(Kind.ZERO)
OPAQUE = Local(Kind.OPAQUE)


@dataclasses.dataclass(frozen=True)
class Example:
    """Which axis of a tensor numbers the examples.

    The axis may number other things too, where axes were merged: position i of it is example
    `i // inner % B`, and it goes through all examples `outer` times.

    Args:
      axis: the axis; -1 for a list of tensors whose elements are the examples.
      outer: how many times the axis goes through all examples.
      inner: how many neighbors on the axis belong to one example.
      sized: False where the axis may be shorter than x has examples; then it is not to meet others.
      by: names the list of whole numbers that tells which example each position is, where they do
        not come in order; position i is then the example that its entry i is.
      taken: name and type of the op that took them by that list.
      certain: False where an axis of unknown size was taken not to be broadcast, which holds if and
        only if the target turns out to have as many examples as x.
    """

    axis: int
    outer: int = 1
    inner: int = 1
    by: Hashable | None = None
    taken: tuple[str, str] | None = dataclasses.field(default=None, compare=False)
    sized: bool = dataclasses.field(default=True, compare=False)
    certain: bool = dataclasses.field(default=True, compare=False)


# From (op, input index, output index).
Read = Callable[[tf.Operation, int, int], Local]
Move = Callable[[tf.Operation, int, Example], "Example | None"]


@dataclasses.dataclass(frozen=True)
class Rule:
    """What is known of an op type.

    Args:
      local: from the op, an input's and an output's index to how the one depends on the other.
      flops: of one evaluation; None for the number that the kinds tell.
      move: from the op, an input's index and the input's example axis to that of the outputs, None
        where examples mix; needed only where links do not tell, as where axes are merged.
    """

    local: Read
    flops: Callable[[tf.Operation], float] | None = None
    move: Move | None = None

    def example(self, op: tf.Operation, i: int, o: int, example: Example) -> Example | None:
        """Returns the example axis of output `o` given that of input `i`; None where they mix."""
        if self.move is not None:
            return self.move(op, i, example)
        return linked(self.local(op, i, o), example)


def linked(found: Local, example: Example) -> Example | None:
    """Returns the example axis of an output whose axes are linked to an input's."""
    for out_axis, in_axis in found.links:
        if in_axis == example.axis:
            return dataclasses.replace(example, axis=out_axis)
    return None


def ranks(op: tf.Operation, i: int, o: int) -> tuple[int, int] | None:
    """Returns the ranks of output `o` and input `i`, None where either is unknown."""
    out, given = op.outputs[o].shape.rank, op.inputs[i].shape.rank
    return None if out is None or given is None else (out, given)


def axis_of(value: int, rank: int) -> int:
    """Returns a possibly negative axis as one from 0."""
    return value + rank if value < 0 else value


def constant(op: tf.Operation, i: int) -> list[int] | None:
    """Returns input `i` as a flat list if it is a constant, else None."""
    values = partly_constant(op, i)
    return None if values is None or None in values else values


def partly_constant(op: tf.Operation, i: int) -> list[int | None] | None:
    """Returns the same where some entries may be unknown; those are None."""
    value = known.values(op.inputs[i])
    return None if value is None else value.reshape(-1).tolist()


def aligned(op: tf.Operation, i: int, o: int) -> tuple[tuple[int, int], ...] | None:
    """Returns the links of an input that is broadcast to an output; None for unknown ranks.

    An unknown size of the input is taken for the output's; see `Example.certain`.
    """
    both = ranks(op, i, o)
    if both is None:
        return None
    out, given = op.outputs[o].shape, op.inputs[i].shape
    lead = both[0] - both[1]
    return tuple(
        (a + lead, a) for a in range(both[1]) if given[a] is None or given[a] == out[a + lead]
    )


def same_axes(op: tf.Operation, i: int, o: int, *, but: Sequence[int] = ()) -> tuple | None:
    """Returns links of every axis with itself, but for some; None for unknown ranks."""
    both = ranks(op, i, o)
    if both is None:
        return None
    return tuple((a, a) for a in range(min(both)) if a not in [axis_of(b, both[1]) for b in but])


def local(kind: Kind, links: tuple | None) -> Local:
    """Returns the local of a kind; opaque where the links are not known."""
    return OPAQUE if links is None else Local(kind, links)


def family(types: str, rule: Rule) -> dict[str, Rule]:
    """Returns the rule for each of the op types, which are separated by spaces."""
    return dict.fromkeys(types.split(), rule)


def moves(read: Read, move: Move | None = None) -> Rule:
    """Returns the rule of an op that only moves entries, and so computes nothing."""
    return Rule(read, lambda op: 0.0, move)
