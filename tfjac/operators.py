"""The Jacobian as a linear operator, made of products with it."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tfjac import errors, jacobians, problems, products, shapes
from tfjac import independence as independence_lib

# Columns up to which products are written out one by one, rather than in a loop.
_MOST_WRITTEN_OUT = 16


class JacobianOperator(tf.linalg.LinearOperator):
    """dy/dx as a `tf.linalg.LinearOperator` of shape `[m, n]`, or `[B, m, n]`, never formed.

    Made by `jacobian_operator` and `linearize`. `matvec` takes a vector `[n]` of entries of x,
    flattened, and costs a Jacobian-vector product; with `adjoint=True` a vector `[m]`, and a
    vector-Jacobian product. Several columns go one after the other. Each product can be had
    within loops too, as `tf.linalg.experimental.conjugate_gradient` runs.

    Args:
      push: the Jacobian-vector product, from a tensor of the shape of x to one of that of y.
      pull: the vector-Jacobian product, the other way.
      dense: gives the Jacobian, `y.shape + x.shape`, or `[B] + y.shape[1:] + x.shape[1:]`.
      y: the target, or a tensor like it.
      x: the source, or a tensor like it.
      batch: whether it is one matrix for each example.
      is_self_adjoint: that the Jacobian is symmetric, as far as the caller knows.
      is_positive_definite: that it is so.
      name: of the operator.
    """

    def __init__(
        self,
        push: Callable[[tf.Tensor], tf.Tensor],
        pull: Callable[[tf.Tensor], tf.Tensor],
        dense: Callable[[], tf.Tensor],
        y: tf.Tensor,
        x: tf.Tensor | tf.Variable,
        batch: bool = False,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        name: str = "jacobian_operator",
    ) -> None:
        self._push, self._pull, self._dense = push, pull, dense
        self._y, self._x, self._lead = y, x, int(batch)
        super().__init__(
            y.dtype,
            is_self_adjoint=is_self_adjoint,
            is_positive_definite=is_positive_definite,
            is_square=True if is_self_adjoint or is_positive_definite else None,
            name=name,
            parameters={"y": y, "x": x, "batch": batch},
        )

    def to_scipy(self):
        """Returns it as a `scipy.sparse.linalg.LinearOperator` over NumPy vectors.

        Of a batch it is the whole block-diagonal matrix. Only of an operator that `linearize` made:
        SciPy needs values.

        Raises:
          UnsupportedError: it is an operator of graph tensors, or SciPy is not installed.
        """
        try:
            from scipy.sparse import linalg
        except ImportError:
            raise errors.UnsupportedError(
                "to_scipy needs SciPy: pip install 'tfjac[sparse]'."
            ) from None
        if tf.is_symbolic_tensor(self._y):
            raise errors.UnsupportedError(
                f"to_scipy needs values, and {self._y.name!r} is a tensor of a graph. Use "
                "tfjac.linearize(fn, x), whose operator has them."
            )

        def flat(product: Callable[[tf.Tensor], tf.Tensor], like: tf.Tensor):
            def apply(vector):
                given = tf.reshape(tf.cast(tf.constant(vector), like.dtype), like.shape)
                return product(given).numpy().ravel()

            return apply

        shape = (self._y.shape.num_elements(), self._x.shape.num_elements())
        return linalg.LinearOperator(
            shape,
            matvec=flat(self._push, self._x),
            rmatvec=flat(self._pull, self._y),
            dtype=self.dtype.as_numpy_dtype,
        )

    def _shape(self) -> tf.TensorShape:
        k = self._lead
        sizes = [shapes.static_size(t.shape[k:]) for t in (self._y, self._x)]
        return self._y.shape[:k].concatenate(sizes)

    def _shape_tensor(self) -> tf.Tensor:
        k = self._lead
        y_shape, x_shape = shapes.shape_of(self._y), shapes.shape_of(self._x)
        return tf.stack([*y_shape[:k], shapes.size_of(y_shape[k:]), shapes.size_of(x_shape[k:])])

    def _matmul(self, x, adjoint: bool = False, adjoint_arg: bool = False) -> tf.Tensor:
        given, wanted = (self._y, self._x) if adjoint else (self._x, self._y)
        product = self._pull if adjoint else self._push
        matrices = tf.linalg.adjoint(x) if adjoint_arg else x
        if self._lead:
            matrices = _for_each_example(matrices, given)
        # Columns first, and with them what is before the examples.
        extra = matrices.shape.rank - 2 - self._lead
        columns = tf.transpose(matrices, _columns_first(matrices.shape.rank, extra))
        many = shapes.shape_of(columns)[: extra + 1]
        flat = tf.reshape(columns, shapes.join([shapes.size_of(many)], shapes.shape_of(given)))

        def apply(vector: tf.Tensor) -> tf.Tensor:
            return tf.cast(product(tf.cast(vector, given.dtype)), self.dtype)

        count = flat.shape[0]
        if count == 0:
            found = tf.zeros(shapes.join([0], shapes.shape_of(wanted)), self.dtype)
        elif count is not None and count <= _MOST_WRITTEN_OUT:
            found = tf.stack([apply(vector) for vector in tf.unstack(flat)])
        else:
            found = tf.map_fn(apply, flat)
        size = shapes.size_of(shapes.shape_of(wanted)[self._lead :])
        lead = shapes.shape_of(wanted)[: self._lead]
        found = tf.reshape(found, shapes.join(many, lead, [size]))
        return tf.transpose(found, _columns_last(extra, self._lead))

    def _to_dense(self) -> tf.Tensor:
        return tf.reshape(self._dense(), self.shape_tensor())

    @property
    def _type_spec(self) -> tf.TypeSpec:
        raise errors.UnsupportedError(
            "a JacobianOperator is made of products, not of tensors, and cannot leave its "
            "tf.function. Return what it gives, or use tfjac.linearize from eager code."
        )


def _for_each_example(matrices: tf.Tensor, given: tf.Tensor) -> tf.Tensor:
    """Returns `[..., n, k]` as `[..., B, n, k]`, repeated where it is the same for all examples."""
    (examples,) = shapes.shape_of(given)[:1]
    shape = shapes.shape_of(matrices)
    before = shape[:-3]
    if matrices.shape.rank > 2 and matrices.shape[-3] == given.shape[0] is not None:
        return matrices
    return tf.broadcast_to(matrices, shapes.join(before, [examples], shape[-2:]))


def _columns_first(rank: int, extra: int) -> list[int]:
    """Returns `[*extra, *lead, n, k]` as `[*extra, k, *lead, n]`."""
    return [*range(extra), rank - 1, *range(extra, rank - 1)]


def _columns_last(extra: int, lead: int) -> list[int]:
    """Returns `[*extra, k, *lead, m]` as `[*extra, *lead, m, k]`."""
    return [*range(extra), *range(extra + 1, extra + lead + 2), extra]


@tf.autograph.experimental.do_not_convert
def jacobian_operator(
    y: tf.Tensor,
    x: tf.Tensor,
    batch: bool = False,
    *,
    is_self_adjoint: bool | None = None,
    is_positive_definite: bool | None = None,
    independence: str = "prove",
    name: str | None = None,
) -> JacobianOperator:
    """Returns dy/dx of graph tensors as a `tf.linalg.LinearOperator`, never formed unless asked.

    Args:
      y: a real graph tensor of m entries; with `batch` `[B, ...]`, m in each example.
      x: a graph tensor or variable of n entries; with `batch` `[B, ...]`.
      batch: whether it is one matrix for each example, as in `batch_jacobian`.
      is_self_adjoint: that the Jacobian is symmetric, as that of a gradient is: a promise.
      is_positive_definite: that it is so: a promise, which
        `tf.linalg.experimental.conjugate_gradient` asks for.
      independence: with `batch`, as in `batch_jacobian`.
      name: of the operator.

    Returns:
      A `JacobianOperator` of shape `[m, n]`, or `[B, m, n]`: `matvec`, `matmul`, `adjoint`,
      `to_dense` and what else a `tf.linalg.LinearOperator` has.

    Raises:
      InvalidTypeError: complex tensors.
      As `jacobian`, or `batch_jacobian`, otherwise.

    Cost:
      Nothing until it is used; then as `jvp` and `vjp`. `to_dense` as `jacobian`.

    Example:
      >>> @tf.function
      ... def f(x, v):
      ...   return tfjac.jacobian_operator(x ** 2, x).matvec(v)
      >>> f(tf.constant([1., 2.]), tf.constant([1., 10.])).numpy()
      array([ 2., 40.], dtype=float32)
    """
    independence_lib.check_option(independence)
    with problems.building([y], "y", name or "jacobian_operator") as (target,):
        problem = problems.problem(target, [x], bool(batch))
        (source,) = problem.sources
        problems.check_real(problem)
        if batch and independence == independence_lib.PROVE:
            independence_lib.check(target, source)

    def dense() -> tf.Tensor:
        if batch:
            return jacobians.batch_jacobian(target, x, independence=independence)
        return jacobians.jacobian(target, x)

    def checked(product: tf.Tensor) -> tf.Tensor:
        # Asserted where the product is made, which may be within a loop.
        checks = problems.check_example_counts(problem) if batch else []
        if not checks:
            return product
        with tf.control_dependencies(checks):
            return tf.identity(product)

    return JacobianOperator(
        lambda v: checked(products.jvp(target, x, v)),
        lambda u: checked(products.vjp(target, x, u)),
        dense,
        target,
        source.value,
        bool(batch),
        is_self_adjoint,
        is_positive_definite,
        name or "jacobian_operator",
    )
