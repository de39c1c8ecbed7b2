"""What counts as a target or a source, and the tensors by which a graph knows it."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tfjac import errors, shapes, tf_internals

_EAGER_REMEDY = (
    "The graph functions need tensors of a graph that is being built: call them inside a "
    "tf.function or a tf.Graph, or use tfjac.prepare(fn)(x) from eager code."
)


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
    """One source x.

    Args:
      tensors: what `tf.gradients` differentiates by; the cotangents of all of them add up. One
        tensor, or for a variable its handle as each graph on the way knows it (none: unused).
      shape: static shape of x.
      dtype: dtype of x.
      value: the tensor or variable itself.
    """

    tensors: tuple[tf.Tensor, ...]
    shape: tf.TensorShape
    dtype: tf.DType
    value: tf.Tensor | tf.Variable

    def run_time_shape(self) -> shapes.Shape:
        """Returns the shape of x, static where it is known."""
        return shapes.dynamic_shape(self.shape, lambda: tf.shape(self.value))


def unwrap(value):
    """Returns the tf.Variable inside a Keras 3 variable; anything else as it is."""
    inner = tf_internals.variable_of(value)
    return value if inner is None else inner


def has_value(value) -> bool:
    """True of a tensor and of a variable, TensorFlow's or Keras's."""
    return isinstance(unwrap(value), (tf.Tensor, tf.Variable))


def is_composite(value) -> bool:
    """True of what is made of several tensors and a leaf to `tf.nest`, as a tf.RaggedTensor is."""
    if isinstance(value, (int, float, complex, str)) or has_value(value):
        return False
    if tf.nest.is_nested(value):
        return False
    parts = tf.nest.flatten(value, expand_composites=True)
    return len(parts) != 1 or parts[0] is not value


def check_dense(value, argument: str) -> None:
    """Raises if `value` is a composite tensor."""
    if is_composite(value):
        raise errors.InvalidTypeError(
            errors.message(
                argument,
                "dense tensors",
                f"a {type(value).__name__}",
                "Differentiate by or of the dense tensors in it: its `flat_values`, `values` or "
                "`blocks`.",
            )
        )


def as_target(y, argument: str = "ys") -> tf.Tensor:
    """Returns `y` as a graph tensor of a differentiable dtype, or raises."""
    if not isinstance(y, tf.IndexedSlices):
        check_dense(y, argument)
    y = unwrap(y)
    if tf.executing_eagerly() and not tf.is_symbolic_tensor(y):
        raise errors.InvalidTypeError(
            errors.message(argument, "graph tensors", _describe(y), _EAGER_REMEDY)
        )
    if isinstance(y, (tf.Variable, tf.IndexedSlices)):
        y = tf.convert_to_tensor(y)
    if not tf.is_symbolic_tensor(y):
        raise errors.InvalidTypeError(
            errors.message(argument, "graph tensors", _describe(y), _EAGER_REMEDY)
        )
    _check_dtype(y, argument, "A Jacobian needs a target that is floating or complex.")
    return y


def as_source(x, y: tf.Tensor, argument: str = "xs") -> Source:
    """Returns `x` as a source of the graph that `y` belongs to, or raises."""
    check_dense(x, argument)
    x = unwrap(x)
    if isinstance(x, tf.Variable):
        _check_dtype(x, argument, "A Jacobian needs a source that is floating or complex.")
        return Source(_variable_tensors(x, y), x.shape, x.dtype.base_dtype, x)
    if not tf.is_symbolic_tensor(x):
        raise errors.InvalidTypeError(
            errors.message(argument, "graph tensors or tf.Variables", _describe(x), _EAGER_REMEDY)
        )
    _check_dtype(x, argument, "A Jacobian needs a source that is floating or complex.")
    check_reachable(x, y, argument)
    return Source((x,), x.shape, x.dtype.base_dtype, x)


def check_reachable(x: tf.Tensor, y: tf.Tensor, argument: str) -> None:
    """Raises unless `x` is of the graph of `y`, of the default graph, or of one around them."""
    inner = [
        *tf_internals.graph_and_outer_graphs(tf.compat.v1.get_default_graph()),
        *tf_internals.graph_and_outer_graphs(y.graph),
    ]
    if not any(x.graph is graph for graph in inner):
        raise errors.InvalidValueError(
            errors.message(
                argument,
                f"in the graph of the target {y.name!r} or in one around it",
                f"{x.name!r} of another graph",
                "Build target and source in one graph, or pass x to the function that computes y.",
            )
        )


def _variable_tensors(variable: tf.Variable, y: tf.Tensor) -> tuple[tf.Tensor, ...]:
    handle = getattr(variable, "handle", None)
    if handle is None:  # a TensorFlow 1 reference variable: all its readers share this tensor
        return (variable.value(),)
    found = [
        tf_internals.known_in_graph(graph, handle)
        for graph in tf_internals.graph_and_outer_graphs(y.graph)
    ]
    return tuple(tensor for tensor in found if tensor is not None)


def _check_dtype(value, argument: str, remedy: str) -> None:
    dtype = value.dtype.base_dtype
    if not (dtype.is_floating or dtype.is_complex):
        raise errors.InvalidTypeError(
            errors.message(
                argument, "floating or complex", f"{_describe(value)}", f"{remedy} Cast it first."
            )
        )


def _describe(value) -> str:
    if isinstance(value, (tf.Tensor, tf.Variable)):
        kind = (
            "variable"
            if isinstance(value, tf.Variable)
            else ("tensor" if tf.is_symbolic_tensor(value) else "eager tensor")
        )
        name = "" if kind == "eager tensor" else f" {value.name!r}"
        return f"{kind}{name} of dtype {value.dtype.base_dtype.name} and shape {value.shape}"
    return f"{value!r:.60} of type {type(value).__name__}"
