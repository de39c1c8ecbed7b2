"""From functions to Jacobians in eager code: prepare once, run many."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfjac import errors, function_cache, jacobians, planning, problems, shapes, tf_internals
from tfjac.call_signature import Call, InputSignature
from tfjac.problems import Nested
from tfjac.strategies import Strategy


@dataclasses.dataclass(frozen=True)
class Options:
    """What `prepare` was asked for, apart from the function; its docstring says what each is."""

    batch: bool
    strategy: str | Strategy
    argnums: int | tuple[int, ...]
    chunk_size: int | str | None
    jit_compile: bool
    device: str | None
    input_signature: InputSignature | None
    unconnected_gradients: str
    holomorphic: bool


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
) -> JacobianFunction:
    """Returns a function that evaluates the Jacobian of `fn`, built once per input signature.

    Args:
      fn: a Keras model, or a function of tensors that returns a tensor or a nested structure.
      batch: per-example Jacobians, shape `[B] + y.shape[1:] + x.shape[1:]`, on the assumption
        that examples do not mix; else the whole one, shape `y.shape + x.shape`.
      strategy: as in `jacobian`.
      argnums: which positional argument, or arguments, of `fn` are the sources.
      chunk_size: as in `jacobian`.
      jit_compile: compile with XLA.
      device: where to evaluate, as "/CPU:1" or "/GPU:0". None leaves it to TensorFlow, which takes
        a GPU where one is visible and the CPU where none is. Ops without a kernel for the device
        run on the CPU.
      input_signature: for each argument a `tf.TensorSpec`, or nested structure of them. One graph
        then serves all inputs that fit, of any batch size say. None: a graph for each shape.
      unconnected_gradients: as in `jacobian`.
      holomorphic: as in `jacobian`.

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
    if device is not None and not isinstance(device, str):
        raise errors.InvalidTypeError(
            errors.message("device", "a string or None", repr(device), 'Write it as "/CPU:0".')
        )
    shapes.check_chunk_size(chunk_size)
    planning.check_strategy(strategy, chunk_size)
    problems.zeros_wanted(unconnected_gradients)
    return JacobianFunction(
        fn,
        Options(
            batch,
            strategy,
            _checked_argnums(argnums),
            chunk_size,
            jit_compile,
            device,
            InputSignature.of(input_signature),
            unconnected_gradients,
            holomorphic,
        ),
    )


class JacobianFunction:
    """Evaluates the Jacobian of a function; made by `prepare`.

    Call it as the function is called, with tensors or NumPy arrays. Inside a `tf.function` it adds
    to the graph that is being built. The first call with a signature (shapes and dtypes of the
    tensors, values of other arguments) builds; later ones run what was built. Variables are read
    at each call. Thread-safe.
    """

    def __init__(self, fn: Callable[..., Nested], options: Options):
        self._fn = fn
        self._options = options
        self._cache = function_cache.cache_of(fn, options)

    def __call__(self, *args: Any, **kwargs: Any) -> Nested:
        """Returns the Jacobian at these arguments.

        Args:
          *args: the arguments of the function; the sources among them floating or complex.
          **kwargs: its keyword arguments.

        Returns:
          A tensor of shape `y.shape + x.shape` (`[B] + y.shape[1:] + x.shape[1:]` where batch) and
          y's dtype; for nested targets, sources or several argnums the structure of targets, in it
          that of the sources.

        Raises:
          As `jacobian`; also InvalidValueError where an argument does not fit `input_signature`.
        """
        return self._run(args, kwargs, with_value=False)

    def value_and_jacobian(self, *args: Any, **kwargs: Any) -> tuple[Nested, Nested]:
        """Returns `(fn(*args, **kwargs), jacobian)`, both from one evaluation of `fn`.

        Args:
          *args: as when calling.
          **kwargs: as when calling.

        Returns:
          The value, of shape `y.shape`, and the Jacobian as when calling.

        Raises:
          As when calling.
        """
        return self._run(args, kwargs, with_value=True)

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """Returns the plan for these arguments as text: the choice, and what each strategy costs.

        Args:
          *args: as when calling.
          **kwargs: as when calling.

        Returns:
          One paragraph for each target. Traces the function, but builds no Jacobian.
        """
        call = self._call(args, kwargs)
        texts = []

        def traced(*tensors):
            ys, call_args = self._values(call, tensors)
            texts.extend(
                plan.explain()
                for plan in jacobians.plan(
                    ys,
                    self._sources(call_args),
                    self._options.batch,
                    self._options.strategy,
                    self._options.chunk_size,
                )
            )

        self._compiled(traced).get_concrete_function(*call.specs)
        return "\n\n".join(texts)

    def cache_info(self) -> function_cache.CacheInfo:
        """Returns hits, misses, maxsize, currsize and build_seconds of what was built."""
        return self._cache.info()

    def cache_clear(self) -> None:
        """Drops what was built and resets the statistics."""
        self._cache.clear()

    @tf.autograph.experimental.do_not_convert
    def _run(self, args, kwargs, with_value: bool) -> Nested:
        if tf.executing_eagerly():
            return self._run_eagerly(args, kwargs, with_value)
        graph = tf.compat.v1.get_default_graph()
        if not tf_internals.is_function_graph(graph) and not _any_symbolic(args, kwargs):
            # Values given while some tf.Graph happens to be the default one: values come back.
            with tf_internals.eager_mode():
                return self._run_eagerly(args, kwargs, with_value)
        call = self._call(args, kwargs)
        with self._on_device():
            return self._function(call, with_value)(*call.tensors)

    def _run_eagerly(self, args, kwargs, with_value: bool) -> Nested:
        call = self._call(args, kwargs)
        with self._on_device():
            concrete = self._cache.get(
                (call.key, with_value),
                lambda: self._function(call, with_value).get_concrete_function(*call.specs),
            )
            return tf_internals.call_concrete(concrete, call.tensors)

    def _function(self, call: Call, with_value: bool):
        """Returns the tf.function that computes from the tensors of `call`."""
        options = self._options
        operator = jacobians.batch_jacobian if options.batch else jacobians.jacobian

        def traced(*tensors):
            with self._on_device():
                ys, call_args = self._values(call, tensors)
                jacobian = operator(
                    ys,
                    self._sources(call_args),
                    options.strategy,
                    chunk_size=options.chunk_size,
                    unconnected_gradients=options.unconnected_gradients,
                    holomorphic=options.holomorphic,
                )
            return (ys, jacobian) if with_value else jacobian

        return self._compiled(traced)

    def _compiled(self, traced: Callable[..., Any]):
        # Only the user's function is converted: AutoGraph would put its trace before our errors.
        return tf.function(traced, autograph=False, jit_compile=self._options.jit_compile or None)

    def _values(self, call: Call, tensors) -> tuple[Nested, Sequence[Nested]]:
        """Returns what the function gives for `tensors`, and its arguments made of them."""
        args, kwargs = call.rebuild(tensors)
        ys = tf_internals.converted_by_autograph(self._fn)(*args, **kwargs)
        return tf.nest.map_structure(_as_graph_tensor, ys), args

    def _call(self, args, kwargs) -> Call:
        argnums, signature = self._options.argnums, self._options.input_signature
        return Call(
            args,
            kwargs,
            (argnums,) if isinstance(argnums, int) else argnums,
            None if signature is None else signature.specs,
        )

    def _sources(self, args: Sequence[Nested]) -> Nested:
        argnums = self._options.argnums
        return args[argnums] if isinstance(argnums, int) else tuple(args[i] for i in argnums)

    def _on_device(self) -> contextlib.AbstractContextManager:
        device = self._options.device
        if device is None:
            return contextlib.nullcontext()
        _check_device(device)
        return tf.device(device)


def _checked_argnums(argnums: int | Sequence[int]) -> int | tuple[int, ...]:
    is_several = isinstance(argnums, Sequence) and not isinstance(argnums, str)
    numbers = tuple(argnums) if is_several else (argnums,)
    if not numbers or not all(type(i) is int and i >= 0 for i in numbers):
        raise errors.InvalidValueError(
            errors.message(
                "argnums",
                "the index of a positional argument, from 0, or several of them",
                repr(argnums),
                "Name at least one.",
            )
        )
    if len(set(numbers)) < len(numbers):
        raise errors.InvalidValueError(
            errors.message("argnums", "distinct", repr(argnums), "Name each argument once.")
        )
    return argnums if isinstance(argnums, int) else numbers


def _as_graph_tensor(y: Any) -> Any:
    """Returns `y` as a tensor of the graph: a function may return a constant from outside it."""
    if isinstance(y, (tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices)):
        return y  # the graph functions say what they think of it
    if y is None:
        raise errors.InvalidTypeError(
            errors.message(
                "fn", "a function that returns tensors", "None", "Return the target from it."
            )
        )
    y = tf.convert_to_tensor(y)
    return y if tf.is_symbolic_tensor(y) else tf.identity(y)


def _any_symbolic(args, kwargs) -> bool:
    return any(
        tf.is_symbolic_tensor(leaf)
        for leaf in tf.nest.flatten((args, kwargs), expand_composites=True)
        if tf.is_tensor(leaf)
    )


def _check_device(device: str) -> None:
    known = [d.name for d in tf.config.list_logical_devices()]
    try:
        wanted = tf.DeviceSpec.from_string(device)
    except ValueError:
        wanted = None
    # Merging fills in what the short name leaves out: "/CPU:1" names one of several full names.
    if wanted is None or not any(
        tf.DeviceSpec.from_string(name).make_merged_spec(wanted).to_string() == name
        for name in known
    ):
        raise errors.InvalidValueError(
            errors.message(
                "device",
                "a device of this machine: " + ", ".join(known),
                repr(device),
                "Leave it out to let TensorFlow place the ops.",
            )
        )
