"""Checks what a rule says of an op against the op itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfjac import errors, rules, tf_internals
from tfjac.graph import positions
from tfjac.rules import Kind, Local


class RuleError(errors.TfjacError, AssertionError):
    """A rule does not agree with its op."""


def check_rule(
    op_type: str,
    fn: Callable[..., Any],
    *args: Any,
    tolerance: float = 1e-5,
    check_value: bool = True,
) -> None:
    """Checks the rule of an op type on one of its ops; returns nothing, raises where it is wrong.

    The local Jacobian of each output by each floating input is taken by TensorFlow's gradient in
    reverse, compared with its adjoint (the same gradient taken twice) along a random direction and
    with central differences, and its nonzeros with what the rule claims: nothing for a zero, no
    entry between different positions of linked axes, the diagonal, a single one in each row for a
    selection.

    Args:
      op_type: as `tf.Operation.type` names it.
      fn: builds exactly one op of that type from its arguments, and returns anything.
      *args: the arguments, arrays; float64 for a sharp check.
      tolerance: error allowed, relative to the largest entry.
      check_value: whether to compare with differences and the adjoint; False for ops of which
        TensorFlow's own derivative is known to be wrong or missing there.

    Raises:
      RuleError: the rule claims what is not so; the message says what, and where.
      InvalidValueError: there is no rule, or not exactly one op of the type.

    Cost:
      A gradient for each entry of each output, and two evaluations for each entry of each input.

    Example:
      >>> tfjac.testing.check_rule("Tanh", tf.tanh, np.array([0.1, 0.2]))
    """
    rule = rules.rule_for(op_type)
    args = [tf.constant(a) for a in args]
    inputs, op = _traced(fn, op_type, args)
    pairs = [
        (i, o)
        for i, x in enumerate(op.inputs)
        for o, y in enumerate(op.outputs)
        if _is_numeric(x) and _is_numeric(y)
    ]
    for i, o in pairs:
        place = f"rule of {op_type}, output {o} by input {i}"
        found = rule.local(op, i, o)
        function = _of_input(op, inputs, i, o)
        x, y = inputs[i], function(inputs[i])
        if not y.shape.num_elements():
            continue
        _check_links(place, y.shape, x.shape, found)
        jacobian = _by_gradient(function, x, y)
        is_real = not (x.dtype.is_complex or y.dtype.is_complex)
        if check_value and found.kind is not Kind.ZERO and is_real and x.shape.num_elements():
            _check_value(place, function, x, jacobian, tolerance)
        _check_kind(place, jacobian, y.shape.rank, found, tolerance)
        if check_value:
            sources = positions.sources_of(op, i, o, found)
            _check_places(place, jacobian, sources, tolerance)


def _is_numeric(tensor: tf.Tensor) -> bool:
    return tensor.dtype.is_floating or tensor.dtype.is_complex


def _traced(
    fn: Callable[..., Any], op_type: str, args: list[tf.Tensor]
) -> tuple[list[tf.Tensor], tf.Operation]:
    """Returns the values that the op gets, and the op itself."""
    found: list[tf.Operation] = []

    def inputs(*args):
        fn(*args)
        ops = tf.compat.v1.get_default_graph().get_operations()
        found[:] = [op for op in ops if op.type == op_type]
        if len(found) != 1:
            raise errors.InvalidValueError(
                errors.message(
                    "fn",
                    f"a function that builds one op of type {op_type}",
                    f"{len(found)} of them; ops: {sorted({op.type for op in ops})}",
                    "Call the op itself, as tf.raw_ops has it.",
                )
            )
        return list(found[0].inputs)

    return tf.function(inputs, autograph=False)(*args), found[0]


def _of_input(op: tf.Operation, inputs: list[tf.Tensor], i: int, o: int) -> Callable:
    """Returns the op as a function of input `i` alone, giving output `o`."""

    def function(x):
        # Constants of the graph, for shapes are inferred from some of them.
        others = [tf.constant(t.numpy()) for t in inputs]
        return tf_internals.same_op(op, [*others[:i], x, *others[i + 1 :]])[o]

    return tf.function(function, autograph=False)


def _by_gradient(function: Callable, x: tf.Tensor, y: tf.Tensor) -> np.ndarray:
    """Returns the local Jacobian; of complex tensors what is not zero where it is not."""

    @tf.function(autograph=False)
    def pulled(x, cotangent):
        (found,) = tf.gradients(
            function.python_function(x), x, cotangent, unconnected_gradients="zero"
        )
        return tf.convert_to_tensor(found)

    size, columns = y.shape.num_elements(), x.shape.num_elements()
    phases = (1, 1j) if y.dtype.is_complex else (1,)
    rows = np.zeros((size, columns), x.dtype.as_numpy_dtype)
    for row in range(size):
        for phase in phases:
            unit = phase * np.eye(1, size, row).reshape(y.shape.as_list())
            found = pulled(x, tf.constant(unit.astype(y.dtype.as_numpy_dtype))).numpy()
            rows[row] += found.reshape(columns)
    return rows.reshape([*y.shape, *x.shape])


def _check_value(place: str, function, x: tf.Tensor, jacobian, tolerance: float) -> None:
    flat = x.numpy().reshape(-1)
    h = np.finfo(flat.dtype).eps ** (1 / 3)
    scale = max(np.max(np.abs(jacobian), initial=0.0), 1e-3)
    columns = jacobian.reshape(-1, flat.size)
    for j in range(flat.size):
        ahead, behind = flat.copy(), flat.copy()
        ahead[j] += h
        behind[j] -= h
        sides = [
            function(tf.constant(v.reshape(x.shape))).numpy().astype(np.float64).reshape(-1)
            for v in (ahead, behind)
        ]
        apart = np.max(np.abs((sides[0] - sides[1]) / (2 * h) - columns[:, j]), initial=0.0)
        if not apart <= max(tolerance, 100 * h) * scale:
            raise RuleError(
                f"{place}: differences and gradient are {apart:.3g} apart in column {j}"
            )
    _check_adjoint(place, function, x, jacobian, tolerance * scale)


def _check_adjoint(place, function, x, jacobian, tolerance: float) -> None:
    """Compares J v, by the gradient of the gradient, with the rows."""
    v = np.random.default_rng(0).normal(size=x.shape).astype(x.dtype.as_numpy_dtype)

    @tf.function(autograph=False)
    def pushed(x, v):
        y = function.python_function(x)
        anything = tf.ones_like(y)
        (pulled,) = tf.gradients(y, x, anything)
        return (
            tf.zeros_like(y)
            if pulled is None
            else _second(y, tf.convert_to_tensor(pulled), anything, v)
        )

    try:
        found = pushed(x, tf.constant(v)).numpy().reshape(-1)
    except LookupError:
        return  # the gradient is made of ops that have none; `forward` refuses these
    size = max(1, v.size)
    expected = jacobian.reshape(found.size, v.size) @ v.reshape(-1)
    apart = np.max(np.abs(found - expected), initial=0.0)
    if not apart <= 100 * tolerance * np.sqrt(size):
        raise RuleError(f"{place}: the gradient and its adjoint are {apart:.3g} apart")


def _second(y, pulled, anything, v) -> tf.Tensor:
    (found,) = tf.gradients(pulled, anything, v)
    return tf.zeros_like(y) if found is None else tf.convert_to_tensor(found)


def _check_links(place: str, out: tf.TensorShape, given: tf.TensorShape, found: Local) -> None:
    for b, a in found.links:
        if not (0 <= b < out.rank and 0 <= a < given.rank):
            raise RuleError(f"{place}: links axes {b} and {a} of shapes {out} and {given}")
        if out[b] != given[a]:
            raise RuleError(f"{place}: links axes {b} and {a} of sizes {out[b]} and {given[a]}")


def _check_kind(
    place: str, jacobian: np.ndarray, rank: int, found: Local, tolerance: float
) -> None:
    nonzero = np.abs(jacobian) > tolerance * max(np.max(np.abs(jacobian), initial=0.0), 1e-30)
    nonzero |= ~np.isfinite(jacobian)
    allowed = rules.allowed_entries(found, jacobian.shape[:rank], jacobian.shape[rank:])
    if np.any(nonzero & ~allowed):
        where = tuple(int(k) for k in np.argwhere(nonzero & ~allowed)[0])
        raise RuleError(
            f"{place}: claims {found.kind.value} with links {found.links}, but entry {where} is "
            f"{jacobian[where]:.3g}"
        )
    rows = int(np.prod(jacobian.shape[:rank]))
    in_row = nonzero.reshape(rows, int(np.prod(jacobian.shape[rank:]))).sum(axis=1)
    if found.kind in _ONE_ENTRY and np.any(in_row > 1):
        raise RuleError(f"{place}: claims {found.kind.value}, but a row has several entries")
    is_one = np.abs(jacobian - 1) <= tolerance
    is_real = jacobian.dtype.kind != "c"
    if is_real and found.kind in (Kind.SELECTION, Kind.IDENTITY) and np.any(nonzero & ~is_one):
        raise RuleError(f"{place}: claims {found.kind.value}, but an entry is neither 0 nor 1")
    is_square = jacobian.shape[:rank] == jacobian.shape[rank:]
    if found.kind is Kind.IDENTITY and not (is_square and _is_diagonal(nonzero, rows)):
        raise RuleError(f"{place}: claims identity, but it is not")


def _check_places(place: str, jacobian, sources: np.ndarray | None, tolerance: float) -> None:
    """Checks where entries are said to come from, on positions instead of values."""
    if sources is None:
        return
    matrix = np.abs(jacobian).reshape(len(sources), -1)
    elsewhere = np.arange(matrix.shape[1]) != sources[:, np.newaxis]
    if np.any((matrix > tolerance * max(np.max(matrix, initial=0.0), 1e-30)) & elsewhere):
        raise RuleError(f"{place}: an entry does not come from where its position number does")


def _is_diagonal(nonzero: np.ndarray, rows: int) -> bool:
    return not np.any(nonzero.reshape(rows, rows) & ~np.eye(rows, dtype=bool))


_ONE_ENTRY = (Kind.IDENTITY, Kind.DIAGONAL, Kind.SELECTION)

__all__ = ["RuleError", "check_rule"]
