"""Which axis of each tensor numbers the examples, and where they mix. Reads; adds nothing.

Derivatives are what counts: what reaches y through an op without one, as a stop_gradient does,
leaves the examples apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from tfjac import graph_memo, rules, tf_internals
from tfjac.graph import lengths, naming, subgraph
from tfjac.rules import Example, Kind, known, sizes


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
        if self._by_value and _is_same_for_all(op):
            return [None] * len(op.outputs)
        return [
            _join(op, [self._moved(op, rule, i, o, given, states) for i in range(len(given))])
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
        return Mixed(op.name, op.type, "may bring different examples together", False)

    def _moved(self, op, rule: rules.Rule, i: int, o: int, given, states: dict) -> State:
        state = given[i]
        if state is None or not (self._by_value or _is_differentiable(op.inputs[i])):
            return None
        found = rule.local(op, i, o)
        if found.kind is Kind.ZERO or not _is_differentiable(op.outputs[o]):
            return _without_derivative(op, i, o, state) if self._by_value else None
        if isinstance(state, Mixed):
            return state
        moved = self._example(op, rule, i, o, state, states)
        if moved is None:
            return _lost(op, rule, found, i, state)
        if moved.by is None and not moved.sized and _meets_others(op, rule, i, o, moved.axis):
            return Mixed(op.name, op.type, "may broadcast examples of an unknown number", False)
        broadcast = _may_be_broadcast(op, rule, i, o, moved.axis, given)
        return dataclasses.replace(moved, certain=False) if broadcast else moved

    def _example(self, op, rule: rules.Rule, i: int, o: int, example: Example, states: dict):
        """Returns the example axis of an output; None where the examples are lost sight of."""
        if op.type == "DynamicPartition" and i == 0 and example.axis == 0:
            return naming.partitioned(op, o, example)
        counts = _Counts(self._outer, [states, *self._around])
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
            found = _summed(op, example, counts)
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
            return [_first_mixed(given) or Mixed(op.name, op.type, why, False)] * len(op.outputs)
        states = {
            subgraph.key_of(t): state for t, state in zip(body.inputs, given) if state is not None
        }
        same = [
            k for k in range(len(given)) if not bodies.repeats or _is_passed_on(body, k)
        ]  # what is the same in each turn of a loop
        outside = [list(op.inputs)[bodies.skip :][k] for k in same]
        with known.called_with([body.inputs[k] for k in same], outside):
            # What the body captures is among its inputs.
            self.through(body.get_operations(), states)
        found = [self.state(t, states) for t in body.outputs]
        outer = {} if bodies.repeats else _outer_names(op, bodies, body)
        return [_outside(op, state, body, outer) for state in found]

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
            after = [_join(op, of_each) for of_each in zip(*found)]
            if self._by_value and bodies.skip and states[0] is not None:
                after = [_join(op, [state, _chosen(op, states[0])]) for state in after]
            if not bodies.repeats:
                return after
            # Each turn raises a state, from none through an axis to mixed, or is the last one.
            joined = [_join(op, pair) for pair in zip(states, after)]
            if joined == states:
                turns = self._turns(op, joined) if self._by_value else None
                if turns is not None:
                    joined = [_join(op, [state, _chosen(op, turns)]) for state in joined]
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
        lost = _first_mixed(given) or Mixed(op.name, op.type, why, False)
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


def _is_passed_on(body: tf.Graph, k: int) -> bool:
    """Returns whether the body of a loop hands on its input `k` as it is."""
    tensor = body.outputs[k]
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor is body.inputs[k]


def _outer_names(op: tf.Operation, bodies: subgraph.Bodies, body: tf.Graph) -> dict[tuple, tuple]:
    """Returns, for the keys of what goes into a body or comes out, those outside."""
    pairs = [*zip(body.outputs, op.outputs), *zip(body.inputs, list(op.inputs)[bodies.skip :])]
    return {subgraph.key_of(inner): subgraph.key_of(outer) for inner, outer in pairs}


def _outside(op: tf.Operation, state: State, body: tf.Graph, outer: dict) -> State:
    """Returns a state as it is known outside a body, whose own indices are others at each call."""
    index = state.index if isinstance(state, One) else getattr(state, "by", None)
    if index is None or index[0] != id(body):
        return state
    name = outer.get(index[:2])
    if name is None:
        return Mixed(
            op.name, op.type, "gives examples that are named by an index of its own", False
        )
    if isinstance(state, One):
        return One(name)
    return dataclasses.replace(state, by=(*name, *index[2:]))


def _chosen(op: tf.Operation, condition: State) -> State:
    """Returns the state of what is chosen as a whole by a value that depends on examples."""
    if isinstance(condition, Mixed):
        return condition
    return Mixed(op.name, op.type, "chooses by a value of the examples", False)


class _Counts:
    """Which sizes are the number of examples: those of axes that number them.

    Args:
      outer: finds the tensors that those of bodies stand for.
      scopes: what is known of tensors, of a body and around it.

    Attributes:
      certain: whether that is so of all that were asked for, also where there is one example.
    """

    def __init__(self, outer: subgraph.OuterTensors, scopes: Sequence[dict]) -> None:
        self._outer, self._scopes = outer, scopes
        self.certain = True

    def has(self, size: sizes.Size) -> bool:
        """Returns whether a size is the number of examples."""
        if not isinstance(size, sizes.AxisSize):
            return False
        known_of = (scope.get(self._outer.find(size.tensor, scope)) for scope in self._scopes)
        found = next((state for state in known_of if state is not None), None)
        if found != Example(size.axis) or not found.sized:
            return False
        self.certain = self.certain and found.certain
        return True

    def same(self, size: sizes.Size) -> object:
        """Returns a size, the same one for all that are the number of examples."""
        return lengths.EXAMPLES if self.has(size) else size


def _summed(op: tf.Operation, example: Example, counts: _Counts) -> Example | None:
    """Returns the example axis of a sum over what was broadcast."""
    kept = lengths.kept_by_sum(op, counts.has)
    if kept is None or example.axis not in kept:
        return None
    if op.get_attr("keep_dims"):
        return example
    return dataclasses.replace(example, axis=kept.index(example.axis))


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
    if not _is_differentiable(output) or rank is None or rank <= example.axis:
        return None
    graph = tf_internals.scratch_graph(op.graph)
    with graph.as_default():
        # Any cotangent would do; this one is known to have the shape of the output.
        cotangent = tf.raw_ops.OnesLike(x=output)
        try:
            inputs = [t for t, _ in wanted]
            back = tf.gradients(output, inputs, cotangent, stop_gradients=list(op.inputs))
        except (NotImplementedError, TypeError, ValueError, LookupError):
            return None  # it was written for other uses
        states: dict = {subgraph.key_of(cotangent): example}
        # Of the cotangent all that it does counts, also where that has no derivative.
        walk = _Walk(output.shape[example.axis], by_value=True, around=around)
        walk.through(graph.get_operations(), states)
    arrived = [
        (state, None if t is None else walk.state(t, states)) for (_, state), t in zip(wanted, back)
    ]
    pairs = [(state, pulled) for state, pulled in arrived if pulled is not None]
    if not all(state == pulled for state, pulled in pairs):
        return None
    flags = {
        name: all(getattr(e, name) for pair in pairs for e in pair) for name in ("certain", "sized")
    }
    return dataclasses.replace(example, **flags)


def not_put_back(state: Example) -> Mixed:
    """Returns why examples that an op took by indices are not seen to stay apart."""
    why = "takes examples by indices that are not seen to put them back"
    return Mixed(*(state.taken or ("", "")), why, False)


def _lost(op: tf.Operation, rule: rules.Rule, found: rules.Local, i: int, state: Example) -> Mixed:
    """Returns why the examples are lost sight of in an op, and whether they surely mix in it."""
    if state.by is not None:
        return not_put_back(state)
    if found.kind is Kind.OPAQUE and rule.move is None:
        return Mixed(op.name, op.type, "has sizes or axes that the graph does not tell", False)
    why = f"{_VERB[found.kind]} the axis that numbers the examples"
    shape = op.inputs[i].shape
    alone = shape.rank is not None and 0 <= state.axis < shape.rank and shape[state.axis] == 1
    certain = found.kind in (Kind.MIXING, Kind.WINDOW) and not alone and not naming.reads(op)
    told = all(known.values(t) is not None for t in op.inputs if t.dtype.is_integer)
    return Mixed(op.name, op.type, why, certain and told)


def _is_same_for_all(op: tf.Operation) -> bool:
    """Returns whether an op gives what does not depend on the values of its inputs."""
    if op.type in _OF_SIZES:
        return True
    # A tensor is equal to itself, unless it may be not a number.
    alike = len({subgraph.key_of(t) for t in op.inputs}) == 1
    return op.type in ("Equal", "NotEqual") and alike and not _is_differentiable(op.inputs[0])


def _without_derivative(op: tf.Operation, i: int, o: int, state: State) -> State:
    """Returns the state of what depends on an input by value alone."""
    if isinstance(state, Mixed):
        return state
    if op.type in _BY_PLACE and isinstance(state, Example):
        links = rules.rule_for("Mul" if len(op.inputs) > 1 else "Abs").local(op, i, o).links
        moved = [out for out, given in links if given == state.axis]
        if moved:
            return dataclasses.replace(state, axis=moved[0])
    return Mixed(op.name, op.type, "depends on values of the examples", False)


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
    taken = next((s for s in found if isinstance(s, Example) and s.by is not None), None)
    if taken is not None:
        return not_put_back(taken)
    why = "brings different axes that number the examples together"
    return Mixed(op.name, op.type, why, all(isinstance(state, Example) for state in found))


def _is_differentiable(tensor: tf.Tensor) -> bool:
    return subgraph.carries_derivative(tensor)


# What these give depends on shapes alone.
_OF_SIZES = frozenset(
    {"BroadcastGradientArgs", "OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"}
)

# Each entry of their outputs comes from the entry at its place, without a derivative.
_BY_PLACE = frozenset(
    {"ApproximateEqual", "Cast", "Ceil", "Equal", "Floor", "FloorDiv", "Greater", "GreaterEqual",
     "IsFinite", "IsInf", "IsNan", "Less", "LessEqual", "NotEqual", "Rint", "Round", "Select",
     "SelectV2", "Sign", "StopGradient", "TruncateDiv"}
)  # fmt: skip

_VERB = {
    Kind.IDENTITY: "does not keep",
    Kind.DIAGONAL: "broadcasts against",
    Kind.SELECTION: "moves entries along",
    Kind.MIXING: "mixes entries along",
    Kind.WINDOW: "mixes entries along",
    Kind.OPAQUE: "does not keep",
}
