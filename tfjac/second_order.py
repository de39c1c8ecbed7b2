"""Second derivatives: the Jacobian of the gradient, its trace, and products with it."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tfjac import (
    errors,
    gradients,
    graph_memo,
    jacobians,
    laplacians,
    nests,
    problems,
    products,
    quantities,
    spectra,
    tapes,
)
from tfjac import independence as independence_lib
from tfjac.graph import sources as sources_lib
from tfjac.problems import Nested
from tfjac.quantities import Quantity
from tfjac.strategies import Strategy


@tf.autograph.experimental.do_not_convert
def hessian(
    y: tf.Tensor,
    xs: Nested,
    strategy: str | Strategy = "auto",
    *,
    chunk_size: int | str | None = "auto",
    name: str | None = None,
) -> Nested:
    """Returns the second derivatives d2y / dx dx' of a scalar.

    It is the Jacobian of the gradient, which the strategy carries forward, back or both ways, as is
    cheapest: forward over reverse where x has few entries.

    Args:
      y: a scalar.
      xs: source, or a nested structure of sources, as in `jacobian`.
      strategy: as in `jacobian`.
      chunk_size: as in `jacobian`.
      name: name scope of the ops added.

    Returns:
      The structure of xs, in it the structure of xs, in it tensors of shape
      `x.shape + x'.shape`. Zeros where y does not depend on one of them.

    Raises:
      As `jacobian`; also InvalidValueError where y is not a scalar.

    Cost:
      One reverse pass, and the Jacobian of it.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.hessian(tf.reduce_sum(x ** 3), x)
      >>> f(tf.constant([1., 2.])).numpy()
      array([[ 6.,  0.],
             [ 0., 12.]], dtype=float32)
    """
    sources = nests.Nest(xs, "xs")
    flat_xs = sources.leaves
    with problems.building([y], "y", name or "hessian") as (target,):
        _check_target(target, batch=False)

        def rows_of() -> Nested:
            firsts = _gradients(target, flat_xs, False, independence_lib.ASSUME)
            return jacobians.jacobian(firsts, flat_xs, strategy, chunk_size=chunk_size)

        rows = _as_one(rows_of, target, flat_xs)
    return sources.pack([sources.pack(row) for row in rows])


@tf.autograph.experimental.do_not_convert
def batch_hessian(
    y: tf.Tensor,
    xs: Nested,
    strategy: str | Strategy = "auto",
    *,
    independence: str = "prove",
    chunk_size: int | str | None = "auto",
    name: str | None = None,
) -> Nested:
    """Returns one Hessian for each example, `[B] + x.shape[1:] + x'.shape[1:]`.

    Args:
      y: `[B]`, one number for each example.
      xs: source `[B, ...]`, or a nested structure of them, as in `batch_jacobian`.
      strategy: as in `jacobian`.
      independence: "prove" or "assume" that examples stay apart, as in `batch_jacobian`.
      chunk_size: as in `jacobian`.
      name: name scope of the ops added.

    Returns:
      The structure of xs, in it the structure of xs, in it tensors of shape
      `[B] + x.shape[1:] + x'.shape[1:]`. Zeros where y does not depend on one of them.

    Raises:
      As `batch_jacobian`; also InvalidValueError where y is not of shape [B].

    Cost:
      One reverse pass, and the per-example Jacobian of it.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.batch_hessian(tf.reduce_sum(x ** 3, 1), x)
      >>> f(tf.constant([[1.], [2.]])).numpy().ravel()
      array([ 6., 12.], dtype=float32)
    """
    independence_lib.check_option(independence)
    sources = nests.Nest(xs, "xs")
    flat_xs = sources.leaves
    with problems.building([y], "y", name or "batch_hessian") as (target,):
        _check_target(target, batch=True)

        def rows_of() -> Nested:
            firsts = _gradients(target, flat_xs, True, independence)
            # Where example b of y depends on example b of x alone, so does its gradient.
            return jacobians.batch_jacobian(
                firsts, flat_xs, strategy, independence="assume", chunk_size=chunk_size
            )

        rows = _as_one(rows_of, target, flat_xs)
    return sources.pack([sources.pack(row) for row in rows])


@tf.autograph.experimental.do_not_convert
def laplacian(
    y: tf.Tensor,
    x: tf.Tensor,
    batch: bool = False,
    *,
    probes: int | None = None,
    seed: int | tf.Tensor = 0,
    independence: str = "prove",
    name: str | None = None,
) -> tf.Tensor:
    """Returns the sum of the second derivatives d2y / dx_i^2, or that of each example.

    Args:
      y: a scalar; with `batch` `[B]`.
      x: a real graph tensor; with `batch` `[B, ...]`.
      batch: whether to take it of each example.
      probes: as in `trace`: number of random vectors of Hutchinson's estimate.
      seed: as in `trace`.
      independence: with `batch`, as in `batch_hessian`.
      name: name scope of the ops added.

    Returns:
      A scalar of the dtype of y; with `batch` `[B]`.

    Raises:
      InvalidValueError: y is not of that shape.
      As `trace` otherwise.

    Cost:
      Where y is a linear map but for elementwise ops, as of a dense or convolutional net: a reverse
      pass, a forward pass of derivatives with as many tangents as x has entries, and the second
      derivatives of these ops. Else a reverse pass, and the trace of the Jacobian of it: see
      `trace`. With `probes` that trace is estimated.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.laplacian(tf.reduce_sum(x ** 3), x)
      >>> float(f(tf.constant([1., 2.])))
      18.0
    """
    independence_lib.check_option(independence)
    with problems.building([y], "y", name or "laplacian") as (target,):
        _check_target(target, batch)
        if probes is None:
            (found,) = quantities.made("laplacian", y, x, batch, independence, "exact", _laplacian)
            return found

        def estimate() -> tf.Tensor:
            (gradient,) = _gradients(target, [x], batch, independence)
            return spectra.trace(
                gradient, x, batch, probes=probes, seed=seed, independence=independence
            )

        return _as_one(estimate, target, x)


def _laplacian(quantity: Quantity) -> list[tf.Tensor]:
    found = laplacians.by_curvature(quantity)
    if found is not None:
        return [quantity.finished(found)]
    (gradient,) = gradients.gradients(quantity.y, [quantity.x], zeros=True)
    # Examples of y stay apart, and so do those of its gradient.
    return [spectra.trace(gradient, quantity.x, bool(quantity.kept), independence="assume")]


@tf.autograph.experimental.do_not_convert
def hvp(y: tf.Tensor, xs: Nested, vectors: Nested, *, name: str | None = None) -> Nested:
    """Returns the Hessian of a scalar times a vector, without the Hessian.

    Args:
      y: a scalar.
      xs: source, or a nested structure of sources, as in `jacobian`; each once.
      vectors: the structure of xs; each of x's shape and dtype.
      name: name scope of the ops added.

    Returns:
      The structure of xs, each of x's shape and dtype.

    Raises:
      As `jvp`; also InvalidValueError where y is not a scalar.

    Cost:
      A reverse pass, and a forward pass of derivatives through both (forward over reverse).

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.hvp(tf.reduce_sum(x ** 3), x, tf.constant([1., 10.]))
      >>> f(tf.constant([1., 2.])).numpy()
      array([  6., 120.], dtype=float32)
    """
    with problems.building([y], "y", name or "hvp") as (target,):
        _check_target(target, batch=False)
        given = _in_graph(vectors)
        return _as_one(lambda: _hvp(target, xs, given), target, xs, given)


def _hvp(y: tf.Tensor, xs: Nested, vectors: Nested) -> Nested:
    sources = nests.Nest(xs, "xs")
    firsts = _gradients(y, sources.leaves, False, independence_lib.ASSUME)
    return products.jvp(sources.pack(firsts), xs, vectors)


@tf.autograph.experimental.do_not_convert
def ggn(
    loss: tf.Tensor, y: tf.Tensor, xs: Nested, vectors: Nested, *, name: str | None = None
) -> Nested:
    """Returns the generalized Gauss-Newton matrix J^T H J times a vector, without the matrix.

    J = dy/dx, and H the second derivatives of the loss by y. For a convex loss it is positive
    semidefinite, which the Hessian need not be (N. N. Schraudolph, 2002).

    Args:
      loss: a scalar, computed from y.
      y: the tensor between, the output of a net.
      xs: source, or a nested structure of sources, as in `jacobian`; each once. Weights, say.
      vectors: the structure of xs; each of x's shape and dtype.
      name: name scope of the ops added.

    Returns:
      The structure of xs, each of x's shape and dtype.

    Raises:
      As `jvp` and `vjp`; also InvalidValueError where the loss is not a scalar.

    Cost:
      A forward pass of derivatives, a product with H, and a reverse pass.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   y = x ** 2
      ...   return tfjac.ggn(tf.reduce_sum(y ** 2), y, x, tf.constant([1., 1.]))
      >>> f(tf.constant([1., 2.])).numpy()
      array([ 8., 32.], dtype=float32)
    """
    with problems.building([loss, y], "loss", name or "ggn") as (target, middle):
        _check_target(target, batch=False, argument="loss")
        given = _in_graph(vectors)

        def product() -> Nested:
            pushed = products.jvp(middle, xs, given)
            return products.vjp(middle, xs, _hvp(target, middle, pushed))

        return _as_one(product, target, xs, given)


@tf.autograph.experimental.do_not_convert
def ntk(y: tf.Tensor, xs: Nested, cotangents: tf.Tensor, *, name: str | None = None) -> tf.Tensor:
    """Returns the empirical neural tangent kernel J J^T times a vector, without the kernel.

    J = dy/dx for weights x, and the kernel the sum over them (A. Jacot et al., arXiv:1806.07572).
    `gramian` gives the kernel itself.

    Args:
      y: the output of a net.
      xs: source, or a nested structure of sources, as in `jacobian`; each once.
      cotangents: of the shape and dtype of y.
      name: name scope of the ops added.

    Returns:
      A tensor of the shape and dtype of y.

    Raises:
      As `jvp` and `vjp`.

    Cost:
      A reverse pass, and a forward pass of derivatives.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.ntk(x ** 2, x, tf.constant([1., 1.]))
      >>> f(tf.constant([1., 2.])).numpy()
      array([ 4., 16.], dtype=float32)
    """
    with problems.building([y], "y", name or "ntk") as (target,):
        given = _in_graph(cotangents)

        def product() -> tf.Tensor:
            return products.jvp(target, xs, products.vjp(target, xs, given))

        return _as_one(product, target, xs, given)


def _as_one(build: Callable[[], Nested], y: tf.Tensor, xs: Nested, vectors: Nested = ()) -> Nested:
    """Returns `build()`, on tapes one operation: each part alone changes ops of the others."""
    ops = problems.problem(y, nests.Nest(xs, "xs").leaves, False).ops
    parts = tf.nest.flatten(vectors, expand_composites=True)
    given = [v for v in parts if tf.is_symbolic_tensor(v)]
    return tapes.recorded(build, y, ops, given)


def _in_graph(vectors: Nested) -> Nested:
    """Returns the vectors with their tensors and variables as tensors of the graph."""
    return tf.nest.map_structure(
        lambda v: tf.convert_to_tensor(v) if sources_lib.has_value(v) else v,
        vectors,
        expand_composites=True,
    )


def _check_target(y: tf.Tensor, batch: bool, argument: str = "y") -> None:
    wanted = 1 if batch else 0
    if y.shape.rank != wanted:
        raise errors.InvalidValueError(
            errors.message(
                argument,
                "one number for each example, of shape [B]" if batch else "a scalar",
                f"{y.name!r} of shape {y.shape}",
                "Use jacobian of a gradient for others"
                + ("." if batch else ", or batch_hessian for one of each example."),
            )
        )


def _gradients(y: tf.Tensor, xs, batch: bool, proof: str) -> list[tf.Tensor]:
    """Returns the gradient by each source, zeros where y does not depend on it."""
    problem = problems.problem(y, xs, batch, twice=True)
    if batch and proof == independence_lib.PROVE:
        for source in problem.sources:
            independence_lib.check(y, source)
    values = [source.value for source in problem.sources]

    def build() -> list[tf.Tensor]:
        return gradients.gradients(problem.y, values, zeros=True)

    key = ("gradients", problem.y.ref(), *(value.ref() for value in values))
    found = graph_memo.memoized_unless_recording(key, build)
    return [found[i] for i in problems.positions(problem, xs)]
