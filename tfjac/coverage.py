"""Which op types the layers of Keras are made of, and which of them have a rule."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfjac import rules
from tfjac.graph import subgraph

# What layers are made with, the first that works; and shapes of what they are called on.
_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {},
    {"units": 3},
    {"filters": 2, "kernel_size": 2},
    {"kernel_size": 2},
    {"pool_size": 2},
    {"factor": 0.2},
    {"rate": 0.5},
    {"stddev": 0.5},
    {"num_heads": 2, "key_dim": 3},
    {"num_query_heads": 4, "num_key_value_heads": 2, "head_dim": 3},
    {"n": 2},
    {"dims": (2, 1)},
    {"target_shape": (-1,)},
    {"height": 4, "width": 4},
    {"scale": 2.0},
    {"groups": 2},
    {"axes": 1},
    {"activation": "tanh"},
    {"function": tf.tanh},
    {"size": 2},
    {"output_size": 2},
    {"equation": "ab,bc->ac", "output_shape": 3},
)
_SHAPES = ((2, 6), (2, 5, 6), (2, 6, 6, 4), (2, 6, 6, 6, 4), (2, 3, 6, 6, 4))


@dataclasses.dataclass(frozen=True)
class Coverage:
    """What was found.

    Args:
      layers: for each layer that could be called, the op types between its input and output.
      not_called: names of layers that could not, being no maps of floating tensors, or wanting
        arguments of their own.
    """

    layers: dict[str, frozenset[str]]
    not_called: tuple[str, ...]

    @property
    def op_types(self) -> frozenset[str]:
        """The op types of all layers."""
        return frozenset(itertools.chain.from_iterable(self.layers.values()))

    def without_rule(self) -> dict[str, list[str]]:
        """Returns the op types that have no rule, each with the layers that it is in."""
        known = set(rules.op_types()) | subgraph.WITH_BODY
        return {
            op_type: sorted(name for name, types in self.layers.items() if op_type in types)
            for op_type in sorted(self.op_types - known)
        }


def of_keras() -> Coverage:
    """Returns the coverage of the layers of the Keras that is installed, training and not."""
    found: dict[str, frozenset[str]] = {}
    failed = []
    for name, layer in inspect.getmembers(tf.keras.layers, inspect.isclass):
        types = _types_of(layer)
        if types:
            found[name] = types
        else:
            failed.append(name)
    return Coverage(found, tuple(failed))


def report(coverage: Coverage) -> str:
    """Returns it as text."""
    missing = coverage.without_rule()
    lines = [
        f"{len(rules.op_types())} op types have a rule.",
        f"{len(coverage.layers)} Keras layers are made of {len(coverage.op_types)} op types, "
        f"of which {len(coverage.op_types) - len(missing)} have a rule or are entered.",
    ]
    lines += [f"no rule: {name} (in {', '.join(layers)})" for name, layers in missing.items()]
    return "\n".join([*lines, f"not called: {', '.join(coverage.not_called)}"])


def _types_of(layer: type) -> frozenset[str]:
    for make, shape, twice in itertools.product(_ways(layer), _SHAPES, (False, True)):
        types: set[str] = set()
        for training in (False, True):
            types |= _traced_types(make, shape, twice, training)
        if types:
            return frozenset(types)
    return frozenset()


def _ways(layer: type) -> Iterator[Any]:
    known = inspect.signature(layer).parameters
    for arguments in _ARGUMENTS:
        if all(name in known or "kwargs" in known for name in arguments):
            yield lambda arguments=arguments: layer(**arguments)


def _traced_types(make: Any, shape: Sequence[int], twice: bool, training: bool) -> set[str]:
    types: set[str] = set()

    def call(layer, x):
        return layer([x, tf.sin(x)] if twice else x, **_training(layer, training))

    def traced(x):
        y = tf.nest.flatten(call(layer, x))[0]
        types.update(_all_types(subgraph.ops_between(y, [x])))
        return x

    try:
        layer = make()
        call(layer, tf.ones(shape))  # makes its variables
        tf.function(traced, autograph=False).get_concrete_function(tf.TensorSpec(shape))
    except Exception:  # noqa: BLE001 (whatever a layer says of what does not suit it)
        return set()
    return types


def _training(layer: Any, training: bool) -> dict[str, bool]:
    return {"training": training} if "training" in inspect.signature(layer.call).parameters else {}


def _all_types(ops: Sequence[tf.Operation]) -> Iterator[str]:
    for op in ops:
        yield op.type
        bodies = subgraph.bodies(op)
        for graph in bodies.graphs if bodies else ():
            reached = {subgraph.key_of(t) for t in graph.inputs if subgraph.carries_derivative(t)}
            for inner in graph.get_operations():
                if any(subgraph.key_of(t) in reached for t in inner.inputs):
                    reached |= {
                        subgraph.key_of(t) for t in inner.outputs if subgraph.carries_derivative(t)
                    }
                    yield from _all_types([inner])
