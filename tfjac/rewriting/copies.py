"""A copy of what lies between a target and its sources, with the ops at fault replaced.

And with the bodies of called functions in place of their calls, compiled by XLA or not, so that
each op of theirs is seen. Adds ops to the default graph where there is something of either kind,
and none elsewhere. What was computed before is not copied. TensorFlow merges equal ops when the
graph runs, so that the value is computed once.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tfjac import call_memo, errors, graph_memo, tf_internals
from tfjac.graph import bodies, subgraph
from tfjac.rewriting import handwritten, table
from tfjac.rewriting.replacement import Replacement

# Layouts of images for which TensorFlow has no kernels on the CPU, but XLA has.
_CHANNELS_FIRST = (b"NCHW", b"NCDHW")


def rewritten(
    y: tf.Tensor,
    tensors: Sequence[tf.Tensor],
    ops: Sequence[tf.Operation],
    twice: bool = False,
) -> tf.Tensor:
    """Returns a tensor of the value of `y` that has the right derivatives by some tensors.

    `y` itself where no op between them is at fault or calls a function. All sources of a target
    share a copy, where they can. Under a tape it is made anew: a tape sees only ops made while it
    is active.

    Args:
      y: the target.
      tensors: the sources.
      ops: those between, in topological order.
      twice: whether it will be differentiated twice.

    Raises:
      UnsupportedError: the derivative of an op is at fault, the second one if it is asked for, and
        to replace it something would run again that may run only once, as a random draw.
    """
    if not graph_memo.memoized(("may be at fault", y.ref()), lambda: _may_be_at_fault(y)):
        return y
    wanted = _at_fault(ops, bodies.Reached.after(tensors, ops))
    if not wanted:
        return y
    copied = call_memo.memoized(("rewritten", y.ref()), lambda: _copied(y, _behind(y), _leaves(y)))
    if not copied.serves(tensors, wanted):
        key = ("rewritten", y.ref(), *(t.ref() for t in tensors))
        copied = call_memo.memoized(key, lambda: _copied(y, ops, tensors))
    copied.check(ops, twice)
    return copied.tensor


@dataclasses.dataclass(frozen=True)
class _Fault:
    """What is at fault in TensorFlow: the op type with what, and whether at once or only twice."""

    text: str
    first: bool


@dataclasses.dataclass(frozen=True, eq=False)
class _Copied:
    """What was made of a target.

    Args:
      tensor: the copy of the target.
      replaced: keys of the ops that were replaced.
      made: keys of the tensors for which there are others in the copy.
      kept: by the keys of ops that may run only once, what is at fault before them.
    """

    tensor: tf.Tensor
    replaced: frozenset[tuple]
    made: frozenset[tuple]
    kept: dict[tuple, _Fault]

    def serves(self, tensors: Sequence[tf.Tensor], wanted: frozenset[tuple]) -> bool:
        """Returns whether all that is wanted is replaced, and the tensors are not copied."""
        return wanted <= self.replaced and self.made.isdisjoint(map(subgraph.key_of, tensors))

    def check(self, ops: Sequence[tf.Operation], twice: bool) -> None:
        """Raises if one of the ops could not be copied and passes on a wrong derivative."""
        for op in ops:
            fault = self.kept.get(_key(op))
            if fault is not None and (fault.first or twice):
                raise _cannot_copy(op, fault)


def _key(op: tf.Operation) -> tuple[int, str]:
    return id(op.graph), op.name


def _behind(y: tf.Tensor) -> list[tf.Operation]:
    found = [op for op, _ in subgraph.post_order(y, frozenset())]
    return [op for op in found if op.type != "Placeholder"]


def _leaves(y: tf.Tensor) -> list[tf.Tensor]:
    """Returns what the target is computed from that may be a source, constants left out."""
    return [
        t
        for op, inputs in subgraph.post_order(y, frozenset())
        for t in op.outputs
        if not inputs and op.type != "Const" and subgraph.carries_derivative(t)
    ]


def _may_be_at_fault(y: tf.Tensor) -> bool:
    """Returns whether any op before the target may be replaced, for whatever source."""
    for op in _behind(y):
        if table.may_be_replaced(op) or _is_expanded(op):
            return True
        if op.type in subgraph.WITH_BODY and any(
            node.op in table.TABLE for node in tf_internals.nodes_within(op)
        ):
            return True
    return False


def _is_expanded(op: tf.Operation) -> bool:
    """Returns whether an op calls a function whose ops may take its place."""
    if op.type not in subgraph.CALLS or "_gradient_op_type" in op.node_def.attr:
        return False
    return graph_memo.kept_on(op.graph, ("expanded", op.name), lambda: _can_be_expanded(op))


def _can_be_expanded(op: tf.Operation) -> bool:
    body = tf_internals.body_of(op, "f")
    if body is None or len(body.inputs) != len(op.inputs) or bodies.runs_once(op):
        return False
    return not (_stays_compiled(op) or _has_lists_in_loops(body) or _has_gradients_that_stay(body))


def _has_gradients_that_stay(body: tf.Graph) -> bool:
    """Returns whether a body has a gradient written by hand that cannot be copied with it."""
    for op in bodies.needed(body):
        if op.type in subgraph.CALLS:
            if any(map(_has_gradients_that_stay, subgraph.bodies(op).graphs)):
                return True
        elif op.type in subgraph.WITH_BODY:
            if any("_gradient_op_type" in node.attr for node in tf_internals.nodes_within(op)):
                return True
        elif "_gradient_op_type" in op.node_def.attr and handwritten.gradient_of(op) is None:
            return True
    return False


def _has_lists_in_loops(body: tf.Graph) -> bool:
    """Returns whether a body has loops or branches with lists of tensors, as gradients of loops do.

    Made anew they would not be known to hold what they do.
    """
    for op in bodies.needed(body):
        if op.type in subgraph.CALLS:
            if any(map(_has_lists_in_loops, subgraph.bodies(op).graphs)):
                return True
        elif op.type in subgraph.WITH_BODY and any(t.dtype == tf.variant for t in op.inputs):
            return True
    return False


def _stays_compiled(op: tf.Operation) -> bool:
    """Returns whether XLA alone can run what an op calls."""
    # Asked for first: reading an absent attribute would add it to the shared definition.
    if "_XlaMustCompile" not in op.node_def.attr or not op.get_attr("_XlaMustCompile"):
        return False
    return any(
        node.op.startswith("Xla")
        or ("data_format" in node.attr and node.attr["data_format"].s in _CHANNELS_FIRST)
        for node in tf_internals.nodes_within(op)
    )


def _at_fault(ops: Sequence[tf.Operation], reached: bodies.Reached) -> frozenset[tuple]:
    """Returns the keys of ops that are to be replaced, at any depth, and of calls among `ops`."""
    walk = bodies.walk(ops, reached)
    replaced = frozenset(_key(op) for op, given in walk if table.replacement_of(op, given))
    return replaced | {_key(op) for op in ops if _is_expanded(op)}


def _copied(y: tf.Tensor, ops: Sequence[tf.Operation], tensors: Sequence[tf.Tensor]) -> _Copied:
    reached = bodies.Reached.after(tensors, ops)
    copy = _Copy()
    for graph in tf_internals.graph_and_outer_graphs(tf.compat.v1.get_default_graph()):
        tf_internals.record_captures(graph)
    with tf.name_scope("rewritten"):
        for op in ops:
            copy.follow(op, reached.given(op))
    return _Copied(copy.find(y), _at_fault(ops, reached), copy.made, copy.kept)


class _Copy:
    """The tensors of a copy by those of the graph that they stand for."""

    def __init__(self) -> None:
        self._made: dict[tuple, tf.Tensor] = {}
        self._outer = subgraph.OuterTensors()
        # What replaced ops were at fault for, by the tensors that depend on them.
        self._faults: dict[tuple, _Fault] = {}
        # The same by the ops that were not copied, for they may run only once.
        self.kept: dict[tuple, _Fault] = {}

    @property
    def made(self) -> frozenset[tuple]:
        """Keys of the tensors for which there are others."""
        return frozenset(self._made)

    def find(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns the tensor of the copy that stands for one, itself where it was not copied."""
        return self._made.get(self._outer.find(tensor, self._made), tensor)

    def follow(self, op: tf.Operation, given: Sequence[bool]) -> None:
        """Copies or replaces an op where it is at fault, or what it depends on was copied."""
        inputs = [self.find(t) for t in op.inputs]
        is_changed = any(new is not old for new, old in zip(inputs, op.inputs))
        replacement = table.replacement_of(op, given)
        inner_faults = _faults_within(op, given)
        if not (is_changed or replacement or inner_faults or _is_expanded(op)):
            return
        keys = map(subgraph.key_of, op.inputs)
        faults = [*(self._faults[key] for key in keys if key in self._faults), *inner_faults]
        if replacement is not None:
            faults.append(_fault_of(op, replacement))
        fault = max(faults, key=lambda fault: fault.first, default=None)
        # Asked anew, for the graph may have got an assignment to what a call reads.
        if replacement is None and bodies.runs_once(op):
            self.kept |= {_key(op): fault} if fault else {}
            return
        self._put(op, _made_anew(op, inputs, given))
        self._faults |= {subgraph.key_of(t): fault for t in op.outputs if fault}

    def whole(self, body: bodies.Inner, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Copies all of a body that its outputs need, and returns them."""
        self._made.update(zip(map(subgraph.key_of, body.graph.inputs), inputs))
        self._copy(bodies.needed(body.graph), body.reached)
        return [self.find(t) for t in body.graph.outputs]

    def _copy(self, ops: Sequence[tf.Operation], reached: bodies.Reached) -> None:
        for op in ops:
            is_known = any(subgraph.key_of(t) in self._made for t in op.outputs)
            if is_known or op.type == "Placeholder":
                continue
            inputs = [self.find(t) for t in op.inputs]
            by_hand = handwritten.gradient_of(op) if subgraph.is_by_hand(op) else None
            if by_hand is None:
                self._put(op, _made_anew(op, inputs, reached.given(op)))
            else:
                self._put(op, self._with_gradient(by_hand, inputs, reached))

    def _with_gradient(
        self, by_hand: handwritten.Gradient, inputs: Sequence[tf.Tensor], reached: bodies.Reached
    ) -> list[tf.Tensor]:
        """Returns the inputs, with a gradient that copies the one that was written by hand."""
        self._copy(by_hand.reads, reached)

        @tf.custom_gradient
        def passed_on(*given: tf.Tensor):
            def gradient(*cotangents: tf.Tensor) -> list[tf.Tensor | None]:
                copy = _Copy()
                copy._made = dict(self._made)
                keys = map(subgraph.key_of, by_hand.cotangents)
                copy._made.update(zip(keys, cotangents))
                copy._copy(by_hand.ops, bodies.Reached([]))
                return [None if t is None else copy.find(t) for t in by_hand.results]

            return [tf.identity(t) for t in given], gradient

        return passed_on(*inputs)

    def _put(self, op: tf.Operation, made: Sequence[tf.Tensor]) -> None:
        for old, new in zip(op.outputs, made):
            if old.dtype not in (tf.resource, tf.variant):
                new.set_shape(old.shape)
            self._made[subgraph.key_of(old)] = new


def _made_anew(
    op: tf.Operation, inputs: Sequence[tf.Tensor], given: Sequence[bool]
) -> list[tf.Tensor]:
    """Returns the outputs of the op, or of what replaces it, on inputs of the copy."""
    with tf.device(op.device) if op.device else contextlib.nullcontext():
        replacement = table.replacement_of(op, given)
        if replacement is not None:
            return replacement.build(op, inputs)
        if op.type in subgraph.WITH_BODY:
            return _called(op, inputs, bodies.inner(op, given))
        return tf_internals.copy_of(op, inputs)


def _called(
    op: tf.Operation, inputs: Sequence[tf.Tensor], inner: Sequence[bodies.Inner]
) -> list[tf.Tensor]:
    """Returns what an op gives that calls functions, each of them copied."""

    def run(body: bodies.Inner, given: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        # A branch or function that returns an input as it is would make no op of its own.
        return [tf.identity(t) for t in _Copy().whole(body, given)]

    if op.type in subgraph.CALLS:
        (body,) = inner
        if not _stays_compiled(op):
            # An input that is returned as it is would be told the shape of the output.
            found = _Copy().whole(body, inputs)
            return [tf.identity(t) if any(t is given for given in inputs) else t for t in found]
        function = tf.function(lambda *given: run(body, given), autograph=False, jit_compile=True)
        return tf.nest.flatten(function(*inputs))
    if op.type in ("While", "StatelessWhile"):
        return _loop(op, inputs, run, inner[0])
    branches = [lambda body=body: run(body, inputs[1:]) for body in inner]
    if op.type in ("Case", "StatelessCase"):
        return tf.nest.flatten(tf.switch_case(inputs[0], branches))
    return tf.nest.flatten(tf.cond(tf.cast(inputs[0], tf.bool), *branches))


def _loop(op: tf.Operation, inputs: Sequence[tf.Tensor], run, body: bodies.Inner):
    condition = bodies.Inner(tf_internals.body_of(op, "cond"), (), bodies.Reached([]))
    return tf.nest.flatten(
        tf.while_loop(
            lambda *given: run(condition, given)[0],
            lambda *given: run(body, given),
            list(inputs),
            shape_invariants=[
                None if t.dtype in (tf.resource, tf.variant) else t.shape for t in op.outputs
            ],
            parallel_iterations=op.get_attr("parallel_iterations"),
            maximum_iterations=_limit(inputs),
        )
    )


def _limit(inputs: Sequence[tf.Tensor]) -> int | None:
    """Returns the most turns of a loop, which TensorFlow keeps as its second variable."""
    limit = tf.get_static_value(inputs[1]) if len(inputs) > 1 else None
    known = limit is not None and inputs[1].dtype == tf.int32 and limit.ndim == 0
    return int(limit) if known and limit >= 0 else None


def _faults_within(op: tf.Operation, given: Sequence[bool]) -> list[_Fault]:
    """Returns the faults of ops in the bodies that an op calls."""
    found = []
    for each in bodies.inner(op, given):
        for part, reached in bodies.walk(each.ops, each.reached):
            replacement = table.replacement_of(part, reached)
            if replacement is not None:
                found.append(_fault_of(part, replacement))
    return found


def _fault_of(op: tf.Operation, replacement: Replacement) -> _Fault:
    return _Fault(f"of {op.type} {replacement.fault}", replacement.first)


def _cannot_copy(op: tf.Operation, fault: _Fault) -> errors.UnsupportedError:
    return errors.UnsupportedError(
        f"op {op.name!r} of type {op.type}, between x and y, may run only once, as it draws or "
        f"writes something, and cannot be copied: TensorFlow's derivative is at fault, as "
        f"{fault.text}. Keep random draws and assignments apart from that op, or pass what was "
        "drawn as an argument."
    )
