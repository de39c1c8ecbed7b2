"""Ops whose every entry comes from the entry at its place: their local Jacobian is a diagonal."""

from __future__ import annotations

import tensorflow as tf

from tfjac import nominal
from tfjac.rules.kinds import OPAQUE, ZERO, Kind, Local, Rule, aligned, family, local


def _diagonal(op: tf.Operation, i: int, o: int) -> Local:
    return local(Kind.DIAGONAL, aligned(op, i, o))


def _identity(op: tf.Operation, i: int, o: int) -> Local:
    # IdentityN: output i is input i.
    return local(Kind.IDENTITY, aligned(op, i, o)) if i == o else ZERO


def _first_only(op: tf.Operation, i: int, o: int) -> Local:
    return _diagonal(op, i, o) if i == 0 else ZERO


def _by_condition(op: tf.Operation, i: int, o: int) -> Local:
    return _diagonal(op, i, o) if i > 0 else ZERO


def _select(op: tf.Operation, i: int, o: int) -> Local:
    # A condition of rank 1 chooses among rows; the values have the output's shape all the same.
    return _by_condition(op, i, o)


def _bias(op: tf.Operation, i: int, o: int) -> Local:
    if i == 0:
        return _diagonal(op, i, o)
    rank = op.outputs[o].shape.rank
    if rank is None:
        return local(Kind.DIAGONAL, None)
    channels_first = op.type == "BiasAdd" and op.get_attr("data_format") == b"NCHW"
    return Local(Kind.DIAGONAL, ((1 if channels_first else rank - 1, 0),))


def _per_channel(op: tf.Operation, i: int, o: int) -> Local:
    """Quantization by a range of numbers, or of vectors along the axis that it has for channels."""
    if i == 0:
        return _diagonal(op, i, o)
    rank, axis = op.outputs[o].shape.rank, -1
    if op.inputs[i].dtype.is_integer or op.inputs[i].shape.rank == 0:
        return Local(Kind.DIAGONAL) if op.inputs[i].dtype.is_floating else ZERO
    if op.type.startswith("QuantizeAndDequantize"):
        axis = op.get_attr("axis")
    if rank is None:
        return OPAQUE
    return Local(Kind.DIAGONAL, ((axis + rank if axis < 0 else axis, 0),))


def _flops_of_outputs(factor: float):
    def flops(op: tf.Operation) -> float:
        return factor * sum(nominal.entries(t) for t in op.outputs)

    return flops


_CHEAP = Rule(_diagonal, _flops_of_outputs(1))
_TRANSCENDENTAL = Rule(_diagonal, _flops_of_outputs(10))
_NO_DERIVATIVE = Rule(lambda op, i, o: ZERO, _flops_of_outputs(0))

TABLE: dict[str, Rule] = {
    **family("Identity IdentityN Snapshot CheckNumerics PreventGradient EnsureShape Copy DeepCopy "
             "DebugGradientIdentity DebugIdentityV2 GuaranteeConst RefIdentity ReadVariableOp",
             Rule(_identity, _flops_of_outputs(0), lambda op, i, example: example)),
    # One input.
    **family("Abs Cast Conj Imag Inv LeakyRelu Neg Real Reciprocal Relu Relu6 Square",
             _CHEAP),
    **family("Acos Acosh Angle Asin Asinh Atan Atanh BesselI0 BesselI0e BesselI1 BesselI1e "
             "BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 "
             "ComplexAbs Cos Cosh Dawsn Digamma Elu Erf Erfc Erfinv Exp Expint Expm1 "
             "FresnelCos FresnelSin Lgamma Log Log1p Ndtri Rsqrt Selu Sigmoid Sin Sinh "
             "Softplus Softsign Spence Sqrt Tan Tanh",
             _TRANSCENDENTAL),
    # Two, broadcast to each other.
    **family("Add AddV2 Complex Div DivNoNan FloorMod Maximum Minimum Mod Mul MulNoNan RealDiv "
             "SquaredDifference Sub TruncateMod", _CHEAP),
    **family("Atan2 Igamma Igammac IgammaGradA NextAfter Polygamma Pow Xdivy Xlog1py Xlogy Zeta "
             "RandomGammaGrad", _TRANSCENDENTAL),
    # Gradients of the ops above, which second derivatives go through.
    **family("EluGrad InvGrad LeakyReluGrad ReciprocalGrad Relu6Grad ReluGrad RsqrtGrad SeluGrad "
             "SigmoidGrad SoftplusGrad SoftsignGrad SqrtGrad TanhGrad", _CHEAP),
    # Several.
    **family("AccumulateNV2 AddN Betainc ClipByValue", _CHEAP),
    **family("BiasAdd BiasAddV1", Rule(_bias, _flops_of_outputs(1))),
    **family("Select SelectV2", Rule(_select, _flops_of_outputs(1))),
    **family("FakeQuantWithMinMaxArgs MatrixBandPart BatchMatrixBandPart",
             Rule(_first_only, _flops_of_outputs(1))),
    # The gradient passes straight through the steps, and not to a range.
    **family("QuantizeAndDequantize QuantizeAndDequantizeV2 QuantizeAndDequantizeV3",
             Rule(_first_only, _flops_of_outputs(2))),
    **family("FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel QuantizeAndDequantizeV4",
             Rule(_per_channel, _flops_of_outputs(2))),
    # Constant between steps, or whole numbers.
    **family("Ceil FloorDiv Floor OnesLike Rint Round Sign StopGradient TruncateDiv ZerosLike "
             "Bucketize Equal NotEqual Greater GreaterEqual Less LessEqual ApproximateEqual "
             "IsFinite IsInf IsNan ArgMax ArgMin Shape ShapeN Size Rank HistogramFixedWidth",
             _NO_DERIVATIVE),
}  # fmt: skip
