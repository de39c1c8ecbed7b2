"""TensorFlow's symbolic gradient, with errors of ours where it has none."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfjac import errors, tf_internals


def gradients(
    ys: Sequence[tf.Tensor] | tf.Tensor,
    xs: Sequence[tf.Tensor],
    cotangents: Sequence[tf.Tensor] | None = None,
    *,
    constants: Sequence[tf.Tensor] = (),
    zeros: bool = False,
) -> list[tf.Tensor | None]:
    """Returns the gradient of the sum of ys by each of xs, dense.

    Args:
      ys: targets.
      xs: sources.
      cotangents: one for each target; ones where left out.
      constants: tensors that count as constant.
      zeros: whether unconnected sources have zeros, and not None.

    Raises:
      UnsupportedError: an op between has no gradient, or it cannot be differentiated again.
    """
    if not xs:
        return []
    return _differentiated(
        lambda: tf.gradients(
            ys,
            list(xs),
            grad_ys=None if cotangents is None else list(cotangents),
            stop_gradients=list(constants) or None,
            unconnected_gradients="zero" if zeros else "none",
        )
    )


def of_op(op: tf.Operation, i: int, o: int, cotangent: tf.Tensor) -> tf.Tensor:
    """Returns what one op passes from output `o` back to input `i`, dense; zeros if nothing.

    For a single op `tf.gradients` would go through all that is computed from its inputs.

    Args:
      op: the op.
      i: an input, that is none of the others.
      o: an output.
      cotangent: of that output.

    Raises:
      UnsupportedError: the op has no gradient, or it cannot be differentiated again.
    """
    cotangents = [
        cotangent if k == o else tf.zeros_like(t) if _is_smooth(t) else None
        for k, t in enumerate(op.outputs)
    ]
    with tf.name_scope(f"gradients/{op.name}_grad"):
        (found,) = _differentiated(lambda: [tf_internals.gradient_of(op, cotangents)[i]], op)
        if found is None:
            return tf.zeros_like(op.inputs[i])
        found.set_shape(op.inputs[i].shape)
        return found


def _is_smooth(tensor: tf.Tensor) -> bool:
    return tensor.dtype.is_floating or tensor.dtype.is_complex


def _differentiated(
    differentiate: Callable[[], list], op: tf.Operation | None = None
) -> list[tf.Tensor | None]:
    with warnings.catch_warnings():
        # A dense gradient is what is asked for.
        warnings.filterwarnings("ignore", message="Converting sparse IndexedSlices")
        try:
            return [None if g is None else tf.convert_to_tensor(g) for g in differentiate()]
        except errors.TfjacError:
            raise
        except LookupError as error:
            raise _missing(error, op) from None
        except (NotImplementedError, TypeError, ValueError) as error:
            # As where a gradient that gives IndexedSlices meets one that does not take them.
            raise errors.UnsupportedError(
                f"TensorFlow cannot differentiate an op on the way, or its gradient again: {error}."
                " Use a reverse strategy where only forward mode needs that."
            ) from error


def _missing(error: LookupError, op: tf.Operation | None) -> errors.UnsupportedError:
    found = re.search(r"operation ?'(.+)' \(op type: (\w+)\)", str(error))
    name, type_ = (op.name, op.type) if op else found.groups() if found else (None, None)
    place = f"op {name!r} of type {type_}" if name else f"an op on the way ({error})"
    return errors.UnsupportedError(
        f"{place} has no gradient in TensorFlow, and is needed to carry the derivative. Wrap the "
        "computation in tf.custom_gradient, or use a reverse strategy where only forward mode "
        "needs it."
    )
