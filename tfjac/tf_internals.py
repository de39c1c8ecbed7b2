"""The only door to private TensorFlow. `tests/contracts_test.py` pins each layout relied on."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.eager import context, record
from tensorflow.python.eager.polymorphic_function import autograph_util
from tensorflow.python.framework import config, func_graph, op_def_registry, ops
from tensorflow.python.ops import (
    control_flow_util,
    control_flow_util_v2,
    handle_data_util,
    script_ops,
)
from tensorflow.python.ops.parallel_for import pfor


def has_no_derivative(op_type: str) -> bool:
    """True if TensorFlow registers `op_type` as not differentiable.

    Unlike an op type without any registration, which makes `tf.gradients` raise, such an op
    silently yields None.
    """
    try:
        return ops.gradient_registry.lookup(op_type) is None
    except LookupError:
        return False


def is_recording() -> bool:
    """True if a `tf.GradientTape` or a forward accumulator is active in this thread."""
    return record.could_possibly_record()


def stop_recording() -> contextlib.AbstractContextManager:
    """A context in which tapes and forward accumulators of this thread see nothing."""
    return record.stop_recording()


def record_operation(
    name: str,
    outputs: Sequence[tf.Tensor],
    inputs: Sequence[tf.Tensor],
    backward: Callable[..., Sequence[tf.Tensor | None]],
) -> None:
    """Tells the tapes that are active that `outputs` come from `inputs`.

    Args:
      name: name of the operation.
      outputs: what it gave.
      inputs: what it depends on.
      backward: takes a cotangent for each output, returns one or None for each input.
    """
    record.record_operation(name, list(outputs), list(inputs), backward)


def eager_mode() -> contextlib.AbstractContextManager:
    """A context that executes eagerly even where a `tf.Graph` is the default."""
    return context.eager_mode()


def is_function_graph(graph: tf.Graph) -> bool:
    """True if `graph` is the body of a function, loop or branch."""
    return isinstance(graph, func_graph.FuncGraph)


def graph_and_outer_graphs(graph: tf.Graph) -> Iterator[tf.Graph]:
    """Yields `graph`, then the graphs around it, from the inside out."""
    while graph is not None:
        yield graph
        graph = graph.outer_graph if is_function_graph(graph) else None


def captures(graph: tf.Graph) -> dict[str, tf.Tensor]:
    """Returns the outer tensor for the name of each placeholder that stands for one."""
    if not is_function_graph(graph):
        return {}
    return {inner.name: outer for outer, inner in graph.captures}


def record_captures(graph: tf.Graph) -> None:
    """Lets the active tapes see what each captured tensor stands for, as a variable's handle."""
    for outer in captures(graph).values() if is_recording() else ():
        graph.capture(outer)


def scratch_graph(graph: tf.Graph) -> tf.Graph:
    """Returns a function graph within `graph`: what is built in it can use its tensors only."""
    with graph.as_default():
        return func_graph.FuncGraph("tfjac_scratch")


def body_of(op: tf.Operation, attribute: str) -> tf.Graph | None:
    """Returns the graph of the function that an attribute of `op` names; None if not to be had.

    Its `inputs` and `outputs` are those of the function, with what it captures among the inputs.
    """
    return _graph_of(op, op.get_attr(attribute).name)


def bodies_of(op: tf.Operation, attribute: str) -> list[tf.Graph | None]:
    """Returns the same for an attribute that names several functions."""
    return [_graph_of(op, function.name) for function in op.get_attr(attribute)]


def _graph_of(op: tf.Operation, name: str) -> tf.Graph | None:
    # The body of a loop that was loaded finds what it calls in the graph around it.
    for graph in graph_and_outer_graphs(op.graph):
        found = getattr(graph._get_function(name), "graph", None)  # pylint: disable=protected-access
        if found is not None:
            return found
    return None


def same_op(op: tf.Operation, inputs: Sequence[tf.Tensor], **dtypes: tf.DType) -> list[tf.Tensor]:
    """Returns the outputs of an op of the type and attributes of `op` on other inputs.

    Adds it to the default graph. What begins with "_" among the attributes belongs to the old op.

    Args:
      op: the op.
      inputs: of the new one.
      **dtypes: attributes that are dtypes and are to be others.
    """
    attributes = {n: v for n, v in op.node_def.attr.items() if not n.startswith("_")}
    for name, dtype in dtypes.items():
        attributes[name] = tf.compat.v1.AttrValue(type=dtype.as_datatype_enum)
    return _added(op, inputs, attributes)


def copy_of(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the same with the gradient that was written for `op` by hand, where there is one."""
    kept = ("_gradient_op_type",)
    attributes = {n: v for n, v in op.node_def.attr.items() if not n.startswith("_") or n in kept}
    return _added(op, inputs, attributes)


def _added(op: tf.Operation, inputs: Sequence[tf.Tensor], attributes) -> list[tf.Tensor]:
    target = tf.compat.v1.get_default_graph()
    for name in [name for value in attributes.values() for name in _function_names(value)]:
        _bring(op.graph, target, name)
    made = target.create_op(
        op.type,
        list(inputs),
        [t.dtype for t in op.outputs],
        name=op.name.rpartition("/")[2],
        attrs=attributes,
        op_def=op.op_def,
    )
    if made.outputs and is_recording():
        _record(made)
    return list(made.outputs)


def _bring(graph: tf.Graph, target: tf.Graph, name: str) -> None:
    """Lets `target` know a function by name that `graph`, or one around it, knows."""
    if target._is_function(name):  # pylint: disable=protected-access
        return
    for known in graph_and_outer_graphs(graph):
        function = known._get_function(name)  # pylint: disable=protected-access
        if function is not None:
            target._add_function_recursive(function)  # pylint: disable=protected-access
            return


def _record(op: tf.Operation) -> None:
    """Tells the tapes of an op that was added to the graph directly, which they do not see."""

    def backward(*cotangents):
        return gradient_of(op, cotangents)

    with contextlib.suppress(LookupError):
        if ops.get_gradient_function(op) is not None:
            record_operation(op.type, op.outputs, op.inputs, backward)


def gradient_of(op: tf.Operation, cotangents: Sequence[tf.Tensor | None]) -> list:
    """Returns what the gradient registered for `op` gives for each input, None for all if none.

    Raises:
      LookupError: nothing is registered for the type of `op`.
    """
    gradient = ops.get_gradient_function(op)
    found = [None] * len(op.inputs) if gradient is None else gradient(op, *cotangents)
    return list(found) if isinstance(found, (list, tuple)) else [found]


def held_by(handle: tf.Tensor) -> bytes:
    """Returns the note of what a handle of a graph holds, empty where there is none."""
    found = handle_data_util.get_handle_data(handle)
    return found.SerializeToString() if found is not None and found.is_set else b""


def note_held(handle: tf.Tensor, like: tf.Tensor) -> None:
    """Notes that a handle of a graph holds the same as another; nothing where that has no note."""
    handle_data_util.copy_handle_data(like, handle)


def body_to_differentiate(op: tf.Operation, attribute: str) -> tf.Graph | None:
    """Returns the graph that TensorFlow differentiates for a loop that was loaded, made now.

    None where it is there already, as after a loop was traced or differentiated.

    Args:
      op: the loop.
      attribute: "body" or "cond".
    """
    kept = f"_{attribute}_graph"
    if getattr(op, kept, None) is not None:
        return None
    input_shapes = [tf.TensorShape(shape) for shape in op.get_attr("output_shapes")]
    name = op.get_attr(attribute).name
    setattr(op, kept, control_flow_util_v2.get_func_graph(op, input_shapes, name))
    return getattr(op, kept)


def is_deterministic() -> bool:
    """Returns whether TensorFlow was asked for the same bits in each run."""
    return config.is_op_determinism_enabled()


def is_stateful(op_type: str) -> bool:
    """Returns whether ops of a type do more than compute outputs from inputs."""
    found = op_def_registry.get(op_type)
    return found is None or found.is_stateful


def has_legacy_call(op: tf.Operation) -> bool:
    """Returns whether a function that `op` calls calls one by having its name as an op type.

    The gradient of such a call is of type SymbolicGradient, which the runtime does not find within
    the body of a loop.
    """
    return any(op.graph._is_function(node.op) for node in nodes_within(op))  # pylint: disable=protected-access


def python_function_of(op: tf.Operation):
    """Returns the object behind an `EagerPyFunc` op, as which `tf.py_function` stands in a graph.

    None where it is gone, as after a graph was loaded.
    """
    return script_ops._py_funcs.get(op.get_attr("token").decode())  # pylint: disable=protected-access


def tape_of_python_function(token: bytes):
    """Returns `(tape, inputs, outputs)` of the last run of a `tf.py_function`, once for each run.

    Only where its object was asked to `set_support_graph_mode_gradient`.
    """
    return script_ops.tape_cache.pop(token)


def nodes_within(op: tf.Operation) -> list[tf.compat.v1.NodeDef]:
    """Returns the nodes of the functions that `op` calls, and of those that they call.

    A function whose body is not to be had stands there as a node of type "".
    """
    found, seen, waiting = [], set(), [op.node_def]
    while waiting:
        attributes = waiting.pop().attr.values()
        names = {name for value in attributes for name in _function_names(value)} - seen
        seen |= names
        for name in names:
            function = op.graph._get_function(name)  # pylint: disable=protected-access
            body = getattr(function, "cached_definition", None)
            nodes = [tf.compat.v1.NodeDef()] if body is None else list(body.node_def)
            found += nodes
            waiting += nodes
    return found


def _function_names(value) -> list[str]:
    single = [value.func.name] if value.HasField("func") else []
    return single + [function.name for function in value.list.func]


def known_in_graph(graph: tf.Graph, tensor: tf.Tensor) -> tf.Tensor | None:
    """Returns the tensor by which `graph` itself knows one, a variable's handle say, or None."""
    if tf.is_symbolic_tensor(tensor) and tensor.graph is graph:
        return tensor
    captured = graph.captures if is_function_graph(graph) else ()
    return next((inner for outer, inner in captured if outer is tensor), None)


def is_compiled_by_xla(graph: tf.Graph) -> bool:
    """True if the function being traced into `graph` was asked for with `jit_compile=True`."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def control_flow_scope(graph: tf.Graph) -> int:
    """Identifies the TensorFlow 1 loop or branch that new ops of `graph` would belong to."""
    return id(graph._get_control_flow_context())  # pylint: disable=protected-access


def converted_by_autograph(fn: Callable) -> Callable:
    """Returns `fn` as `tf.function` would trace it, with its Python control flow converted."""

    def call(*args, **kwargs):
        return fn(*args, **kwargs)

    converted = autograph_util.py_func_from_autograph(call)

    def call_converted(*args, **kwargs):
        # tfjac itself is not converted, and what it calls would not be either.
        with ag_ctx.ControlStatusCtx(status=ag_ctx.Status.UNSPECIFIED):
            return converted(*args, **kwargs)

    return call_converted


def variable_of(value) -> tf.Variable | None:
    """Returns the variable of TensorFlow inside one of Keras 3, None for anything else.

    Its public `value` is a tensor instead where Keras casts, as in a layer of mixed precision.
    """
    inner = None if isinstance(value, tf.Variable) else getattr(value, "_value", None)
    return inner if isinstance(inner, tf.Variable) else None


def layers_of(fn: Callable) -> tuple[tuple, ...]:
    """Returns what a graph takes for granted of the layers of a Keras model, or of its method.

    Which they are, their dtype policy, and whether they are trainable: that changes what some do.
    Empty for any other function. Holds no layer.
    """
    flatten = getattr(getattr(fn, "__self__", fn), "_flatten_layers", None)
    layers = () if flatten is None else flatten()
    return tuple((weakref.ref(layer), layer.dtype_policy.name, layer.trainable) for layer in layers)


def call_concrete(function: tf.types.experimental.ConcreteFunction, args: Sequence[tf.Tensor]):
    """Calls `function` on flat tensors, without the argument binding that its `__call__` does.

    On TensorFlow 2.21 and two CPU cores a call of a tiny function takes 75 us this way, 245 us
    through `ConcreteFunction.__call__` and 370 us through `tf.function` (2026-11-30).
    """
    return function._call_flat(list(args), function.captured_inputs)  # pylint: disable=protected-access


# What a vectorized map converts to something that is the same for all rows, whatever it is given.
_SAME_FOR_ALL_ROWS = frozenset(
    {"Rank", "Shape", "ShapeN", "Size", "TensorListElementShape", "TensorListLength"}
)
_LOOPS = ("StatelessWhile", "While")
# The table of converters is shared by all threads.
_converters_lock = threading.RLock()


@contextlib.contextmanager
def loops_converted_once() -> Iterator[None]:
    """A context in which `tf.vectorized_map` converts each loop once.

    TensorFlow 2.21 begins as if the variables of a loop that are the same for all rows before it
    were so in it. Where it finds that they are not, it throws away what it converted and begins
    again, with those stacked. Here they are stacked before: the graph is the same.
    """
    table = pfor._pfor_converter_registry  # pylint: disable=protected-access
    with _converters_lock:
        known = {name: table[name] for name in _LOOPS}
        table.update((n, functools.partial(_converted, convert)) for n, convert in known.items())
        try:
            yield
        finally:
            table.update(known)


def _converted(convert: Callable, given):
    given.stack_inputs(stack_indices=_stacked_within(given), tile_variants=True)
    return convert(given)


def _stacked_within(given) -> list[int]:
    """Returns the inputs of a loop that are the same for all rows before it, and not in it.

    None of them where its condition reads one: TensorFlow may know better whether that differs.
    """
    body, condition = (body_of(given.op, name) for name in ("body", "cond"))
    if body is None or condition is None:
        return []
    before = [part.is_stacked for part in given.inputs]
    stacked = list(before)
    while True:
        found = {t.name for t, is_stacked in zip(body.inputs, stacked) if is_stacked}
        for op in body.get_operations():
            if op.type not in _SAME_FOR_ALL_ROWS and any(t.name in found for t in op.inputs):
                found.update(t.name for t in op.outputs)
        after = [was or t.name in found for was, t in zip(stacked, body.outputs)]
        if after == stacked:
            break
        stacked = after
    more = [k for k, (was, now) in enumerate(zip(before, stacked)) if now and not was]
    return [] if any(condition.inputs[k].consumers() for k in more) else more
