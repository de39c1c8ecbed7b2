"""The Laplacian from the curvature of each op, where that is known entry by entry.

A map that is linear but for elementwise ops has as its Laplacian the sum over these of
`adjoint * second derivative * sum_i (d input / d x_i)^2`: one reverse pass and one set of tangents,
where the Jacobian of the gradient takes both through the reverse pass as well. (The sum over paths
of second derivatives; carried forward it is the forward Laplacian of R. Li et al.,
arXiv:2307.08214.)
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import tensorflow as tf

from tfjac import gradients, matrices, rules, shapes
from tfjac.accumulation import order, reductions
from tfjac.accumulation.factors import Factor
from tfjac.accumulation.terms import Refused, Stack
from tfjac.graph import subgraph
from tfjac.quantities import Quantity
from tfjac.rules import Kind
from tfjac.strategies import Problem

# Elementwise ops without curvature.
_FLAT = frozenset({"Abs", "LeakyRelu", "Maximum", "Minimum", "Relu", "Relu6"})


@dataclasses.dataclass(frozen=True)
class _Curved:
    """A second derivative of an elementwise op, times the adjoint of its output.

    Args:
      second: of the shape of both inputs.
      one: the input that it is by.
      other: the other one, or the same.
    """

    second: tf.Tensor
    one: tf.Tensor
    other: tf.Tensor


def by_curvature(quantity: Quantity) -> tf.Tensor | None:
    """Returns the Laplacian of y, `[B]` or a scalar; None where an op is curved in another way.

    Args:
      quantity: of y, a scalar or one number for each example.
    """
    ops = quantity.problem.ops
    if any(op.type in subgraph.WITH_BODY or rules.has_custom_gradient(op) for op in ops):
        return None
    curved = _curved(quantity, ops)
    if curved is None:
        return None
    try:
        parts = [_part(quantity, each) for each in curved]
    except Refused:
        return None
    if not parts:
        return tf.zeros(quantity.y_shape(), quantity.y.dtype)
    return functools.reduce(lambda a, b: a + b, parts)


def _curved(quantity: Quantity, ops: Sequence[tf.Operation]) -> list[_Curved] | None:
    """Returns the second derivatives of all ops, None where one is not elementwise."""
    reached = {subgraph.key_of(t) for t in quantity.problem.sources[0].tensors}
    asked = []
    for op in ops:
        inputs = {t.ref(): t for t in op.inputs if subgraph.key_of(t) in reached}
        reached |= {subgraph.key_of(t) for t in op.outputs if subgraph.carries_derivative(t)}
        if not inputs or op.type in _FLAT or _only_moves(op):
            continue
        if len(op.outputs) > 1:
            return None
        asked.append((op, list(inputs.values())))
    adjoints = gradients.gradients(quantity.y, [op.outputs[0] for op, _ in asked])
    found: list[_Curved] = []
    for (op, inputs), adjoint in zip(asked, adjoints):
        seconds = [] if adjoint is None else _seconds(op, inputs, adjoint)
        if seconds and not _is_elementwise(op, inputs):
            return None
        found += seconds
    return found


def _only_moves(op: tf.Operation) -> bool:
    rule = rules.rule_of(op)
    if rule is None:
        return False
    pairs = itertools.product(range(len(op.inputs)), range(len(op.outputs)))
    kinds = {rule.local(op, i, o).kind for i, o in pairs}
    return kinds <= {Kind.SELECTION, Kind.IDENTITY, Kind.ZERO}


def _seconds(op: tf.Operation, inputs: Sequence[tf.Tensor], adjoint: tf.Tensor) -> list[_Curved]:
    """Returns the second derivatives by each pair of inputs that there are."""
    constant = [adjoint, *inputs]
    firsts = gradients.gradients(op.outputs[0], inputs, [adjoint], constants=constant)
    found = []
    for i, j in itertools.combinations_with_replacement(range(len(inputs)), 2):
        if firsts[i] is None:
            continue
        (second,) = gradients.gradients(firsts[i], [inputs[j]], constants=constant)
        if second is not None:
            found.append(_Curved(second, inputs[i], inputs[j]))
    return found


def _is_elementwise(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> bool:
    rule, out = rules.rule_of(op), op.outputs[0]
    if rule is None or out.shape.rank is None:
        return False
    given = {t.ref() for t in inputs}
    return all(
        rule.local(op, i, 0).kind is Kind.DIAGONAL and t.shape.as_list() == out.shape.as_list()
        for i, t in enumerate(op.inputs)
        if t.ref() in given
    )


def _part(quantity: Quantity, curved: _Curved) -> tf.Tensor:
    """Returns what one pair of inputs contributes, for each example."""
    if curved.one is curved.other:
        products = _squares(quantity, curved.one)
    else:
        products = _twice_products(quantity, curved.one, curved.other)
    each = matrices.widened(curved.second) * products
    sums = tf.reduce_sum(tf.reshape(each, shapes.join(quantity.y_shape(), [-1])), -1)
    return tf.cast(sums, matrices.wider(quantity.y.dtype))


def _twice_products(quantity: Quantity, one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Returns twice the sum of products of derivatives, as it stands in the Hessian of the op."""
    squares = [_squares(quantity, t) for t in (one, other)]
    # Of one size, or the smaller would be lost in the rounding of the larger.
    first, second = (tf.sqrt(tf.sqrt(s)) for s in squares)
    ratio = tf.stop_gradient(first / second)
    is_usable = tf.math.is_finite(ratio) & (ratio > 0)
    scale = tf.cast(tf.where(is_usable, ratio, tf.ones_like(ratio)), one.dtype)
    added = _squares(quantity, one / scale + other * scale)
    scale = matrices.widened(scale)
    return added - squares[0] / scale**2 - squares[1] * scale**2


def _squares(quantity: Quantity, t: tf.Tensor) -> tf.Tensor:
    """Returns the sum of squared derivatives of each entry of `t` by those of x."""
    (source,) = quantity.problem.sources
    rank, kept = t.shape.rank, quantity.kept
    if rank is None or rank < kept:
        raise Refused("a tensor without examples")

    def finish(stack: Stack) -> tuple[Factor, ...]:
        return (reductions.squares(stack, kept, t.dtype, examples=rank),)

    problem = Problem(t, (source,), kept, quantity.problem.compiled)
    found = order.accumulated(problem, source, ("entries squared", kept), finish)
    if not found.factors:
        return matrices.widened(tf.zeros_like(t))
    return tf.reshape(found.factors[0].tensor, tf.shape(t))
