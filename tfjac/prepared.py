"""From functions to Jacobians in eager code: prepare once, run many."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfjac import errors
from tfjac import options as options_lib
from tfjac.call_signature import InputSignature
from tfjac.compiled import JacobianFunction
from tfjac.options import Options
from tfjac.problems import Nested
from tfjac.strategies import Strategy


def prepare(
    fn: Callable[..., Nested],
    *,
    batch: bool = False,
    strategy: str | Strategy = "auto",
    argnums: int | Sequence[int] = 0,
    chunk_size: int | str | None = "auto",
    jit_compile: bool = False,
    device: str | None = None,
    input_signature: Sequence[Any] | None = None,
    unconnected_gradients: str | tf.UnconnectedGradients = "zero",
    holomorphic: bool = False,
    independence: str = "prove",
    structured: bool = False,
    memory_budget: int | None = None,
    autotune: bool | str | os.PathLike[str] = options_lib.TUNED_BY_ITSELF,
) -> JacobianFunction:
    """Returns a function that evaluates the Jacobian of `fn`, built once per input signature.

    Args:
      fn: a Keras model, or a function of tensors that returns a tensor or a nested structure.
      batch: per-example Jacobians, shape `[B] + y.shape[1:] + x.shape[1:]`; else the whole one,
        shape `y.shape + x.shape`.
      strategy: as in `jacobian`.
      argnums: which positional argument, or arguments, of `fn` are the sources.
      chunk_size: as in `jacobian`.
      jit_compile: compile with XLA.
      device: where to evaluate, as "/CPU:1" or "/GPU:0". None leaves it to TensorFlow, which takes
        a GPU where one is visible and the CPU where none is. Ops without a kernel for the device
        run on the CPU.
      input_signature: for each argument a `tf.TypeSpec`, or nested structure of them. One graph
        then serves all inputs that fit, of any batch size say. None: a graph for each shape.
      unconnected_gradients: as in `jacobian`.
      holomorphic: as in `jacobian`.
      independence: as in `batch_jacobian`; of no account unless batch.
      structured: as in `jacobian`; of no account where batch.
      memory_budget: as in `jacobian`. Should TensorFlow run out of memory all the same, half as
        much is tried, down to one row at a time, with a warning each time.
      autotune: "auto" times the two best strategies where their predictions are within a factor of
        2 and nothing is drawn or written, once calls with a signature have taken as long as
        building did, and keeps the faster one; the function is traced once more then. True times
        the three best at the first call, each also compiled by XLA where XLA can. A path remembers
        it in that file too, for the same graph on the same devices. False goes by the plan.

    Returns:
      A `JacobianFunction`.

    Raises:
      InvalidTypeError: `fn` is not callable, or an option is of the wrong type.
      InvalidValueError: an option that is unknown, or options that contradict each other.

    Cost:
      Nothing is built before the first call. What is built is kept with `fn`: preparing the same
      function with the same options again finds it, and it is freed when the function is.

    Example:
      >>> jac = tfjac.prepare(lambda x: x ** 2)
      >>> jac(np.array([1., 2.])).numpy()
      array([[2., 0.],
             [0., 4.]])
    """
    if not callable(fn):
        raise errors.InvalidTypeError(
            errors.message(
                "fn",
                "callable",
                f"{fn!r:.60} of type {type(fn).__name__}",
                "For tensors of a graph use tfjac.jacobian(y, x).",
            )
        )
    options = Options(
        batch,
        strategy,
        options_lib.checked_argnums(argnums),
        chunk_size,
        jit_compile,
        device,
        InputSignature.of(input_signature),
        unconnected_gradients,
        holomorphic,
        independence,
        structured,
        memory_budget,
        autotune if isinstance(autotune, bool) else os.fspath(autotune),
    )
    options.check()
    return JacobianFunction(fn, options)
