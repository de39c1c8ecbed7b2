"""Every rule is checked against its op, on shapes that leave no two axes alike."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from tfjac import errors, rules
from tfjac.rules import Example, Kind, Local, Rule
from tfjac.testing import RuleError, check_rule


def spread(*shape, low=-2.0, high=2.1, seed=0, dtype=np.float64):
    """Returns numbers far enough apart that differences meet neither a kink nor a tie."""
    values = np.linspace(low, high, math.prod(shape))
    return np.random.default_rng(seed).permutation(values).reshape(shape).astype(dtype)


def single(*shape, **bounds):
    return spread(*shape, dtype=np.float32, **bounds)


def complexes(*shape, seed=0, dtype=np.complex128):
    return (spread(*shape, seed=seed) + 1j * spread(*shape, seed=seed + 1)).astype(dtype)


def definite(*shape, seed=0):
    """Returns symmetric positive definite matrices whose eigenvalues are far apart."""
    x = spread(*shape, low=-0.3, high=0.4, seed=seed)
    return x + np.swapaxes(x, -1, -2) + np.diag(np.arange(2.0, 2.0 + 2 * shape[-1], 2))


def invertible(*shape, seed=0):
    return spread(*shape, seed=seed) + np.diag(np.arange(3.0, 3.0 + shape[-1]))


def raw(op_type, *inputs, listed=None, **given):
    """Returns a sample: the op type, a function that builds one, its arguments and options.

    Args:
      op_type: as `tf.raw_ops` has it.
      *inputs: arrays, for the parameters that are not given, in their order.
      listed: the parameter that takes all the inputs as a list.
      **given: other parameters, and options of `check_rule`.
    """
    options = {k: given.pop(k) for k in ("tolerance", "check_value") if k in given}
    if any(x.dtype in (np.float32, np.complex64) for x in inputs):
        options.setdefault("tolerance", 1e-2)
    function = getattr(tf.raw_ops, op_type)

    def fn(*args):
        if listed:
            return function(**{listed: list(args)}, **given)
        names = [name for name in inspect.signature(function).parameters if name not in given]
        return function(**dict(zip(names, args)), **given)

    return op_type, fn, inputs, options


def public(op_type, fn, *inputs, **options):
    return op_type, fn, inputs, options


def identity(x):
    tf.raw_ops.Identity(input=x)  # not returned, for it would be through another one


def unary(types, *, low=-2.0, high=2.1, **options):
    """Returns samples of ops of one input, each of rank 2 and of one other rank."""
    others = itertools.cycle([(), (1, 2, 1, 2), (3,), (2, 1, 3)])
    return [
        raw(name, spread(*shape, low=low, high=high), **options)
        for name in types.split()
        for shape in ((2, 3), next(others))
    ]


PAIRS = [((3, 2), (3, 2)), ((2, 1, 3), (4, 1)), ((), (1, 2))]


def binary(types, first=(-2.0, 2.1), second=(-1.7, 2.6), pairs=PAIRS, dtype=np.float64, **options):
    """Returns samples of ops of two inputs, broadcast to each other in both directions."""
    return [
        raw(
            name,
            spread(*a, low=first[0], high=first[1], dtype=dtype),
            spread(*b, low=second[0], high=second[1], seed=1, dtype=dtype),
            **options,
        )
        for name in types.split()
        for a, b in pairs
    ]


def reduced(types, **bounds):
    samples = []
    for name in types.split():
        samples += [
            raw(name, spread(2, 3, 4, **bounds), axis=[1], keep_dims=False),
            raw(name, spread(2, 3, 4, **bounds), axis=[-1, 0], keep_dims=True),
            raw(name, spread(1, 3, 2, 2, **bounds), axis=[0, -2], keep_dims=False),
            raw(name, spread(3, 2, **bounds), axis=1, keep_dims=True),
            raw(name, spread(2, 3, **bounds), np.array([1], np.int32), keep_dims=True),
            raw(name, spread(3, **bounds), axis=[0], keep_dims=False),
        ]
    return samples


ALIKE = [((2, 3), (2, 3)), ((2, 1, 2), (2, 1, 2))]

# fmt: off
POINTWISE = [
    public("Identity", identity, spread(2, 3)),
    public("Identity", identity, spread(1, 3, 1, 2)),
    raw("IdentityN", spread(2, 3), spread(4), listed="input"),
    raw("IdentityN", spread(2), spread(2), spread(1, 2), listed="input"),
    raw("CheckNumerics", spread(2, 3), message="of the sample"),
    raw("EnsureShape", spread(2, 3), shape=[2, None]),
    raw("DebugIdentityV2", spread(2, 3)),
    *unary("Abs Neg Square Relu Asinh Atan BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 "
           "BesselJ1 Cos Cosh Dawsn Elu Erf Erfc Exp Expm1 FresnelCos FresnelSin LeakyRelu Selu "
           "Sigmoid Sin Sinh Softplus Softsign Tanh Ceil Floor OnesLike Rint Round Sign "
           "StopGradient ZerosLike"),
    raw("LeakyRelu", spread(3, 2), alpha=0.4),
    *unary("Relu6", low=-3.0, high=8.0),
    *unary("Acos Asin Atanh Erfinv", low=-0.8, high=0.9),
    *unary("Tan", low=-1.1, high=1.2),
    *unary("Acosh", low=1.3, high=3.0),
    *unary("BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Digamma Expint Lgamma Log "
           "Log1p Reciprocal Rsqrt Sqrt", low=0.4, high=2.9),
    *unary("Spence", low=1.2, high=1.9),
    *unary("Ndtri", low=0.1, high=0.8),
    raw("Cast", single(2, 3), DstT=tf.float64),
    raw("Cast", spread(2, 3), DstT=tf.float32, check_value=False, tolerance=1e-2),
    raw("Cast", complexes(2, 3), DstT=tf.complex64, tolerance=1e-2),
    raw("Cast", spread(3, 1), DstT=tf.complex128),
    *[raw("Conj", complexes(*shape)) for shape in ((2, 3), (1, 2, 1))],
    *[raw(name, complexes(*shape), Tout=tf.float64)
      for name in ("Angle", "ComplexAbs", "Imag", "Real") for shape in ((2, 3), (1, 2, 1))],
    *[raw(name, complexes(2, 2))
      for name in ("Exp", "Tanh", "Square", "Reciprocal", "Sqrt", "Log")],
    *binary("Add AddV2 DivNoNan Maximum Minimum Mul MulNoNan SquaredDifference Sub Atan2 FloorDiv"),
    *binary("Div RealDiv FloorMod", first=(3.1, 7.7), second=(0.73, 1.917)),
    *binary("Complex", Tout=tf.complex128),
    *binary("NextAfter", check_value=False),
    *binary("Igamma Igammac", first=(0.6, 2.9), second=(0.5, 2.8)),
    *binary("Pow Xdivy Xlog1py Xlogy", first=(0.6, 2.9), second=(0.5, 2.8)),
    # TensorFlow has no derivative by the first.
    raw("Polygamma", np.full((2, 3), 2.0), spread(3, low=0.6, high=2.5), check_value=False),
    raw("Polygamma", np.ones((2, 1)), spread(3, 1, 2, low=0.6, high=2.5), check_value=False),
    *binary("Zeta", first=(1.4, 3.0), second=(0.6, 2.5), check_value=False),
    raw("Mul", complexes(2, 1), complexes(3, seed=5)),
    raw("AddV2", complexes(2), complexes(3, 2, seed=5)),
    *binary("EluGrad ReluGrad SeluGrad SigmoidGrad SoftplusGrad TanhGrad", pairs=ALIKE),
    *binary("LeakyReluGrad", pairs=ALIKE, alpha=0.3),
    *binary("Relu6Grad", second=(-3.1, 8.0), pairs=ALIKE),
    *binary("ReciprocalGrad RsqrtGrad SqrtGrad", first=(0.5, 2.1), pairs=ALIKE),
    raw("AddN", spread(2, 3), spread(2, 3, seed=1), listed="inputs"),
    raw("AddN", spread(1, 2, 2), listed="inputs"),
    # By the first two it has none.
    raw("Betainc", spread(2, 3, low=0.5, high=3.0), spread(2, 3, low=0.6, high=2.0, seed=1),
        spread(2, 3, low=0.1, high=0.8, seed=2), check_value=False),
    raw("Betainc", np.array(1.5), np.array(0.7), spread(3, low=0.1, high=0.8), check_value=False),
    raw("ClipByValue", spread(2, 3), np.array(-1.01), np.array(0.97)),
    raw("ClipByValue", spread(2, 3), spread(2, 3, low=-1.5, high=-0.4),
        spread(2, 3, low=0.3, high=1.7)),
    raw("BiasAdd", spread(2, 3), spread(3), data_format="NHWC"),
    raw("BiasAdd", spread(2, 1, 3, 4), spread(4), data_format="NHWC"),
    raw("BiasAdd", spread(2, 3, 1, 4), spread(3), data_format="NCHW"),
    raw("BiasAddV1", spread(2, 1, 3), spread(3)),
    raw("Select", np.array([[True, False, True], [False, False, True]]), spread(2, 3),
        spread(2, 3, seed=1)),
    raw("Select", np.array([True, False, True]), spread(3, 2), spread(3, 2, seed=1)),
    raw("Select", np.array(True), spread(3, 1), spread(3, 1, seed=1)),
    raw("SelectV2", np.array([[True], [False]]), spread(3), spread(2, 1, seed=1)),
    raw("SelectV2", np.array([True, False]), spread(3, 1), spread(2, 1, 1, seed=1)),
    raw("FakeQuantWithMinMaxArgs", single(2, 3), min=-1.0, max=1.5, check_value=False),
    raw("MatrixBandPart", spread(3, 4), num_lower=np.int64(1), num_upper=np.int64(0)),
    raw("MatrixBandPart", spread(2, 1, 3, 2), num_lower=np.int64(-1), num_upper=np.int64(1)),
]

MOVEMENT = [
    *[raw("Reshape", spread(*given), shape=out) for given, out in (
        ((2, 3, 4), [6, 4]), ((6, 4), [2, 3, 4]), ((2, 3, 4), [2, 12]), ((2, 12), [2, -1, 4]),
        ((2, 3), [3, 2]), ((4, 3, 2), [2, 6, 2]), ((4, 6), [8, 3]), ((1, 3, 1, 2), [3, 2]),
        ((3, 2), [1, 3, 1, 2, 1]), ((2, 3, 4), [-1]), ((12,), [3, 1, 4]), ((1, 1), []),
        ((), [1, 1]), ((2, 1, 3), [1, 2, 3]), ((3, 4, 2), [3, 2, 4]), ((2, 2, 2, 3), [2, 4, 3]),
        ((0, 3), [3, 0]), ((6, 1, 2), [6, 2, 1]), ((2, 3, 2, 2), [6, 4]), ((1, 6), [6, 1]),
    )],
    raw("Reshape", spread(3, 2, 2), np.array([3, 4], np.int32)),
    raw("Reshape", complexes(2, 6), shape=[2, 2, 3]),
    raw("Squeeze", spread(1, 3, 1, 2), axis=[]),
    raw("Squeeze", spread(1, 3, 1, 2), axis=[0]),
    raw("Squeeze", spread(1, 3, 1, 2), axis=[-2]),
    raw("Squeeze", spread(3, 1, 1, 2), axis=[2, -3]),
    *[raw("ExpandDims", spread(2, 3), axis=axis) for axis in (0, 1, 2, -1, -2, -3)],
    raw("ExpandDims", np.array(0.3), axis=0),
    raw("ExpandDims", spread(2, 3), np.array(1, np.int32)),
    raw("Transpose", spread(2, 3), perm=[1, 0]),
    raw("Transpose", spread(2, 3, 4), perm=[2, 0, 1]),
    raw("Transpose", spread(2, 1, 3, 4), perm=[3, 1, 0, 2]),
    raw("Transpose", spread(3, 3), perm=[1, 0]),
    raw("Transpose", spread(2, 2, 2), perm=[1, 2, 0]),
    raw("Transpose", spread(2, 3), np.array([1, 0], np.int32)),
    raw("ConjugateTranspose", complexes(2, 3, 2), perm=[1, 2, 0]),
    raw("ConjugateTranspose", complexes(2, 2), perm=[1, 0]),
    raw("Slice", spread(3, 4), begin=[0, 1], size=[3, 2]),
    raw("Slice", spread(3, 4), begin=[0, 0], size=[-1, 3]),
    raw("Slice", spread(2, 3, 4), begin=[1, 0, 2], size=[-1, -1, -1]),
    raw("Slice", spread(5), begin=[2], size=[3]),
    raw("Slice", spread(3, 4), np.array([0, 1], np.int32), np.array([3, 2], np.int32)),
    public("Slice", lambda x, n: tf.raw_ops.Slice(input=x, begin=[0, 0], size=tf.stack([n, -1])),
           spread(3, 4), np.array(2, np.int32)),
    public("Slice",
           lambda x, n: tf.raw_ops.Slice(input=x, begin=tf.stack([0, n]), size=tf.stack([3, n])),
           spread(3, 4), np.array(1, np.int32)),
    *[public("StridedSlice", fn, spread(*shape)) for shape, fn in (
        ((4, 3), lambda x: x[1:3]),
        ((4, 3), lambda x: x[..., 0]),
        ((4, 3), lambda x: x[0]),
        ((4, 3), lambda x: x[-1, 1:]),
        ((4, 3), lambda x: x[:, tf.newaxis, 1:]),
        ((4, 3), lambda x: x[::2, ::-1]),
        ((4, 3), lambda x: x[-2:, ...]),
        ((4, 3), lambda x: x[0:4, 0:2]),
        ((4, 3), lambda x: x[:9, -3:]),
        ((4, 3), lambda x: x[:-1]),
        ((4, 3), lambda x: x[3:0:-2, :]),
        ((4, 4), lambda x: x[::-1, 1:]),
        ((2, 3, 4), lambda x: x[0, :, -1]),
        ((2, 3, 4), lambda x: x[tf.newaxis, ..., 1:, tf.newaxis]),
        ((2, 3, 4), lambda x: x[..., tf.newaxis, :]),
        ((2, 3, 4), lambda x: x[tf.newaxis, ..., 0, :]),
        ((2, 3, 4), lambda x: x[1, tf.newaxis, ..., ::3]),
        ((2, 3, 4), lambda x: x[:, 1]),
        ((2, 3, 4), lambda x: x[..., 1, tf.newaxis, ::2]),
        ((2, 2, 2, 2), lambda x: x[1, ..., 0]),
        ((2, 2, 2, 2), lambda x: x[:, 0, ..., tf.newaxis, ::-1]),
        ((2, 1, 3, 2), lambda x: x[..., tf.newaxis, tf.newaxis, 1, :]),
        ((5,), lambda x: x[1:4:2]),
        ((3, 2), lambda x: x[...]),
        ((3, 2), lambda x: x[2:2]),
    )],
    public("StridedSlice", lambda x, n: x[n:, :2], spread(3, 4), np.array(1, np.int32)),
    public("StridedSlice", lambda x, n: x[:, n], spread(3, 4), np.array(1, np.int32)),
    public("StridedSlice", lambda x, n: x[:n, tf.newaxis], spread(3, 4), np.array(2, np.int32)),
    ("StridedSliceGrad", lambda dy: tf.raw_ops.StridedSliceGrad(
        shape=[2, 5, 4], begin=[0, 1, 0], end=[2, 4, 0], strides=[1, 2, 1], dy=dy, end_mask=5),
     [spread(2, 2, 4)], {}),
    ("StridedSliceGrad", lambda dy: tf.raw_ops.StridedSliceGrad(
        shape=[3, 4], begin=[0, 1], end=[0, 2], strides=[1, 1], dy=dy, begin_mask=1, end_mask=1,
        shrink_axis_mask=2),
     [spread(3)], {}),
    raw("StridedSlice", spread(3, 4), begin=[2, 1], end=[0, 3], strides=[1, 1], begin_mask=1,
        end_mask=1),
    raw("StridedSlice", spread(3, 4), begin=[1, 0], end=[2, 4], strides=[1, 1], new_axis_mask=1,
        shrink_axis_mask=1),
    raw("StridedSlice", spread(3, 4), begin=[1, 0], end=[2, 4], strides=[1, 1], shrink_axis_mask=1,
        begin_mask=1, end_mask=3),
    raw("StridedSlice", spread(2, 3, 2), begin=[7, 0], end=[7, 1], strides=[1, 1], ellipsis_mask=1,
        new_axis_mask=1),
    raw("Pad", spread(2, 3), paddings=[[0, 0], [1, 2]]),
    raw("Pad", spread(3, 1, 2), paddings=[[1, 0], [0, 0], [0, 1]]),
    raw("Pad", spread(2, 3), np.array([[0, 0], [1, 0]], np.int32)),
    # By the value to pad with it has none.
    raw("PadV2", spread(2, 3), np.array([[0, 1], [0, 0]], np.int32), np.array(0.4),
        check_value=False),
    raw("PadV2", spread(2, 1, 3), np.array(0.4), paddings=[[0, 0], [0, 2], [1, 0]],
        check_value=False),
    *[raw("MirrorPad", spread(2, 3, 1), paddings=[[0, 0], [2, 1], [0, 0]], mode=mode)
      for mode in ("REFLECT", "SYMMETRIC")],
    raw("MirrorPad", spread(3, 2), paddings=[[1, 2], [1, 0]], mode="SYMMETRIC"),
    raw("ConcatV2", spread(2, 3), spread(2, 1, seed=1), listed="values", axis=1),
    raw("ConcatV2", spread(2, 3, 2), spread(1, 3, 2, seed=1), spread(3, 3, 2, seed=2),
        listed="values", axis=-3),
    raw("ConcatV2", spread(2), spread(3), listed="values", axis=0),
    raw("Concat", spread(2, 3), spread(2, 2), listed="values", concat_dim=1),
    raw("Concat", spread(3, 1, 2), spread(1, 1, 2), listed="values", concat_dim=0),
    raw("Split", spread(3, 4), axis=1, num_split=2),
    raw("Split", spread(4, 2, 3), axis=-3, num_split=2),
    raw("Split", spread(2, 3), axis=0, num_split=1),
    raw("SplitV", spread(3, 6), size_splits=[1, 3, 2], axis=-1, num_split=3),
    raw("SplitV", spread(4, 2, 3), size_splits=[1, -1], axis=0, num_split=2),
    *[raw("Pack", spread(2, 3), spread(2, 3, seed=1), listed="values", axis=axis)
      for axis in (0, 1, -1, -2)],
    raw("Pack", spread(2, 2), spread(2, 2, seed=1), listed="values", axis=1),
    raw("Pack", np.array(0.1), np.array(0.2), listed="values", axis=0),
    raw("Unpack", spread(2, 3, 4), num=3, axis=-2),
    raw("Unpack", spread(2, 2), num=2, axis=0),
    raw("Unpack", spread(3, 1, 2), num=2, axis=2),
    raw("Tile", spread(2, 3), multiples=[1, 3]),
    raw("Tile", spread(2, 1, 3), multiples=[2, 4, 1]),
    raw("Tile", spread(2, 3), np.array([2, 1], np.int32)),
    public("Tile", lambda x, n: tf.raw_ops.Tile(input=x, multiples=tf.stack([n, 1])),
           spread(2, 3), np.array(2, np.int32)),
    raw("BroadcastTo", spread(3, 1), shape=[2, 3, 4]),
    raw("BroadcastTo", spread(1, 2), shape=[3, 2]),
    raw("BroadcastTo", np.array(0.7), shape=[2, 2]),
    raw("BroadcastTo", spread(2, 2), shape=[2, 2]),
    raw("Gather", spread(4, 3), indices=[2, 0, 2]),
    raw("Gather", spread(3, 2), np.array([[0, 2], [1, 1]], np.int32)),
    *[raw("GatherV2", spread(*shape), indices=indices, axis=axis, batch_dims=batch)
      for shape, indices, axis, batch in (
          ((4, 3), [2, 0, 2], 0, 0), ((2, 4, 3), [1, 3], -2, 0), ((2, 4), 3, 1, 0),
          ((3, 4), [[0, 2], [1, 1]], 1, 0), ((2, 4, 3), [[1, 0, 2], [3, 3, 3]], 1, 1),
          ((2, 3, 4), [[1, 0], [3, 3]], 2, 1), ((2, 3, 2), [[1, 0, 2, 2], [2, 0, 1, 1]], -2, -1),
          ((2, 3, 2, 2), [[1, 0, 1], [0, 0, 1]], 3, 1), ((2, 2, 3), [[1, 0], [2, 2]], 2, 2),
          ((3, 3), [0, 1, 2], 1, 0), ((2, 3, 4), [[[1], [0]], [[3], [2]]], 2, 1),
      )],
    raw("GatherV2", spread(3, 4), np.array([2, 0], np.int32), axis=1, batch_dims=0),
    *[raw("GatherNd", spread(*shape), indices=indices) for shape, indices in (
        ((3, 2, 4), [[2], [0]]), ((3, 2, 4), [[2, 1], [0, 0], [2, 1]]),
        ((2, 3, 2), [[[1, 2, 0]], [[0, 0, 1]]]),
        ((3, 3, 2), [[[0], [1], [2]]]), ((3,), [[0], [2]]),
    )],
    raw("GatherNd", spread(3, 2), np.array([[2], [0]], np.int32)),
    raw("Reverse", spread(2, 3), dims=[False, True]),
    raw("Reverse", spread(2, 1, 3, 2), dims=[True, False, True, False]),
    raw("ReverseV2", spread(2, 3), axis=[-1]),
    raw("ReverseV2", spread(3, 2, 2), axis=[0, 2]),
    raw("ReverseV2", spread(3, 2), axis=np.zeros(0, np.int32)),
    raw("ReverseSequence", spread(2, 4, 3), seq_lengths=[3, 2], seq_dim=1, batch_dim=0),
    raw("ReverseSequence", spread(3, 2, 2), seq_lengths=[3, 1], seq_dim=0, batch_dim=2),
    raw("Roll", spread(3, 4), shift=1, axis=0),
    raw("Roll", spread(2, 3, 4), shift=[1, -1], axis=[-1, 1]),
    raw("Roll", spread(3, 3), shift=[2], axis=[-2]),
    raw("SpaceToDepth", spread(2, 2, 4, 3), block_size=2),
    raw("SpaceToDepth", spread(1, 3, 3, 2), block_size=3),
    raw("DepthToSpace", spread(2, 1, 2, 12), block_size=2),
    raw("SpaceToBatchND", spread(2, 4, 3), block_shape=[2], paddings=[[0, 0]]),
    raw("SpaceToBatchND", spread(1, 3, 2, 2), block_shape=[2, 3], paddings=[[1, 0], [0, 1]]),
    raw("SpaceToBatchND", spread(2, 3, 4, 1, 2), block_shape=[1, 2], paddings=[[0, 0], [2, 0]]),
    raw("BatchToSpaceND", spread(6, 2, 2), block_shape=[3], crops=[[1, 1]]),
    raw("BatchToSpaceND", spread(4, 1, 3, 2), block_shape=[2, 2], crops=[[0, 1], [1, 0]]),
    raw("MatrixDiag", spread(3)),
    raw("MatrixDiag", spread(2, 3)),
    raw("MatrixDiag", spread(1, 2, 2)),
    # The second version's gradient lays several diagonals out as the third would.
    *[raw(name, spread(*shape), k=k, num_rows=rows, num_cols=columns, padding_value=0.0,
          check_value=name[-1] == "3")
      for name in ("MatrixDiagV2", "MatrixDiagV3") for shape, k, rows, columns in (
          ((2, 3), 0, -1, -1), ((2, 3), 1, -1, -1), ((2, 2), [-1, -1], 3, 4),
          ((2, 3, 4), [-1, 1], 4, 4), ((3, 3), [-1, 1], 3, 3), ((2, 2, 2), [0, 1], 2, 3),
          ((3, 3, 3), [-1, 1], 3, 3),
      )],
    raw("MatrixDiagV3", spread(2, 2, 3), k=[-1, 0], num_rows=3, num_cols=3, padding_value=0.5,
        align="LEFT_LEFT"),
    raw("MatrixDiagPart", spread(3, 4)),
    raw("MatrixDiagPart", spread(2, 3, 2)),
    *[raw(name, spread(*shape), k=k, padding_value=0.0, check_value=name[-1] == "3")
      for name in ("MatrixDiagPartV2", "MatrixDiagPartV3") for shape, k in (
          ((3, 4), 1), ((2, 3, 4), [-1, 1]), ((2, 3, 3), 0), ((1, 3, 2, 4), [-1, 0]),
          ((3, 3, 3), [-1, 1]),
      )],
    raw("MatrixSetDiag", spread(2, 3, 4), spread(2, 3, seed=1)),
    raw("MatrixSetDiag", spread(3, 3), spread(3, seed=1)),
    *[raw(name, spread(*shape), spread(*diagonal, seed=1), k=k, check_value=name[-1] == "3")
      for name in ("MatrixSetDiagV2", "MatrixSetDiagV3") for shape, diagonal, k in (
          ((2, 3, 4), (2, 3), 0), ((2, 3, 4), (2, 2), -1), ((2, 3, 3), (2, 2, 3), [-1, 0]),
          ((3, 3), (3, 3), [-1, 1]),
      )],
    raw("Diag", spread(3)),
    raw("Diag", spread(2, 3)),
    raw("DiagPart", spread(4, 4)),
    raw("DiagPart", spread(2, 3, 2, 3)),
    *[raw("ScatterNd", np.array(indices, np.int32), spread(*updates), shape=shape)
      for indices, updates, shape in (
          ([[3], [1]], (2, 3), [4, 3]), ([[0, 2], [1, 0]], (2, 3), [2, 3, 3]),
          ([[[2], [0]]], (1, 2, 3), [3, 3]), ([[0, 1], [1, 1], [1, 2]], (3,), [2, 3]),
          ([[1], [1]], (2, 3), [2, 3]), ([[1], [0], [2]], (3, 3), [3, 3]),
      )],
    raw("ScatterNd", np.array([[1]], np.int32), spread(1, 3), np.array([2, 3], np.int32)),
    *[raw(name, spread(*shape), np.array(indices, np.int32), spread(*updates, low=-1.7, seed=1))
      for name in ("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub",
                   "TensorScatterMax", "TensorScatterMin", "ScatterNdNonAliasingAdd")
      for shape, indices, updates in (
          ((4, 3), [[3], [1]], (2, 3)), ((2, 3, 2), [[0, 2], [1, 0], [1, 1]], (3, 2)),
          ((2, 3), [[0, 1], [1, 1]], (2,)), ((3, 3), [[[2], [0]]], (1, 2, 3)),
      )],
    *[raw(name, spread(3, 2), np.array([[1], [1]], np.int32), spread(2, 2, seed=1))
      for name in ("TensorScatterAdd", "TensorScatterSub", "ScatterNdNonAliasingAdd")],
    raw("Fill", np.array(0.4), dims=[2, 3]),
    raw("Fill", np.array(0.4 + 0.2j), dims=[2, 3]),
    *[raw(name, spread(*shape), np.array(ids, np.int32))
      for name in ("SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin")
      for shape, ids in (((4, 3), [0, 0, 1, 2]), ((3,), [0, 1, 1]), ((3, 1, 2), [0, 0, 0]))],
    raw("SegmentSum", spread(3, 3), segment_ids=[0, 1, 2]),
    # An empty segment makes their gradient's gradient NaN.
    *[raw(name, spread(4, 3), segment_ids=[0, 0, 1, 3], check_value=name == "SegmentSum")
      for name in ("SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin")],
    *[raw(name, spread(*shape), segment_ids=ids, num_segments=count,
          check_value=set(range(count)) <= {*np.ravel(ids)})
      for name in ("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin",
                   "UnsortedSegmentProd")
      for shape, ids, count in (
          ((4, 3), [2, 0, 2, -1], 3), ((2, 3, 2), [[0, 1, 0], [3, 1, 0]], 4),
          ((2, 2), [[1, 0], [1, 1]], 2), ((3, 3), [1, 1, 2], 3), ((3, 2), [1, 1, 0], 2),
      )],
    *[raw(name, *[spread(*shape, seed=n) for n, shape in enumerate(shapes)], listed="data",
          indices=indices)
      for name in ("DynamicStitch", "ParallelDynamicStitch") for indices, shapes in (
          ([[2, 0], [1]], [(2, 3), (1, 3)]), ([3, [[0, 1], [2, 4]]], [(2,), (2, 2, 2)]),
          ([[1, 0, 2]], [(3,)]), ([[0, 1, 2]], [(3, 3)]),
      )],
    raw("TopKV2", spread(2, 5), k=3),
    raw("TopKV2", spread(2, 1, 4), k=4, sorted=False),
    raw("TopKV2", spread(4), k=1),
    raw("NthElement", spread(2, 5), n=2),
    raw("NthElement", spread(3, 1, 4), n=0, reverse=True),
    raw("ExtractImagePatches", spread(2, 3, 4, 2), ksizes=[1, 2, 2, 1], strides=[1, 1, 2, 1],
        rates=[1, 1, 1, 1], padding="VALID"),
    raw("ExtractImagePatches", spread(1, 4, 3, 1), ksizes=[1, 2, 1, 1], strides=[1, 2, 1, 1],
        rates=[1, 2, 1, 1], padding="SAME"),
]

MATRICES = [
    *[raw("MatMul", spread(*((2, 3)[::-1] if a else (2, 3))),
          spread(*((3, 4)[::-1] if b else (3, 4)), seed=1), transpose_a=a, transpose_b=b)
      for a in (False, True) for b in (False, True)],
    raw("MatMul", spread(3, 3), spread(3, 3, seed=1), transpose_a=True),
    raw("MatMul", complexes(2, 3), complexes(3, 1, seed=5)),
    raw("SparseMatMul", single(2, 3), single(4, 3, seed=1), transpose_b=True),
    raw("SparseMatMul", single(3, 2), single(3, 4, seed=1), transpose_a=True, a_is_sparse=True),
    *[raw(name, spread(2, *((2, 3)[::-1] if a else (2, 3))),
          spread(2, *((3, 1)[::-1] if b else (3, 1)), seed=1), adj_x=a, adj_y=b)
      for name in ("BatchMatMul", "BatchMatMulV2") for a in (False, True) for b in (False, True)],
    *[raw("BatchMatMulV2", spread(*x), spread(*y, seed=1), adj_x=a, adj_y=b) for x, y, a, b in (
        ((2, 1, 1, 3), (3, 3, 2), False, False), ((3, 2), (2, 1, 4, 3), True, True),
        ((2, 2, 3), (3, 1), False, False), ((1, 2, 2), (2, 2, 2), True, False),
        ((2, 2, 2), (1, 2, 2), False, True), ((2, 3), (3, 2), False, False),
    )],
    raw("BatchMatMulV2", complexes(2, 3, 2), complexes(1, 3, seed=5), adj_x=True, adj_y=True),
    raw("BatchMatMulV3", spread(2, 1, 3), spread(3, 2), Tout=tf.float64),
    raw("BatchMatMulV3", spread(2, 3, 1), spread(1, 2, 3, seed=1), Tout=tf.float64, adj_x=True,
        adj_y=True),
    *[raw("Einsum", *[spread(*shape, seed=n) for n, shape in enumerate(shapes)], listed="inputs",
          equation=equation)
      for equation, shapes in (
          ("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,jk->ki", [(2, 3), (3, 2)]), ("ij->ji", [(2, 3)]),
          ("ij->j", [(2, 3)]), ("ij->", [(2, 3)]), ("ii->i", [(3, 3)]), ("ii->", [(3, 3)]),
          ("iij->ji", [(2, 2, 3)]), ("i->ii", [(3,)]), ("i,j->ij", [(2,), (3,)]),
          ("ij,ij->i", [(2, 3), (2, 3)]), ("ij,j->ij", [(2, 3), (3,)]), ("bij,bjk->bik",
          [(2, 1, 3), (2, 3, 2)]), ("...ij,...jk->...ik", [(2, 1, 1, 2), (3, 2, 2)]),
          ("...i,i->...", [(2, 3, 2), (2,)]), ("b...,b->b...", [(2, 3, 2), (2,)]),
          ("...i,...j->ij...", [(2, 3), (1, 2)]), ("a...b->b...a", [(2, 3, 1, 2)]),
          ("...ii->...i", [(2, 3, 3)]), ("ij,jk->ij", [(2, 3), (3, 2)]),
          ("ii,ij->j", [(2, 2), (2, 3)]), ("...,...->...", [(2, 2), (1, 2)]),
          ("i...,...->i...", [(2, 3), (1, 3)]),
      )],
    raw("Einsum", complexes(2, 3), complexes(3, seed=5), listed="inputs", equation="ij,j->i"),
    *reduced("EuclideanNorm Max Mean Min Prod Sum"),
    raw("Sum", spread(2, 3), axis=np.zeros(0, np.int32), keep_dims=False),
    raw("Sum", spread(2, 2, 2), axis=[0], keep_dims=False),
    raw("Sum", np.array(0.3), axis=np.zeros(0, np.int32), keep_dims=True),
    raw("Sum", complexes(2, 3), axis=[0], keep_dims=False),
    # The exclusive one begins with minus infinity.
    *[raw(name, spread(*shape, low=0.3, high=1.9), axis=axis, exclusive=exclusive, reverse=reverse,
          check_value=not (exclusive and name == "CumulativeLogsumexp"))
      for name in ("Cumprod", "Cumsum", "CumulativeLogsumexp")
      for shape, axis, exclusive, reverse in (
          ((2, 4), 1, False, False), ((3, 2), 0, True, False), ((2, 3, 2), -2, False, True),
          ((1, 4), -1, True, True),
      )],
    raw("Cumsum", spread(2, 3), np.array(1, np.int32)),
    *[raw(name, spread(*shape)) for name in ("LogSoftmax", "Softmax")
      for shape in ((2, 3), (1, 4), (2, 1, 3), (3,))],
    raw("Cross", spread(2, 3), spread(2, 3, seed=1)),
    raw("Cross", spread(2, 1, 3), spread(2, 1, 3, seed=1)),
    raw("L2Loss", spread(2, 3)),
    raw("L2Loss", np.array(0.7)),
    # Of a symmetric matrix only a half is read, and gradients of both halves are the same.
    raw("Cholesky", definite(2, 3, 3), check_value=False),
    raw("Cholesky", definite(2, 2), check_value=False),
    raw("SelfAdjointEigV2", definite(2, 3, 3), compute_v=True, check_value=False),
    raw("SelfAdjointEigV2", definite(2, 2, 2), compute_v=False, check_value=False),
    raw("MatrixInverse", invertible(2, 3, 3), adjoint=False),
    raw("MatrixInverse", invertible(1, 2, 2), adjoint=True),
    raw("MatrixInverse", invertible(2, 2), adjoint=False),
    raw("MatrixSquareRoot", definite(2, 2, 2)),
    raw("MatrixDeterminant", invertible(2, 3, 3)),
    raw("MatrixDeterminant", invertible(3, 1, 2, 2)),
    raw("MatrixDeterminant", invertible(3, 3)),
    raw("LogMatrixDeterminant", invertible(2, 3, 3)),
    raw("LogMatrixDeterminant", invertible(2, 2)),
    raw("Qr", invertible(2, 3, 3), full_matrices=False),
    raw("Qr", spread(2, 3, 2), full_matrices=False),
    raw("Qr", invertible(1, 2, 2), full_matrices=True),
    raw("Svd", invertible(2, 3, 3), compute_uv=True, full_matrices=False),
    raw("Svd", spread(2, 3, 2), compute_uv=False, full_matrices=False, check_value=False),
    raw("Svd", spread(1, 2, 3), compute_uv=True, full_matrices=False, check_value=False),
    raw("Eig", definite(2, 2, 2), compute_v=True, Tout=tf.complex128, check_value=False),
    raw("Eig", definite(2, 2, 2), compute_v=False, Tout=tf.complex128, check_value=False),
    *[raw("MatrixSolve", invertible(*matrix), spread(*right, seed=1), adjoint=adjoint)
      for matrix, right, adjoint in (
          ((3, 3), (3, 2), False), ((2, 2, 2), (2, 2, 3), True), ((2, 2), (2, 2), True),
          ((1, 3, 3), (1, 3, 1), False),
      )],
    *[raw("MatrixTriangularSolve", invertible(*matrix), spread(*right, seed=1), lower=lower,
          adjoint=adjoint)
      for matrix, right, lower, adjoint in (
          ((3, 3), (3, 2), True, False), ((2, 2, 2), (2, 2, 3), False, True),
          ((2, 1, 2, 2), (3, 2, 1), True, True), ((2, 2), (3, 2, 2), False, False),
          ((2, 2, 2), (1, 2, 2), True, False),
      )],
    # By the regularizer TensorFlow has no derivative.
    raw("MatrixSolveLs", spread(2, 4, 2), spread(2, 4, 3, seed=1), np.array(0.3), fast=True,
        check_value=False),
    raw("MatrixSolveLs", spread(3, 2), spread(3, 2, seed=1), np.array(0.3), fast=True,
        check_value=False),
    *[raw(name, complexes(*shape)) for name, shape in (
        ("FFT", (3,)), ("FFT", (2, 4)), ("IFFT", (2, 1, 3)), ("FFT2D", (2, 3)),
        ("FFT2D", (2, 3, 2)), ("IFFT2D", (2, 2, 3)), ("FFT3D", (2, 3, 2)),
        ("FFT3D", (2, 2, 1, 3)), ("IFFT3D", (2, 2, 3, 1)),
    )],
    raw("RFFT", single(2, 4), fft_length=[4]),
    raw("RFFT", single(2, 1, 3), fft_length=[3]),
    raw("RFFT2D", single(2, 3, 4), fft_length=[3, 4]),
    raw("IRFFT", complexes(2, 3, dtype=np.complex64), fft_length=[4]),
    raw("IRFFT", complexes(2, 3, dtype=np.complex64), fft_length=[5]),
    raw("IRFFT2D", complexes(2, 2, 3, dtype=np.complex64), fft_length=[2, 4]),
    # Nothing is passed on from the statistics, nor to those given.
    *[raw(name, single(*shape), single(shape[-1], low=0.5, seed=1), single(shape[-1], seed=2),
          *[single(shape[-1] if infers else 0, low=0.4, seed=s) for s in (3, 4)],
          is_training=not infers, check_value=False)
      for name in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
      for infers in (False, True) for shape in ((2, 1, 2, 3), (2, 2, 1, 2))],
    raw("FusedBatchNormV3", single(2, 1, 3, 1, 2), single(2, seed=1), single(2, seed=2), single(0),
        single(0), data_format="NDHWC", check_value=False),
    raw("FusedBatchNormV3", single(2, 1, 3, 2), single(2, seed=1), single(2, seed=2),
        single(2, seed=3), single(2, low=0.4, seed=4), exponential_avg_factor=0.5,
        check_value=False),
    raw("LRN", single(2, 1, 3, 4), depth_radius=1, bias=1.5, alpha=0.7, beta=0.6),
    # What comes from the second output back to the labels is left out.
    raw("SoftmaxCrossEntropyWithLogits", spread(3, 4), spread(3, 4, low=0.1, high=0.9, seed=1),
        check_value=False),
    raw("SoftmaxCrossEntropyWithLogits", spread(1, 3), spread(1, 3, low=0.1, high=0.9, seed=1),
        check_value=False),
    raw("SparseSoftmaxCrossEntropyWithLogits", spread(3, 4), np.array([2, 0, 3])),
    raw("SparseSoftmaxCrossEntropyWithLogits", spread(3, 3), np.array([2, 0, 1])),
]

BOXES = np.array([[0.1, 0.2, 0.7, 0.9], [0.05, 0.3, 0.8, 0.6]], np.float32)
TURN = np.array([[0.9, 0.2, 0.1, -0.1, 0.8, 0.3, 0.0, 0.0]], np.float32)

NEIGHBORS = [
    *[raw("Conv2D", spread(*x), spread(*w, seed=1), strides=[1, *strides, 1], padding=padding,
          dilations=[1, *dilations, 1], explicit_paddings=explicit)
      for x, w, strides, padding, dilations, explicit in (
          ((2, 3, 4, 2), (2, 2, 2, 3), (1, 2), "VALID", (1, 1), []),
          ((1, 3, 2, 3), (2, 1, 3, 2), (2, 1), "SAME", (1, 1), []),
          ((2, 3, 2, 2), (2, 2, 2, 1), (1, 1), "EXPLICIT", (1, 1), [0, 0, 1, 0, 0, 1, 0, 0]),
          ((2, 2, 2, 2), (1, 1, 2, 2), (1, 1), "VALID", (1, 1), []),
      )],
    raw("Conv3D", spread(2, 2, 3, 2, 2), spread(1, 2, 2, 2, 3, seed=1), strides=[1, 1, 1, 1, 1],
        padding="VALID"),
    raw("Conv3D", spread(1, 2, 3, 2, 1), spread(2, 1, 1, 1, 2, seed=1), strides=[1, 1, 2, 1, 1],
        padding="SAME"),
    raw("DepthwiseConv2dNative", spread(2, 3, 2, 2), spread(2, 2, 2, 3, seed=1),
        strides=[1, 1, 1, 1], padding="VALID"),
    raw("DepthwiseConv2dNative", spread(2, 3, 3, 2), spread(2, 1, 2, 1, seed=1),
        strides=[1, 2, 2, 1], padding="SAME"),
    *[raw(name, spread(*w), spread(*g, seed=1), input_sizes=sizes, strides=strides, padding=padding)
      for name, sizes, w, g, strides, padding in (
          ("Conv2DBackpropInput", [2, 3, 4, 2], (2, 2, 2, 3), (2, 2, 2, 3), [1, 1, 2, 1], "VALID"),
          ("Conv2DBackpropInput", [1, 3, 3, 2], (2, 2, 2, 1), (1, 2, 2, 1), [1, 2, 2, 1], "SAME"),
          ("Conv3DBackpropInputV2", [2, 2, 2, 2, 1], (1, 2, 1, 1, 2), (2, 2, 1, 2, 2),
           [1, 1, 1, 1, 1], "VALID"),
          ("DepthwiseConv2dNativeBackpropInput", [2, 3, 2, 2], (2, 1, 2, 2), (2, 2, 2, 4),
           [1, 1, 1, 1], "VALID"),
      )],
    *[raw(name, spread(*x), spread(*g, seed=1), filter_sizes=sizes, strides=strides,
          padding="VALID")
      for name, sizes, x, g, strides in (
          ("Conv2DBackpropFilter", [2, 2, 2, 3], (2, 3, 4, 2), (2, 2, 2, 3), [1, 1, 2, 1]),
          ("Conv3DBackpropFilterV2", [1, 2, 1, 1, 2], (2, 2, 2, 2, 1), (2, 2, 1, 2, 2),
           [1, 1, 1, 1, 1]),
          ("DepthwiseConv2dNativeBackpropFilter", [2, 1, 2, 2], (2, 3, 2, 2), (2, 2, 2, 4),
           [1, 1, 1, 1]),
      )],
    raw("AvgPool", spread(2, 3, 4, 2), ksize=[1, 2, 2, 1], strides=[1, 1, 2, 1], padding="VALID"),
    raw("AvgPool", spread(1, 3, 2, 3), ksize=[1, 2, 1, 1], strides=[1, 2, 1, 1], padding="SAME"),
    raw("AvgPool3D", single(2, 2, 3, 2, 2), ksize=[1, 2, 2, 1, 1], strides=[1, 1, 1, 1, 1],
        padding="VALID"),
    raw("MaxPool", spread(2, 3, 4, 2), ksize=[1, 2, 2, 1], strides=[1, 1, 2, 1], padding="VALID"),
    raw("MaxPool", spread(1, 3, 2, 3), ksize=[1, 2, 1, 1], strides=[1, 2, 1, 1], padding="SAME"),
    raw("MaxPool3D", single(2, 2, 3, 2, 2), ksize=[1, 2, 2, 1, 1], strides=[1, 1, 1, 1, 1],
        padding="VALID"),
    raw("MaxPoolV2", spread(2, 3, 4, 2), ksize=[1, 2, 2, 1], strides=[1, 1, 2, 1], padding="VALID"),
    raw("MaxPoolWithArgmax", spread(2, 3, 4, 2), ksize=[1, 2, 2, 1], strides=[1, 1, 2, 1],
        padding="VALID"),
    *[raw(name, spread(2, 4, 3, 2), pooling_ratio=[1.0, 1.5, 1.2, 1.0], deterministic=True, seed=3,
          seed2=5) for name in ("FractionalAvgPool", "FractionalMaxPool")],
    raw("AvgPoolGrad", spread(2, 2, 2, 2), orig_input_shape=[2, 3, 4, 2], ksize=[1, 2, 2, 1],
        strides=[1, 1, 2, 1], padding="VALID"),
    raw("AvgPool3DGrad", single(2, 1, 2, 1, 2), orig_input_shape=[2, 2, 3, 1, 2],
        ksize=[1, 2, 2, 1, 1], strides=[1, 1, 1, 1, 1], padding="VALID"),
    *[raw(name, spread(2, 2, 4, 2), spread(2, 2, 4, 2).reshape(2, 2, 2, 2, 2).max(3),
          spread(2, 2, 2, 2, seed=1), ksize=[1, 1, 2, 1], strides=[1, 1, 2, 1], padding="VALID")
      for name in ("MaxPoolGrad", "MaxPoolGradV2")],
    raw("MaxPool3DGrad", single(2, 1, 2, 4, 2),
        single(2, 1, 2, 4, 2).reshape(2, 1, 2, 2, 2, 2).max(4), single(2, 1, 2, 2, 2, seed=1),
        ksize=[1, 1, 1, 2, 1], strides=[1, 1, 1, 2, 1], padding="VALID"),
    raw("Dilation2D", spread(2, 3, 4, 2), spread(2, 2, 2, low=-0.5, high=0.6, seed=1),
        strides=[1, 1, 2, 1], rates=[1, 1, 1, 1], padding="VALID"),
    raw("Dilation2D", spread(1, 4, 2, 3), spread(2, 1, 3, low=-0.5, high=0.6, seed=1),
        strides=[1, 1, 1, 1], rates=[1, 2, 1, 1], padding="SAME"),
    *[raw(name, single(*shape), size=size, **more)
      for name in ("ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor")
      for shape, size, more in (
          ((2, 2, 3, 2), [3, 2], {"half_pixel_centers": True}),
          ((1, 3, 2, 3), [2, 4], {"align_corners": True}),
          ((2, 2, 2, 2), [2, 2], {}),
      )],
    # By the boxes the nearest is differentiated as if it were bilinear.
    *[raw("CropAndResize", single(*shape), BOXES, box_ind=[1, 0], crop_size=[2, 3], method=method,
          check_value=method == "bilinear")
      for shape in ((2, 3, 4, 2), (2, 4, 3, 3)) for method in ("bilinear", "nearest")],
    raw("CropAndResize", single(3, 3, 3, 1), BOXES, box_ind=[2, 2], crop_size=[1, 2]),
    raw("ScaleAndTranslate", single(2, 3, 2, 2), size=[2, 4], scale=[0.8, 1.7],
        translation=[0.1, -0.2]),
    # Its gradient turns the image back, which is not the adjoint.
    raw("ImageProjectiveTransformV3", single(2, 3, 4, 2), TURN, output_shape=[3, 3],
        fill_value=0.0, interpolation="BILINEAR", check_value=False),
]

SPARSE = dict(a_indices=np.array([[0, 1], [1, 0], [1, 2]]), a_shape=np.array([2, 3]))
CTC = dict(labels_indices=np.array([[0, 0], [1, 0], [1, 1]]),
           labels_values=np.array([0, 1, 0], np.int32), sequence_length=np.array([4, 3], np.int32))

OTHERS = [
    # Constant between steps, with a gradient that passes straight through.
    raw("FakeQuantWithMinMaxVars", single(2, 3), np.float32(-1.5), np.float32(1.5),
        check_value=False),
    raw("FakeQuantWithMinMaxVarsPerChannel", single(2, 3), -np.ones(3, np.float32),
        np.ones(3, np.float32), check_value=False),
    *[raw(name, spread(2, 3), np.array(-1.0), np.array(1.0), range_given=True, check_value=False)
      for name in ("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4")],
    raw("QuantizeAndDequantizeV3", spread(2, 3), np.array(-1.0), np.array(1.0), num_bits=8,
        range_given=True, check_value=False),
    raw("TridiagonalSolve", spread(2, 3, 4) + np.array([[0.0], [5.0], [0.0]]),
        spread(2, 4, 3, seed=1), check_value=False),
    raw("TridiagonalMatMul", spread(2, 1, 4), spread(2, 1, 4, seed=1), spread(2, 1, 4, seed=2),
        spread(2, 4, 3, seed=3), check_value=False),
    raw("BandedTriangularSolve", spread(2, 2, 4) + np.array([[4.0], [0.0]]),
        spread(2, 4, 3, seed=1)),
    raw("BandedTriangularSolve", spread(2, 4) + np.array([[4.0], [0.0]]),
        spread(3, 4, 2, seed=1)),
    raw("IsotonicRegression", spread(3, 4), output_dtype=tf.float64, check_value=False),
    raw("ExtractVolumePatches", spread(2, 2, 3, 3, 1), ksizes=[1, 2, 2, 1, 1],
        strides=[1, 1, 1, 1, 1], padding="VALID"),
    raw("SparseTensorDenseMatMul", spread(3), spread(3, 4, seed=1), **SPARSE),
    raw("SparseTensorDenseMatMul", spread(3), spread(4, 3, seed=1), adjoint_b=True, **SPARSE),
    raw("SparseTensorDenseMatMul", spread(3), spread(2, 4, seed=1), adjoint_a=True, **SPARSE),
    raw("SparseToDense", spread(2), np.array(0.7), sparse_indices=[[0, 1], [1, 0]],
        output_shape=[2, 3]),
    raw("SparseReduceSum", spread(3), input_indices=np.array([[0, 1], [1, 0], [1, 2]]),
        input_shape=np.array([2, 3]), reduction_axes=[1]),
    raw("CTCLoss", spread(4, 2, 3), check_value=False, **CTC),
]

SAMPLES = [*POINTWISE, *MOVEMENT, *MATRICES, *NEIGHBORS, *OTHERS]

# TensorFlow has no derivative of these, so differences say where their entries come from.
WITHOUT_GRADIENT = [
    # Its gradient by one output alone fails in a graph (TensorFlow 2.21, in the dynamic stitch).
    raw("DynamicPartition", spread(4, 3), partitions=[1, 0, 1, 1], num_partitions=2),
    raw("DynamicPartition", spread(2, 2, 3), partitions=[[1, 0], [2, 1]], num_partitions=3),
    raw("DynamicPartition", spread(3), np.array([0, 1, 0], np.int32), num_partitions=2),
    raw("Snapshot", spread(2, 3)),
    raw("RGBToHSV", np.array([[0.2, 0.7, 0.4], [0.9, 0.1, 0.3]])),
    raw("HSVToRGB", np.array([[0.2, 0.7, 0.4], [0.9, 0.1, 0.3]])),
    raw("GuaranteeConst", spread(2, 3)),
    raw("Copy", spread(2, 3)),
    raw("DeepCopy", spread(2, 3)),
    *binary("Mod TruncateMod", first=(3.1, 7.7), second=(0.73, 1.917)),
    *binary("IgammaGradA RandomGammaGrad", first=(0.6, 2.9), second=(0.5, 2.8)),
    *binary("SoftsignGrad", pairs=ALIKE),
    raw("CholeskyGrad", np.linalg.cholesky(definite(2, 3, 3)), spread(2, 3, 3, seed=1)),
    raw("Lu", invertible(2, 3, 3)),
    raw("Lu", invertible(3, 3)),
    raw("MatrixLogarithm", definite(2, 2, 2).astype(np.complex128)),
    raw("RFFT3D", single(2, 2, 1, 3), fft_length=[2, 1, 3]),
    raw("IRFFT3D", complexes(2, 2, 1, 3, dtype=np.complex64), fft_length=[2, 1, 4]),
    raw("ResizeArea", single(2, 2, 3, 2), size=[3, 2]),
    raw("LinSpace", np.array(0.2), np.array(1.3), num=4),
    raw("Range", np.array(0.2), np.array(1.35), np.array(0.3)),
    raw("OneHot", np.array(0.7), np.array(-0.2), indices=[[0, 2, 1], [3, 0, 1]], depth=3, axis=1),
    raw("OneHot", np.array(0.7 + 0.1j), np.array(-0.2j), indices=[1, 0], depth=2),
    raw("PadV2", np.array([[0.3, 0.7]]), np.array(0.4), paddings=[[0, 0], [2, 1]]),
    # These have one, but not always a kernel for it.
    raw("AccumulateNV2", spread(2, 3), spread(2, 3, seed=1), spread(2, 3, seed=2),
        listed="inputs", shape=[2, 3]),
    raw("GatherNd", spread(3, 4), indices=[1]),
    raw("GatherNd", spread(3, 2), indices=np.zeros((2, 0), np.int32)),
    raw("RFFT", single(2, 5), fft_length=[3]),
    raw("Conv2D", spread(2, 4, 3, 1), spread(2, 2, 1, 2, seed=1), strides=[1, 1, 1, 1],
        padding="VALID", dilations=[1, 2, 1, 1]),
    raw("Conv2D", spread(2, 2, 3, 4), spread(1, 2, 2, 4, seed=1), strides=[1, 1, 1, 1],
        padding="VALID"),
    raw("ImageProjectiveTransformV3", single(1, 3, 3, 2), output_shape=[2, 4], transforms=TURN,
        fill_value=0.0, interpolation="NEAREST", fill_mode="WRAP"),
    raw("SoftmaxCrossEntropyWithLogits", spread(1, 3), spread(2, 3, low=0.1, high=0.9, seed=1)),
    raw("SoftmaxCrossEntropyWithLogits", spread(3, 2), spread(3, 1, low=0.1, high=0.9, seed=1)),
    raw("MaxPool", single(2, 1, 2, 4), ksize=[1, 1, 1, 2], strides=[1, 1, 1, 2], padding="VALID"),
    raw("MaxPool", single(2, 1, 2, 2), ksize=[1, 1, 1, 2], strides=[1, 1, 1, 2], padding="VALID"),
]

REASONS = {
    "gives no floating numbers":
        "ApproximateEqual ArgMax ArgMin Bucketize Equal Greater GreaterEqual HistogramFixedWidth "
        "IsFinite IsInf IsNan Less LessEqual NotEqual Rank Shape ShapeN Size",
    "takes or gives a list of tensors, which has no entries":
        "TensorListConcat TensorListConcatLists TensorListConcatV2 TensorListFromTensor "
        "TensorListGather TensorListGetItem TensorListPopBack TensorListPushBack "
        "TensorListResize TensorListScatter TensorListScatterV2 "
        "TensorListSetItem TensorListSplit TensorListStack",
    "cannot be built any more":
        "BatchCholesky BatchMatrixBandPart BatchMatrixDeterminant BatchMatrixInverse "
        "BatchMatrixSolve BatchMatrixTriangularSolve Inv InvGrad "
        "MatrixExponential TopK",
    "is another version of a quantization that is checked": "QuantizeAndDequantize",
    "has no kernel for the CPU": "CTCLossV2",
    "has a gradient that raises": "DebugGradientIdentity PreventGradient",
    "takes a variable, which has no entries": "ReadVariableOp RefIdentity",
    "takes whole numbers alone": "TruncateDiv",
}
NOT_CHECKED = {name: reason for reason, names in REASONS.items() for name in names.split()}
# fmt: on


def named(samples):
    count = itertools.count()
    return [f"{sample[0]}-{next(count)}" for sample in samples]


@pytest.mark.parametrize("op_type, fn, inputs, options", SAMPLES, ids=named(SAMPLES))
def test_the_rule_says_of_its_op_what_is_so(op_type, fn, inputs, options):
    check_rule(op_type, fn, *inputs, **options)


@pytest.mark.parametrize(
    "op_type, fn, inputs, options", WITHOUT_GRADIENT, ids=named(WITHOUT_GRADIENT)
)
def test_the_rule_of_an_op_without_a_gradient_agrees_with_differences(op_type, fn, inputs, options):
    function = tf.function(lambda *args: tf.nest.flatten(fn(*args)), autograph=False)
    graph = function.get_concrete_function(*map(tf.constant, inputs)).graph
    op = only(graph, op_type)
    for k, x in enumerate(inputs):
        if x.dtype.kind not in "fc":
            continue
        (i,) = [i for i, tensor in enumerate(op.inputs) if tensor is graph.inputs[k]]
        for o, reached in enumerate(reach(function, inputs, k)):
            found = rules.rule_for(op_type).local(op, i, o)
            shape = reached.shape[: reached.ndim - x.ndim]
            assert all(shape[b] == x.shape[a] for b, a in found.links), (i, o, found)
            wrong = reached & ~rules.allowed_entries(found, shape, x.shape)
            assert not np.any(wrong), (i, o, found, np.argwhere(wrong)[0])


def only(graph, op_type):
    (op,) = [op for op in graph.get_operations() if op.type == op_type]
    return op


def reach(function, inputs, k):
    """Returns for each output which of its entries follow which entry of input k."""
    h = np.finfo(inputs[k].dtype).eps ** (1 / 3)
    columns = []
    for position in np.ndindex(inputs[k].shape):
        moves = []
        for step in (h, 1j * h) if inputs[k].dtype.kind == "c" else (h,):
            sides = []
            for sign in (1, -1):
                args = [x.copy() for x in inputs]
                args[k][position] += sign * step
                sides.append([t.numpy() for t in function(*map(tf.constant, args))])
            moves.append([np.abs(a - b) / (2 * h) > 1e-3 for a, b in zip(*sides)])
        columns.append([np.logical_or.reduce(each) for each in zip(*moves)])
    return [np.stack(c, -1).reshape(c[0].shape + inputs[k].shape) for c in zip(*columns)]


def test_every_op_type_with_a_rule_is_sampled_or_it_is_said_why_not():
    sampled = {sample[0] for sample in [*SAMPLES, *WITHOUT_GRADIENT]}
    assert sorted(sampled | set(NOT_CHECKED)) == sorted(rules.op_types())
    assert not sampled & set(NOT_CHECKED)


def test_at_least_150_rules_are_checked_by_gradients():
    assert len({sample[0] for sample in SAMPLES}) >= 150


def built(sample, shape_of):
    """Returns the op on inputs of other static shapes; None where TensorFlow refuses them."""
    op_type, fn, inputs, _ = sample
    specs = [tf.TensorSpec(shape_of(x.shape), x.dtype) for x in inputs]
    try:
        graph = tf.function(fn, autograph=False).get_concrete_function(*specs).graph
    except ValueError:
        return None
    return only(graph, op_type)


def said(op):
    """Returns what the rule says of each output by each floating input."""
    pairs = itertools.product(range(len(op.inputs)), range(len(op.outputs)))
    rule = rules.rule_for(op.type)
    return {(i, o): rule.local(op, i, o) for i, o in pairs if op.inputs[i].dtype.is_floating}


def costs_a_number(op):
    flops = rules.rule_for(op.type).flops
    return flops is None or 0.0 <= flops(op) < math.inf


@pytest.mark.parametrize("op_type", sorted({sample[0] for sample in SAMPLES}))
def test_what_is_said_of_unknown_shapes_holds_for_the_known_and_all_have_a_cost(op_type):
    for sample in (sample for sample in SAMPLES if sample[0] == op_type):
        known_op = built(sample, lambda shape: shape)
        known = said(known_op)
        assert costs_a_number(known_op)
        for unknown in (lambda shape: [None] * len(shape), lambda shape: None):
            op = built(sample, unknown)
            if op is None:
                continue
            assert costs_a_number(op)
            for (i, o), found in said(op).items():
                for kind in (Kind.ZERO, Kind.IDENTITY):
                    assert (found.kind is kind) <= (known[i, o].kind is kind)
                for b, a in set(found.links) - set(known[i, o].links):
                    # A broadcast may have been taken for none, and nothing else.
                    assert known_op.inputs[i].shape[a] == 1 != known_op.outputs[o].shape[b]


def constantly(kind, *links):
    return Rule(lambda op, i, o: Local(kind, links))


# fmt: off
@pytest.mark.parametrize("op_type, rule, fn, x, message", [
    ("Tanh", constantly(Kind.ZERO), tf.tanh, spread(2, 3), "claims zero"),
    ("Cumsum", constantly(Kind.DIAGONAL, (0, 0), (1, 1)), lambda x: tf.cumsum(x, 1), spread(2, 3),
     "claims diagonal"),
    ("Softmax", constantly(Kind.MIXING, (0, 0), (1, 1)), tf.nn.softmax, spread(2, 3),
     r"claims mixing with links \(\(0, 0\), \(1, 1\)\)"),
    ("Transpose", constantly(Kind.SELECTION, (0, 0), (1, 1)), tf.transpose, spread(3, 3),
     "claims selection"),
    ("Transpose", constantly(Kind.SELECTION, (0, 0)), tf.transpose, spread(2, 3),
     "links axes 0 and 0 of sizes 3 and 2"),
    ("Transpose", constantly(Kind.SELECTION, (2, 0)), tf.transpose, spread(2, 3),
     "links axes 2 and 0 of shapes"),
    ("Neg", constantly(Kind.SELECTION, (0, 0), (1, 1)), tf.negative, spread(2, 3),
     "neither 0 nor 1"),
    ("Square", constantly(Kind.IDENTITY, (0, 0)), tf.square, spread(4), "neither 0 nor 1"),
    ("Sum", constantly(Kind.SELECTION, (0, 0)), lambda x: tf.reduce_sum(x, 1), spread(2, 3),
     "claims selection"),
    ("Cumsum", constantly(Kind.DIAGONAL), lambda x: tf.cumsum(x, 1), spread(2, 3),
     "claims diagonal"),
    ("Reverse", constantly(Kind.IDENTITY), lambda x: tf.raw_ops.Reverse(tensor=x, dims=[True]),
     spread(3), "claims identity"),
])
# fmt: on
def test_a_rule_that_claims_too_much_is_refused(monkeypatch, op_type, rule, fn, x, message):
    monkeypatch.setitem(rules._TABLE, op_type, rule)
    with pytest.raises(RuleError, match=message) as caught:
        check_rule(op_type, fn, x)
    assert f"rule of {op_type}, output 0 by input 0" in str(caught.value)


def test_a_rule_that_claims_less_than_is_so_passes(monkeypatch):
    monkeypatch.setitem(rules._TABLE, "Tanh", constantly(Kind.OPAQUE))
    check_rule("Tanh", tf.tanh, spread(2, 3))


def test_a_derivative_that_tensorflow_leaves_out_is_seen_by_the_differences():
    zeta = "rule of Zeta, output 0 by input 0: differences and gradient are"
    with pytest.raises(RuleError, match=zeta):
        check_rule("Zeta", tf.math.zeta, np.array([2.5]), np.array([1.5]))
    check_rule("Zeta", tf.math.zeta, np.array([2.5]), np.array([1.5]), check_value=False)


@pytest.mark.parametrize(
    "fn, count", [(lambda x: tf.tanh(tf.tanh(x)), "2 of them"), (tf.sin, "0 of them")]
)
def test_just_one_op_of_the_type_can_be_checked(fn, count):
    with pytest.raises(errors.InvalidValueError, match=count):
        check_rule("Tanh", fn, spread(2))


def test_an_op_type_has_one_rule_and_the_unknown_one_is_named(monkeypatch):
    monkeypatch.setattr(rules, "_TABLE", dict(rules._TABLE))
    rule = rules.rule_for("Tanh")
    with pytest.raises(errors.InvalidValueError, match="'Tanh'.*cannot be replaced"):
        rules.register_rule("Tanh", rule)
    for ask in (rules.rule_for, lambda name: check_rule(name, tf.tanh, spread(2))):
        with pytest.raises(errors.InvalidValueError, match="'MyOwnTanh'.*op_types"):
            ask("MyOwnTanh")
    rules.register_rule("MyOwnTanh", rule)
    assert rules.rule_for("MyOwnTanh") is rule
    assert "MyOwnTanh" in rules.op_types()
    assert list(rules.op_types()) == sorted(rules.op_types())


def test_an_op_has_no_rule_where_its_type_has_none_or_its_gradient_is_custom():
    @tf.custom_gradient
    def doubled(x):
        return tf.identity(x), lambda upstream: 2.0 * upstream

    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float64, [3])
        assert rules.rule_of(tf.tanh(x).op) is rules.rule_for("Tanh")
        custom = doubled(x).op
        assert custom.type == "IdentityN" and rules.has_custom_gradient(custom)
        assert rules.rule_of(custom) is None
        assert rules.rule_of(tf.unique(tf.cast(x, tf.int32))[0].op) is None


def moved(fn, shape, example, index=0):
    """Returns where the rule of the op that `fn` builds takes the examples of one input."""
    with tf.Graph().as_default():
        op = fn(tf.compat.v1.placeholder(tf.float64, shape)).op
        return rules.rule_for(op.type).example(op, index, 0, example)


# fmt: off
@pytest.mark.parametrize("shape, example, out, expected", [
    # Merging: 4 examples of 3 rows each.
    ([4, 3, 5], Example(0), [12, 5], Example(0, 1, 3)),
    ([None, 3, 5], Example(0), [-1, 5], Example(0, 1, 3)),
    ([12, 5], Example(0, 1, 3), [4, 3, 5], Example(0)),
    ([None, 5], Example(0, 1, 3), [-1, 3, 5], Example(0)),
    ([None, 5], Example(0, 1, 6), [-1, 3, 5], Example(0, 1, 2)),
    # An axis before the examples goes through them again and again.
    ([3, 4, 5], Example(1), [12, 5], Example(0, 3, 1)),
    ([12, 5], Example(0, 3, 1), [3, 4, 5], Example(1)),
    ([3, None], Example(1), [-1], Example(0, 3, 1)),
    ([None], Example(0, 3, 1), [3, -1], Example(1)),
    ([None, 2], Example(0, 6, 1), [2, -1, 2], Example(1, 3, 1)),
    ([2, 3, 4], Example(1), [24], Example(0, 2, 4)),
    ([24], Example(0, 2, 4), [2, 12], Example(1, 1, 4)),
    ([24], Example(0, 2, 4), [6, 4], Example(0, 2, 1)),
    ([24], Example(0, 2, 4), [2, 6, 2], Example(1, 1, 2)),
    # Axes around the examples may turn into any others.
    ([2, 5, 6], Example(1), [1, 2, 5, 3, 2], Example(2)),
    ([2, 3, 5, 2], Example(2), [6, 5, 2, 1], Example(1)),
    ([None, 4], Example(0), [-1, 2], Example(0, 1, 2)),
    # Examples that are torn apart, or that share a row.
    ([6], Example(0), [2, 3], None),
    ([4, 3], Example(0), [3, 4], None),
    ([None, 3], Example(0), [-1, 2], None),
    ([None, 2, 3], Example(0), [2, -1, 3], None),
    ([None, 6], Example(0, 1, 2), [-1, 4], Example(0, 1, 3)),
    ([None, 5], Example(0, 1, 2), [-1, 3, 5], None),
])
# fmt: on
def test_examples_are_followed_through_a_reshape(shape, example, out, expected):
    assert moved(lambda x: tf.reshape(x, out), shape, example) == expected


# fmt: off
@pytest.mark.parametrize("fn, shape, example, expected", [
    # A block's positions come before the examples.
    (lambda x: tf.space_to_batch(x, [2], [[0, 0]]), [3, 4, 5], Example(0), Example(0, 2, 1)),
    (lambda x: tf.space_to_batch(x, [2, 3], [[0, 0], [1, 0]]), [None, 4, 5, 1], Example(0, 2, 4),
     Example(0, 12, 4)),
    (lambda x: tf.space_to_batch(x, [2], [[0, 0]]), [3, 4, 5], Example(2), Example(2)),
    (lambda x: tf.space_to_batch(x, [2], [[0, 0]]), [3, 4, 5], Example(1), None),
    (lambda x: tf.batch_to_space(x, [2], [[0, 0]]), [6, 4, 5], Example(0, 2, 1), Example(0)),
    (lambda x: tf.batch_to_space(x, [2, 3], [[0, 0], [1, 0]]), [None, 4, 5, 1], Example(0, 12, 4),
     Example(0, 2, 4)),
    (lambda x: tf.batch_to_space(x, [2], [[0, 0]]), [6, 4, 5], Example(0, 3, 1), None),
    (lambda x: tf.batch_to_space(x, [2], [[0, 0]]), [6, 4, 5], Example(2), Example(2)),
    (lambda x: tf.batch_to_space(x, [2], [[0, 0]]), [6, 4, 5], Example(1), None),
    # Where links tell, the numbering of the axis stays.
    (lambda x: tf.transpose(x, [1, 2, 0]), [12, 4, 5], Example(0, 2, 3), Example(2, 2, 3)),
    (lambda x: tf.reduce_sum(x, 0), [3, 4, 5], Example(1, 2, 1), Example(0, 2, 1)),
    (lambda x: tf.reduce_sum(x, 0), [3, 4, 5], Example(0), None),
    (lambda x: x[:, 1:, tf.newaxis, 0], [None, 4, 5], Example(0), Example(0)),
    (lambda x: x[1:], [None, 4], Example(0), None),
    (tf.identity, [None, 4], Example(0, 2, 3), Example(0, 2, 3)),
])
# fmt: on
def test_examples_are_followed_through_other_ops(fn, shape, example, expected):
    assert moved(fn, shape, example) == expected


def test_what_is_not_certain_stays_so():
    unsure = Example(0, certain=False)
    for fn in (lambda x: tf.reshape(x, [-1]), lambda x: tf.transpose(x), tf.identity):
        assert not moved(fn, [None, 3], unsure).certain
        assert moved(fn, [None, 3], dataclasses.replace(unsure, certain=True)).certain


def in_list(x):
    return tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=[-1] * (x.shape.rank - 1))


def stacked(handle):
    return tf.raw_ops.TensorListStack(
        input_handle=handle, element_shape=[-1, -1], element_dtype=tf.float64
    )


# fmt: off
@pytest.mark.parametrize("fn, index, example, expected", [
    # From tensors [time, batch, ...] to elements [batch, ...] and back.
    (in_list, 0, Example(1, 1, 2), Example(0, 1, 2)),
    # Examples that are the elements themselves have axis -1, if nothing else is among them.
    (in_list, 0, Example(0), Example(-1)),
    (in_list, 0, Example(0, 2, 1), None),
    (in_list, 0, Example(0, 1, 2), None),
    (lambda x: stacked(in_list(x)), 0, Example(-1), Example(0)),
    (lambda x: tf.raw_ops.TensorListScatterV2(
        tensor=x, indices=[1, 0], element_shape=[-1, 4], num_elements=3),
     0, Example(2), Example(1)),
    (lambda x: tf.raw_ops.TensorListScatter(
        tensor=x, indices=[1, 0], element_shape=[-1, 4]), 0, Example(1), Example(0)),
    # In another order, or with some left out, the elements are other examples.
    (lambda x: tf.raw_ops.TensorListScatter(
        tensor=x, indices=[1, 0], element_shape=[-1, 4]), 0, Example(0), None),
    (lambda x: tf.raw_ops.TensorListGather(
        input_handle=in_list(x), indices=[1, 0], element_shape=[-1, 4], element_dtype=x.dtype),
     0, Example(-1), None),
    (lambda x: stacked(in_list(x)), 0, Example(0, 3, 1), Example(1, 3, 1)),
    (lambda x: tf.raw_ops.TensorListGather(
        input_handle=in_list(x), indices=[0], element_shape=[-1, 4], element_dtype=x.dtype),
     0, Example(1), Example(2)),
    # One element.
    (lambda x: tf.raw_ops.TensorListGetItem(
        input_handle=in_list(x), index=1, element_shape=[-1, 4], element_dtype=x.dtype),
     0, Example(-1), None),
    (lambda x: tf.raw_ops.TensorListGetItem(
        input_handle=in_list(x), index=1, element_shape=[-1, 4], element_dtype=x.dtype),
     0, Example(1), Example(1)),
    (lambda x: tf.raw_ops.TensorListSetItem(input_handle=in_list(x), index=1, item=x[0]),
     2, Example(0), Example(0)),
    (lambda x: tf.raw_ops.TensorListSetItem(input_handle=in_list(x), index=1, item=x[0]),
     0, Example(0), Example(0)),
    (lambda x: tf.raw_ops.TensorListPushBack(input_handle=in_list(x), tensor=x[0]),
     1, Example(0, 2, 2), Example(0, 2, 2)),
    (lambda x: tf.raw_ops.TensorListPopBack(
        input_handle=in_list(x), element_shape=[-1, 4], element_dtype=x.dtype).tensor,
     0, Example(1), Example(1)),
    (lambda x: tf.raw_ops.TensorListResize(input_handle=in_list(x), size=5),
     0, Example(0), Example(0)),
    # Elements that are put one after another.
    (lambda x: tf.raw_ops.TensorListConcatV2(
        input_handle=in_list(x), element_shape=[-1, 4], leading_dims=np.zeros(0, np.int64),
        element_dtype=x.dtype).tensor, 0, Example(1), Example(1)),
    (lambda x: tf.raw_ops.TensorListConcat(
        input_handle=in_list(x), element_dtype=x.dtype).tensor, 0, Example(0), None),
    (lambda x: tf.raw_ops.TensorListSplit(
        tensor=x, element_shape=[-1, 3, 4], lengths=np.array([1, 1])), 0, Example(2), Example(2)),
    (lambda x: tf.raw_ops.TensorListSplit(
        tensor=x, element_shape=[-1, 3, 4], lengths=np.array([1, 1])), 0, Example(0), None),
])
# fmt: on
def test_examples_are_followed_through_lists(fn, index, example, expected):
    assert moved(fn, [2, 3, 4], example, index) == expected


def numbers_along(example, count):
    """Returns the example of each position on the axis that an Example describes."""
    return np.arange(example.outer * count * example.inner) // example.inner % count


def describes(example, numbers, count):
    """Returns whether the entries of `numbers` are the examples that an Example tells."""
    size = numbers.shape[example.axis]
    if size != example.outer * count * example.inner:
        return False
    shape = [size if a == example.axis else 1 for a in range(numbers.ndim)]
    return np.all(numbers == numbers_along(example, count).reshape(shape))


def descriptions(numbers, count):
    for axis, size in enumerate(numbers.shape):
        for outer in range(1, size // count + 1):
            inner = size // (outer * count)
            if describes(Example(axis, outer, inner), numbers, count):
                yield Example(axis, outer, inner)


def numbered(example, count, before, after):
    """Returns an array of example numbers, with axes of those sizes around the example axis."""
    numbers = numbers_along(example, count).reshape([-1] + [1] * len(after))
    return np.broadcast_to(numbers, [*before, numbers.shape[0], *after])


def factors(random, number):
    """Returns a random list of sizes, 1 among them at times, whose product is a number."""
    found = []
    while number > 1 and random.random() < 0.8:
        found.append(int(random.choice([d for d in range(1, number + 1) if number % d == 0])))
        number //= found[-1]
    return [*found, number] if number > 1 or not found else found


def draw(random):
    """Returns a random number of examples, an Example, and sizes before and after its axis."""
    count, outer, inner = (
        int(random.choice(among)) for among in ([2, 3, 4], [1, 1, 2, 3], [1, 1, 2, 4])
    )
    before, after = (list(random.choice([1, 2, 3], random.integers(0, 3))) for _ in range(2))
    return count, Example(len(before), outer, inner), before, after


def reshaped(given, out, example):
    return moved(lambda x: tf.reshape(x, out), given, example)


@pytest.mark.parametrize("seed", range(4))
def test_random_reshapes_move_each_example_where_the_rule_says(seed):
    random = np.random.default_rng(seed)
    followed = lost = 0
    for _ in range(150):
        count, example, before, after = draw(random)
        given = numbered(example, count, before, after)
        out = given.reshape(factors(random, given.size))
        found = reshaped(given.shape, out.shape, example)
        true = list(descriptions(out, count))
        assert found in true or (found is None and not true), (given.shape, example, out.shape)
        followed, lost = followed + (found is not None), lost + (found is None)
    assert followed > 20 and lost > 20


@pytest.mark.parametrize("seed", range(4))
def test_random_reshapes_of_unknown_batches_hold_for_every_number_of_examples(seed):
    random = np.random.default_rng(seed)
    followed = 0
    for _ in range(150):
        _, example, before, after = draw(random)
        known = math.prod([*before, example.outer, example.inner, *after])
        out = factors(random, random.choice([d for d in range(1, known + 1) if known % d == 0]))
        out.insert(random.integers(0, len(out) + 1), -1)
        found = reshaped([*before, None, *after], out, example)
        if found is not None:
            followed += 1
            for count in (2, 3, 5):
                numbers = numbered(example, count, before, after).reshape(out)
                assert describes(found, numbers, count), (before, after, example, out, found)
    assert followed > 20


def test_entries_are_allowed_between_equal_positions_of_linked_axes_alone():
    found = rules.allowed_entries(Local(Kind.MIXING, ((1, 0),)), [2, 3], [3, 4])
    assert found.shape == (2, 3, 3, 4)
    for b, p, q, a in np.ndindex(*found.shape):
        assert found[b, p, q, a] == (p == q)
    assert np.all(rules.allowed_entries(rules.OPAQUE, [2], [3]))
    assert not np.any(rules.allowed_entries(rules.ZERO, [2], [3]))
    both = rules.allowed_entries(Local(Kind.SELECTION, ((1, 0), (0, 1))), [2, 3], [3, 2])
    assert np.array_equal(both, np.einsum("pd,qc->pqcd", np.eye(2), np.eye(3)))
