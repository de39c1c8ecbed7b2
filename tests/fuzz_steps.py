"""The steps of random programs, without calls: each draws a line of code from a scope."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from fuzz import Inapplicable, Scope

GAP = 0.02


def away(*kinks):
    return lambda v: np.abs(v[..., None] - np.array(kinks)).min(initial=1.0) > GAP


def distinct(v):
    return np.diff(np.sort(v, axis=None)).min(initial=1.0) > GAP


def positive(v):
    return v.min(initial=1.0) > 0.15


def nonzero(v):
    return np.abs(v).min(initial=1.0) > 0.15


def within(limit):
    return lambda v: np.abs(v).max(initial=0.0) < limit


# Elementwise functions by where they are smooth.
ANYWHERE = [
    "tf.sin",
    "tf.cos",
    "tf.tanh",
    "tf.sigmoid",
    "tf.square",
    "tf.math.erf",
    "tf.atan",
    "tf.asinh",
    "tf.negative",
    "tf.math.softplus",
    "tf.nn.gelu",
    "tf.nn.silu",
    "tf.math.log_sigmoid",
    "tf.math.erfc",
    "tf.math.bessel_i0e",
    "tf.identity",
    "tf.math.exp",
    "tf.sinh",
    "tf.cosh",
    "tf.math.expm1",
    "tf.nn.softsign",
    "tf.ones_like",
    "stopped",
]
POSITIVE = [
    "tf.sqrt",
    "tf.math.log",
    "tf.math.rsqrt",
    "tf.math.log1p",
    "tf.math.lgamma",
    "tf.math.digamma",
]
SMALL = ["tf.asin", "tf.acos", "tf.atanh", "tf.math.erfinv", "tf.tan"]
KINKS = {
    "tf.nn.relu": (0,), "tf.nn.relu6": (0, 6), "tf.nn.leaky_relu": (0,), "tf.abs": (0,),
    "tf.nn.elu": (0,), "tf.nn.selu": (0,), "tf.sign": (0,),
}  # fmt: skip
STEPPED = ["tf.floor", "tf.math.ceil", "tf.round", "surrogate"]


def smooth(s: Scope) -> str:
    return f"{s.one_of(*ANYWHERE)}({s.name(test=within(4))})"


def on_positive(s: Scope) -> str:
    return f"{s.one_of(*POSITIVE)}({s.name(test=positive)})"


def on_small(s: Scope) -> str:
    return f"{s.one_of(*SMALL)}({s.name(test=within(0.9))})"


def kinked(s: Scope) -> str:
    fn = s.one_of(*KINKS)
    s.kinks = True
    return f"{fn}({s.name(test=away(*KINKS[fn]))})"


def stepped(s: Scope) -> str:
    s.kinks = True
    return f"{s.one_of(*STEPPED)}({s.name(test=lambda v: away(0)(v * 4 - np.round(v * 4)))})"


def reciprocal(s: Scope) -> str:
    v = s.name(test=nonzero)
    return s.one_of("1.0 / {0}", "tf.math.reciprocal({0})", "{0} / tf.abs({0})").format(v)


def _broadcasts(shape):
    def suits(v):
        return all(n == m or 1 in (n, m) for n, m in zip(reversed(v.shape), reversed(shape)))

    return suits


def binary(s: Scope) -> str:
    v = s.name()
    w = s.partner(v, _broadcasts(s.shape(v)))
    form = s.one_of(
        "{} * {}", "{} + {}", "{} - {}", "tf.math.squared_difference({}, {})",
        "tf.where({0} > 100.0, {0}, {1})", "tf.math.divide_no_nan({}, 3.0 + {} ** 2)",
        "tf.math.xlogy({}, 1.5 + {} ** 2)", "tf.atan2({}, 2.0 + {} ** 2)",
        "tf.pow(1.0 + {} ** 2, tf.sin({}))", "tf.math.multiply_no_nan({}, {})",
    )  # fmt: skip
    return form.format(v, w)


def added(s: Scope) -> str:
    v = s.name()
    others = [s.partner(v, lambda w: list(w.shape) == s.shape(v)) for _ in range(2)]
    return s.one_of("tf.add_n([{}, {}, {}])", "tf.math.accumulate_n([{}, {}, {}])").format(
        v, *others
    )


def larger(s: Scope) -> str:
    v = s.name()
    w = s.partner(
        v,
        lambda w: (
            _broadcasts(s.shape(v))(w) and np.abs(s.values[v].numpy() - w).min(initial=1.0) > GAP
        ),
    )
    s.kinks = True
    return s.one_of(
        "tf.maximum({}, {})", "tf.minimum({}, {})", "tf.where({0} > {1}, {0}, -{1})"
    ).format(v, w)


def with_constant(s: Scope) -> str:
    v = s.name()
    shape = [n if s.flag() else 1 for n in s.shape(v)][s.integer(0, len(s.shape(v))) :]
    if s.integer(0, 5) == 5 and not s.apart:
        shape = [2, *([1] * (len(s.shape(v)) - len(shape))), *shape]
    form = s.one_of("{} * {}", "{} + {}", "{1} - {0}", "{} / (2.0 + {} ** 2)", "{1} ** 2 * {0}")
    return form.format(v, s.constant(shape, v))


def clipped(s: Scope) -> str:
    v = s.name(test=away(-0.8, 0.7))
    s.kinks = True
    return f"tf.clip_by_value({v}, -0.8, 0.7)"


def chosen(s: Scope) -> str:
    v = s.name()
    w = s.partner(v, lambda w: list(w.shape) == s.shape(v))
    shape = [n if s.flag() else 1 for n in s.shape(v)]
    return f"tf.where({s.constant(shape, v)} > 0.0, {v}, {w})"


def reduced(s: Scope) -> str:
    v = s.name((1, 5))
    sizes = s.shape(v)
    axes = [s.axis(v)] if s.apart or s.flag() else sorted({s.axis(v), s.axis(v)})
    at = s.written(v, axes[0]) if len(axes) == 1 else axes
    if not s.apart and s.integer(0, 5) == 5:
        at = None
    fn = s.one_of(
        "sum", "mean", "sum", "mean", "prod", "logsumexp", "variance", "max", "min", "std"
    )
    fn += "" if fn not in ("max", "min", "std") or distinct(s.values[v].numpy()) else "?"
    if fn.endswith("?") or (fn == "std" and 1 in sizes):
        raise Inapplicable
    s.kinks |= fn in ("max", "min", "std")
    return f"tf.math.reduce_{fn}({v}, axis={at}, keepdims={s.flag()})"


def norm(s: Scope) -> str:
    v = s.name((1, 5), test=nonzero)
    axis = s.axis(v)
    s.kinks = True
    return s.one_of("tf.norm({}, axis={}, keepdims=True)", "tf.math.reduce_euclidean_norm({}, {})",
                    "tf.math.l2_normalize({}, {})").format(v, axis)  # fmt: skip


def normalized(s: Scope) -> str:
    v = s.name((1, 4))
    axis = s.axis(v)
    form = s.one_of(
        "tf.nn.softmax({0}, {1})", "tf.nn.log_softmax({0}, {1})",
        "{0} - tf.reduce_mean({0}, {1}, keepdims=True)",
        "tf.nn.batch_normalization({0}, *tf.nn.moments({0}, [{1}], keepdims=True), "
        "None, None, 0.1)",
        "{0} * tf.math.rsqrt(tf.reduce_mean({0} ** 2, {1}, keepdims=True) + 0.2)",
    )  # fmt: skip
    return form.format(v, axis)


def running(s: Scope) -> str:
    fn = s.one_of("cumsum", "cumsum", "cumprod", "cumulative_logsumexp")
    v = s.name((1, 4), test=nonzero if fn == "cumprod" else None)
    exclusive = s.flag() and fn != "cumulative_logsumexp"
    axis = s.written(v, s.axis(v))
    return f"tf.math.{fn}({v}, {axis}, exclusive={exclusive}, reverse={s.flag()})"


def multiplied(s: Scope) -> str:
    v = s.name((2, 4))
    *lead, m, n = s.shape(v)
    k = s.integer(1, 3)
    form = s.integer(0, 6)
    if form == 0:
        return f"tf.matmul({v}, {s.constant([k, n], v)}, transpose_b=True)"
    if form == 1 and not s.apart:
        return f"tf.matmul({s.constant([k, m], v)}, {v})"
    if form == 2 and not s.apart:
        return f"tf.matmul({v}, {s.constant([*lead, m, k], v)}, transpose_a=True)"
    if form == 3:
        return f"tf.linalg.matvec({v}, {s.constant([n], v)})"
    if form == 4 and lead:
        return f"tf.matmul({v}, {s.constant([*lead, n, k], v)})"
    if form == 5:
        return f"tf.tensordot({v}, {s.constant([n, k], v)}, [[-1], [0]])"
    return f"tf.matmul({v}, {s.constant([n, k], v)})"


def product(s: Scope) -> str:
    v = s.name((2, 4))
    sizes = s.shape(v)
    w = s.partner(v, lambda w: w.shape[:-2] == tuple(sizes[:-2]) and w.ndim == len(sizes))
    (m, n), (p, q) = sizes[-2:], s.shape(w)[-2:]
    if n == p:
        return f"tf.matmul({v}, {w})"
    if n == q:
        return f"tf.matmul({v}, {w}, transpose_b=True)"
    if m == p:
        return f"tf.matmul({v}, {w}, transpose_a=True)"
    raise Inapplicable


ONE_EINSUM = {
    1: ["a->a", "a->"], 2: ["ab->ba", "ab->a", "ab->b", "ab->", "...b->b..."],
    3: ["abc->acb", "abc->ac", "abc->ca", "a...->a..."], 4: ["abcd->adbc", "a...d->ad..."],
}  # fmt: skip
TWO_EINSUM = ["ab,b->a", "ab,ab->a", "ab,ab->ab", "a,b->ab", "ab,cb->ac", "ab,ac->abc",
              "abc,cd->abd", "abc,adc->abd", "...a,a->...a", "...ab,...cb->...ac"]  # fmt: skip


def einsum(s: Scope) -> str:
    v = s.name((1, 4))
    if s.flag():
        return f"tf.einsum('{s.one_of(*ONE_EINSUM[len(s.shape(v))])}', {v})"
    sizes = s.shape(v)
    fitting = [e for e in TWO_EINSUM if "..." in e or len(e.split(",")[0]) == len(sizes)]
    equation = s.one_of(*fitting)
    first, second = equation.split("->")[0].replace("...", "").split(",")
    if len(first) > len(sizes):
        raise Inapplicable
    known = dict(zip(reversed(first), reversed(sizes)))
    shape = [known.get(label, 2) for label in second]
    if s.flag():
        return f"tf.einsum('{equation}', {v}, {s.constant(shape, v)})"
    return f"tf.einsum('{equation}', {v}, {s.partner(v, lambda w: list(w.shape) == shape)})"


def diagonal(s: Scope) -> str:
    if s.flag():
        v = s.name((1, 3), filled=True)
        # TensorFlow takes an unknown size for -1, and its diagonal for a matrix without entries.
        rows = s.shape(v)[-1] + 1
        return s.one_of(f"tf.linalg.diag({v})", f"tf.linalg.diag({v}, k=1, num_rows={rows})")
    v = s.name((2, 4), filled=True)
    form = s.one_of("tf.linalg.diag_part({0})", "tf.linalg.band_part({0}, 0, 1)",
                    "tf.linalg.trace({0})", "tf.linalg.set_diag({0}, {0}[..., 0] * 0.0 + 1.0)",
                    "tf.linalg.adjoint({0})", "tf.linalg.diag_part({0}, k=1)")  # fmt: skip
    square = s.shape(v)[-1] == s.shape(v)[-2]
    if ("set_diag" in form and not square) or ("k=1" in form and 1 in s.shape(v)):
        raise Inapplicable
    return form.format(v)


def decomposed(s: Scope) -> str:
    v = s.name((2, 3), test=lambda v: v.shape[-1] == v.shape[-2] and np.abs(v).max(initial=0) < 2)
    n = s.shape(v)[-1]
    good = f"({v} + 4.0 * tf.eye({n}, dtype={v}.dtype))"
    whole = f"(tf.matmul({v}, {v}, transpose_b=True) + tf.eye({n}, dtype={v}.dtype))"
    return s.one_of(
        f"tf.linalg.inv({good})", f"tf.linalg.det({good})", f"tf.linalg.solve({good}, {v})",
        f"tf.linalg.cholesky({whole})", f"tf.linalg.logdet({whole})",
        f"tf.linalg.triangular_solve({good}, {v})",
    )  # fmt: skip


def _image(s: Scope, rank: int, sizes: int = 2) -> str:
    return s.name((rank, rank), test=lambda v: min(v.shape, default=0) > 0)


def convolved(s: Scope) -> str:
    pad = s.one_of("SAME", "VALID")
    if s.flag():
        v = _image(s, 3)
        w = s.constant([s.integer(1, min(2, s.shape(v)[1])), s.shape(v)[2], 2], v)
        return f"tf.nn.conv1d({v}, {w}, {s.integer(1, 2)}, '{pad}')"
    v = _image(s, 4)
    _, h, w, k = s.shape(v)
    size = [s.integer(1, min(2, h)), s.integer(1, min(2, w))]
    form = s.integer(0, 3)
    if form == 0:
        return f"tf.nn.depthwise_conv2d({v}, {s.constant([*size, k, 2], v)}, [1, 1, 1, 1], '{pad}')"
    if form == 1:
        shape = [s.shape(v)[0], 2 * h, 2 * w, 1]
        return f"tf.nn.conv2d_transpose({v}, {s.constant([*size, 1, k], v)}, {shape}, 2, 'SAME')"
    if form == 2:
        return f"tf.nn.atrous_conv2d({v}, {s.constant([*size, k, 2], v)}, 2, 'SAME')"
    step = s.integer(1, 2)
    return f"tf.nn.conv2d({v}, {s.constant([*size, k, 2], v)}, {step}, padding='{pad}')"


def pooled(s: Scope) -> str:
    v = s.name((3, 4), test=distinct, filled=True)
    space = s.shape(v)[1:-1]
    size = [min(n, s.integer(1, 2)) for n in space]
    step = s.integer(1, min(size))
    kind = s.one_of("AVG", "AVG", "MAX")
    s.kinks |= kind == "MAX"
    return (
        f"tf.nn.pool({v}, {size}, '{kind}', {[step] * len(space)}, '{s.one_of('SAME', 'VALID')}')"
    )


def pictured(s: Scope) -> str:
    v = _image(s, 4)
    _, h, w, k = s.shape(v)
    return s.one_of(
        f"tf.image.resize({v}, [{h + 1}, {w}])",
        f"tf.image.extract_patches({v}, [1, {min(2, h)}, {min(2, w)}, 1], [1, 1, 1, 1], "
        "[1, 1, 1, 1], 'VALID')",
        f"tf.nn.space_to_depth({v}, {2 if h % 2 == w % 2 == 0 else 1})" if h % 2 == w % 2 == 0
        else f"tf.nn.depth_to_space(tf.concat([{v}] * 4, -1), 2)",
        f"tf.space_to_batch({v}, [1, 2], [[0, 0], [0, {w % 2}]])",
        f"tf.image.flip_left_right({v})",
        _fused_norm(s, v, k),
    )  # fmt: skip


def _fused_norm(s: Scope, v: str, k: int) -> str:
    # TensorFlow has no kernel of it in float64.
    channels = [f"tf.cast({s.constant([k], v)}, tf.float32)" for _ in range(4)]
    channels[3] += " ** 2 + 0.3"
    normed = (
        f"tf.compat.v1.nn.fused_batch_norm(tf.cast({v}, tf.float32), {', '.join(channels)}, "
        "0.1, is_training=False)[0]"
    )
    return f"tf.cast({normed}, {v}.dtype)"


def cast(s: Scope) -> str:
    v = s.name()
    return f"tf.cast({v}, {s.one_of('f32', 'f64')})"


def through_complex(s: Scope) -> str:
    v = s.name((1, 4))
    w = s.partner(v, lambda w: list(w.shape) == s.shape(v))
    made = f"tf.complex({v}, {w})"
    if s.shape(v)[-1] and s.flag():
        made = f"tf.signal.{s.one_of('fft', 'ifft')}({made})"
    form = s.one_of("tf.math.real({})", "tf.math.imag({})", "tf.math.abs({} + 40.0)",
                    "tf.math.real(tf.math.conj({0}) * {0})", "{}")  # fmt: skip
    return form.format(made)


def of_complex(s: Scope) -> str:
    v = s.name(dtype=s.one_of(tf.complex128, tf.complex64))
    form = s.one_of("tf.math.real({})", "tf.math.imag({})", "{0} * {0}", "tf.math.conj({})",
                    "tf.math.real({0} * tf.math.conj({0}))", "tf.exp(0.1 * {})")  # fmt: skip
    return form.format(v)


STEPS = [
    smooth, smooth, smooth, on_positive, on_small, kinked, stepped, reciprocal, binary, binary,
    binary, added, larger, with_constant, with_constant, clipped, chosen, reduced, reduced, reduced,
    norm, normalized, normalized, running, running, multiplied, multiplied, product, einsum, einsum,
    diagonal, decomposed, convolved, convolved, pooled, pictured, cast, through_complex, of_complex,
]  # fmt: skip
