"""Which axis of each tensor numbers the examples, and where they mix. Reads; adds nothing.

Derivatives are what counts: what reaches y through an op without one, as a stop_gradient does,
leaves the examples apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from tfjac import graph_memo, rules, tf_internals
from tfjac.graph import subgraph
from tfjac.rules import Example, Kind


@dataclasses.dataclass(frozen=True)
class Mixed:
    """Where the examples mix, or are not seen to stay apart.

    Args:
      op: name of the op.
      op_type: its type.
      why: in words.
      understood: whether it is known that they mix.
    """

    op: str
    op_type: str
    why: str
    understood: bool = True

    def text(self) -> str:
        """Returns it in words."""
        return f"op {self.op!r} of type {self.op_type} {self.why}"


@dataclasses.dataclass(frozen=True)
class One:
    """A tensor in a loop that depends on a single example: the one that an index tensor names.

    Args:
      index: key of the index tensor.
    """

    index: tuple


# What is known of a tensor: None where it does not depend on x.
State = Example | Mixed | One | None


def example_axis(y: tf.Tensor, x: tf.Tensor, axis: int = 0) -> State:
    """Returns which axis of `y` numbers the positions of an axis of `x`, or where those mix.

    Args:
      y: the target.
      x: the source, a tensor of rank 1 or more.
      axis: of x.
    """
    return states(y, x, axis)(y)


def states(y: tf.Tensor, x: tf.Tensor, axis: int) -> Callable[[tf.Tensor], State]:
    """Returns the same of every tensor between them, as a function of the tensor."""

    def read():
        found: dict = {subgraph.key_of(x): Example(axis)}
        walk = _Walk()
        walk.through(subgraph.ops_between(y, [x]), found)
        return lambda tensor: walk.state(tensor, found)

    return graph_memo.memoized(("states", y.ref(), x.ref(), axis), read)


class _Walk:
    """One walk from the source to the target, bodies of functions included."""

    def __init__(self) -> None:
        self._outer = subgraph.OuterTensors()

    def through(self, ops: Iterable[tf.Operation], states: dict) -> None:
        """Adds to `states` those of the outputs of `ops`, which come in topological order."""
        for op in ops:
            given = [self.state(t, states) for t in op.inputs]
            if any(state is not None for state in given):
                for tensor, state in zip(op.outputs, self._outputs(op, given)):
                    states[subgraph.key_of(tensor)] = state

    def state(self, tensor: tf.Tensor, states: dict) -> State:
        """Returns the state of a tensor, or of the outer one that it stands for."""
        return states.get(self._outer.find(tensor, states))

    def _outputs(self, op: tf.Operation, given: Sequence[State]) -> list[State]:
        if op.type in ("TensorListGetItem", "TensorListSetItem"):
            element = self._element(op, given)
            if element is not None:
                return [element]
        ones = [state for state in given if isinstance(state, One)]
        if ones:
            return [self._of_one(op, ones, given)] * len(op.outputs)
        bodies = subgraph.bodies(op)
        if bodies is not None:
            return self._bodies(op, bodies, given)
        if rules.has_custom_gradient(op):
            return self._by_gradient(op, given)
        rule = rules.rule_of(op)
        if rule is None:
            return [self._unknown(op, given)] * len(op.outputs)
        return [
            _join(op, [self._moved(op, rule, i, o, given) for i in range(len(given))])
            for o in range(len(op.outputs))
        ]

    def _element(self, op: tf.Operation, given: Sequence[State]) -> State:
        """Follows the elements of a list that are examples; None where they are not."""
        listed, index = given[0], subgraph.key_of(op.inputs[1])
        if op.type == "TensorListGetItem":
            return One(index) if listed == Example(-1) else None
        item = given[2]
        if item == One(index) and listed in (None, Example(-1)):
            return Example(-1)
        return None

    def _of_one(self, op: tf.Operation, ones: list[One], given: Sequence[State]) -> State:
        mixed = _first_mixed(given)
        if mixed or all(state in (None, ones[0]) for state in given):
            return mixed or ones[0]
        return Mixed(op.name, op.type, "brings different examples together")

    def _moved(self, op, rule: rules.Rule, i: int, o: int, given: Sequence[State]) -> State:
        state = given[i]
        if state is None or not _is_differentiable(op.inputs[i]):
            return None
        found = rule.local(op, i, o)
        if found.kind is Kind.ZERO or not _is_differentiable(op.outputs[o]):
            return None
        if isinstance(state, Mixed):
            return state
        moved = rule.example(op, i, o, state)
        if moved is not None and not moved.sized and _meets_others(op, rule, i, o, moved.axis):
            return Mixed(op.name, op.type, "may broadcast examples of an unknown number", False)
        if moved is not None:
            broadcast = _may_be_broadcast(op, rule, i, o, moved.axis, given)
            return dataclasses.replace(moved, certain=False) if broadcast else moved
        if found.kind is Kind.OPAQUE and rule.move is None:
            return Mixed(op.name, op.type, "has sizes or axes that the graph does not tell", False)
        return Mixed(op.name, op.type, f"{_VERB[found.kind]} the axis that numbers the examples")

    def _unknown(self, op: tf.Operation, given: Sequence[State]) -> State:
        for state in given:
            if isinstance(state, Mixed):
                return state
        return Mixed(op.name, op.type, "has no rule that says whether examples mix in it", False)

    def _body(self, op, body: tf.Graph | None, given: Sequence[State]) -> list[State]:
        if body is None or len(body.inputs) != len(given):
            why = "calls a function whose body is not to be had"
            return [_first_mixed(given) or Mixed(op.name, op.type, why, False)] * len(op.outputs)
        states = {
            subgraph.key_of(t): state for t, state in zip(body.inputs, given) if state is not None
        }
        # What the body captures is among its inputs.
        self.through(body.get_operations(), states)
        return [self.state(t, states) for t in body.outputs]

    def _bodies(self, op, bodies: subgraph.Bodies, given: Sequence[State]) -> list[State]:
        states = list(given)
        while True:
            found = [self._body(op, body, states[bodies.skip :]) for body in bodies.graphs]
            after = [_join(op, of_each) for of_each in zip(*found)]
            if not bodies.repeats:
                return after
            after = [_carried(op, state) for state in after]
            # Each turn raises a state, from none through an axis to mixed, or is the last one.
            joined = [_join(op, pair) for pair in zip(states, after)]
            if joined == states:
                return joined
            states = joined

    def _by_gradient(self, op: tf.Operation, given: Sequence[State]) -> list[State]:
        """Reads the gradient that was written by hand: what it keeps apart, the op does."""
        why = "carries a custom gradient that is not seen to keep the examples apart"
        lost = _first_mixed(given) or Mixed(op.name, op.type, why, False)
        axes = list(dict.fromkeys(state for state in given if isinstance(state, Example)))
        if len(axes) != 1:
            return [lost] * len(op.outputs)
        wanted = [(t, state) for t, state in zip(op.inputs, given) if state is not None]
        return [
            axes[0] if _gradient_keeps_apart(op, output, wanted, axes[0]) else lost
            for output in op.outputs
        ]


def _carried(op: tf.Operation, state: State) -> State:
    """Returns what is known of a tensor in the next turn of a loop, where indices are others."""
    if isinstance(state, One):
        return Mixed(op.name, op.type, "carries an example from one turn to the next")
    return state


def _may_be_broadcast(op, rule: rules.Rule, i: int, o: int, axis: int, given) -> bool:
    """Returns whether an input of unknown size could be one, and broadcast against a constant."""
    return _size_is_unknown(op, rule, i, o, axis) and any(
        given[j] is None and axis in _linked_axes(op, rule, j, o)
        for j in range(len(op.inputs))
        if j != i
    )


def _meets_others(op, rule: rules.Rule, i: int, o: int, axis: int) -> bool:
    """Returns whether an input of unknown size could be broadcast against any other."""
    return _size_is_unknown(op, rule, i, o, axis) and any(
        axis in _linked_axes(op, rule, j, o)
        for j in range(len(op.inputs))
        if j != i and op.inputs[j].ref() != op.inputs[i].ref()
    )


def _size_is_unknown(op, rule: rules.Rule, i: int, o: int, axis: int) -> bool:
    links = dict(rule.local(op, i, o).links)
    return axis in links and op.inputs[i].shape[links[axis]] is None


def _linked_axes(op, rule: rules.Rule, j: int, o: int) -> list[int]:
    return [out_axis for out_axis, _ in rule.local(op, j, o).links]


def _gradient_keeps_apart(
    op: tf.Operation,
    output: tf.Tensor,
    wanted: Sequence[tuple[tf.Tensor, State]],
    example: Example,
) -> bool:
    """Returns whether a cotangent with that example axis gives cotangents with that same one.

    And none to inputs in which the examples are mixed already.
    """
    rank = output.shape.rank
    if not _is_differentiable(output) or rank is None or rank <= example.axis:
        return False
    graph = tf_internals.scratch_graph(op.graph)
    with graph.as_default():
        cotangent = tf.compat.v1.placeholder(output.dtype, output.shape)
        try:
            inputs = [t for t, _ in wanted]
            back = tf.gradients(output, inputs, cotangent, stop_gradients=list(op.inputs))
        except (NotImplementedError, TypeError, ValueError, LookupError):
            return False  # it was written for other uses, as that of tf.recompute_grad
    states: dict = {subgraph.key_of(cotangent): example}
    walk = _Walk()
    walk.through(graph.get_operations(), states)
    arrived = [
        (state, None if t is None else walk.state(t, states)) for (_, state), t in zip(wanted, back)
    ]
    return all(
        pulled is None or (pulled == example and state == example) for state, pulled in arrived
    )


def _first_mixed(states: Iterable[State]) -> Mixed | None:
    return next((state for state in states if isinstance(state, Mixed)), None)


def _join(op: tf.Operation, states: Iterable[State]) -> State:
    """Returns what is known of a tensor that is made of several."""
    found = [state for state in states if state is not None]
    mixed = _first_mixed(found)
    if mixed or not found:
        return mixed
    if all(state == found[0] for state in found):
        if isinstance(found[0], One):
            return found[0]
        certain, sized = (all(getattr(s, name) for s in found) for name in ("certain", "sized"))
        return dataclasses.replace(found[0], certain=certain, sized=sized)
    return Mixed(op.name, op.type, "brings different axes that number the examples together")


def _is_differentiable(tensor: tf.Tensor) -> bool:
    return subgraph.carries_derivative(tensor)


_VERB = {
    Kind.IDENTITY: "does not keep",
    Kind.DIAGONAL: "broadcasts against",
    Kind.SELECTION: "moves entries along",
    Kind.MIXING: "mixes entries along",
    Kind.WINDOW: "mixes entries along",
    Kind.OPAQUE: "does not keep",
}
