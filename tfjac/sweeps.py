"""Linear maps of a graph (J and its adjoint) and how to apply one to every unit vector.

A pullback or pushforward is traced once into a function, and that function is called for each row
or column, which is quicker to build than a `tf.gradients` each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from tfjac import errors, gradients, graph_memo, shapes, tf_internals
from tfjac.graph import missing, subgraph
from tfjac.graph.sources import Source

# Turns of a loop over rows that TensorFlow may have under way at the same time; its own default.
TURNS_AT_ONCE = 10


@dataclasses.dataclass(frozen=True)
class LinearMap:
    """A linear map of tensors as a traced function.

    Args:
      function: takes the inputs, returns the outputs that are connected; None where none is.
      connected: for each output, whether the inputs reach it.
    """

    function: tf.types.experimental.ConcreteFunction | None
    connected: tuple[bool, ...]

    def __call__(self, *inputs: tf.Tensor) -> list[tf.Tensor | None]:
        """Returns the outputs, None where unconnected."""
        return self.spread(self.function(*inputs) if self.function else [])

    def spread(self, outputs: Sequence[tf.Tensor]) -> list[tf.Tensor | None]:
        """Returns the connected `outputs` with None at the places of the others."""
        remaining = iter(outputs)
        return [next(remaining) if connected else None for connected in self.connected]


@dataclasses.dataclass(frozen=True)
class UnitVectors:
    """The unit vectors of a number of entries; every position of the leading axes has the same one.

    Args:
      lead: shape of the leading axes; empty where there are none.
      entry_shape: shape of the entries that are numbered.
      dtype: dtype of the vectors.
    """

    lead: shapes.Shape
    entry_shape: shapes.Shape
    dtype: tf.DType

    @property
    def size(self) -> shapes.Size:
        """How many there are; an int where that is known."""
        return shapes.size_of(self.entry_shape)

    def __getitem__(self, index: shapes.Size) -> tf.Tensor:
        """Returns unit vector `index`, or zeros where there are fewer; `[*lead, *entry_shape]`."""
        vector = tf.reshape(tf.one_hot(index, self.size, dtype=self.dtype), self.entry_shape)
        if shapes.is_static(self.lead) and not self.lead:
            return vector
        return tf.broadcast_to(vector, shapes.join(self.lead, self.entry_shape))


def pullback(y: tf.Tensor, sources: Sequence[Source]) -> LinearMap:
    """Returns the map from a cotangent of y to the cotangents of the sources.

    For complex tensors this is TensorFlow's gradient, the adjoint.
    """

    def run(cotangent):
        pulled = iter(gradients.gradients([y], _tensors(sources), [cotangent]))
        per_source = [[next(pulled) for _ in source.tensors] for source in sources]
        return [_sum(parts) for parts in per_source]

    return _memoized_map("pullback", y, sources, run, [tf.TensorSpec(y.shape, y.dtype)])


def pushforward(y: tf.Tensor, sources: Sequence[Source]) -> LinearMap:
    """Returns the map from one tangent for each source to the tangent of y.

    The pullback is linear in its cotangent v, so the pullback of the pullback, taken by v, is the
    pushforward whatever v is. Custom gradients are honoured, for they define the pullback.
    Cost: two reverse passes to construct; of the first, only what the second reads is evaluated.
    Reference: J. Townsend, "A new trick for calculating Jacobian vector products", 2017.
    """

    def run(*tangents):
        # Not zeros: the gradient of cumulative_logsumexp takes the logarithm of its cotangent.
        anything = tf.ones_like(y)
        pulled = iter(gradients.gradients([y], _tensors(sources), [anything]))
        pairs = [
            (p, tangent)
            for source, tangent in zip(sources, tangents)
            for p in itertools.islice(pulled, len(source.tensors))
            if p is not None
        ]
        if not pairs:
            return [None]
        for p, _ in pairs:
            missing.check_differentiable([anything], subgraph.ops_between(p, [anything]))
        (dy,) = gradients.gradients([p for p, _ in pairs], [anything], [t for _, t in pairs])
        # A pullback may ignore its cotangent, as that of tf.sign does: the derivative is zero.
        return [tf.zeros_like(y) if dy is None else dy]

    specs = [tf.TensorSpec(source.shape, source.dtype) for source in sources]
    return _memoized_map("pushforward", y, sources, run, specs)


def map_in_loop(linear_map: LinearMap, units: UnitVectors) -> list[tf.Tensor]:
    """Returns each connected output for every unit vector, `[units.size, *output]`.

    One `tf.while_loop`: the graph does not grow with the number of unit vectors.
    """
    # A stacked TensorArray of unknown shape needs one element, so zero rows run one and drop it.
    count = _at_least_one(units.size)
    stacks = _stack_in_loop(
        count, lambda i: linear_map.function(units[i]), _specs(linear_map), TURNS_AT_ONCE
    )
    return _first(stacks, units.size)


def map_vectorized(
    linear_map: LinearMap, units: UnitVectors, chunk_size: int | None
) -> list[tf.Tensor]:
    """Returns each connected output for every unit vector, `[units.size, *output]`.

    One `tf.vectorized_map` carries all of them, or `chunk_size` at a time in a `tf.while_loop`.
    Warns with `LoopFallbackWarning` where TensorFlow cannot vectorize an op.
    """
    size = units.size
    if isinstance(size, int) and size == 1:
        return [tf.expand_dims(output, 0) for output in linear_map.function(units[0])]

    def chunk(indices):
        try:
            return tf.vectorized_map(lambda i: linear_map.function(units[i]), indices)
        except ValueError as error:
            # TensorFlow 2.21 cannot map every loop, nor an Einsum that repeats a label.
            warnings.warn(
                f"tf.vectorized_map fails ({str(error).strip().splitlines()[-1].strip()}), so that "
                "all goes once per row, in a loop. The result is right, but slower.",
                errors.LoopFallbackWarning,
                stacklevel=2,
            )
            count = shapes.shape_of(indices)[0]
            return _stack_in_loop(
                count,
                lambda i: linear_map.function(units[indices[i]]),
                _specs(linear_map),
                TURNS_AT_ONCE,
            )

    count = _at_least_one(size)
    with _loop_fallbacks_reported(), tf_internals.loops_converted_once():
        if chunk_size is None or (isinstance(size, int) and size <= chunk_size):
            return _first(chunk(tf.range(count)), size)
        # Chunks of even size, so that at most one row per chunk is computed in vain.
        chunks = -(-count // chunk_size)
        even = -(-count // chunks)
        leading = tf.TensorShape([even if isinstance(even, int) else None])
        specs = [
            tf.TensorSpec(leading.concatenate(spec.shape), spec.dtype)
            for spec in _specs(linear_map)
        ]
        # A chunk is what may be held, so that one is done before the next begins.
        stacks = _stack_in_loop(
            chunks,
            lambda i: list(map(_as_told, chunk(i * even + tf.range(even)), specs)),
            specs,
            at_once=1,
        )
    flat = [tf.reshape(s, shapes.join([chunks * even], shapes.shape_of(s[0])[1:])) for s in stacks]
    return _first(flat, size)


def _as_told(output: tf.Tensor, spec: tf.TensorSpec) -> tf.Tensor:
    """Returns an output in its known shape: of no entries a vectorized map may give another."""
    if spec.shape.rank is None:
        return output
    found = tf.shape(output)
    sizes = [found[k] if size is None else size for k, size in enumerate(spec.shape)]
    return tf.reshape(output, sizes)


def _stack_in_loop(
    count: shapes.Size, step, specs: Sequence[tf.TensorSpec], at_once: int
) -> list[tf.Tensor]:
    """Returns the outputs of `step(0)`, `step(1)`, ... stacked along a new first axis."""
    arrays = [tf.TensorArray(s.dtype, size=count, element_shape=s.shape) for s in specs]

    def body(i, arrays):
        return i + 1, [array.write(i, output) for array, output in zip(arrays, step(i))]

    # The bound lets XLA differentiate the loop.
    _, arrays = tf.while_loop(
        lambda i, _: i < count,
        body,
        (tf.constant(0), arrays),
        parallel_iterations=at_once,
        maximum_iterations=count,
    )
    return [array.stack() for array in arrays]


def _memoized_map(kind: str, y: tf.Tensor, sources, run, specs) -> LinearMap:
    # A variable's reads may be sources together, so that the first of them does not tell.
    key = (kind, y.ref(), *(tuple(t.ref() for t in source.tensors) for source in sources))
    return graph_memo.memoized(key, lambda: _traced(run, specs))


def _traced(run: Callable[..., list[tf.Tensor | None]], specs) -> LinearMap:
    connected = []

    def connected_outputs(*inputs):
        outputs = run(*inputs)
        connected[:] = [output is not None for output in outputs]
        return [output for output in outputs if output is not None]

    function = tf.function(connected_outputs, autograph=False).get_concrete_function(*specs)
    return LinearMap(function if any(connected) else None, tuple(connected))


def _sum(parts: Sequence[tf.Tensor | None]) -> tf.Tensor | None:
    found = [part for part in parts if part is not None]
    return tf.add_n(found) if len(found) > 1 else (found[0] if found else None)


def _tensors(sources: Sequence[Source]) -> list[tf.Tensor]:
    return [tensor for source in sources for tensor in source.tensors]


def _specs(linear_map: LinearMap) -> list[tf.TensorSpec]:
    return linear_map.function.structured_outputs


def _at_least_one(size: shapes.Size) -> shapes.Size:
    return max(size, 1) if isinstance(size, int) else tf.maximum(size, 1)


def _first(stacks: Sequence[tf.Tensor], size: shapes.Size) -> list[tf.Tensor]:
    """Returns the first `size` of each stack; the stack itself where it has just as many."""
    return [stack if stack.shape[:1] == [size] else stack[:size] for stack in stacks]


# TensorFlow only logs a fallback, and inside a called function only as a debug message. The level
# of its logger is shared by all threads, so one build at a time may change it.
_FALLBACK = re.compile(r"Using a while_loop for converting (\w+)|(\w+) uses a while_loop")
_logger_lock = threading.RLock()


@contextlib.contextmanager
def _loop_fallbacks_reported() -> Iterator[None]:
    """Turns TensorFlow's log lines on ops that a vectorized map loops over into one warning."""
    logger, here, types = tf.get_logger(), threading.get_ident(), set()

    def keep(record: logging.LogRecord) -> bool:
        found = record.thread == here and _FALLBACK.match(record.getMessage())
        if found:
            types.add(found[1] or found[2])
        return not found and record.levelno >= level

    with _logger_lock:
        set_level, level = logger.level, logger.getEffectiveLevel()
        logger.addFilter(keep)
        logger.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            logger.setLevel(set_level)
            logger.removeFilter(keep)
    if types:
        warnings.warn(
            f"tf.vectorized_map runs these ops once per row, in a loop: {', '.join(sorted(types))}."
            " The result is right, but slower than a map without them.",
            errors.LoopFallbackWarning,
            stacklevel=2,
        )
