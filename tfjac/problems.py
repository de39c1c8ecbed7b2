"""From what the user passed to Problems: checks of arguments, and the graph to build in."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfjac import call_memo, errors, tf_internals
from tfjac.graph import handles, missing
from tfjac.graph import sources as sources_lib
from tfjac.rewriting import copies
from tfjac.strategies import Problem, Source

Nested = Any  # a tensor, or a nested structure of tensors as tf.nest understands it


@contextlib.contextmanager
def building(ys: Sequence[Any], argument: str, name: str) -> Iterator[list[tf.Tensor]]:
    """Enters the graph of the targets, if it is not being built already, and a name scope.

    Args:
      ys: the targets, flat.
      argument: their name, for messages.
      name: name scope of the ops that are added.

    Yields:
      The targets as tensors.
    """
    targets = [sources_lib.as_target(y, argument) for y in ys]
    for y in targets[1:]:
        sources_lib.check_reachable(y, targets[0], argument)
    with contextlib.ExitStack() as stack:
        stack.enter_context(call_memo.one_call())
        if targets and not _is_being_built(targets[0].graph):
            stack.enter_context(targets[0].graph.as_default())
        stack.enter_context(tf.name_scope(name))
        yield targets


def problem(y: tf.Tensor, xs: Sequence[Any], batch: bool, twice: bool = False) -> Problem:
    """Returns the problem of one target and its sources, each source once, or raises.

    Its target is a copy of `y` where an op on the way has wrong derivatives in TensorFlow; `twice`
    says that second ones are wanted.
    """
    compiled = tf_internals.is_compiled_by_xla(tf.compat.v1.get_default_graph())
    found = Problem(y, _sources(y, xs, batch), int(batch), compiled)
    tensors = [t for source in found.sources for t in source.tensors]
    handles.restore(found.ops)
    right = copies.rewritten(y, tensors, found.ops, twice)
    if right is not y:
        found = dataclasses.replace(found, y=right, asked=y)
    missing.check_differentiable(tensors, found.ops, twice)
    return found


def source_to_read(y: tf.Tensor, x: Any) -> Source:
    """Returns the source of which the way to `y` is to be read, or raises; adds no op."""
    found = Problem(y, _sources(y, [x], False))
    missing.check_differentiable(found.sources[0].tensors, found.ops)
    return found.sources[0]


def _sources(y: tf.Tensor, xs: Sequence[Any], batch: bool) -> tuple[Source, ...]:
    sources: dict[Any, Source] = {}
    for x in xs:
        source = sources_lib.as_source(x, y)
        sources.setdefault(source.value.ref(), source)
    if batch:
        _check_example_axes(y, sources.values())
    return tuple(sources.values())


def check_real(wanted: Problem) -> None:
    """Raises unless target and sources are real."""
    found = [("y", wanted.y.dtype), *(("x", source.dtype) for source in wanted.sources)]
    for argument, dtype in found:
        if dtype.is_complex:
            raise errors.InvalidTypeError(
                errors.message(
                    argument, "real", f"dtype {dtype.name}", "Use jacobian for complex tensors."
                )
            )


def positions(wanted: Problem, xs: Sequence[Any]) -> list[int]:
    """Returns, for each of `xs`, which source of the problem it is."""
    refs = [source.value.ref() for source in wanted.sources]
    return [refs.index(sources_lib.unwrap(x).ref()) for x in xs]


def check_example_counts(wanted: Problem) -> list[tf.Operation]:
    """Returns assertions that y and each x have as many examples, for those not known to."""
    y = wanted.y
    return [
        tf.debugging.assert_equal(
            tf.shape(y)[0],
            tf.shape(source.value)[0],
            message=f"batch_jacobian: `ys` {y.name!r} and `xs` {source.value.name!r} must have "
            "as many examples on their first axis. Use jacobian where they have not.",
        )
        for source in wanted.sources
        if None in (y.shape[0], source.shape[0])
    ]


def zeros_wanted(unconnected_gradients: str | tf.UnconnectedGradients) -> bool:
    """Returns whether unconnected pairs are to be zeros rather than None, or raises."""
    try:
        return tf.UnconnectedGradients(unconnected_gradients) == tf.UnconnectedGradients.ZERO
    except ValueError:
        raise errors.InvalidValueError(
            errors.message(
                "unconnected_gradients",
                '"zero" or "none"',
                repr(unconnected_gradients),
                "Choose zeros of the right shape, or None as TensorFlow does.",
            )
        ) from None


def _check_example_axes(y: tf.Tensor, sources: Sequence[Source]) -> None:
    if y.shape.rank == 0:
        raise errors.InvalidValueError(
            errors.message(
                "ys", "of rank 1 or more, examples first", f"the scalar {y.name!r}", "Use jacobian."
            )
        )
    for source in sources:
        got = f"{source.value.name!r} of shape {source.shape}"
        if isinstance(source.value, tf.Variable):
            raise errors.InvalidValueError(
                errors.message(
                    "xs", "tensors with an example axis", f"the variable {got}", "Use jacobian."
                )
            )
        if source.shape.rank == 0 or not source.shape[:1].is_compatible_with(y.shape[:1]):
            raise errors.InvalidValueError(
                errors.message(
                    "xs",
                    f"of as many examples, on the first axis, as the target of shape {y.shape}",
                    got,
                    "Use jacobian where x has no example axis.",
                )
            )


def _is_being_built(graph: tf.Graph) -> bool:
    default = tf.compat.v1.get_default_graph()
    return any(graph is g for g in tf_internals.graph_and_outer_graphs(default))
