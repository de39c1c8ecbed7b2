"""What is known of a Jacobian without computing it, and its diagonal."""

from __future__ import annotations

import tensorflow as tf

from tfjac import errors, graph_memo, independence, jacobians, problems, products
from tfjac.graph import sparsity


@tf.autograph.experimental.do_not_convert
def jacobian_sparsity(y: tf.Tensor, x: tf.Tensor) -> sparsity.SparsityPattern:
    """Returns which entries of dy/dx may be nonzero: all that are, and perhaps more.

    Told from the graph alone, for any value of x: through elementwise ops and movements exactly,
    through ops that mix by the axes that they mix along, through ops without a rule everything.

    Args:
      y: a graph tensor of known sizes.
      x: the same.

    Returns:
      A `SparsityPattern`: `rows`, `columns`, `count`, `shape` `(entries of y, entries of x)` and
      `to_dense()`.

    Raises:
      InvalidTypeError: not graph tensors of floating or complex dtype.
      InvalidValueError: unknown sizes.

    Cost:
      Reads the graph, bodies of functions included, and adds no op. A byte of memory for each
      entry of the Jacobian of a tensor on the way by x, freed at the end.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   print(tfjac.jacobian_sparsity(x[1:] - x[:-1], x).to_dense().astype(int))
      ...   return x
      >>> _ = f(tf.constant([1., 2., 4.]))
      [[1 1 0]
       [0 1 1]]
    """
    with problems.building([y], "y", "jacobian_sparsity") as (target,):
        source = problems.source_to_read(target, x)
        for argument, tensor in (("y", target), ("x", source.value)):
            if isinstance(tensor, tf.Variable) or not tensor.shape.is_fully_defined():
                raise errors.InvalidValueError(
                    errors.message(
                        argument,
                        "a tensor of known sizes",
                        f"{tensor.name!r} of shape {tensor.shape}",
                        "Trace the function with a full shape.",
                    )
                )
        key = ("sparsity", target.ref(), source.value.ref())
        return graph_memo.memoized(key, lambda: sparsity.pattern(target, source.value))


@tf.autograph.experimental.do_not_convert
def diag_jacobian(y: tf.Tensor, x: tf.Tensor, name: str | None = None) -> tf.Tensor:
    """Returns the diagonal of dy/dx, d y[i] / d x[i], of the shape of y.

    Args:
      y: a graph tensor.
      x: a graph tensor of the same shape.
      name: name scope of the ops added.

    Returns:
      A tensor of the shape and dtype of y.

    Raises:
      InvalidValueError: the shapes differ.
      As `jacobian` otherwise.

    Cost:
      One vector-Jacobian product where the graph shows that the Jacobian is diagonal: nothing of
      it but the diagonal is computed. Else the whole Jacobian, or that of each example where they
      stay apart.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.diag_jacobian(tf.square(x), x)
      >>> f(tf.constant([1., 2.])).numpy()
      array([2., 4.], dtype=float32)
    """
    with problems.building([y], "y", name or "diag_jacobian") as (target,):
        (source,) = problems.problem(target, [x], batch=False).sources
        if not target.shape.is_compatible_with(source.shape) or target.shape.rank is None:
            raise errors.InvalidValueError(
                errors.message(
                    "x",
                    f"of the shape of the target, {target.shape}",
                    f"shape {source.shape}",
                    "Use jacobian, which takes any shapes.",
                )
            )
        apart = independence.apart(target, source)
        if apart == target.shape.rank:
            return products.vjp(target, x, tf.ones_like(target))
        whole = jacobians.jacobian(target, x, structured=True)
        return tf.reshape(tf.linalg.diag_part(whole.matrices()), tf.shape(target))
