"""What may be known of a tensor: which axis numbers the examples, or where they mix."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import tensorflow as tf

from tfjac import rules
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


class Counts:
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


def summed(op: tf.Operation, example: Example, counts: Counts) -> Example | None:
    """Returns the example axis of a sum over what was broadcast."""
    kept = lengths.kept_by_sum(op, counts.has)
    if kept is None or example.axis not in kept:
        return None
    if op.get_attr("keep_dims"):
        return example
    return dataclasses.replace(example, axis=kept.index(example.axis))


def may_be_broadcast(op, rule: rules.Rule, i: int, o: int, axis: int, given) -> bool:
    """Returns whether an input of unknown size could be one, and broadcast against a constant."""
    return _size_is_unknown(op, rule, i, o, axis) and any(
        given[j] is None and axis in _linked_axes(op, rule, j, o)
        for j in range(len(op.inputs))
        if j != i
    )


def meets_others(op, rule: rules.Rule, i: int, o: int, axis: int) -> bool:
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
    if op.type == "SelectV2" and j == 0:
        # The condition passes no derivative on, but the others are broadcast to it too.
        given, out = op.inputs[0].shape, op.outputs[o].shape
        if given.rank is None or out.rank is None:
            return []
        return [out.rank - given.rank + a for a, n in enumerate(given) if n not in (None, 1)]
    return [out_axis for out_axis, _ in rule.local(op, j, o).links]


def is_passed_on(body: tf.Graph, k: int) -> bool:
    """Returns whether the body of a loop hands on its input `k` as it is."""
    tensor = body.outputs[k]
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor is body.inputs[k]


def outer_names(op: tf.Operation, bodies: subgraph.Bodies, body: tf.Graph) -> dict[tuple, tuple]:
    """Returns, for the keys of what goes into a body or comes out, those outside."""
    pairs = [*zip(body.outputs, op.outputs), *zip(body.inputs, list(op.inputs)[bodies.skip :])]
    return {subgraph.key_of(inner): subgraph.key_of(outer) for inner, outer in pairs}


def outside(op: tf.Operation, state: State, body: tf.Graph, outer: dict) -> State:
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


def chosen(op: tf.Operation, condition: State) -> State:
    """Returns the state of what is chosen as a whole by a value that depends on examples."""
    if isinstance(condition, Mixed):
        return condition
    return Mixed(op.name, op.type, "chooses by a value of the examples", False)


def not_put_back(state: Example) -> Mixed:
    """Returns why examples that an op took by indices are not seen to stay apart."""
    why = "takes examples by indices that are not seen to put them back"
    return Mixed(*(state.taken or ("", "")), why, False)


def lost(op: tf.Operation, rule: rules.Rule, found: rules.Local, i: int, state: Example) -> Mixed:
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


def is_same_for_all(op: tf.Operation) -> bool:
    """Returns whether an op gives what does not depend on the values of its inputs."""
    if op.type in _OF_SIZES:
        return True
    # A tensor is equal to itself, unless it may be not a number.
    alike = len({subgraph.key_of(t) for t in op.inputs}) == 1
    return op.type in ("Equal", "NotEqual") and alike and not is_differentiable(op.inputs[0])


def without_derivative(op: tf.Operation, i: int, o: int, state: State) -> State:
    """Returns the state of what depends on an input by value alone."""
    if isinstance(state, Mixed):
        return state
    if op.type in _BY_PLACE and isinstance(state, Example):
        links = rules.rule_for("Mul" if len(op.inputs) > 1 else "Abs").local(op, i, o).links
        moved = [out for out, given in links if given == state.axis]
        if moved:
            return dataclasses.replace(state, axis=moved[0])
    return Mixed(op.name, op.type, "depends on values of the examples", False)


def first_mixed(states: Iterable[State]) -> Mixed | None:
    """Returns the first state in which examples are not seen to stay apart."""
    return next((state for state in states if isinstance(state, Mixed)), None)


def join(op: tf.Operation, states: Iterable[State]) -> State:
    """Returns what is known of a tensor that is made of several."""
    found = [state for state in states if state is not None]
    mixed = first_mixed(found)
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


def is_differentiable(tensor: tf.Tensor) -> bool:
    """Returns whether derivatives pass through a tensor."""
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
