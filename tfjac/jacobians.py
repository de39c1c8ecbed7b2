"""Jacobians and their products for tensors of a graph that is being built."""

from __future__ import annotations

import tensorflow as tf

from tfjac import construction, nests, planning, problems
from tfjac.problems import Nested
from tfjac.strategies import Problem, Strategy


@tf.autograph.experimental.do_not_convert
def jacobian(
    ys: Nested,
    xs: Nested,
    strategy: str | Strategy = "auto",
    *,
    chunk_size: int | str | None = "auto",
    unconnected_gradients: str | tf.UnconnectedGradients = "zero",
    holomorphic: bool = False,
    structured: bool = False,
    memory_budget: int | None = None,
    name: str | None = None,
) -> Nested:
    """Returns the Jacobian dy/dx of graph tensors, shape `y.shape + x.shape`.

    J[i, j] = d y[i] / d x[j], where i runs over the axes of y and j over those of x. Its dtype is
    that of y. For real x and complex y, J = d Re y/dx + i d Im y/dx. For complex x and real y it
    is what `tf.gradients` gives, dy/d Re x + i dy/d Im x. Where both are complex, `holomorphic`
    says that dy/dx exists; it is returned, not its conjugate, which `tf.gradients` gives.

    Asking again for the same Jacobian in one graph returns the same tensor, except under a
    `tf.GradientTape`. The result is differentiable.

    Args:
      ys: target, or a nested structure of targets, of any shape; floating or complex.
      xs: source, or a nested structure of sources: tensors of the graph, variables of TensorFlow
        or Keras. Of a `tf.experimental.ExtensionType` the floating tensors are sources.
      strategy: "auto", "unstack", "while_loop", "vectorized", "forward", "structural",
        "cross_country", or a `Strategy`.
      chunk_size: rows or columns per pass; None for all at once, "auto" for as many as fit 256 MiB.
      unconnected_gradients: "zero", or "none" for None where x does not reach y.
      holomorphic: that y is a holomorphic function of complex x.
      structured: return each Jacobian as a `BlockDiagonal` (`to_dense`, `matvec`, `rmatvec`,
        `blocks`), in which the zeros between examples that stay apart are never written.
      memory_budget: bytes that may be held at once, the result and its rows among them, but not
        the zeros between examples; chooses `chunk_size`, and leaves out strategies that would hold
        more. Told from the shapes.
      name: name scope of the ops added.

    Returns:
      The structure of ys, in it the structure of xs, in it tensors of shape `y.shape + x.shape`.

    Raises:
      InvalidTypeError: eager tensors, non-tensors, dtypes that are not floating or complex.
      InvalidValueError: unknown strategy, tensors of two graphs, options that contradict.
      NotDifferentiableError: an op between x and y has no derivative.
      UnsupportedError: the strategy cannot serve this Jacobian; the message says why.

    Cost:
      As many vector-Jacobian products as y has entries, or Jacobian-vector products as x has
      (`forward`); the products of local Jacobians that `plan` tells (`cross_country`), or none
      (`structural`). Entries along leading axes that the graph shows to stay apart, as examples do,
      count once; between them zeros are written. The value y is computed once.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.jacobian(x ** 2, x)
      >>> f(tf.constant([1., 2.])).numpy()
      array([[2., 0.],
             [0., 4.]], dtype=float32)
    """
    return construction.operate(
        ys,
        xs,
        False,
        construction.options_of(
            strategy, chunk_size, unconnected_gradients, holomorphic, structured, memory_budget
        ),
        name or "jacobian",
    )


@tf.autograph.experimental.do_not_convert
def batch_jacobian(
    ys: Nested,
    xs: Nested,
    strategy: str | Strategy = "auto",
    *,
    chunk_size: int | str | None = "auto",
    unconnected_gradients: str | tf.UnconnectedGradients = "zero",
    holomorphic: bool = False,
    independence: str = "prove",
    memory_budget: int | None = None,
    name: str | None = None,
) -> Nested:
    """Returns one Jacobian per example, shape `[B] + y.shape[1:] + x.shape[1:]`.

    J[b, i, j] = d y[b, i] / d x[b, j]. That example b of y depends on example b of x alone is
    proved on the graph, or it raises: see `explain_dependence`. Where examples mix, as in batch
    normalization while training, use `jacobian`.

    Args:
      ys: target `[B, ...]`, or a nested structure of them; `[B]` counts as one row per example.
      xs: source `[B, ...]`, or a nested structure of them. Tensors only: a variable has no
        example axis.
      strategy: as in `jacobian`.
      chunk_size: as in `jacobian`; rows or columns of one example.
      unconnected_gradients: as in `jacobian`.
      holomorphic: as in `jacobian`.
      independence: "prove", or "assume" to go ahead without a proof. Where examples do mix, what
        comes back then is the derivative of sums over the batch.
      memory_budget: as in `jacobian`.
      name: name scope of the ops added.

    Returns:
      The structure of ys, in it the structure of xs, in it tensors of shape
      `[B] + y.shape[1:] + x.shape[1:]`.

    Raises:
      As `jacobian`; also InvalidValueError for a scalar target or source, a variable as source,
      or sizes of the first axis that differ.
      ExamplesMixError: examples mix, or could not be proved not to; the message names the op.

    Cost:
      As many vector-Jacobian products of the whole batch as one example of y has entries, or
      Jacobian-vector products as one example of x has (`forward`).

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.batch_jacobian(tf.reduce_sum(x ** 2, axis=1), x)
      >>> f(tf.constant([[1., 2.], [3., 4.]])).numpy()
      array([[2., 4.],
             [6., 8.]], dtype=float32)
    """
    return construction.operate(
        ys,
        xs,
        True,
        construction.options_of(
            strategy, chunk_size, unconnected_gradients, holomorphic, False, memory_budget
        ),
        name or "batch_jacobian",
        independence,
    )


@tf.autograph.experimental.do_not_convert
def value_and_jacobian(
    ys: Nested, xs: Nested, strategy: str | Strategy = "auto", **options
) -> tuple[Nested, Nested]:
    """Returns `(ys, jacobian(ys, xs, strategy, **options))`.

    The value is evaluated once for both: shapes `y.shape` and `y.shape + x.shape`.

    Args:
      ys: as in `jacobian`.
      xs: as in `jacobian`.
      strategy: as in `jacobian`.
      **options: as in `jacobian`.

    Returns:
      The targets as they came, and the Jacobian.

    Raises:
      As `jacobian`.

    Cost:
      That of `jacobian`.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.value_and_jacobian(x ** 2, x)
      >>> y, j = f(tf.constant([3.]))
      >>> float(y[0]), float(j[0, 0])
      (9.0, 6.0)
    """
    return ys, jacobian(ys, xs, strategy, **options)


@tf.autograph.experimental.do_not_convert
def value_and_batch_jacobian(
    ys: Nested, xs: Nested, strategy: str | Strategy = "auto", **options
) -> tuple[Nested, Nested]:
    """Returns `(ys, batch_jacobian(ys, xs, strategy, **options))`.

    The value is evaluated once for both: shapes `[B, ...]` and
    `[B] + y.shape[1:] + x.shape[1:]`.

    Args:
      ys: as in `batch_jacobian`.
      xs: as in `batch_jacobian`.
      strategy: as in `jacobian`.
      **options: as in `batch_jacobian`.

    Returns:
      The targets as they came, and the per-example Jacobian.

    Raises:
      As `batch_jacobian`.

    Cost:
      That of `batch_jacobian`.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.value_and_batch_jacobian(x ** 2, x)
      >>> y, j = f(tf.constant([[3.]]))
      >>> y.shape.as_list(), j.shape.as_list()
      ([1, 1], [1, 1, 1])
    """
    return ys, batch_jacobian(ys, xs, strategy, **options)


@tf.autograph.experimental.do_not_convert
def plan(
    ys: Nested,
    xs: Nested,
    batch: bool = False,
    strategy: str | Strategy = "auto",
    chunk_size: int | str | None = "auto",
    memory_budget: int | None = None,
) -> list[planning.Plan]:
    """Returns, for each target of `ys`, the plan that `jacobian` or `batch_jacobian` follows.

    Args:
      ys: as in `jacobian`.
      xs: as in `jacobian`.
      batch: whether the per-example Jacobian is meant.
      strategy: as in `jacobian`.
      chunk_size: as in `jacobian`.
      memory_budget: as in `jacobian`.

    Returns:
      One `Plan` for each tensor of `ys`, in the order of `tf.nest.flatten`; several where it is not
      from all of `xs` that the same axes of it stay apart.

    Raises:
      As `jacobian`.

    Cost:
      Reads the graph and adds no op.

    Example:
      >>> with tf.Graph().as_default():
      ...   x = tf.compat.v1.placeholder(tf.float32, [3])
      ...   (p,) = tfjac.plan(tf.sin(x), x, batch=False)
      >>> p.strategy.name
      'structural'
    """
    construction.check_options(strategy, chunk_size)
    chunk_size = planning.within(memory_budget, chunk_size)
    flat_xs = nests.Nest(xs, "xs").leaves
    with problems.building(nests.Nest(ys, "ys").leaves, "ys", "plan") as targets:

        def chosen(part: Problem) -> planning.Plan:
            return planning.choose(part, strategy, chunk_size)

        return [
            construction.as_shown(part, problem.apart, chosen)[1]
            for problem in [problems.problem(y, flat_xs, batch) for y in targets]
            for part in construction.groups(problem)
        ]
