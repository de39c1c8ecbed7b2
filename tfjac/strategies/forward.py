"""All columns at once: the pushforward under a vectorized map."""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

from tfjac import sweeps
from tfjac.strategies import base, mapping

# Op types whose gradient is made of ops that have no gradient themselves, so that differentiating
# it a second time fails or, worse, gives None. `tests/contracts_test.py` checks each.
ONE_WAY = frozenset(
    {
        "CropAndResize",
        "Dilation2D",
        "FakeQuantWithMinMaxArgs",
        "FakeQuantWithMinMaxVars",
        "FakeQuantWithMinMaxVarsPerChannel",
        "FractionalAvgPool",
        "FractionalMaxPool",
        "LRN",
        "MaxPoolWithArgmax",
        "ResizeBicubic",
        "ResizeBilinear",
        "ResizeNearestNeighbor",
        "ScaleAndTranslate",
        "Softsign",
        "SparseSegmentMean",
        "SparseSegmentSqrtN",
        "SparseSegmentSum",
    }
)

# Op types whose second gradient gives zeros in TensorFlow 2.21 where the output has as many entries
# as the input: MaxPoolGradGrad then writes over the cotangent before it reads it.
POOLS = frozenset({"MaxPool", "MaxPool3D", "MaxPoolV2"})


@dataclasses.dataclass(frozen=True)
class Forward:
    """Maps the pushforward over the columns, `chunk_size` of them at a time.

    The pushforward is a vector-Jacobian product taken twice, which honours custom gradients and
    works through recurrent layers. Wins where x has fewer entries than y. Where an op with a body
    lies on the way, columns go one at a time, in a loop of the graph.

    Args:
      chunk_size: columns carried at once; None for all, "auto" for as many as fit
        `base.CHUNK_BYTES`.
    """

    chunk_size: int | str | None | base.MemoryBudget = "auto"
    name = "forward"

    def supports(self, problem: base.Problem) -> base.Support:
        """Says no where the gradient of some op cannot be differentiated again."""
        types = [(op, op.type) for op in problem.ops]
        types += [(op, node.op) for op, node in problem.inner_nodes]
        for op, op_type in types:
            place = base.named(op) if op_type == op.type else f"a {op_type} within {base.named(op)}"
            if op_type in ONE_WAY:
                return base.Support(
                    False, f"the gradient of {place} cannot be differentiated again"
                )
        if not second_gradients(problem).ok:
            return second_gradients(problem)
        if any(source.dtype.is_complex for source in problem.sources) and (
            not problem.y.dtype.is_complex
        ):
            return base.Support(
                False,
                "the source is complex and the target is not, so that one "
                "tangent does not give a whole column",
            )
        return mapping.supports_inner_compilation(problem)

    def cost(self, problem: base.Problem) -> base.Cost:
        """Counts one product per column: all but the tangent's own ops is pruned when it runs."""
        return base.Cost(
            problem.columns,
            self._seconds(problem),
            graph_ops=16 * len(problem.ops) + 20,
            chunk_size=self._chunk(problem),
            under_way=sweeps.TURNS_AT_ONCE if _goes_one_by_one(problem) else 1,
        )

    def _seconds(self, problem: base.Problem) -> float:
        if _has_custom_gradient(problem):
            # One that is not linear in its cotangent, as where it clips, has no pushforward, and
            # only its values would show it. So "auto" comes here last; who names it answers.
            return math.inf
        found, columns = problem.kernels, problem.expected_columns
        if _goes_one_by_one(problem):
            carried = columns * base.pass_seconds(found.forward, 1 + 2 * found.turns)
        else:
            carried = mapping.mapped_seconds(found.forward, columns, found.turns)
        written = base.written_seconds(problem, transposed=True)
        return base.value_seconds(problem) + carried + written

    def build(self, problem: base.Problem) -> list[tf.Tensor | None]:
        """Adds one map for each source."""
        return [self._by(problem, source) for source in problem.sources]

    def _by(self, problem: base.Problem, source: base.Source) -> tf.Tensor | None:
        push = sweeps.pushforward(problem.y, [source])
        if push.function is None:
            return None
        units = base.forward_units(problem, source)
        if _goes_one_by_one(problem):
            (columns,) = sweeps.map_in_loop(push, units)
        else:
            chunk = base.chunk_size_at_run_time(problem, self.chunk_size, units.size)
            (columns,) = mapping.mapped(problem, push, units, chunk)
        return base.from_columns(problem, source, columns)

    def _chunk(self, problem: base.Problem) -> int | None:
        return 1 if _goes_one_by_one(problem) else base.chunk_size_for(problem, self.chunk_size)


def second_gradients(problem: base.Problem) -> base.Support:
    """Says no where TensorFlow's second gradient of an op is wrong."""
    for op in problem.ops:
        if op.type in POOLS and op.inputs[0].shape.is_compatible_with(op.outputs[0].shape):
            return base.Support(
                False,
                f"the second gradient of {base.named(op)} may be wrong, as its output is as large "
                "as its input",
            )
    return base.SUPPORTED


def _goes_one_by_one(problem: base.Problem) -> bool:
    return mapping.has_no_second_map(problem) or bool(mapping.unsafe_when_batched(problem))


def _has_custom_gradient(problem: base.Problem) -> bool:
    inner = [node for _, node in problem.inner_nodes]
    return problem.is_by_hand or any(
        not node.op or "_gradient_op_type" in node.attr for node in inner
    )
