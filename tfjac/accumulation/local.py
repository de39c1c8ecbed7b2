"""What the local Jacobians of ops are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from tfjac import gradients, rates, rules, tf_internals
from tfjac.accumulation import factors as factors_
from tfjac.accumulation import terms
from tfjac.accumulation.factors import Axis, Factor
from tfjac.accumulation.natives import Native
from tfjac.accumulation.terms import Groups, Stack, Term
from tfjac.rules import Kind

# From the output back: a sum of terms, or what a kernel carries.
Steps = tuple[Stack | Native, ...]


def derivative(op: tf.Operation, i: int, o: int, dtype: tf.DType) -> tf.Tensor:
    """Returns the diagonal of an elementwise op, `[*output]`; or of a sum, `[*input]`.

    That is TensorFlow's gradient by a cotangent of ones, where each entry of the input goes to one
    entry of the output or the other way round.
    """
    given, out = op.inputs[i], op.outputs[o]
    broadcast = rules.rule_of(op).local(op, i, o).kind is Kind.DIAGONAL and given.shape != out.shape
    if broadcast or sum(t.ref() == given.ref() for t in op.inputs) > 1:
        # By this input alone, entry by entry, where it is broadcast or comes twice.
        given = tf.broadcast_to(given, tf.shape(out)) if broadcast else given
        given = tf.identity(given)
        given.set_shape(out.shape if broadcast else op.inputs[i].shape)
        inputs = [*op.inputs[:i], given, *op.inputs[i + 1 :]]
        out = tf_internals.same_op(op, inputs)[o]
    return tf.cast(gradients.of_op(out.op, i, o, tf.ones_like(out)), dtype)


def factor(
    tensor: tf.Tensor | Callable[[], tf.Tensor],
    axes: Sequence[tuple[Axis, ...]],
    dtype: tf.DType,
    *,
    is_mask: bool = False,
    turns: int = 0,
) -> Factor:
    """Returns a tensor of the graph as a factor.

    Args:
      tensor: it, or what makes it.
      axes: a group for each of its axes.
      dtype: of the factor.
      is_mask: see `Factor`.
      turns: how many times more than once all of it is written to make it.
    """
    names = tuple(terms.flat(tuple(axes)))

    def make(order: tuple[Axis, ...]) -> tf.Tensor:
        found = tf.cast(tensor() if callable(tensor) else tensor, dtype)
        sizes = [axis.size for axis in names]
        same = found.shape.as_list() == sizes
        return found if same else tf.reshape(found, factors_.shape_of(names))

    size = turns * factors_.size_of(names)
    written = dtype.size * (size + factors_.size_of(names)) if callable(tensor) else 0.0
    seconds = rates.moving(written, written) if written else 0.0
    return Factor(names, make, flops=size, seconds=seconds, bytes=dtype.size, is_mask=is_mask)


def ends(op: tf.Operation, i: int, o: int, links) -> tuple[Groups, Groups]:
    """Returns the axes of the output and of the input, linked ones the same."""
    rows = list(terms.axes_of(op.outputs[o]))
    entries = list(terms.axes_of(op.inputs[i]))
    for b, a in links:
        if rows[b] and rows[b][0].size is None and entries[a] and entries[a][0].size is not None:
            rows[b] = entries[a]
        else:
            entries[a] = rows[b]
    return tuple(rows), tuple(entries)


def term(rows: Groups, entries: Groups, factors: Sequence[Factor] = (), scale=1.0) -> Steps:
    """Returns a single step of a single term."""
    return ((Term(rows, entries, tuple(factors), scale),),)


def native(op: tf.Operation, i: int, o: int, links, pull, push, flops: float, **kind) -> Native:
    """Returns how a kernel carries an op; see `Native`."""
    out, given = (tuple(terms.sizes_of(t)) for t in (op.outputs[o], op.inputs[i]))
    return Native(out, given, tuple(links), pull, push, flops, **kind)
