"""Ops on the way whose derivative in TensorFlow is missing or wrong, and has no replacement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from tfjac import errors, tf_internals
from tfjac.graph import bodies, stops, subgraph

# Inputs by which TensorFlow gives no derivative though there is one: None, which counts as zero.
# Told by the audit (tfjac/audit/table.csv).
NONE_BY_INPUT: dict[str, dict[int, str]] = {
    "Betainc": {0: "a", 1: "b"},
    "DrawBoundingBoxes": {0: "images"},
    "ExtractGlimpse": {0: "input"},
    "HSVToRGB": {0: "images"},
    "MatrixDiagPartV2": {2: "padding_value"},
    "MatrixDiagPartV3": {2: "padding_value"},
    "MatrixDiagV2": {4: "padding_value"},
    "MatrixDiagV3": {4: "padding_value"},
    "MatrixSolveLs": {2: "l2_regularizer"},
    "Polygamma": {0: "a"},
    "ScaleAndTranslate": {2: "scale", 3: "translation"},
    "TensorListConcatLists": {0: "input_a", 1: "input_b"},
    "Zeta": {0: "x"},
}


def _is_complex(op: tf.Operation) -> bool:
    return op.inputs[0].dtype.is_complex


def _is_half(op: tf.Operation) -> bool:
    return op.inputs[0].dtype in (tf.float16, tf.bfloat16)


def _has_new_control_flow(op: tf.Operation) -> bool:
    return tf.compat.v1.control_flow_v2_enabled()


def _has_several_diagonals(op: tf.Operation) -> bool:
    band = tf.get_static_value(op.inputs[1 if op.type == "MatrixDiagV2" else 2])
    return band is None or band.reshape(-1)[0] != band.reshape(-1)[-1]


def _puts_twice(op: tf.Operation) -> bool:
    indices = tf.get_static_value(
        op.inputs[2 if op.type == "TensorListScatterIntoExistingList" else 1]
    )
    return indices is not None and len(set(indices.tolist())) < indices.size


def _has_complex(op: tf.Operation) -> bool:
    return any(t.dtype.is_complex for t in (*op.inputs, *op.outputs))


# Op types whose derivative in TensorFlow is wrong, or fails when the graph runs: where, and what.
WRONG: dict[str, tuple[Callable[[tf.Operation], bool], str]] = {
    "EagerPyFunc": (_has_complex, "of complex numbers, for which it runs once only,"),
    **dict.fromkeys(
        ("TensorListScatter", "TensorListScatterIntoExistingList", "TensorListScatterV2"),
        (_puts_twice, "where one place is written twice"),
    ),
    "BlockLSTMV2": (lambda op: bool(op.get_attr("use_peephole")), "with peepholes"),
    "MatrixDiagV2": (_has_several_diagonals, "of several diagonals"),
    "MatrixSetDiagV2": (_has_several_diagonals, "of several diagonals"),
    "MatrixSquareRoot": (_is_complex, "of complex matrices"),
    "Qr": (_is_half, "in half precision, which has no kernel,"),
    "Sign": (_is_complex, "of complex numbers"),
    "TridiagonalSolve": (_is_complex, "of complex systems"),
    **{
        f"TensorArray{kind}V3": (_has_new_control_flow, "where control flow of version 2 is on")
        for kind in ("Concat", "Gather", "Read", "Scatter", "Split", "Write")
    },
}
# The same where the second derivative is.
WRONG_TWICE: dict[str, tuple[Callable[[tf.Operation], bool], str]] = {
    "Svd": (_is_complex, "of complex matrices, if differentiated twice,"),
}
# The same by one input only.
WRONG_BY_INPUT: dict[tuple[str, int], tuple[Callable[[tf.Operation], bool], str]] = {
    ("CropAndResize", 1): (lambda op: op.get_attr("method") == b"nearest", "by nearest boxes"),
}


def check_differentiable(
    tensors: Iterable[tf.Tensor], ops: Sequence[tf.Operation], twice: bool = False
) -> None:
    """Raises if an op between x and y, or in a body there, passes floats on without derivative.

    `tf.gradients` would drop that path without a word and return too small a Jacobian.

    Args:
      tensors: the sources.
      ops: the ops between, in topological order.
      twice: whether they will be differentiated twice.
    """
    if not any(_may_be_refused(op) for op in ops):
        return
    for op, given in bodies.walk(ops, bodies.Reached.after(tensors, ops)):
        if any(subgraph.carries_derivative(t) for t in op.outputs):
            _check(op, given, twice)


def _may_be_refused(op: tf.Operation) -> bool:
    if op.type in subgraph.WITH_BODY or subgraph.is_by_hand(op):
        return True
    by_input = {op_type for op_type, _ in WRONG_BY_INPUT}
    return op.type in NONE_BY_INPUT | WRONG | WRONG_TWICE or op.type in by_input or _has_none(op)


def _has_none(op: tf.Operation) -> bool:
    return op.type not in stops.ZERO_DERIVATIVE and tf_internals.has_no_derivative(op.type)


def _check(op: tf.Operation, given: Sequence[bool], twice: bool) -> None:
    names = NONE_BY_INPUT.get(op.type, {})
    missing = [f"{i} (`{name}`)" for i, name in names.items() if given[i]]
    if missing:
        raise _error(op, f"no derivative by its input {' and '.join(missing)}")
    if _has_none(op):
        raise _error(op, "no derivative")
    faults = [
        WRONG.get(op.type),
        WRONG_TWICE.get(op.type) if twice else None,
        *(WRONG_BY_INPUT.get((op.type, i)) for i, g in enumerate(given) if g),
    ]
    for applies, where in filter(None, faults):
        if applies(op):
            raise _error(op, f"a wrong derivative {where}")
    found = subgraph.bodies(op)
    if found is not None and None in found.graphs and tf_internals.has_legacy_call(op):
        raise _error(op, "a derivative that it cannot run")
    again = bodies.runs_in_gradient(op)
    if again:
        raise errors.NotDifferentiableError(
            f"the gradient of op {op.name!r}, between x and y, was written by hand and runs an op "
            f"of type {again} anew, so that it is not the gradient of the value: as where a "
            "function of tf.recompute_grad draws the mask of a dropout. Draw outside of it, or "
            "with tf.random.stateless_uniform."
        )


def _error(op: tf.Operation, what: str) -> errors.NotDifferentiableError:
    return errors.NotDifferentiableError(
        f"op {op.name!r} of type {op.type}, between x and y, has {what} in TensorFlow, so that the "
        "Jacobian would be wrong. Wrap the computation in tf.custom_gradient, or its input in "
        "tf.stop_gradient where it counts as constant."
    )
