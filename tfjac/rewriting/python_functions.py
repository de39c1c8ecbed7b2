"""Python functions within a graph, `tf.py_function`: TensorFlow runs their gradient once only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfjac import tf_internals
from tfjac.rewriting.replacement import Replacement


class NotTaped(ValueError):
    """Says, when the graph runs, that a Python function left TensorFlow."""


def _is_to_be_had(op: tf.Operation, given: Sequence[bool]) -> bool:
    # Its tape would give the conjugate of what complex numbers are to be multiplied by.
    is_complex = any(t.dtype.is_complex for t in [*op.inputs, *op.outputs])
    return not is_complex and tf_internals.python_function_of(op) is not None


def _with_jacobian(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the values, with a gradient that multiplies by a Jacobian taken once.

    The function is not called again: its run kept a tape, of which the Jacobian is taken.
    """
    sources = [k for k, t in enumerate(op.inputs) if t.dtype.is_floating]
    targets = [k for k, t in enumerate(op.outputs) if t.dtype.is_floating]
    jacobians = _jacobians(op, inputs, sources, targets)
    values = list(op.outputs)

    @tf.custom_gradient
    def function(*given):
        def pulled(*cotangents):
            found = {}
            for n, i in enumerate(sources):
                parts = [
                    tf.linalg.matvec(
                        jacobians[n][m],
                        tf.cast(tf.reshape(cotangents[o], [-1]), given[i].dtype),
                        transpose_a=True,
                    )
                    for m, o in enumerate(targets)
                ]
                found[i] = tf.reshape(tf.add_n(parts), tf.shape(given[i]))
            return [found.get(i) for i in range(len(given))]

        return [tf.identity(value) for value in values], pulled

    return list(function(*inputs))


def _jacobians(
    op: tf.Operation,
    inputs: Sequence[tf.Tensor],
    sources: Sequence[int],
    targets: Sequence[int],
) -> list[list[tf.Tensor]]:
    """Returns, for each source, the matrices of all targets by it, each of one dtype with it."""
    tf_internals.python_function_of(op).set_support_graph_mode_gradient()
    token, name = op.get_attr("token"), op.name

    def taken(*_) -> list[np.ndarray]:
        tape, given, outputs = tf_internals.tape_of_python_function(token)
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        with tape:
            rows = [tf.reshape(outputs[o], [-1]) for o in targets]
            wide = max((r.dtype for r in rows), key=lambda dtype: dtype.size)
            rows = tf.concat([tf.cast(r, wide) for r in rows], 0)
        found = tape.jacobian(rows, [given[i] for i in sources])
        if not any(j is not None for j in found):
            raise NotTaped(
                f"the function of tf.py_function at op {name!r} gives nothing that TensorFlow "
                "computed from its arguments, as where it goes through NumPy: there is no "
                "derivative. Wrap it in tf.custom_gradient."
            )
        sizes = [int(tf.size(outputs[o])) for o in targets]
        whole = [
            np.zeros([sum(sizes), int(tf.size(given[i]))], given[i].dtype.as_numpy_dtype)
            if j is None
            else tf.reshape(j, [sum(sizes), -1]).numpy()
            for i, j in zip(sources, found)
        ]
        return [part for j in whole for part in np.split(j, np.cumsum(sizes)[:-1])]

    dtypes = [op.inputs[i].dtype for i in sources for _ in targets]
    with tf.control_dependencies(list(op.outputs)):
        # It takes what it depends on, so that who differentiates it again is refused.
        flat = tf.numpy_function(taken, list(inputs), dtypes)
    flat = [tf.ensure_shape(t, [None, None]) for t in flat]
    return [flat[n * len(targets) : (n + 1) * len(targets)] for n in range(len(sources))]


TABLE = {
    "EagerPyFunc": Replacement(
        _with_jacobian,
        "its gradient can be run once for each run of the function",
        _is_to_be_had,
        first=False,  # it is right where it runs
    ),
}
