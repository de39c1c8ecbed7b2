"""Samples of ops that go entry by entry."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfjac.audit.samples import binary, complexes, public, raw, single, spread, unary

ZERO, PAIR_OF_ZEROS = (0.0,), ((0.0, 0.0),)
POSITIVE = {"first": (0.6, 2.9), "second": (0.5, 2.8)}
ALIKE = (((2, 3), (2, 3)), ((0, 2), (0, 2)))


# fmt: off
ELEMENTARY = [
    *unary("Abs Neg Square Asinh Atan Cos Cosh Erf Erfc Exp Expm1 Sigmoid Sin Sinh Tanh Sign Ceil "
           "Floor Rint Round Softplus OnesLike ZerosLike", edges=ZERO),
    *unary("Relu Elu LeakyRelu Selu Softsign", edges=ZERO),
    *unary("Relu6", low=-3.0, high=8.0, edges=(0.0, 6.0)),
    *unary("Acos Asin Atanh", low=-0.8, high=0.9, edges=(0.0, 1.0, -1.0)),
    *unary("Erfinv", low=-0.8, high=0.9, edges=ZERO),
    *unary("Tan", low=-1.1, high=1.2, edges=ZERO),
    *unary("Acosh", low=1.3, high=3.0, edges=(1.0,)),
    *unary("Log Reciprocal Rsqrt Sqrt Inv", low=0.4, high=2.9, edges=(1.0, 0.0)),
    *unary("Log1p", low=0.4, high=2.9, edges=(0.0, -1.0)),
    *[raw(name, spread(2, 3, low=6.0, high=9.0), name="large")
      for name in ("Sigmoid", "Tanh", "Softplus", "Erf", "Erfc", "Softsign", "Lgamma", "Digamma")],
    *[raw(name, spread(2, 3, low=-9.0, high=-6.0), name="very negative")
      for name in ("Sigmoid", "Tanh", "Softplus", "Erf", "Elu", "Selu", "Softsign")],
    *[raw(name, complexes(2, 3), name="complex") for name in ("Sqrt", "Rsqrt", "Log", "Log1p",
      "Tanh", "Sigmoid", "Exp", "Sign", "Asin", "Acos", "Atanh", "Acosh", "Tan")],
    *[raw(name, np.zeros(1, np.complex128), name="complex 0") for name in ("Square",)],
    raw("LeakyRelu", spread(3, 2), alpha=0.4),
    raw("Conj", complexes(2, 3)),
    raw("Conj", complexes(0, 3)),
    *[raw(name, complexes(*shape), Tout=tf.float64, name=f"rank {len(shape)}")
      for name in ("Angle", "ComplexAbs", "Imag", "Real") for shape in ((2, 3), (3,))],
    *[raw(name, np.array([at]), Tout=tf.float64, name=f"at {at:g}")
      for name in ("Angle", "ComplexAbs", "Imag", "Real") for at in (0j, 1 + 0j, 1j)],
    *[raw(name, complexes(2, 3, dtype=np.complex64), Tout=tf.float32, name="complex64")
      for name in ("Angle", "ComplexAbs", "Imag", "Real")],
    raw("Cast", spread(2, 3), DstT=tf.float32, name="to float32", dtypes=("float64", "half")),
    raw("Cast", single(2, 3), DstT=tf.float64, name="to float64"),
    raw("Cast", spread(3, 1), DstT=tf.complex128, name="to complex"),
    raw("Cast", complexes(2, 3), DstT=tf.float64, name="of complex to real"),
    raw("Cast", complexes(2, 3), DstT=tf.complex64, name="to complex64"),
    raw("Cast", single(2, 3), DstT=tf.half, name="to half", dtypes=("float32",)),
    public("Identity", "plain", tf.identity, spread(2, 3)),
    raw("IdentityN", spread(2, 3), spread(4), listed="input", name="two"),
    raw("CheckNumerics", spread(2, 3), message="of the sample"),
    raw("CheckNumericsV2", spread(2, 3), message="of the sample"),
    raw("EnsureShape", spread(2, 3), shape=[2, None]),
    raw("DebugIdentityV2", spread(2, 3)),
    raw("PlaceholderWithDefault", spread(2, 3), shape=[2, 3]),
    raw("Print", spread(2, 3), data=[], first_n=0, name="silent"),
    raw("AddN", spread(2, 3), spread(2, 3, seed=1), listed="inputs", name="two"),
    raw("AddN", spread(1, 2), listed="inputs", name="one"),
    raw("AccumulateNV2", spread(2, 3), spread(2, 3, seed=1), listed="inputs", shape=[2, 3],
        name="two"),
]

SPECIAL = [
    *unary("BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 Dawsn FresnelCos FresnelSin",
           edges=ZERO),
    *unary("BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Digamma Expint Lgamma",
           low=0.4, high=2.9, edges=(1.0,)),
    *unary("Spence", low=1.2, high=1.9, edges=(1.0,)),
    raw("Spence", spread(4, low=0.2, high=0.8), name="below 1"),
    *unary("Ndtri", low=0.1, high=0.8, edges=(0.5,)),
    *[raw(name, spread(4, low=-2.7, high=-2.2), name="negative") for name in ("Lgamma", "Digamma")],
    *[raw(name, spread(4, low=4.2, high=9.3), name="large")
      for name in ("BesselI0e", "BesselI1e", "BesselJ0", "BesselJ1", "BesselK0e", "BesselK1e",
                   "BesselY0", "BesselY1", "Dawsn", "FresnelCos", "FresnelSin", "Expint",
                         "Spence")],
    *binary("Igamma Igammac", **POSITIVE, edges=((1.0, 1.0), (5.0, 0.5), (0.5, 9.0), (1.0, 0.0))),
    *binary("Polygamma", first=(2.0, 2.0), second=(0.6, 2.5), edges=((1.0, 1.0), (0.0, 1.5))),
    *binary("Zeta", first=(1.4, 3.0), second=(0.6, 2.5), edges=((2.0, 1.0), (3.0, 4.0))),
    raw("Betainc", spread(2, 3, low=0.5, high=3.0), spread(2, 3, low=0.6, high=2.0, seed=1),
        spread(2, 3, low=0.1, high=0.8, seed=2), name="alike"),
    raw("Betainc", np.array(1.5), np.array(0.7), spread(3, low=0.1, high=0.8), name="scalars"),
    *[raw("Betainc", *([np.full(2, v) for v in at]), name=f"at {at}")
      for at in ((1.0, 1.0, 0.5), (2.0, 3.0, 0.0), (1.0, 2.0, 0.0), (2.0, 1.0, 1.0))],
]

PAIRS = [
    *binary("Add AddV2 Mul Sub SquaredDifference Maximum Minimum", edges=((0.0, 0.0), (1.0, 1.0))),
    *binary("MulNoNan", edges=((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))),
    *binary("DivNoNan", second=(0.5, 2.8), edges=((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))),
    raw("MulNoNan", np.array([np.inf, 2.0]), np.array([0.0, 3.0]), name="infinite times 0"),
    *binary("Atan2", edges=((0.0, 1.0), (1.0, 0.0), (0.0, -1.0))),
    *binary("Div RealDiv", first=(3.1, 7.7), second=(0.73, 1.917),
            edges=((0.0, 1.0), (1.0, 0.0), (0.0, 0.0))),
    *binary("FloorMod FloorDiv", first=(3.1, 7.7), second=(0.73, 1.917),
            edges=((0.0, 1.5), (-3.2, 1.5), (3.2, -1.5))),
    *binary("TruncateDiv", first=(3.1, 7.7), second=(0.73, 1.917)),
    *[raw("Complex", spread(*a), spread(*b, seed=1), Tout=tf.complex128, name=name)
      for a, b, name in (((2, 3), (2, 3), "alike"), ((2, 1), (3,), "broadcast"))],
    raw("Complex", single(2, 3), single(2, 3, seed=1), name="float32"),
    *binary("NextAfter", edges=((0.0, 1.0), (1.0, 1.0))),
    *binary("Pow", **POSITIVE, edges=((0.0, 2.0), (0.0, 1.0), (0.0, 0.5), (0.0, 0.0), (-1.5, 2.0),
                                      (1.0, 0.0), (2.0, 1.0))),
    *[public(name, "real part of complex", lambda x, y, op=name: tf.math.real(
        getattr(tf.raw_ops, op)(x=x, y=y)), complexes(3), complexes(3, seed=5))
      for name in ("SquaredDifference", "MulNoNan", "DivNoNan")],
    raw("Pow", complexes(2, 2, low=0.4), complexes(2, 2, seed=5, low=0.4), name="complex"),
    *binary("Xdivy", **POSITIVE, edges=((0.0, 0.5), (0.0, 0.0), (1.0, 1.0))),
    *binary("Xlogy", **POSITIVE, edges=((0.0, 0.5), (0.0, 0.0), (1.0, 1.0))),
    *binary("Xlog1py", **POSITIVE, edges=((0.0, 0.5), (0.0, -1.0), (1.0, 0.0))),
    raw("ClipByValue", spread(2, 3), np.array(-1.01), np.array(0.97), name="scalars",
        dtypes=("float64", "float32", "half")),
    raw("ClipByValue", spread(2, 3), spread(2, 3, low=-1.5, high=-0.4),
        spread(2, 3, low=0.3, high=1.7), name="alike"),
    raw("ClipByValue", np.array([1.0, -1.0]), np.array(-1.0), np.array(1.0), name="at the bounds"),
    raw("Select", np.array([[True, False, True], [False, False, True]]), spread(2, 3),
        spread(2, 3, seed=1), name="alike"),
    raw("Select", np.array([True, False, True]), spread(3, 2), spread(3, 2, seed=1), name="rows"),
    raw("Select", np.array(True), spread(3, 1), spread(3, 1, seed=1), name="scalar"),
    raw("SelectV2", np.array([[True], [False]]), spread(3), spread(2, 1, seed=1), name="broadcast"),
    raw("SelectV2", np.array([True, False, True]), spread(3), spread(3, seed=1), name="alike"),
    raw("BiasAdd", spread(2, 3), spread(3), data_format="NHWC", name="NHWC"),
    raw("BiasAdd", spread(2, 3, 1, 4), spread(3), data_format="NCHW", name="NCHW"),
    raw("BiasAddV1", spread(2, 1, 3), spread(3), name="plain"),
]
# fmt: on

SAMPLES = [*ELEMENTARY, *SPECIAL, *PAIRS]
