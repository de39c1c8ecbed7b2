"""Products of the Jacobian with one vector, for tensors of a graph that is being built."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence

import tensorflow as tf

from tfjac import errors, graph_memo, nests, problems, shapes, sweeps, tapes
from tfjac.accumulation import directions
from tfjac.graph import sources as sources_lib
from tfjac.problems import Nested
from tfjac.strategies import Problem, forward


@tf.autograph.experimental.do_not_convert
def vjp(
    ys: Nested,
    xs: Nested,
    cotangents: Nested,
    *,
    unconnected_gradients: str | tf.UnconnectedGradients = "zero",
    name: str | None = None,
) -> Nested:
    """Returns the vector-Jacobian product J^T u, one tensor of x's shape for each source.

    Sums over the targets where there are several. For complex tensors it is TensorFlow's gradient,
    the product J^H u with the adjoint.

    Args:
      ys: target, or a nested structure of targets.
      xs: source, or a nested structure of sources, as in `jacobian`.
      cotangents: the structure of ys; each of y's shape and dtype.
      unconnected_gradients: "zero", or "none" for None where x reaches no target.
      name: name scope of the ops added.

    Returns:
      The structure of xs, each of x's shape and dtype.

    Raises:
      As `jacobian`; also InvalidValueError where a cotangent does not match its target.

    Cost:
      One reverse pass for each target; the value is computed once.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.vjp(x ** 2, x, tf.constant([1., 10.]))
      >>> f(tf.constant([1., 2.])).numpy()
      array([ 2., 40.], dtype=float32)
    """
    zeros = problems.zeros_wanted(unconnected_gradients)
    sources = nests.Nest(xs, "xs")
    flat_xs, target_nest = sources.leaves, nests.Nest(ys, "ys")
    with problems.building(target_nest.leaves, "ys", name or "vjp") as targets:
        vectors = _matching("cotangents", cotangents, target_nest, targets)
        pulled = []
        for y, u in zip(targets, vectors):
            problem = problems.problem(y, flat_xs, False)
            per_source = _applied(sweeps.pullback, problem, [u])
            pulled.append([per_source[i] for i in problems.positions(problem, flat_xs)])
        sums = [_sum(parts) for parts in zip(*pulled)]
        if zeros:
            values = [sources_lib.unwrap(x) for x in flat_xs]
            sums = [tf.zeros_like(x) if g is None else g for g, x in zip(sums, values)]
    return sources.pack(sums)


@tf.autograph.experimental.do_not_convert
def jvp(
    ys: Nested,
    xs: Nested,
    tangents: Nested,
    *,
    unconnected_gradients: str | tf.UnconnectedGradients = "zero",
    name: str | None = None,
) -> Nested:
    """Returns the Jacobian-vector product J v, one tensor of y's shape for each target.

    Sums over the sources where there are several: the derivative of ys along all tangents.
    Honours custom gradients, and works through loops and recurrent layers.

    Args:
      ys: target, or a nested structure of targets.
      xs: source, or a nested structure of sources, as in `jacobian`; each once.
      tangents: the structure of xs; each of x's shape and dtype.
      unconnected_gradients: "zero", or "none" for None where no source reaches y.
      name: name scope of the ops added.

    Returns:
      The structure of ys, each of y's shape and dtype.

    Raises:
      As `jacobian`; also InvalidValueError where a tangent does not match its source, and
      UnsupportedError where the gradient of an op cannot be differentiated again.

    Cost:
      One forward pass of derivatives for each target; where an op on the way has no local Jacobian
      of known structure, about one reverse pass, of a graph twice as large to construct.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.jvp(x ** 2, x, tf.constant([1., 10.]))
      >>> f(tf.constant([1., 2.])).numpy()
      array([ 2., 40.], dtype=float32)
    """
    zeros = problems.zeros_wanted(unconnected_gradients)
    sources = nests.Nest(xs, "xs")
    flat_xs, target_nest = sources.leaves, nests.Nest(ys, "ys")
    pushed = []
    with problems.building(target_nest.leaves, "ys", name or "jvp") as targets:
        for y in targets:
            problem = problems.problem(y, flat_xs, False)
            if len(problem.sources) < len(flat_xs):
                raise errors.InvalidValueError(
                    errors.message(
                        "xs", "distinct sources", "one source twice", "Add up its tangents."
                    )
                )
            vectors = _matching("tangents", tangents, sources, [s.value for s in problem.sources])
            dy = _pushed(problem, vectors)
            pushed.append(tf.zeros_like(y) if dy is None and zeros else dy)
    return target_nest.pack(pushed)


def _pushed(problem: Problem, vectors) -> tf.Tensor | None:
    if problem.y.dtype.is_complex or any(s.dtype.is_complex for s in problem.sources):
        return _applied(sweeps.pushforward, problem, vectors)[0]

    if not problem.ops and all(s.value.ref() != problem.y.ref() for s in problem.sources):
        return None

    def along() -> list[tf.Tensor | None]:
        # TensorFlow 2.21 may divide by zero where there are no entries.
        pairs = [
            (source, vector)
            for source, vector in zip(problem.sources, vectors)
            if not shapes.are_empty(source.shape, problem.y.shape)
        ]
        if not pairs:
            return [tf.zeros_like(problem.y)]
        sources, filled = zip(*pairs)
        part = dataclasses.replace(problem, sources=sources)
        found = directions.pushed(part, filled)
        if found is None:
            support = forward.second_gradients(part)
            if not support.ok:
                raise errors.UnsupportedError(f"jvp: {support.reason}. Use vjp, or jacobian.")
            (found,) = sweeps.pushforward(part.y, part.sources)(*filled)
            # Where none of those sources reaches y.
            found = tf.zeros_like(part.y) if found is None else found
        return [found]

    return _recorded("jvp", along, problem, vectors)[0]


def _applied(linear_map, problem: Problem, vectors) -> list[tf.Tensor | None]:
    return _recorded(
        linear_map, lambda: linear_map(problem.y, problem.sources)(*vectors), problem, vectors
    )


def _recorded(kind: Hashable, build, problem: Problem, vectors) -> list[tf.Tensor | None]:
    """Returns what `build` gives, as tapes need it, or what it gave of the same vectors."""
    tensors = [problem.y, *(source.value for source in problem.sources), *vectors]
    return graph_memo.memoized_unless_recording(
        ("product", kind, *(tensor.ref() for tensor in tensors)),
        lambda: tapes.recorded(build, problem.y, problem.ops, vectors),
    )


def _matching(argument: str, vectors: Nested, wanted: nests.Nest, tensors) -> list[tf.Tensor]:
    """Returns the `vectors`, flat, as tensors that match `tensors` one by one, or raises."""
    given = nests.Nest(vectors, argument)
    try:
        given.check_matches(wanted)
    except (ValueError, TypeError) as error:
        raise errors.InvalidValueError(
            errors.message(
                argument, "of the same structure as what it is for", "another structure", str(error)
            )
        ) from None
    return [_match(argument, v, t) for v, t in zip(given.leaves, tensors)]


def _match(argument: str, vector, tensor) -> tf.Tensor:
    wanted = f"of shape {tensor.shape} and dtype {tensor.dtype.base_dtype.name}, as {tensor.name!r}"
    vector = sources_lib.unwrap(vector)
    if sources_lib.has_value(vector) and vector.dtype.base_dtype != tensor.dtype.base_dtype:
        given = vector.dtype.base_dtype.name
        raise errors.InvalidTypeError(
            errors.message(argument, wanted, f"dtype {given}", "Cast it first.")
        )
    vector = tf.convert_to_tensor(vector, tensor.dtype.base_dtype)
    if not vector.shape.is_compatible_with(tensor.shape):
        raise errors.InvalidValueError(
            errors.message(
                argument, wanted, f"shape {vector.shape}", "Give one entry for each entry of it."
            )
        )
    return vector


def _sum(parts: Sequence[tf.Tensor | None]) -> tf.Tensor | None:
    found = [part for part in parts if part is not None]
    return tf.add_n(found) if found else None
