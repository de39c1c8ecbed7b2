"""Which kernels one evaluation of a stretch of graph runs, and its products with vectors."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import tensorflow as tf

from tfjac import nominal, rates, rules, tf_internals
from tfjac.graph import subgraph
from tfjac.rates import Kernel

# Change what a tensor is called or how its axes are counted, and no entry.
_FREE = frozenset(
    {"EnsureShape", "ExpandDims", "Identity", "IdentityN", "Placeholder", "PlaceholderWithDefault",
     "ReadVariableOp", "Reshape", "Snapshot", "Squeeze", "StopGradient"}
)  # fmt: skip
_SUMS = frozenset({"Add", "AddN", "AddV2", "BiasAdd", "Sub"})
_PRODUCTS = frozenset({"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "MatMul"})
_CONVOLUTIONS = frozenset(
    {"Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "Conv3D", "Conv3DBackpropFilterV2",
     "Conv3DBackpropInputV2"}
)  # fmt: skip
_FUNCTIONS = frozenset(
    {"Elu", "Erf", "Erfc", "Exp", "Expm1", "Log", "Log1p", "LogSoftmax", "Pow", "Rsqrt", "Selu",
     "Sigmoid", "Softmax", "Softplus", "Sqrt", "Tanh"}
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Run:
    """A kernel that is run for one vector, and how it grows with the number of vectors.

    Args:
      op: whose it is.
      kernel: its class.
      flops: of one vector.
      read: bytes that each vector has for itself.
      shared: bytes that are read once for all.
      written: bytes for each vector.
      side: see `Rates.seconds`.
      width: likewise.
      count: likewise, of one vector.
      weights: likewise.
      times: how often it is run, in turns of a loop.
    """

    op: tf.Operation
    kernel: Kernel
    flops: float
    read: float
    shared: float
    written: float
    side: float
    width: int
    count: float = 1.0
    weights: float = 0.0
    times: float = 1.0

    def seconds(self, vectors: float = 1.0) -> float:
        """Returns how long it takes for vectors that are carried together."""
        each = rates.current().seconds(
            self.kernel,
            vectors * self.flops,
            vectors * self.read + self.shared,
            vectors * self.written,
            self.side,
            self.width,
            vectors * self.count,
            self.weights,
        )
        return self.times * each


@dataclasses.dataclass(frozen=True, eq=False)
class Kernels:
    """The kernels of some ops, and of the gradients of what lies on the way.

    Args:
      value: of one evaluation.
      reverse: of one vector-Jacobian product.
      forward: of one Jacobian-vector product.
      turns: of loops of the graph, in one evaluation.
    """

    value: tuple[Run, ...]
    reverse: tuple[Run, ...]
    forward: tuple[Run, ...]
    turns: float


def kernels_of(ops: Sequence[tf.Operation], starts: Iterable[tf.Tensor]) -> Kernels:
    """Returns the kernels of ops in topological order, bodies of functions and loops included.

    Args:
      ops: the ops between the starts and a target.
      starts: where paths begin.
    """
    value, reverse, forward, turns = [], [], [], 0.0
    for op, times, depends in _all_ops(ops, {subgraph.key_of(t) for t in starts}):
        value += _run(op, times)
        reverse += _pulled(op, times, depends)
        forward += _pushed(op, times, depends)
        turns += times if op.type == "While" or op.type == "StatelessWhile" else 0.0
    return Kernels(tuple(value), tuple(reverse), tuple(forward), turns)


def seconds(runs: Iterable[Run], vectors: float = 1.0) -> float:
    """Returns how long kernels take one after the other, for vectors that are carried together."""
    return sum(run.seconds(vectors) for run in runs)


def kernel_of(op: tf.Operation) -> tuple[Kernel, float]:
    """Returns the class of an op's kernel, and the side or channels that its speed depends on."""
    if op.type in _PRODUCTS:
        side = float(min([n for t in op.inputs[:2] for n in _last_two(t)], default=1))
        return (Kernel.BATCHED if _matrices_in(op) > 1 else Kernel.PRODUCT), side
    if op.type in _CONVOLUTIONS:
        return Kernel.CONVOLUTION, float(min(_last_two(op.inputs[1]), default=1))
    if op.type.startswith("DepthwiseConv2dNative"):
        return Kernel.DEPTHWISE, 64.0
    if "Pool" in op.type or op.type.startswith("Resize"):
        return Kernel.POOLING, 64.0
    return (Kernel.FUNCTION if op.type in _FUNCTIONS else Kernel.ELEMENTWISE), 64.0


def _matrices_in(op: tf.Operation) -> float:
    """Returns how many matrices a batched product multiplies."""
    both = [math.prod(nominal.shape_of(t)[:-2]) for t in op.inputs[:2]]
    return float(min(both)) if op.type in _PRODUCTS else 1.0


def weights_of(op: tf.Operation) -> float:
    """Returns the bytes of a convolution's filter."""
    return nominal.size_in_bytes(op.inputs[1]) if op.type in _CONVOLUTIONS else 0.0


def _last_two(tensor: tf.Tensor) -> list[int]:
    return nominal.shape_of(tensor)[-2:]


def _all_ops(ops, reached: set) -> Iterator[tuple[tf.Operation, float, Callable]]:
    """Yields ops with how often each is run, and what tells whether a tensor depends on the starts.

    Of a body all that carries derivatives is taken to depend on them.
    """
    waiting = [(op, 1.0, functools.partial(_is_among, reached)) for op in reversed(ops)]
    while waiting:
        op, times, depends = waiting.pop()
        reached.update(subgraph.key_of(t) for t in op.outputs)
        yield op, times, depends
        bodies = subgraph.bodies(op)
        if bodies is None:
            continue
        graphs = [graph for graph in bodies.graphs if graph is not None]
        inner = max((g.get_operations() for g in graphs), key=len, default=[])
        repeated = times * (turns_of(op) if bodies.repeats else 1.0)
        waiting += [(o, repeated, subgraph.carries_derivative) for o in reversed(inner)]


def _is_among(reached: set, tensor: tf.Tensor) -> bool:
    return subgraph.carries_derivative(tensor) and subgraph.key_of(tensor) in reached


def turns_of(op: tf.Operation) -> float:
    """Returns how often a loop is expected to go round: what it is bounded by, if that is seen."""
    graph = tf_internals.body_of(op, "cond")
    bounds = [] if graph is None else [t for o in graph.get_operations() for t in o.outputs]
    found = [tf.get_static_value(t) for t in [*op.inputs, *bounds] if _is_count(t)]
    return float(
        max([int(n) for n in found if n is not None and 0 < n < 1 << 20], default=nominal.SIZE)
    )


def _is_count(tensor: tf.Tensor) -> bool:
    return tensor.dtype.is_integer and tensor.shape.rank == 0


def _is_kernel(op: tf.Operation) -> bool:
    if op.type in _FREE or subgraph.bodies(op) is not None:
        return False
    return any(subgraph.carries_derivative(t) for t in op.outputs)


def _run(op: tf.Operation, times: float) -> list[Run]:
    return [_of(op, op.inputs, op.outputs, (), times)] if _is_kernel(op) else []


def _pulled(op: tf.Operation, times: float, depends) -> list[Run]:
    """Returns the kernels from a cotangent of the op's outputs to those of its inputs."""
    if not _is_kernel(op):
        return []
    outs = [t for t in op.outputs if subgraph.carries_derivative(t)]
    found = []
    for t in op.inputs:
        if depends(t) and outs and not (op.type in _SUMS and t.shape == outs[0].shape):
            others = [s for s in op.inputs if s is not t and subgraph.carries_derivative(s)]
            found.append(_of(op, outs[:1], [t], others, times))
    return found


def _pushed(op: tf.Operation, times: float, depends) -> list[Run]:
    """Returns the kernels from tangents of the op's inputs to those of its outputs."""
    if not _is_kernel(op):
        return []
    given = [t for t in op.inputs if depends(t)]
    others = [s for s in op.inputs if not depends(s) and subgraph.carries_derivative(s)]
    return [_of(op, [t], op.outputs[:1], others, times) for t in given]


def _of(op: tf.Operation, given, made, shared, times: float) -> Run:
    kernel, side = kernel_of(op)
    rule = rules.rule_of(op)
    if kernel is Kernel.FUNCTION:
        flops = nominal.entries(op.outputs[0])
    elif rule is not None and rule.flops is not None and kernel is not Kernel.ELEMENTWISE:
        flops = rule.flops(op)
    else:
        flops = 0.0
    sizes = [sum(nominal.size_in_bytes(t) for t in part) for part in (given, shared, made)]
    width, count, weights = made[0].dtype.size or 4, _matrices_in(op), weights_of(op)
    return Run(op, kernel, flops, *sizes, side, width, count, weights, times)
