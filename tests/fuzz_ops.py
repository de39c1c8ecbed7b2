"""A call for each op that has a rule or a replacement, and random programs around one of them.

The values are ordinary ones or, where the function is smooth there, with zeros and ties.
"""

from __future__ import annotations

import dataclasses

import fuzz
import hypothesis.strategies as st


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of an op.

    Args:
      code: of a tensor called x.
      shape: of x.
      low, high: between which the values are.
      edges: kinds of edge values at which it is smooth: "zeros", "ties".
      apart: whether the first axis is of examples that stay apart.
      single: whether the op computes in float32 whatever it is given.
      lower: whether half and bfloat16 may be given.
      complex: whether a complex tensor may be given.
      twice: whether it has second derivatives that are no zeros by definition.
    """

    code: str
    shape: tuple[int, ...]
    low: float = -1.5
    high: float = 1.5
    edges: tuple[str, ...] = ()
    apart: bool = False
    single: bool = False
    lower: bool = False
    complex: bool = False
    twice: bool = True


SMOOTH = ("zeros", "ties")


def _each(names: str, low: float, high: float, edges=SMOOTH, **options) -> list[Call]:
    calls = [
        f"tf.{name}" if name.startswith("nn.") else f"tf.math.{name}" for name in names.split()
    ]
    return [Call(f"{call}(x)", (2, 3), low, high, edges, apart=True, **options) for call in calls]


ELEMENTWISE = [
    *_each("sin cos tanh sigmoid exp sinh cosh expm1 square negative softplus asinh atan",
           -1.5, 1.5, lower=True),
    *_each("sin cos tanh sigmoid exp sinh cosh square negative tan", -1.2, 1.2, (), complex=True),
    *_each("erf erfc nn.silu nn.gelu bessel_i0 bessel_i1 special.bessel_j0 special.bessel_j1 "
           "special.dawsn special.fresnel_cos special.fresnel_sin", -1.5, 1.5),
    *_each("bessel_i0e bessel_i1e", 0.2, 1.5, ("ties",)),
    *_each("nn.elu nn.selu nn.relu nn.relu6 nn.leaky_relu abs sign",
           0.2, 1.5, ("ties",), lower=True),
    *_each("nn.softsign tan", -1.2, 1.2, SMOOTH),
    *_each("asin acos atanh erfinv", -0.9, 0.9),
    *_each("sqrt log rsqrt log1p reciprocal", 0.3, 2.0, ("ties",), lower=True),
    *_each("sqrt log rsqrt log1p reciprocal", 0.3, 2.0, ("ties",), complex=True),
    *_each("lgamma digamma special.bessel_k0 special.bessel_k1 special.bessel_k0e "
           "special.bessel_k1e special.bessel_y0 special.bessel_y1 special.expint special.spence",
           0.3, 2.0, ("ties",)),
    *_each("acosh", 1.3, 3.0, ("ties",)),
    *_each("ndtri", 0.1, 0.9, ("ties",)),
    *(Call(f"tf.math.{name}(x) * x + x", (2, 3), 0.1, 0.4, apart=True)
      for name in ("floor", "ceil", "rint", "round")),
]  # fmt: skip

PAIRS = [
    Call("x[:, :2] / (2.0 + x[:, 2:])", (2, 4), edges=SMOOTH, apart=True, complex=True),
    Call("tf.math.divide_no_nan(x[:, :2], 2.0 + x[:, 2:])", (2, 4), edges=SMOOTH, apart=True),
    Call("tf.math.multiply_no_nan(x[:, :2], x[:, 2:])", (2, 4), edges=SMOOTH, apart=True,
         complex=True),
    Call("tf.math.squared_difference(x[:, :2], x[:, 1:])", (2, 3), edges=SMOOTH, apart=True,
         complex=True),
    Call("tf.math.xlogy(x[:, :2], 2.0 + x[:, 2:])", (2, 4), edges=SMOOTH, apart=True, complex=True),
    Call("tf.math.xlog1py(x[:, :2], 2.0 + x[:, 2:])", (2, 4), edges=SMOOTH, apart=True,
         complex=True),
    Call("tf.math.xdivy(x[:, :2], 2.0 + x[:, 2:])", (2, 4), edges=SMOOTH, apart=True, complex=True),
    Call("tf.atan2(x[:, :2], 2.0 + x[:, 2:])", (2, 4), edges=SMOOTH, apart=True),
    Call("tf.pow(x, 3.0)", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.pow(x, 2.0)", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.pow(x, 1.0)", (2, 3), edges=SMOOTH, apart=True, complex=True),
    Call("tf.pow(x, 0.0) + x", (2, 3), edges=SMOOTH, apart=True, complex=True),
    Call("tf.pow(2.0 + x[:, :2], x[:, 2:])", (2, 4), edges=SMOOTH, apart=True),
    Call("tf.math.igamma(tf.constant(1.3, x.dtype), x)", (3,), 0.3, 2.0),
    Call("tf.math.igammac(tf.constant(1.3, x.dtype), x)", (3,), 0.3, 2.0),
    Call("tf.math.betainc(tf.constant(1.3, x.dtype), tf.constant(0.8, x.dtype), x)", (3,), 0.2,
         0.8),
    Call("tf.math.polygamma(tf.constant(1.0, x.dtype), x)", (3,), 0.5, 2.0),
    Call("tf.math.zeta(tf.constant(2.5, x.dtype), x)", (3,), 0.5, 2.0),
    Call("tf.math.floormod(x, 0.7)", (3,), 0.1, 0.6),
    Call("tf.math.floordiv(x, 0.7) + x", (3,), 0.1, 0.6),
    Call("tf.maximum(x[0], x[1] + 5.0) + tf.minimum(x[0], x[1] + 5.0) * x[0]", (2, 3),
         edges=SMOOTH, lower=True),
    Call("tf.raw_ops.ClipByValue(t=x, clip_value_min=-2.0 + 0 * x[0, 0], "
         "clip_value_max=x[0, 0] * 0.0 + 2.0)", (2, 3)),
    Call("tf.raw_ops.Div(x=x[0], y=x[1])", (2, 3), 0.3, 2.0),
    Call("tf.raw_ops.Inv(x=x)", (3,), 0.3, 2.0),
    Call("tf.raw_ops.Add(x=x, y=x * x)", (2, 3), edges=SMOOTH, apart=True, complex=True),
    Call("tf.linalg.cross(x[:, 0], x[:, 1])", (2, 2, 3), edges=SMOOTH, apart=True),
    Call("tf.add_n([x, x * x, x])", (2, 3), edges=SMOOTH, apart=True, complex=True),
    Call("tf.raw_ops.AddN(inputs=[x, x * x])", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.math.accumulate_n([x, x * x])", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.where(x > -9.0, x * x, x)", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.compat.v1.where(x > -9.0, x * x, x)", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.nn.bias_add(x, x[0] * x[1])", (2, 3), edges=SMOOTH),
]  # fmt: skip

REDUCTIONS = [
    Call("tf.reduce_prod(x, 1)", (2, 3), edges=SMOOTH, apart=True, complex=True, lower=True),
    Call("tf.reduce_prod(x)", (2, 2), edges=SMOOTH, complex=True),
    Call("tf.reduce_prod(x, [0, -1], keepdims=True)", (2, 2, 2), edges=SMOOTH),
    Call("tf.math.cumprod(x, 1)", (2, 4), edges=SMOOTH, apart=True, complex=True, lower=True),
    Call("tf.math.cumprod(x, 0, exclusive=True, reverse=True)", (4,), edges=SMOOTH, complex=True),
    Call("tf.math.cumprod(x, -1, exclusive=True)", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.cumsum(x * x, 1, reverse=True)", (2, 3), edges=SMOOTH, apart=True, lower=True),
    Call("tf.math.cumulative_logsumexp(x, 1)", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.math.cumulative_logsumexp(x, 0, exclusive=True, reverse=True)[:-1]", (4,),
         edges=SMOOTH),
    Call("tf.math.reduce_euclidean_norm(x, 1)", (2, 3), 0.3, 1.5, ("ties",), apart=True,
         complex=True),
    Call("tf.raw_ops.EuclideanNorm(input=x, axis=[1])", (2, 3), 0.3, 1.5, ("ties",), apart=True),
    Call("tf.reduce_logsumexp(x, 1)", (2, 3), edges=SMOOTH, apart=True, lower=True),
    Call("tf.math.reduce_variance(x, 1)", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.stack(tf.nn.moments(x * x, [1]))", (2, 3), edges=SMOOTH),
    Call("tf.stack(tf.nn.weighted_moments(x, [1], tf.exp(x)))", (2, 3), edges=SMOOTH),
    Call("tf.nn.l2_loss(x)", (2, 3), edges=SMOOTH),
    Call("tf.reduce_max(x, 1) + tf.reduce_min(x, 1)", (2, 3), apart=True),
    Call("tf.nn.softmax(x)", (2, 3), edges=SMOOTH, apart=True, lower=True),
    Call("tf.nn.log_softmax(x)", (2, 3), edges=SMOOTH, apart=True, lower=True),
    Call("tf.math.segment_prod(x, [0, 0, 0, 2])", (4, 2), edges=SMOOTH),
    Call("tf.math.unsorted_segment_prod(x, [2, 0, 2, 2], 4)", (4, 2), edges=SMOOTH),
    Call("tf.math.unsorted_segment_prod(x, [[0, 1], [0, 0]], 3)", (2, 2), edges=SMOOTH),
    Call("tf.math.segment_sum(x * x, [0, 0, 2])", (3, 2), edges=SMOOTH),
    Call("tf.math.segment_mean(x, [0, 0, 2])", (3, 2), edges=SMOOTH),
    Call("tf.math.segment_max(x, [0, 0, 1]) * tf.math.segment_min(x, [0, 0, 1])", (3, 2)),
    Call("tf.math.unsorted_segment_max(x, [1, 0, 1], 2)", (3, 2)),
    Call("tf.math.unsorted_segment_min(x, [1, 0, 1], 2)", (3, 2)),
    Call("tf.math.unsorted_segment_sum(x * x, [1, 0, 1], 3)", (3, 2), edges=SMOOTH),
    Call("tf.sparse.segment_sum(x, [0, 2, 2], [0, 0, 1])", (3, 2), edges=SMOOTH),
    Call("tf.sparse.segment_mean(x, [0, 2, 2], [0, 0, 1])", (3, 2), edges=SMOOTH),
    Call("tf.sparse.segment_sqrt_n(x, [0, 2, 2], [0, 0, 1])", (3, 2), edges=SMOOTH),
    Call("tf.nn.embedding_lookup_sparse(x * x, tf.sparse.from_dense([[1, 2], [2, 0]]), None, "
         "combiner='sum')", (3, 2), edges=SMOOTH),
    Call("tf.sparse.reduce_sum(tf.SparseTensor([[0, 0], [0, 1], [1, 1]], x, [2, 2]), 1)", (3,),
         edges=SMOOTH),
    Call("tf.sparse.sparse_dense_matmul(tf.SparseTensor([[0, 0], [0, 1], [1, 1]], x, [2, 2]), "
         "tf.reshape(tf.concat([x, x[:1]], 0), [2, 2]))", (3,), edges=SMOOTH, complex=True),
    Call("tf.sparse.to_dense(tf.SparseTensor([[0, 0], [0, 1], [1, 1]], x * x, [2, 2]))", (3,),
         edges=SMOOTH),
]  # fmt: skip

_IMAGE = (1, 2, 3, 2)
_MAPPED = ("tf.raw_ops.ImageProjectiveTransformV3(images={0}, transforms=tf.constant([[0.7, -0.2, "
           "0.33, 0.3, 0.8, -0.37, 0.01, -0.02]]), output_shape=[2, 2], fill_value=0.5, "
           "interpolation='{1}', fill_mode='{2}')")  # fmt: skip
_TRAINED = ("tf.compat.v1.nn.fused_batch_norm({0}, c([2], 1, tf.float32), c([2], 2, tf.float32), "
            "epsilon=0.3, is_training=True)[0]")  # fmt: skip

IMAGES = [
    *(Call(_MAPPED.format("x", how, mode), _IMAGE, edges=SMOOTH, apart=True, single=True)
      for how in ("BILINEAR", "NEAREST") for mode in ("CONSTANT", "REFLECT", "WRAP", "NEAREST")),
    Call("tf.raw_ops.LRN(input=tf.cast(x, tf.float32), depth_radius=1, alpha=0.5, beta=0.75)",
         (1, 1, 2, 3), edges=SMOOTH, apart=True, single=True),
    Call(_TRAINED.format("tf.cast(x, tf.float32)"), (2, 1, 2, 2), single=True),
    Call("tf.compat.v1.nn.fused_batch_norm(tf.cast(x, tf.float32), *tf.unstack(c([4, 2], 1, "
         "tf.float32, 0.5)), is_training=False)[0]", (1, 2, 2, 2), single=True),
    *(Call(f"tf.compat.v1.image.{name}(tf.cast(x, tf.float32), [3, 4])", (1, 2, 2, 2),
           edges=SMOOTH, apart=True, single=True)
      for name in ("resize_bilinear", "resize_bicubic", "resize_nearest_neighbor")),
    Call("tf.raw_ops.ScaleAndTranslate(images=tf.cast(x, tf.float32), size=[2, 3], "
         "scale=[1.1, 0.8], translation=[0.2, 0.3])", (1, 2, 2, 2), apart=True, single=True,
         edges=SMOOTH),
    Call("tf.image.crop_and_resize(x, [[0.1, 0.2, 0.9, 0.8], [0.1, 0.2, 0.9, 0.8]], [0, 0], "
         "[2, 2])", (1, 3, 2, 1), single=True, edges=SMOOTH),
    Call("tf.image.rgb_to_hsv(x)", (2, 3), 0.2, 0.9, apart=True),
    Call("tf.image.extract_patches(x, [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], 'SAME')", _IMAGE,
         edges=SMOOTH, apart=True),
    Call("tf.extract_volume_patches(x, [1, 1, 2, 2, 1], [1, 1, 1, 1, 1], 'VALID')", (1, 1, 2, 3, 2),
         edges=SMOOTH, apart=True),
    Call("tf.nn.avg_pool2d(x * x, 2, 1, 'SAME')", _IMAGE, edges=SMOOTH, apart=True),
    Call("tf.nn.max_pool2d(x, 2, 1, 'SAME')", _IMAGE, apart=True),
    Call("tf.nn.max_pool_with_argmax(x, 2, 1, 'VALID')[0]", _IMAGE, apart=True),
    Call("tf.raw_ops.MaxPoolV2(input=x, ksize=[1, 1, 2, 1], strides=[1, 1, 1, 1], "
         "padding='VALID')", _IMAGE, apart=True),
    Call("tf.nn.avg_pool3d(tf.cast(x, tf.float32), 2, 1, 'SAME')", (1, 1, 2, 3, 1), edges=SMOOTH,
         apart=True, single=True),
    Call("tf.nn.max_pool3d(tf.cast(x, tf.float32), [1, 1, 2], 1, 'VALID')", (1, 1, 2, 3, 1),
         single=True, apart=True),
    Call("tf.nn.fractional_avg_pool(x, [1.0, 1.4, 1.4, 1.0], True, seed=3)[0]", (1, 3, 3, 1)),
    Call("tf.nn.fractional_max_pool(x, [1.0, 1.4, 1.4, 1.0], True, seed=3)[0]", (1, 3, 3, 1)),
    Call("tf.nn.conv2d(x, c([2, 2, 2, 2], 1, x.dtype), 1, 'SAME')", _IMAGE, edges=SMOOTH,
         apart=True, lower=True),
    Call("tf.nn.conv2d(x, c([2, 2, 2, 2], 1, x.dtype), 1, 'SAME', dilations=2)", _IMAGE,
         edges=SMOOTH, apart=True),
    Call("tf.nn.conv2d(x, c([2, 1, 1, 4], 1, x.dtype), 1, 'VALID')", _IMAGE, edges=SMOOTH,
         apart=True),
    Call("tf.nn.conv2d(c([1, 3, 3, 2], 1, x.dtype), x, 1, 'SAME', dilations=2)", (2, 1, 2, 2),
         edges=SMOOTH),
    Call("tf.nn.conv2d(c([1, 3, 3, 2], 1, x.dtype), x, 1, 'VALID')", (2, 2, 1, 2), edges=SMOOTH),
    Call("tf.nn.conv2d_transpose(x, c([2, 2, 1, 2], 1, x.dtype), [1, 4, 6, 1], 2)", _IMAGE,
         edges=SMOOTH, apart=True),
    Call("tf.nn.conv3d(x, c([1, 2, 2, 1, 2], 1, x.dtype), [1] * 5, 'SAME')", (1, 1, 2, 3, 1),
         edges=SMOOTH, apart=True),
    Call("tf.nn.conv3d_transpose(x, c([1, 2, 2, 1, 1], 1, x.dtype), [1, 1, 2, 3, 1], 1)",
         (1, 1, 2, 3, 1), edges=SMOOTH, apart=True),
    Call("tf.nn.depthwise_conv2d(x, c([2, 2, 2, 2], 1, x.dtype), [1] * 4, 'SAME')", _IMAGE,
         edges=SMOOTH, apart=True),
    Call("tf.nn.depthwise_conv2d_backprop_input([1, 2, 3, 2], c([2, 2, 2, 1], 1, x.dtype), x, "
         "[1] * 4, 'SAME')", _IMAGE, edges=SMOOTH),
    Call("tf.nn.depthwise_conv2d_backprop_filter(c([1, 2, 3, 2], 1, x.dtype), [2, 2, 2, 1], x, "
         "[1] * 4, 'SAME')", _IMAGE, edges=SMOOTH),
    Call("tf.nn.dilation2d(x, c([2, 2, 2], 1, x.dtype), [1] * 4, 'SAME', 'NHWC', [1] * 4)", _IMAGE,
         apart=True),
    Call("tf.nn.space_to_depth(x, 2)", (1, 2, 2, 2), edges=SMOOTH, apart=True),
    Call("tf.nn.depth_to_space(x, 2)", (1, 1, 2, 4), edges=SMOOTH, apart=True),
    Call("tf.space_to_batch(x, [1, 3], [[0, 0], [0, 0]])", (1, 2, 3, 1), edges=SMOOTH),
    Call("tf.batch_to_space(x, [1, 2], [[0, 0], [0, 1]])", (2, 2, 2, 1), edges=SMOOTH),
]  # fmt: skip

_GOOD = "(x + 3.0 * tf.eye({0}, dtype=x.dtype))"
_WHOLE = "(tf.matmul(x, x, adjoint_b=True) + tf.eye({0}, dtype=x.dtype))"
G2, G3, W2, W3 = _GOOD.format(2), _GOOD.format(3), _WHOLE.format(2), _WHOLE.format(3)

MATRICES = [
    Call(f"tf.linalg.det({G3})", (3, 3), edges=SMOOTH, complex=True),
    Call(f"tf.linalg.slogdet({G2})[0]", (2, 2, 2), edges=SMOOTH, apart=True, complex=True),
    Call(f"tf.linalg.slogdet({G2})[1]", (2, 2, 2), edges=SMOOTH, apart=True, complex=True),
    Call(f"tf.linalg.inv({G2})", (2, 2, 2), edges=SMOOTH, apart=True, complex=True),
    Call(f"tf.linalg.solve({G2}, x, adjoint=True)", (2, 2, 2), edges=SMOOTH, apart=True,
         complex=True),
    Call(f"tf.linalg.triangular_solve({G2}, x)", (2, 2, 2), edges=SMOOTH, apart=True, complex=True),
    Call(f"tf.linalg.lstsq({G2}, x, fast=True)", (2, 2), edges=SMOOTH),
    Call(f"tf.linalg.cholesky({W3})", (3, 3), edges=SMOOTH, complex=True),
    Call("tf.linalg.expm(x)", (2, 2), -0.7, 0.7, edges=SMOOTH, complex=True),
    Call(f"tf.linalg.sqrtm({W2} + 0.5 * {W2} @ {W2})", (2, 2), complex=True),
    Call(f"tf.linalg.qr({G2})[1]", (2, 2)), Call(f"tf.linalg.qr({G3})[0]", (3, 3)),
    Call(f"tf.linalg.eigvalsh({W3} + tf.linalg.diag(tf.constant([0, 4, 9], x.dtype)))", (3, 3)),
    Call("tf.linalg.svd(x + tf.linalg.diag(tf.constant([3, 6], x.dtype)), compute_uv=False)",
         (2, 2)),
    Call("tf.math.real(tf.linalg.eigvals(x + tf.linalg.diag(tf.constant([2, 7], x.dtype))))",
         (2, 2)),
    Call("tf.matmul(x, tf.sin(x), adjoint_a=True)", (2, 2, 2), edges=SMOOTH, apart=True,
         complex=True, lower=True),
    Call("tf.raw_ops.BatchMatMul(x=x, y=x)", (2, 2, 2), edges=SMOOTH, apart=True),
    Call("tf.raw_ops.BatchMatMulV3(x=x, y=x, Tout=x.dtype)", (2, 2, 2), edges=SMOOTH, apart=True),
    Call("tf.raw_ops.SparseMatMul(a=tf.cast(x, tf.float32), b=tf.cast(x, tf.float32))", (2, 2),
         single=True, edges=SMOOTH),
    Call("tf.einsum('bij,bkj->bik', x, x)", (2, 2, 2), edges=SMOOTH, apart=True, complex=True),
    Call("tf.linalg.diag(x * x)", (2, 3), edges=SMOOTH, apart=True, complex=True),
    Call("tf.linalg.diag_part(x * x)", (2, 2, 2), edges=SMOOTH, apart=True, complex=True),
    Call("tf.linalg.set_diag(x, x[:, 0] * x[:, 1])", (2, 2, 2), edges=SMOOTH, apart=True),
    Call("tf.linalg.band_part(x * x, 0, 1)", (2, 2, 2), edges=SMOOTH, apart=True, complex=True),
    Call("tf.linalg.tensor_diag(x * x) + tf.linalg.tensor_diag_part(tf.tensordot(x, x, 0))", (3,),
         edges=SMOOTH),
    Call("tf.raw_ops.MatrixDiag(diagonal=x * x)", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.raw_ops.MatrixDiagPart(input=x * x)", (2, 2, 2), edges=SMOOTH, apart=True),
    Call("tf.raw_ops.MatrixDiagPartV2(input=x * x, k=1, padding_value=tf.zeros([], x.dtype))",
         (2, 2, 2), edges=SMOOTH, apart=True),
    Call("tf.raw_ops.MatrixDiagV2(diagonal=x * x, k=1, num_rows=-1, num_cols=-1, "
         "padding_value=tf.zeros([], x.dtype))", (2, 2), edges=SMOOTH, apart=True),
    Call("tf.raw_ops.MatrixSetDiag(input=x, diagonal=x[:, 0] * x[:, 1])", (2, 2, 2),
         edges=SMOOTH, apart=True),
    Call("tf.raw_ops.MatrixSetDiagV2(input=x, diagonal=x[:, 0] * x[:, 1], k=0)", (2, 2, 2),
         edges=SMOOTH, apart=True),
    Call("tf.linalg.tridiagonal_solve(tf.stack([x[0], x[1] + 5.0, x[2]]), tf.stack([x[0], x[1]], "
         "1))", (3, 3), edges=SMOOTH),
    Call("tf.linalg.tridiagonal_matmul(tf.stack([x[0], x[1] + 5.0, x[2]]), tf.stack([x[0], x[1]], "
         "1))", (3, 3), edges=SMOOTH),
    Call("tf.linalg.banded_triangular_solve(tf.stack([x[0] + 4.0, x[1]]), x[:2, :, tf.newaxis][0])",
         (2, 3), edges=SMOOTH),
    *(Call(f"tf.math.real(tf.signal.{f}(tf.complex(x, x * x))) + "
           f"tf.math.imag(tf.signal.{f}(tf.complex(x, x * x)))", (1, 2, 3)[-rank:],
           edges=SMOOTH)
      for f, rank in (("fft", 1), ("ifft", 1), ("fft2d", 2), ("ifft2d", 2), ("fft3d", 3),
                      ("ifft3d", 3))),
    *(Call(f"tf.abs(tf.signal.{f}(x) + 40.0)", (1, 2, 4)[-rank:], edges=SMOOTH)
      for f, rank in (("rfft", 1), ("rfft2d", 2))),
    *(Call(f"tf.signal.{f}(tf.complex(x, x * x))", (1, 2, 3)[-rank:], edges=SMOOTH)
      for f, rank in (("irfft", 1), ("irfft2d", 2))),
    Call("tf.math.angle(tf.complex(x[0] + 3.0, x[1]))", (2, 3), edges=SMOOTH),
    Call("tf.abs(x * x)", (3,), 0.5, 1.5, complex=True),
    Call("tf.math.conj(x) * x * x", (3,), edges=SMOOTH, complex=True),
    Call("tf.linalg.adjoint(x) * 2.0", (2, 2, 2), edges=SMOOTH, apart=True, complex=True),
]  # fmt: skip

INDICES = [
    Call("tf.gather(x * x, [0, 0, 2])", (3, 2), edges=SMOOTH, complex=True),
    Call("tf.gather_nd(x * x, [[0, 0], [0, 0], [2, 1]])", (3, 2), edges=SMOOTH, complex=True),
    Call("tf.raw_ops.Gather(params=x * x, indices=[0, 0, 2])", (3, 2), edges=SMOOTH),
    Call("tf.dynamic_stitch([[0, 1, 1], [1, 2, 0]], [x, x * x])", (3, 2), edges=SMOOTH),
    Call("tf.raw_ops.ParallelDynamicStitch(indices=[[0, 1, 2], [3, 4, 5]], data=[x, x * x])",
         (3, 2), edges=SMOOTH),
    Call("tf.dynamic_partition(x * x, [0, 1, 0], 2)[0]", (3, 2), edges=SMOOTH),
    Call("tf.scatter_nd([[1], [1], [0]], x * x, [3, 2])", (3, 2), edges=SMOOTH),
    *(Call(f"tf.tensor_scatter_nd_{name}(x * x, [[0], [2]], x[:2])", (3, 2), edges=SMOOTH)
      for name in ("add", "sub", "update")),
    Call("tf.tensor_scatter_nd_max(x * x, [[0], [2]], x[:2])", (3, 2)),
    Call("tf.tensor_scatter_nd_min(x * x, [[0], [2]], x[:2])", (3, 2)),
    Call("tf.raw_ops.ScatterNdNonAliasingAdd(input=x * x, indices=[[0], [0]], updates=x[:2])",
         (3, 2), edges=SMOOTH),
    Call("tf.math.top_k(x, 2)[0]", (2, 3), apart=True),
    Call("tf.raw_ops.NthElement(input=x, n=1)", (2, 3), apart=True),
    Call("tf.sort(x * x * x)", (2, 3), apart=True),
    Call("tf.reverse_sequence(x * x, [2, 1], 1)", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.reverse(x * x, [1])", (2, 3), edges=SMOOTH, apart=True, complex=True, lower=True),
    Call("tf.roll(x * x, 1, 1)", (2, 3), edges=SMOOTH, apart=True, complex=True),
    Call("tf.pad(x * x, [[0, 0], [1, 1]], 'REFLECT')", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.pad(x * x, [[0, 0], [1, 1]], constant_values=0.5)", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.tile(x * x, [1, 2])", (2, 2), edges=SMOOTH, apart=True, complex=True, lower=True),
    Call("tf.broadcast_to(x * x, [2, 2, 3])", (2, 3), edges=SMOOTH),
    Call("x[:, ::-2] * x[:, 1:]", (2, 3), 0.3, 1.0, ("ties",)),
    Call("tf.strided_slice(x * x, [0, 2], [2, 0], [1, -1])", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.split(x * x, [1, 2], 1)[1]", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.split(x * x, 2, 1)[1]", (2, 4), edges=SMOOTH, apart=True),
    Call("tf.stack(tf.unstack(x * x, axis=1)[::-1], 1)", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.raw_ops.Concat(concat_dim=1, values=[x, x * x])", (2, 2), edges=SMOOTH, apart=True),
    Call("tf.linspace(x[0], x[1], 4)", (2,), edges=SMOOTH),
    Call("tf.fill([2, 2], x[0] * x[1])", (2,), edges=SMOOTH),
    Call("x * tf.one_hot([1, 0], 3, dtype=x.dtype)", (2, 3), edges=SMOOTH),
]  # fmt: skip

_LIST = "tf.TensorArray(x.dtype, 3, element_shape=x.shape[1:]).unstack(x * x)"
OTHERS = [
    Call(f"{_LIST}.gather([0, 0, 2])", (3, 2), edges=SMOOTH),
    Call(f"{_LIST}.stack()", (3, 2), edges=SMOOTH),
    Call(f"{_LIST}.read(1)", (3, 2), edges=SMOOTH),
    Call(f"{_LIST}.concat()", (3, 2), edges=SMOOTH),
    Call(f"{_LIST}.write(1, x[0] * x[2]).stack()", (3, 2), edges=SMOOTH),
    Call("tf.TensorArray(x.dtype, 3, element_shape=x.shape[1:]).scatter([2, 0, 1], x * x).stack()",
         (3, 2), edges=SMOOTH),
    Call("tf.TensorArray(x.dtype, 2, element_shape=[None, 2]).split(x * x, [1, 2]).concat()",
         (3, 2), edges=SMOOTH),
    Call("tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(x[:, :2]), x[:, 2:])", (2, 4),
         edges=SMOOTH, apart=True),
    Call("tf.nn.softmax_cross_entropy_with_logits(x[:, :2] ** 2, x[:, 2:])", (2, 4),
         edges=SMOOTH, apart=True),
    Call("tf.nn.sparse_softmax_cross_entropy_with_logits([1, 0], x)", (2, 3), edges=SMOOTH,
         apart=True),
    Call("tf.nn.sigmoid_cross_entropy_with_logits(x[:, :2], x[:, 2:])", (2, 4), apart=True),
    Call("tf.nn.ctc_loss(tf.constant([[1]]), tf.cast(x, tf.float32), tf.constant([1]), "
         "tf.constant([3]), blank_index=0)", (3, 1, 3), edges=SMOOTH, single=True),
    Call("tf.compat.v1.nn.ctc_loss(tf.sparse.from_dense([[1]]), x, [3])", (3, 1, 3), edges=SMOOTH),
    Call("tf.nn.isotonic_regression(x * 0.01 + tf.constant([3.0, 2.9, 1.0, 1.4], x.dtype))[0]",
         (2, 4), -0.5, 0.5, apart=True),
    Call("tf.nn.batch_normalization(x * x, *tf.nn.moments(x * x, [1], keepdims=True), None, "
         "None, 0.1)", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.keras.ops.layer_normalization(x, c([3], 1, x.dtype), c([3], 2, x.dtype), -1, 0.1)",
         (2, 3), edges=SMOOTH, apart=True),
    Call("tf.quantization.fake_quant_with_min_max_args(tf.cast(x, tf.float32), -9.0, 9.0) * 0.0 + "
         "tf.cast(x, tf.float32)", (2, 3), single=True, apart=True),
    Call("tf.keras.layers.UnitNormalization(dtype=x.dtype.name)(x)", (2, 3), 0.3, 1.0, apart=True),
    Call("tf.ensure_shape(tf.debugging.check_numerics(x * x, ''), x.shape)", (2, 3), edges=SMOOTH,
         apart=True),
    Call("tf.raw_ops.IdentityN(input=[x, x * x])[1]", (2, 3), edges=SMOOTH, apart=True),
    Call("tf.grad_pass_through(tf.identity)(x) * x", (2, 3), edges=SMOOTH, apart=True),
]  # fmt: skip

CALLS = [*ELEMENTWISE, *PAIRS, *REDUCTIONS, *IMAGES, *MATRICES, *INDICES, *OTHERS]


def source_of(call: Call, edge: str, unknown: bool) -> fuzz.Source:
    """Returns the argument of a call, of known or unknown number of rows."""
    spec = (None, *call.shape[1:]) if unknown else call.shape
    return fuzz.Source("x0", call.shape, spec, "f64", call.low, call.high, edge)


BEFORE = ("{0}", "{0}", "turned({0})", "{0} * 1.0", "tf.reverse({0}, [-1])")
AFTER = ("{0}", "tf.sin({0})", "{0} * {0}", "{0} * {0} * {0} + {0}", "tf.reduce_sum({0}, -1)")


@st.composite
def programs(draw, calls=tuple(CALLS)) -> fuzz.Program:
    """Returns a program of one call, with what comes before it and after it."""
    call = draw(st.sampled_from(calls))
    edge = draw(st.sampled_from(("", *call.edges)))
    kinds = ["", "", *(["complex"] if call.complex else []), *(["lower"] if call.lower else [])]
    kind = draw(st.sampled_from(kinds))
    steps = [f"x = {draw(st.sampled_from(BEFORE)).format('x0')}"]
    if kind == "complex":
        steps.append("x = tf.complex(x, turned(x) * 0.5)")
    elif kind == "lower":
        steps.append(f"x = tf.cast(x, {draw(st.sampled_from(('f16', 'bf16')))})")
    steps.append(f"v = {call.code}")
    if kind == "complex":
        steps.append("v = tf.math.real(v) + 2.0 * tf.math.imag(v)")
    elif kind == "lower" or call.single:
        steps.append("v = tf.cast(v, f64)")
    after = draw(st.sampled_from(AFTER))
    steps.append(f"y = {after.format('v')}")
    source = source_of(call, edge, call.apart and draw(st.booleans()))
    return fuzz.Program((source,), tuple(steps), "y", False, single=call.single)
