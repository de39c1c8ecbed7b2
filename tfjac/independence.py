"""Whether examples stay apart between a source and a target: proved on the graph, and said why."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tfjac import errors, graph_memo, problems
from tfjac.graph import dependence
from tfjac.graph.states import Mixed, One, not_put_back
from tfjac.rules import Example
from tfjac.strategies import Source

PROVE, ASSUME = "prove", "assume"


@dataclasses.dataclass(frozen=True)
class Dependence:
    """How the examples of a target depend on those of a source, the first axis numbering them.

    Args:
      independent: whether example b of y is shown to depend on example b of x alone.
      understood: False where nothing is shown either way: an op on the way is not understood, or
        moves examples to places from where they may come back.
      apart: number of leading axes along which y and x are shown to stay apart: 1 or more where
        independent; as many as they have where the Jacobian is a diagonal.
      reason: what was found, and for examples that mix the first op in which they do.
    """

    independent: bool
    understood: bool
    apart: int
    reason: str


@tf.autograph.experimental.do_not_convert
def explain_dependence(y: tf.Tensor, x: tf.Tensor) -> Dependence:
    """Returns whether example b of y depends on example b of x alone, and why.

    The first axis of each numbers the examples. Derivatives count: what reaches y through an op
    that has none, as `tf.stop_gradient`, does not make examples mix.

    Args:
      y: a graph tensor of rank 1 or more.
      x: the same; it need not be connected with y.

    Returns:
      A `Dependence`.

    Raises:
      InvalidTypeError: not graph tensors of floating or complex dtype.
      InvalidValueError: scalars, variables, or tensors of two graphs.

    Cost:
      Reads the graph, bodies of functions included, once for each axis that is shown to stay
      apart, and adds no op.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   y = x - tf.reduce_mean(x, axis=0, name="mean")
      ...   print(tfjac.explain_dependence(y, x).reason)
      ...   return x
      >>> _ = f(tf.constant([[1., 2.], [3., 4.]]))
      op 'mean' of type Mean mixes entries along the axis that numbers the examples
    """
    with problems.building([y], "y", "explain_dependence") as (target,):
        source = problems.source_to_read(target, x)
        for argument, tensor in (("y", target), ("x", source.value)):
            if isinstance(tensor, tf.Variable) or tensor.shape.rank == 0:
                raise errors.InvalidValueError(
                    errors.message(
                        argument,
                        "a tensor of rank 1 or more, its first axis numbering examples",
                        f"{tensor.name!r} of shape {tensor.shape}",
                        "Ask about a tensor that has examples.",
                    )
                )
        return of(target, source)


def of(y: tf.Tensor, source: Source) -> Dependence:
    """Returns how the examples of `y` depend on those of a source."""
    x = source.value
    key = ("dependence", y.ref(), x.ref())
    return graph_memo.memoized(key, lambda: _read(y, x))


def apart(y: tf.Tensor, source: Source) -> int:
    """Returns the number of leading axes kept apart for certain, whatever unknown sizes may be."""
    if isinstance(source.value, tf.Variable) or 0 in (y.shape.rank, source.value.shape.rank):
        return 0
    return of(y, source).apart


def check(y: tf.Tensor, source: Source) -> None:
    """Raises unless the examples are shown to stay apart."""
    found = of(y, source)
    if found.independent:
        return
    if found.understood:
        raise errors.ExamplesMixError(
            f"the examples of the target {y.name!r} do not depend on those of the source "
            f"{source.value.name!r} one by one: {found.reason}. Use tfjac.jacobian, which makes no "
            "assumption, or give one example at a time."
        )
    raise errors.ExamplesMixError(
        f"could not prove that example b of the target {y.name!r} depends on example b of the "
        f'source {source.value.name!r} alone: {found.reason}. Pass independence="assume" if you '
        "know that it does, add a rule (tfjac.rules.register_rule), or use tfjac.jacobian."
    )


def check_option(independence: str) -> None:
    """Raises unless the option is known."""
    if independence not in (PROVE, ASSUME):
        raise errors.InvalidValueError(
            errors.message(
                "independence",
                '"prove" or "assume"',
                repr(independence),
                "Leave it out to have it proved that examples do not mix.",
            )
        )


def _read(y: tf.Tensor, x: tf.Tensor) -> Dependence:
    if x.shape.rank == 0:
        return Dependence(False, True, 0, "x has no axis of examples")
    found = _followed(y, x)
    alone = y.shape.rank and x.shape.rank and y.shape[0] == x.shape[0] == 1
    if alone and not found.independent:
        return Dependence(True, True, 1, "there is one example")
    return found


def _followed(y: tf.Tensor, x: tf.Tensor) -> Dependence:
    state = dependence.example_axis(y, x)
    if state is None:
        return Dependence(True, True, 0, "y does not depend on x")
    if isinstance(state, Mixed):
        return Dependence(False, state.understood, 0, state.text())
    if isinstance(state, One):  # y is a tensor within a loop
        return Dependence(False, False, 0, "y depends on one example, which a loop names")
    if state.by is not None:
        return Dependence(False, False, 0, not_put_back(state).text())
    if state != Example(0):
        where = f"the examples of x are numbered by axis {state.axis} of y, not by the first"
        if state.axis == 0:
            where = "the first axis of y numbers the examples of x and other things"
        return Dependence(False, True, 0, where)
    count = _apart(y, x, state)
    axes = "axis" if count == 1 else f"{count} axes"
    note = "" if count else ", provided that their number is the same"
    return Dependence(True, True, count, f"apart along the first {axes if count else 'axis'}{note}")


def _apart(y: tf.Tensor, x: tf.Tensor, first: Example) -> int:
    """Returns how many leading axes stay apart for certain."""
    count, state = 0, first
    while (
        state == Example(count)
        and state.certain
        and y.shape[count : count + 1] == x.shape[count : count + 1]
    ):
        count += 1
        if y.shape.rank is None or count >= min(y.shape.rank, x.shape.rank):
            break
        state = dependence.example_axis(y, x, count)
    return count
