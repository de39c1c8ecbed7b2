"""The function that `prepare` returns: built once for each signature, and run many times."""

from __future__ import annotations

import dataclasses
import functools
import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfjac import autotune as autotune_lib
from tfjac import errors, fallback, function_cache, jacobians, planning, tf_internals
from tfjac import options as options_lib
from tfjac.call_signature import Call, any_symbolic, as_graph_tensor
from tfjac.options import Options
from tfjac.problems import Nested

# What is raised where XLA, or a strategy under it, cannot serve a graph.
_NOT_COMPILED = (
    errors.UnsupportedError,
    tf.errors.InvalidArgumentError,
    tf.errors.UnimplementedError,
)


class _Built(NamedTuple):
    """What was built for a signature.

    Args:
      concrete: the function.
      at_once: rows or columns that it carries at once.
      layers: of the model as they were; see `tf_internals.layers_of`.
      plans: by which it was built, where that is as `prepare` was asked to.
      tried: names of the strategies that were tried, where the first one failed when it ran.
      trial: what it is to be compared with, if anything.
    """

    concrete: tf.types.experimental.ConcreteFunction
    at_once: int
    layers: tuple[tuple, ...]
    plans: tuple[planning.Plan, ...] = ()
    tried: tuple[str, ...] = ()
    trial: autotune_lib.Trial | None = None


class JacobianFunction:
    """Evaluates the Jacobian of a function; made by `prepare`.

    Call it as the function is called, with tensors, NumPy arrays or what holds them. Inside a
    `tf.function` it adds to the graph that is being built. The first call with a signature (shapes
    and dtypes of the tensors, values of other arguments) builds; later ones run what was built.
    Variables are read at each call, and a Keras model that has other layers by then, or layers of
    another dtype policy or trainability, is built anew. What else of a layer or function is
    changed, such as an activation, is seen after `cache_clear()`. Thread-safe.
    """

    def __init__(self, fn: Callable[..., Nested], options: Options):
        self._fn = fn
        self._options = options
        self._cache = function_cache.cache_of(fn, options)
        # Keys of signatures under which the examples could not be shown to stay apart.
        self._mixing: set[Hashable] = set()

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
          One paragraph for each target. Builds no Jacobian; traces the function where none was
          built for these arguments yet.
        """
        plans = self._plans(self._call(args, kwargs))
        return "\n\n".join(plan.explain() for plan in plans)

    def _plans(self, call: Call) -> list[planning.Plan]:
        """Returns the plans for a call: those it was built by, else from a graph thrown away."""
        built = [self._cache.known((call.key, with_value)) for with_value in (False, True)]
        known = (b.plans for b in built if b is not None and self._is_current(b))
        plans: list[planning.Plan] = list(next(filter(None, known), ()))
        if plans:
            return plans

        def traced(*tensors):
            ys, call_args = self._values(call, tensors)
            # A model that makes its variables now is traced twice.
            plans[:] = self._planned(ys, call_args, self._options)

        self._compiled(traced, self._options.jit_compile).get_concrete_function(*call.specs)
        return plans

    def _planned(self, ys, call_args, options: Options) -> list[planning.Plan]:
        return jacobians.plan(
            ys,
            self._sources(call_args),
            options.batch,
            options.strategy,
            options.chunk_size,
            options.memory_budget,
        )

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
        if not tf_internals.is_function_graph(graph) and not any_symbolic(args, kwargs):
            # Values given while some tf.Graph happens to be the default one: values come back.
            with tf_internals.eager_mode():
                return self._run_eagerly(args, kwargs, with_value)
        call = self._call(args, kwargs)
        with options_lib.on_device(self._options.device):
            return self._function(call, with_value, self._options)[0](*call.tensors)

    def _run_eagerly(self, args, kwargs, with_value: bool) -> Nested:
        call = self._call(args, kwargs)
        if call.key in self._mixing and self._are_single(args):
            return self._answer(self._call_of_one(args, kwargs), with_value)
        try:
            return self._answer(call, with_value)
        except errors.ExamplesMixError:
            # Of one example there is nothing that could mix, once it is known that it is one.
            if self._options.input_signature is None or not self._are_single(args):
                raise
        self._mixing.add(call.key)
        return self._answer(self._call_of_one(args, kwargs), with_value)

    def _are_single(self, args) -> bool:
        """Returns whether all sources have one example."""
        return all(np.shape(leaf)[:1] == (1,) for leaf in tf.nest.flatten(self._sources(args)))

    def _answer(self, call: Call, with_value: bool) -> Nested:
        key = (call.key, with_value)
        with options_lib.on_device(self._options.device):
            built = self._cache.get(key, lambda: self._built(call, with_value), self._is_current)
            while True:
                try:
                    start = time.perf_counter()
                    found = tf_internals.call_concrete(built.concrete, call.tensors)
                    if built.trial and built.trial.is_due(time.perf_counter() - start):
                        self._cache.put(key, self._compared(call, with_value, built))
                    return found
                except tf.errors.ResourceExhaustedError:
                    if built.at_once < 2:
                        raise
                except fallback.FAILS as error:
                    built = self._next_best(call, with_value, built, error)
                    self._cache.put(key, built)
                    continue
                half = built.at_once // 2
                warnings.warn(
                    f"out of memory with {built.at_once} rows or columns at once; trying {half}",
                    errors.OutOfMemoryWarning,
                    stacklevel=5,
                )
                smaller = dataclasses.replace(self._options, chunk_size=half, memory_budget=None)
                built = self._with(call, with_value, smaller)
                self._cache.put(key, built)

    def _is_current(self, built: _Built) -> bool:
        return built.layers == tf_internals.layers_of(self._fn)

    def _compared(self, call: Call, with_value: bool, built: _Built) -> _Built:
        """Returns the faster one of two strategies; what there is where the other one fails."""
        built, (name, other) = built._replace(trial=None), built.trial.names
        options = dataclasses.replace(self._options, strategy=other, autotune=False)
        try:
            made = self._with(call, with_value, options)
            plans = tuple(plan.with_strategy(other) for plan in built.plans)
            ways = {name: built, other: made._replace(plans=plans)}
            calls = {
                name: functools.partial(tf_internals.call_concrete, way.concrete, call.tensors)
                for name, way in ways.items()
            }
            return ways[autotune_lib.fastest(calls)]
        except (errors.UnsupportedError, tf.errors.OpError):
            return built

    def _next_best(
        self, call: Call, with_value: bool, built: _Built, error: tf.errors.OpError
    ) -> _Built:
        """Returns what the next best strategy builds where one fails when it runs, or raises."""
        self._check_value_runs(call)
        chosen = self._options.strategy
        names = [getattr(chosen, "name", chosen)]
        if chosen == planning.AUTO:
            names = planning.best(self._plans(call), len(planning.STRATEGIES))
        tried = built.tried or tuple(names[:1])
        name = fallback.next_strategy(tried, names, error, stacklevel=6)
        options = dataclasses.replace(self._options, strategy=name, autotune=False)
        return self._with(call, with_value, options)._replace(tried=(*tried, name))

    def _check_value_runs(self, call: Call) -> None:
        """Raises what the function itself raises at these arguments, if it does."""
        function = self._compiled(
            lambda *tensors: self._values(call, tensors)[0], self._options.jit_compile
        )
        tf_internals.call_concrete(function.get_concrete_function(*call.specs), call.tensors)

    def _built(self, call: Call, with_value: bool) -> _Built:
        options = self._options
        by_itself = options.autotune == options_lib.TUNED_BY_ITSELF
        if options.autotune and not by_itself:
            call_of = functools.partial(self._call_of, call)
            options = autotune_lib.chosen(self._plans(call), options, call_of)
        start = time.perf_counter()
        built = self._with(call, with_value, options)
        if not by_itself or options.strategy != planning.AUTO:
            return built
        seconds = time.perf_counter() - start
        trial = autotune_lib.trial(built.plans, built.concrete.graph, seconds)
        return built._replace(trial=trial)

    def _with(self, call: Call, with_value: bool, options: Options) -> _Built:
        function, plans = self._function(call, with_value, options)
        concrete = function.get_concrete_function(*call.specs)
        at_once = max((plan.at_once for plan in plans), default=1)
        # Only now, for a model may make its layers at its first call.
        asked = tuple(plans) if options == self._options else ()
        return _Built(concrete, at_once, tf_internals.layers_of(self._fn), asked)

    def _call_of(self, call: Call, options: Options) -> Callable[[], Any] | None:
        """Returns a call of one of the ways; None where it was to be compiled and cannot."""
        optional = options.jit_compile and not self._options.jit_compile
        try:
            built = self._with(call, False, options)
            if optional:
                tf_internals.call_concrete(built.concrete, call.tensors)
        except _NOT_COMPILED:
            if not optional:
                raise
            return None
        return lambda: tf_internals.call_concrete(built.concrete, call.tensors)

    def _function(self, call: Call, with_value: bool, options: Options):
        """Returns the tf.function that computes from the tensors of `call`.

        And a list that holds the plans it was built by once it is traced.
        """
        plans: list[planning.Plan] = []
        if options.batch:
            operator = functools.partial(
                jacobians.batch_jacobian, independence=options.independence
            )
        else:
            operator = functools.partial(jacobians.jacobian, structured=options.structured)

        def traced(*tensors):
            with options_lib.on_device(self._options.device):
                ys, call_args = self._values(call, tensors)
                jacobian = operator(
                    ys,
                    self._sources(call_args),
                    options.strategy,
                    chunk_size=options.chunk_size,
                    unconnected_gradients=options.unconnected_gradients,
                    holomorphic=options.holomorphic,
                    memory_budget=options.memory_budget,
                )
            plans[:] = self._planned(ys, call_args, options)
            return (ys, jacobian) if with_value else jacobian

        return self._compiled(traced, options.jit_compile), plans

    def _compiled(self, traced: Callable[..., Any], jit_compile: bool):
        # Only the user's function is converted: AutoGraph would put its trace before our errors.
        return tf.function(traced, autograph=False, jit_compile=jit_compile or None)

    def _values(self, call: Call, tensors) -> tuple[Nested, Sequence[Nested]]:
        """Returns what the function gives for `tensors`, and its arguments made of them."""
        args, kwargs = call.rebuild(tensors)
        ys = tf_internals.converted_by_autograph(self._fn)(*args, **kwargs)
        return tf.nest.map_structure(as_graph_tensor, ys), args

    def _call(self, args, kwargs) -> Call:
        signature = self._options.input_signature
        return Call(args, kwargs, self._argnums, None if signature is None else signature.specs)

    def _call_of_one(self, args, kwargs) -> Call:
        """Returns the call with the shapes of its arguments known, whatever the signature is."""
        return Call(args, kwargs, self._argnums, None)

    @property
    def _argnums(self) -> Sequence[int]:
        argnums = self._options.argnums
        return (argnums,) if isinstance(argnums, int) else argnums

    def _sources(self, args: Sequence[Nested]) -> Nested:
        argnums = self._options.argnums
        return args[argnums] if isinstance(argnums, int) else tuple(args[i] for i in argnums)
