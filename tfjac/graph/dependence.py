"""Which axis of each tensor numbers the examples, and where they mix. Reads; adds nothing.

Derivatives are what counts: what reaches y through an op without one, as a stop_gradient does,
leaves the examples apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from tfjac import graph_memo, rules, tf_internals
from tfjac.graph import by_hand, lengths, naming, subgraph
from tfjac.graph import states as known_as
from tfjac.graph.states import Mixed, One, State
from tfjac.rules import Example, Kind, known


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
        walk = _Walk(x.shape[axis])
        walk.through(subgraph.ops_between(y, [x]), found)
        return lambda tensor: walk.state(tensor, found)

    return graph_memo.memoized(("states", y.ref(), x.ref(), axis), read)


class _Walk:
    """One walk from the source to the target, bodies of functions included.

    Args:
      examples: how many there are, None where that is unknown.
      by_value: whether it is values that are followed, not derivatives: then what has none, as a
        comparison, passes examples on too.
    """

    def __init__(
        self, examples: int | None, *, by_value: bool = False, around: Sequence[dict] = ()
    ) -> None:
        self._examples = lengths.EXAMPLES if examples is None else examples
        self._outer = subgraph.OuterTensors()
        # What is known of tensors around the body that is read, for sizes come from there.
        self._around = list(around)
        self._by_value = by_value

    def through(self, ops: Iterable[tf.Operation], states: dict) -> None:
        """Adds to `states` those of the outputs of `ops`, which come in topological order."""
        for op in ops:
            given = [self.state(t, states) for t in op.inputs]
            if any(state is not None for state in given):
                for tensor, state in zip(op.outputs, self._outputs(op, given, states)):
                    states[subgraph.key_of(tensor)] = state

    def state(self, tensor: tf.Tensor, states: dict) -> State:
        """Returns the state of a tensor, or of the outer one that it stands for."""
        return states.get(self._outer.find(tensor, states))

    def _outputs(self, op: tf.Operation, given: Sequence[State], states: dict) -> list[State]:
        if op.type in ("TensorListGetItem", "TensorListSetItem"):
            element = self._element(op, given)
            if element is not None:
                return [element]
        ones = [state for state in given if isinstance(state, One)]
        if ones:
            return [self._of_one(op, ones, given)] * len(op.outputs)
        bodies = subgraph.bodies(op)
        if bodies is not None:
            return self._bodies(op, bodies, given, states)
        if rules.has_custom_gradient(op):
            return list(given) if self._by_value else self._by_gradient(op, given, states)
        rule = rules.rule_of(op)
        if rule is None:
            return [self._unknown(op, given)] * len(op.outputs)
        if self._by_value and known_as.is_same_for_all(op):
            return [None] * len(op.outputs)
        return [
            known_as.join(
                op, [self._moved(op, rule, i, o, given, states) for i in range(len(given))]
            )
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
        mixed = known_as.first_mixed(given)
        if mixed or all(state in (None, ones[0]) for state in given):
            return mixed or ones[0]
        return Mixed(op.name, op.type, "may bring different examples together", False)

    def _moved(self, op, rule: rules.Rule, i: int, o: int, given, states: dict) -> State:
        state = given[i]
        if state is None or not (self._by_value or known_as.is_differentiable(op.inputs[i])):
            return None
        found = rule.local(op, i, o)
        if found.kind is Kind.ZERO or not known_as.is_differentiable(op.outputs[o]):
            return known_as.without_derivative(op, i, o, state) if self._by_value else None
        if isinstance(state, Mixed):
            return state
        moved = self._example(op, rule, i, o, state, states)
        if moved is None:
            return known_as.lost(op, rule, found, i, state)
        if (
            moved.by is None
            and not moved.sized
            and known_as.meets_others(op, rule, i, o, moved.axis)
        ):
            return Mixed(op.name, op.type, "may broadcast examples of an unknown number", False)
        broadcast = known_as.may_be_broadcast(op, rule, i, o, moved.axis, given)
        return dataclasses.replace(moved, certain=False) if broadcast else moved

    def _example(self, op, rule: rules.Rule, i: int, o: int, example: Example, states: dict):
        """Returns the example axis of an output; None where the examples are lost sight of."""
        if op.type == "DynamicPartition" and i == 0 and example.axis == 0:
            return naming.partitioned(op, o, example)
        counts = known_as.Counts(self._outer, [states, *self._around])
        named = naming.moved(op, i, example)
        if named is not None:
            found, size = named
            found = dataclasses.replace(found, sized=True) if counts.has(size) else found
        else:
            found = rule.example(op, i, o, example)
        if found is None and i == 0 and op.type == "Reshape":
            found = lengths.reshaped(op, example, counts.same, self._examples)
        if found is None and i == 0 and op.type == "Tile" and example.axis >= 0:
            found = example if lengths.named(op.inputs[1], example.axis) == 1 else None
        if found is None and i == 0 and op.type == "Sum":
            found = known_as.summed(op, example, counts)
        if found is None or counts.certain:
            return found
        return dataclasses.replace(found, certain=False)

    def _unknown(self, op: tf.Operation, given: Sequence[State]) -> State:
        for state in given:
            if isinstance(state, Mixed):
                return state
        return Mixed(op.name, op.type, "has no rule that says whether examples mix in it", False)

    def _body(self, op, bodies: subgraph.Bodies, body: tf.Graph | None, given) -> list[State]:
        given = given[bodies.skip :]
        if body is None or len(body.inputs) != len(given):
            why = "calls a function whose body is not to be had"
            return [known_as.first_mixed(given) or Mixed(op.name, op.type, why, False)] * len(
                op.outputs
            )
        states = {
            subgraph.key_of(t): state for t, state in zip(body.inputs, given) if state is not None
        }
        same = [
            k for k in range(len(given)) if not bodies.repeats or known_as.is_passed_on(body, k)
        ]  # what is the same in each turn of a loop
        outside = [list(op.inputs)[bodies.skip :][k] for k in same]
        with known.called_with([body.inputs[k] for k in same], outside):
            # What the body captures is among its inputs.
            self.through(body.get_operations(), states)
        found = [self.state(t, states) for t in body.outputs]
        outer = {} if bodies.repeats else known_as.outer_names(op, bodies, body)
        return [known_as.outside(op, state, body, outer) for state in found]

    def _bodies(self, op, bodies: subgraph.Bodies, given: Sequence[State], outer: dict):
        """Returns the states of the outputs of an op that calls functions."""
        self._around.insert(0, outer)
        found = self._of_bodies(op, bodies, given)
        self._around.pop(0)
        return found

    def _of_bodies(self, op, bodies: subgraph.Bodies, given: Sequence[State]) -> list[State]:
        states = list(given)
        while True:
            found = [self._body(op, bodies, body, states) for body in bodies.graphs]
            after = [known_as.join(op, of_each) for of_each in zip(*found)]
            if self._by_value and bodies.skip and states[0] is not None:
                after = [
                    known_as.join(op, [state, known_as.chosen(op, states[0])]) for state in after
                ]
            if not bodies.repeats:
                return after
            # Each turn raises a state, from none through an axis to mixed, or is the last one.
            joined = [known_as.join(op, pair) for pair in zip(states, after)]
            if joined == states:
                turns = self._turns(op, joined) if self._by_value else None
                if turns is not None:
                    joined = [
                        known_as.join(op, [state, known_as.chosen(op, turns)]) for state in joined
                    ]
                return joined
            states = joined

    def _turns(self, op: tf.Operation, given: Sequence[State]) -> State:
        """Returns the state of what says how many turns a loop takes."""
        condition = tf_internals.body_of(op, "cond")
        if condition is None or len(condition.inputs) != len(given):
            return next((state for state in given if state is not None), None)
        states = {subgraph.key_of(t): s for t, s in zip(condition.inputs, given) if s is not None}
        self.through(condition.get_operations(), states)
        return self.state(condition.outputs[0], states)

    def _by_gradient(self, op: tf.Operation, given: Sequence[State], states: dict) -> list[State]:
        """Reads the gradient that was written by hand: what it keeps apart, the op does."""
        why = "carries a custom gradient that is not seen to keep the examples apart"
        lost = known_as.first_mixed(given) or Mixed(op.name, op.type, why, False)
        wanted = [(t, state) for t, state in zip(op.inputs, given) if state is not None]
        axes = [state for _, state in wanted if isinstance(state, Example)]
        found = []
        for output in op.outputs:
            own = axes + [Example(a) for a in range(output.shape.rank or 0)]
            around = [states, *self._around]
            keeps = (
                _kept_by_gradient(op, output, wanted, axis, around) for axis in dict.fromkeys(own)
            )
            found.append(next((axis for axis in keeps if axis is not None), lost))
        return found


def _kept_by_gradient(
    op: tf.Operation,
    output: tf.Tensor,
    wanted: Sequence[tuple[tf.Tensor, State]],
    example: Example,
    around: Sequence[dict],
) -> Example | None:
    """Returns that example axis if a cotangent that has it gives each input one with its own.

    And none to inputs in which the examples are mixed already. None where it does not.
    """
    rank = output.shape.rank
    if not known_as.is_differentiable(output) or rank is None or rank <= example.axis:
        return None
    built = by_hand.pulled(output)
    if built is None:
        return None
    with built.graph.as_default():
        states: dict = {subgraph.key_of(built.cotangent): example}
        # Of the cotangent all that it does counts, also where that has no derivative.
        walk = _Walk(output.shape[example.axis], by_value=True, around=around)
        walk.through(built.graph.get_operations(), states)
    arrived = []
    for t, state in wanted:
        parts = [walk.state(b, states) for b in built.arrived(t)]
        arrived.append((state, known_as.join(op, parts)))
    pairs = [(state, pulled) for state, pulled in arrived if pulled is not None]
    if not all(state == pulled for state, pulled in pairs):
        return None
    flags = {
        name: all(getattr(e, name) for pair in pairs for e in pair) for name in ("certain", "sized")
    }
    return dataclasses.replace(example, **flags)
