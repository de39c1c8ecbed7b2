"""Which types of ops random programs draw, and why they do not draw others."""

from __future__ import annotations

import fuzz
import fuzz_ops
import tensorflow as tf

from tfjac import rules
from tfjac.rewriting import table


def known_types() -> set[str]:
    """Returns the types that have a rule or a replacement."""
    return set(rules.op_types()) | set(table.TABLE)


def drawn_types() -> set[str]:
    """Returns the types of the graphs of all calls and of their gradients."""
    with tf.Graph().as_default() as graph:
        for call in fuzz_ops.CALLS:
            _trace(call)
    definition = graph.as_graph_def()
    bodies = [node.op for f in definition.library.function for node in f.node_def]
    return {node.op for node in definition.node} | set(bodies)


def _trace(call: fuzz_ops.Call) -> None:
    program = fuzz.Program(
        (fuzz_ops.source_of(call, "", False),), ("x = x0", f"v = {call.code}"), "v"
    )
    x = tf.compat.v1.placeholder(tf.float64, call.shape)
    v = program.function()(x)
    y = tf.math.real(v) + tf.math.imag(v) if v.dtype.is_complex else v
    tf.gradients(tf.gradients(y * y, x)[0] * 2.0 if _is_twice(call) else y * y, x)


def _is_twice(call: fuzz_ops.Call) -> bool:
    return "Conv" in call.code or "conv" in call.code


_STEPS = "whole numbers, truth values or sizes: of no derivative"
_OLD = "an old form that no public call makes, with the rule of the form of today"
_REMOVED = "TensorFlow does not build it any more"
_NONE = "no derivative in TensorFlow, between x and y an error that names it"
_LIST = "of lists, as only other code than tf.TensorArray makes them"
_LATER = "made by the second gradient of another op, which is drawn"
_ROUNDED = "rounds, with a derivative that differences of values do not have; tests/rules_test.py"
_BY_REASON = {
    _STEPS: "ApproximateEqual ArgMax ArgMin Bucketize HistogramFixedWidth IsInf IsNan OnesLike "
    "Rank Size TruncateDiv",
    _OLD: "AccumulateNV2 BiasAddV1 CTCLossV2 FusedBatchNorm FusedBatchNormGrad FusedBatchNormV2 "
    "FusedBatchNormGradV2 ImageProjectiveTransformV2 InvGrad LinSpace Reverse SoftplusGrad TopK",
    _REMOVED: "BatchCholesky BatchMatrixBandPart BatchMatrixDeterminant BatchMatrixInverse "
    "BatchMatrixSolve BatchMatrixTriangularSolve RefIdentity",
    _NONE: "Copy DebugGradientIdentity DebugIdentityV2 DeepCopy GuaranteeConst HSVToRGB IRFFT3D Lu "
    "MatrixExponential MatrixLogarithm MatrixSolveLs Mod NextAfter RFFT3D RandomGammaGrad "
    "ResizeArea Snapshot TruncateMod",
    _LIST: "TensorListConcat TensorListConcatLists TensorListResize TensorListScatter "
    "TensorListScatterV2",
    _LATER: "CholeskyGrad",
    _ROUNDED: "FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel QuantizeAndDequantize "
    "QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4",
    "a Python function: tests/rewriting_test.py": "EagerPyFunc",
    "of a variable: tests/relations.py": "ReadVariableOp",
}
NEVER = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}
_SEGMENTS = "its kind is drawn without a number of segments; the audit samples this one"
NEVER |= {f"SparseSegment{k}WithNumSegments": _SEGMENTS for k in ("Mean", "SqrtN", "Sum")}
