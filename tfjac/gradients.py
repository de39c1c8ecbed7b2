"""TensorFlow's symbolic gradient, with errors of ours where it has none."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence

import tensorflow as tf

from tfjac import errors


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
    with warnings.catch_warnings():
        # A dense gradient is what is asked for.
        warnings.filterwarnings("ignore", message="Converting sparse IndexedSlices")
        found = _differentiated(
            ys,
            list(xs),
            grad_ys=None if cotangents is None else list(cotangents),
            stop_gradients=list(constants) or None,
            unconnected_gradients="zero" if zeros else "none",
        )
        return [None if g is None else tf.convert_to_tensor(g) for g in found]


def _differentiated(ys, xs, **options) -> list:
    try:
        return tf.gradients(ys, xs, **options)
    except errors.TfjacError:
        raise
    except LookupError as error:
        raise _missing(error) from None
    except (NotImplementedError, TypeError, ValueError) as error:
        # As where a gradient that gives IndexedSlices meets one that does not take them.
        raise errors.UnsupportedError(
            f"TensorFlow cannot differentiate an op on the way, or its gradient again: {error}. "
            "Use a reverse strategy where only forward mode needs that."
        ) from error


def _missing(error: LookupError) -> errors.UnsupportedError:
    found = re.search(r"operation ?'(.+)' \(op type: (\w+)\)", str(error))
    place = f"op {found[1]!r} of type {found[2]}" if found else f"an op on the way ({error})"
    return errors.UnsupportedError(
        f"{place} has no gradient in TensorFlow, and is needed to carry the derivative. Wrap the "
        "computation in tf.custom_gradient, or use a reverse strategy where only forward mode "
        "needs it."
    )
