"""A function at a point: its value, and products with its Jacobian there, computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfjac import errors, function_cache, prepared, products, tf_internals
from tfjac.graph import subgraph
from tfjac.operators import JacobianOperator


def linearize(fn: Callable[[tf.Tensor], tf.Tensor], x: Any) -> tuple[tf.Tensor, JacobianOperator]:
    """Returns `fn(x)` and the Jacobian there as an operator, from eager code.

    What the products have in common, the value and all that depends on x alone, is computed once
    and kept with the operator: each product costs its linear part only.

    Args:
      fn: a Keras model, or a function of one tensor that returns one.
      x: a tensor or array, floating.

    Returns:
      `(y, J)`: the value, and a `JacobianOperator` of shape `[entries of y, entries of x]`:
      `J.matvec(v)`, `J.matvec(u, adjoint=True)`, `J.to_dense()`, `J.to_scipy()`.

    Raises:
      InvalidTypeError: called while a graph is built (use `jacobian_operator` there), `fn` is not
        callable, or it does not return one real tensor.
      As `jvp` and `vjp` otherwise.

    Cost:
      One trace for each shape and dtype of x, and where a Keras model has other layers, kept as
      long as `fn` is; then a forward pass for each point, and for each product about another.
      `to_dense` is as `jacobian`, with a trace of its own; where fn reads variables or draws
      numbers, which may be others by then, it is a product for each row or column.

    Example:
      >>> y, J = tfjac.linearize(lambda x: x ** 3, np.array([1., 2.]))
      >>> J.matvec(np.array([1., 1.])).numpy()
      array([ 3., 12.])
      >>> J.to_dense().numpy()
      array([[ 3.,  0.],
             [ 0., 12.]])
    """
    if not callable(fn):
        raise errors.InvalidTypeError(
            errors.message(
                "fn", "callable", f"{fn!r:.60}", "For tensors of a graph use jacobian_operator."
            )
        )
    if not tf.executing_eagerly():
        raise errors.InvalidTypeError(
            errors.message(
                "x",
                "given to linearize from eager code",
                "a call while a graph is built",
                "Use tfjac.jacobian_operator(y, x) there.",
            )
        )
    x = _as_tensor(x)
    if not x.dtype.is_floating:
        raise errors.InvalidTypeError(
            errors.message("x", "floating", f"dtype {x.dtype.name}", "Cast it first.")
        )
    cache = function_cache.cache_of(fn, "linearize")
    traced = cache.get(
        (tuple(x.shape), x.dtype),
        lambda: _Traced(fn, x),
        lambda entry: entry.layers == tf_internals.layers_of(fn),
    )
    return traced.at(x, prepared.prepare(fn))


class _Traced:
    """The graph of a function of tensors of one shape, cut into what each call needs.

    `layers` are those of a Keras model as they were; see `tf_internals.layers_of`.
    """

    def __init__(self, fn: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor) -> None:
        converted = tf_internals.converted_by_autograph(fn)
        spec = tf.TensorSpec(x.shape, x.dtype)
        found: list[_Linear] = []

        def traced(x: tf.Tensor) -> list[tf.Tensor]:
            y = _checked(converted(x))
            tangent = tf.compat.v1.placeholder(x.dtype, x.shape)
            cotangent = tf.compat.v1.placeholder(y.dtype, y.shape)
            found[:] = [
                _Linear(tangent, products.jvp(y, x, tangent)),
                _Linear(cotangent, products.vjp(y, x, cotangent)),
            ]
            return [y, *(t for linear in found for t in linear.given)]

        self._value = tf.function(traced, autograph=False).get_concrete_function(spec)
        definition = self._value.graph.as_graph_def()
        self._products = [linear.function(definition) for linear in found]
        self._sizes = [len(linear.given) for linear in found]
        self.layers = tf_internals.layers_of(fn)
        # What gives the same when it is traced and run again.
        self._is_pure = not any(op.op_def.is_stateful for op in self._value.graph.get_operations())
        self._is_pure &= all(t.dtype != tf.resource for t in self._value.captured_inputs)

    def at(
        self, x: tf.Tensor, dense: Callable[[tf.Tensor], tf.Tensor]
    ) -> tuple[tf.Tensor, JacobianOperator]:
        """Returns the value at x and the Jacobian there.

        Args:
          x: the point.
          dense: gives the Jacobian at a point, of the function as it is then.
        """
        y, *given = self._value(x)
        count = self._sizes[0]
        push, pull = self._products

        def pushed(v: tf.Tensor) -> tf.Tensor:
            return push(v, *given[:count])

        def pulled(u: tf.Tensor) -> tf.Tensor:
            return pull(u, *given[count:])

        def written_out() -> tf.Tensor:
            if self._is_pure:
                return dense(x)
            # Not the operator below: it would hold itself, and be freed late.
            linear = JacobianOperator(pushed, pulled, lambda: dense(x), y, x)
            m, n = y.shape.num_elements(), x.shape.num_elements()
            units = tf.eye(min(m, n), dtype=y.dtype)
            found = linear.matmul(units, adjoint=m < n)
            return tf.transpose(found) if m < n else found

        return y, JacobianOperator(pushed, pulled, written_out, y, x)


class _Linear:
    """A product as a function of its vector and of tensors that do not depend on it.

    Args:
      vector: the placeholder of the vector.
      product: what is made of it.
    """

    def __init__(self, vector: tf.Tensor, product: tf.Tensor) -> None:
        self._vector, self._product = vector, product
        self._ops = subgraph.ops_between(product, [vector])
        made = {op.name for op in self._ops}
        outside = [t for op in self._ops for t in op.inputs if t.op.name not in made]
        if not self._ops:
            outside.append(product)
        self._constants = {t.op.name: t.op for t in outside if t.op.type == "Const"}
        by_key = {subgraph.key_of(t): t for t in outside if t.op.type != "Const"}
        by_key.pop(subgraph.key_of(vector), None)
        self.given = list(by_key.values())

    def function(self, definition: tf.compat.v1.GraphDef) -> tf.types.experimental.GenericFunction:
        """Returns the function of the vector and of `given`.

        Args:
          definition: of the graph that they are in.
        """
        inputs = [self._vector, *self.given]
        part = tf.compat.v1.GraphDef(versions=definition.versions, library=definition.library)
        names = {}
        for k, tensor in enumerate(inputs):
            names[_input_name(tensor)] = f"given_{k}"
            part.node.add(name=f"given_{k}", op="Placeholder").attr[
                "dtype"
            ].type = tensor.dtype.as_datatype_enum
        for op in [*self._constants.values(), *self._ops]:
            node = part.node.add()
            node.CopyFrom(op.node_def)
            node.attr.pop("_class", None)  # placed beside ops that are not here
            kept = [n for n in node.input if not n.startswith("^")]
            node.input[:] = [names.get(n, n) for n in kept]
        product = names.get(_input_name(self._product), self._product.name)

        def run(*tensors: tf.Tensor) -> tf.Tensor:
            given = {f"given_{k}:0": t for k, t in enumerate(tensors)}
            wanted = product if ":" in product else f"{product}:0"
            (found,) = tf.graph_util.import_graph_def(part, given, [wanted], name="linear")
            found.set_shape(self._product.shape)
            return found

        specs = [tf.TensorSpec(t.shape, t.dtype) for t in inputs]
        return tf.function(run, autograph=False).get_concrete_function(*specs)


def _input_name(tensor: tf.Tensor) -> str:
    """Returns a tensor's name as nodes that read it have it."""
    name, output = tensor.name.split(":")
    return name if output == "0" else f"{name}:{output}"


def _as_tensor(x: Any) -> tf.Tensor:
    try:
        return tf.convert_to_tensor(x)
    except (TypeError, ValueError):
        raise errors.InvalidTypeError(
            errors.message(
                "x",
                "a tensor or an array",
                f"{x!r:.60} of type {type(x).__name__}",
                "Make it a function of one tensor, or use tfjac.prepare.",
            )
        ) from None


def _checked(y: Any) -> tf.Tensor:
    if tf.nest.is_nested(y) or not tf.is_tensor(y) or not y.dtype.is_floating:
        raise errors.InvalidTypeError(
            errors.message(
                "fn", "a function that returns one floating tensor", f"{y!r:.80}", "Return one."
            )
        )
    return tf.identity(y)
