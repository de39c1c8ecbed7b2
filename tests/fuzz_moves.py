"""The steps of random programs that move entries, and those that call functions and loops."""

from __future__ import annotations

import numpy as np
from fuzz import Inapplicable, Scope
from fuzz_steps import distinct, nonzero, within


def reshaped(s: Scope) -> str:
    v = s.name()
    sizes = s.shape(v)
    lead, rest = (sizes[:1], sizes[1:]) if s.apart and sizes else ([], sizes)
    size, wanted = int(np.prod(rest)), []
    while size > 1 and len(wanted) < 3:
        factor = s.one_of(*[f for f in range(1, size + 1) if size % f == 0])
        wanted.append(factor)
        size //= factor
    shape = [*lead, *wanted, *([size] if size != 1 or not wanted else [])]
    if 0 not in shape and s.flag():
        shape[0 if s.apart else s.integer(0, len(shape) - 1)] = -1
    elif s.apart and s.flag():
        return f"tf.reshape({v}, tf.concat([tf.shape({v})[:1], {shape[1:]}], 0))"
    return f"tf.reshape({v}, {shape})"


def transposed(s: Scope) -> str:
    v = s.name((2, 5))
    order = list(range(len(s.shape(v))))
    for a in range(1 if s.apart else 0, len(order) - 1):
        b = s.integer(a, len(order) - 1)
        order[a], order[b] = order[b], order[a]
    return f"tf.transpose({v}, {order})"


def sliced(s: Scope) -> str:
    v = s.name((1, 5))
    axis = s.axis(v)
    n = s.shape(v)[axis]
    begin = s.integer(0, max(n - 1, 0))
    if s.flag():
        at = s.one_of(f"{begin}:", f":{begin}", "::2", "::-1", "1:", ":-1", f"{max(n - 1, 0)}::-1",
                      "tf.newaxis", f"{begin}" if n else ":")  # fmt: skip
        return f"{v}[{':, ' * axis}{at}]" if s.flag() else f"{v}[{':, ' * axis}{at}, ...]"
    starts = [begin if a == axis else 0 for a in range(len(s.shape(v)))]
    size = [-1] * len(starts)
    if s.flag():
        size[axis] = s.integer(0, n - begin) if n else 0
    return f"tf.slice({v}, {starts}, {size})"


def joined(s: Scope) -> str:
    v = s.name((1, 4))
    axis = s.axis(v)

    def fits(w):
        mine = [n for a, n in enumerate(s.shape(v)) if a != axis]
        return w.ndim == len(s.shape(v)) and [n for a, n in enumerate(w.shape) if a != axis] == mine

    others = [s.partner(v, fits) for _ in range(s.integer(1, 2))]
    return f"tf.concat([{', '.join([v, *others])}], {s.written(v, axis)})"


def stacked(s: Scope) -> str:
    v = s.name((0, 3))
    w = s.partner(v, lambda w: list(w.shape) == s.shape(v))
    return f"tf.stack([{v}, {w}], {s.integer(int(s.apart), max(len(s.shape(v)), int(s.apart)))})"


def split(s: Scope) -> str:
    v = s.name((1, 5))
    axis = s.axis(v, 1)
    n = s.shape(v)[axis]
    first = s.integer(0, n)
    form = s.one_of(f"tf.split({{}}, [{first}, {n - first}], {{}})[{s.integer(0, 1)}]",
                    f"tf.split({{}}, {n}, {{}})[{n - 1}]",
                    f"tf.unstack({{}}, {n}, {{}})[{s.integer(0, n - 1)}]")  # fmt: skip
    return form.format(v, axis)


def padded(s: Scope) -> str:
    v = s.name((1, 4))
    axis = s.axis(v, 2)
    pads = [[0, 0]] * len(s.shape(v))
    pads[axis] = [s.integer(0, 1), s.integer(0, 1)]
    mode = s.one_of("'CONSTANT'", "'CONSTANT', constant_values=0.7", "'REFLECT'", "'SYMMETRIC'")
    if 0 in s.shape(v) and "CONSTANT" not in mode:
        raise Inapplicable  # TensorFlow's gradient takes no tensor without entries
    return f"tf.pad({v}, {pads}, {mode})"


def repeated(s: Scope) -> str:
    v = s.name((1, 4))
    axis = s.axis(v)
    n = s.shape(v)[axis]
    times = [1] * len(s.shape(v))
    times[axis] = 2
    counts = [s.integer(0, 2) for _ in range(n)]
    shape = s.shape(v)
    wide = [3 if m == 1 and (a or not s.apart) else m for a, m in enumerate(shape)]
    wide = wide if s.apart else [2, *wide]
    return s.one_of(f"tf.tile({v}, {times})", f"tf.repeat({v}, 2, {axis})",
                    f"tf.repeat({v}, {counts}, {axis})", f"tf.broadcast_to({v}, {wide})",
                    f"tf.boolean_mask({v}, {[k > 0 for k in counts]}, axis={axis})",
                    "tf.compress_missing" if False else f"tf.roll({v}, 1, {axis})",
                    )  # fmt: skip


def gathered(s: Scope) -> str:
    v = s.name((1, 4))
    axis = s.axis(v, 1)
    n, shape = s.shape(v)[axis], s.shape(v)
    indices = [s.integer(0, n - 1) for _ in range(s.integer(1, 3))]
    form = s.integer(0, 4)
    if form == 0 and axis:
        rows = [[s.integer(0, n - 1) for _ in range(2)] for _ in range(shape[0])]
        if rows and axis == 1:
            return f"tf.gather({v}, {rows}, batch_dims=1)"
    if form == 1 and not s.apart and shape[0]:
        return f"tf.gather_nd({v}, {[[s.integer(0, shape[0] - 1)] for _ in range(2)]})"
    if form == 2 and axis == 1 and shape[0]:
        return f"tf.gather_nd({v}, {[[[k]] for k in indices[:1]] * shape[0]}, batch_dims=1)"
    if form == 3:
        return f"tf.gather({v}, {[indices, indices[::-1]]}, axis={axis})"
    return f"tf.gather({v}, {indices}, axis={s.written(v, axis)})"


def turned(s: Scope) -> str:
    v = s.name((1, 4))
    axis = s.axis(v)
    shape = s.shape(v)
    if len(shape) > 1 and axis and s.flag():
        lengths = [s.integer(0, shape[axis]) for _ in range(shape[0])]
        if lengths:
            return f"tf.reverse_sequence({v}, {lengths}, seq_axis={axis}, batch_axis=0)"
    return s.one_of(f"tf.reverse({v}, [{s.written(v, axis)}])", f"tf.roll({v}, -1, {axis})",
                    f"tf.roll({v}, [1, 1], [{axis}, {axis}])")  # fmt: skip


def widened(s: Scope) -> str:
    v = s.name((0, 4))
    if 1 in s.shape(v) and s.flag():
        ones = [a for a, n in enumerate(s.shape(v)) if n == 1 and (a or not s.apart)]
        if ones:
            return f"tf.squeeze({v}, [{s.one_of(*ones)}])"
    least = int(s.apart and len(s.shape(v)) > 0)
    return f"tf.expand_dims({v}, {s.integer(least, len(s.shape(v)))})"


def scattered(s: Scope) -> str:
    if s.apart and s.integer(0, 2):
        raise Inapplicable
    v = s.name((1, 3), filled=True)
    n, *rest = s.shape(v)
    places = [[s.integer(0, 2)] for _ in range(n)]
    different = [[k] for k in s.order(n)]
    flat = [k for (k,) in places]
    segments = sorted(flat)
    w = s.partner(v, lambda w: list(w.shape) == s.shape(v))
    form = s.one_of(
        f"tf.scatter_nd({places}, {{0}}, {[3, *rest]})",
        f"tf.tensor_scatter_nd_add({{0}}, {[[0], [0]]}, tf.stack([{{1}}[0], {{1}}[-1]]))",
        f"tf.tensor_scatter_nd_sub({{0}}, {[[n - 1]]}, {{1}}[:1])",
        f"tf.tensor_scatter_nd_update({{0}}, {different[:1]}, {{1}}[:1])",
        f"tf.math.segment_sum({{0}}, {segments})", f"tf.math.segment_mean({{0}}, {segments})",
        f"tf.math.unsorted_segment_sum({{0}}, {flat}, 3)",
        f"tf.math.unsorted_segment_mean({{0}}, {flat}, 3)",
        f"tf.math.unsorted_segment_sqrt_n({{0}}, {flat}, 3)",
        f"tf.dynamic_partition({{0}}, {[k % 2 for k in flat]}, 2)[{s.integer(0, 1)}]",
        f"tf.dynamic_stitch([{[k for (k,) in different]}, [{n}]], [{{0}}, {{1}}[:1]])",
    )  # fmt: skip
    return form.format(v, w)


def scattered_extreme(s: Scope) -> str:
    v = s.name((1, 3), test=lambda v: distinct(v) and v.size)
    n = s.shape(v)[0]
    s.kinks = True
    segments = sorted(s.integer(0, 1) for _ in range(n))
    segments = [k - segments[0] for k in segments]
    return f"tf.math.segment_{s.one_of('max', 'min')}({v}, {segments})"


def segment_product(s: Scope) -> str:
    v = s.name((1, 3), test=lambda v: nonzero(v) and v.size)
    segments = [s.integer(0, 1) for _ in range(s.shape(v)[0])]
    return f"tf.math.unsorted_segment_prod({v}, {segments}, 2)"


def ordered(s: Scope) -> str:
    v = s.name((1, 4), test=lambda v: distinct(v) and v.size)
    s.kinks = True
    axis = s.axis(v)
    k = s.integer(1, s.shape(v)[-1])
    direction = s.one_of("ASCENDING", "DESCENDING")
    if s.apart and len(s.shape(v)) == 1:
        raise Inapplicable
    return s.one_of(f"tf.math.top_k({v}, {k})[0]", f"tf.sort({v}, {axis}, '{direction}')",
                    f"tf.gather({v}, tf.argsort({v}, -1), batch_dims={len(s.shape(v)) - 1})",
                    f"tf.math.top_k({v}, {k}, sorted=True)[0]")  # fmt: skip


MOVES = [
    reshaped, reshaped, transposed, transposed, sliced, sliced, joined, joined, stacked, split,
    padded, repeated, repeated, gathered, gathered, turned, widened, scattered, scattered,
    scattered_extreme, segment_product, ordered,
]  # fmt: skip

# Of a tensor `a`, into one of the same shape.
SAME = ["tf.sin(a)", "a * 0.5", "a * a * 0.3", "tf.nn.softmax(a)", "tf.cumsum(a)",
        "tf.reverse(a, [0])",
        "tf.roll(a, 1, 0)", "a - tf.reduce_mean(a, -1, keepdims=True)", "tf.tanh(a + b)", "a * b",
        "tf.concat([a[1:], a[:1]], 0)", "a + tf.stop_gradient(a)", "tf.sin(a) * tf.cos(b)",
        "tf.reduce_sum(a) * a * 0.1", "a + tf.reduce_sum(b)"]  # fmt: skip
ALSO = ["tf.reduce_sum(a)", "tf.reduce_sum(a, 0)", "tf.stack([a, a * a])", "tf.reshape(a, [-1])",
        "tf.concat([a, b], 0)"]  # fmt: skip


def _body(s: Scope, v: str, rank: int, bodies) -> str:
    body = s.one_of(*bodies)
    if rank == 0 and any(w in body for w in ("softmax", "cumsum", "[", ", 0)", "-1")):
        raise Inapplicable
    s.hidden |= "stop_gradient" in body
    return body


def called(s: Scope) -> str:
    v = s.name((0, 4), test=within(4))
    w = s.partner(v, lambda w: list(w.shape) == s.shape(v))
    body = _body(s, v, len(s.shape(v)), SAME + ALSO)
    more = _body(s, v, len(s.shape(v)), SAME)
    return s.one_of(
        f"tf.function(lambda a, b: {body})({v}, {w})",
        f"tf.function(lambda a: tf.function(lambda b: {body})({w}))({v})",
        f"tf.recompute_grad(lambda a, b: {body})({v}, {w})",
        f"slope(lambda a: tf.sin(a) * a, {v})",
        f"tf.function(lambda a, b: (lambda a: {body})({more}))({v}, {w})",
    )  # fmt: skip


def branched(s: Scope) -> str:
    v = s.name((0, 4), test=within(4))
    w = s.partner(v, lambda w: list(w.shape) == s.shape(v))
    one, two = (_body(s, v, len(s.shape(v)), SAME) for _ in range(2))
    s.kinks = True
    sign = s.one_of("<", ">")
    by = s.name(test=lambda t: abs(t.sum()) > 0.2)
    return s.one_of(
        f"tf.cond(tf.reduce_sum({by}) {sign} 0.0, lambda: (lambda a, b: {one})({v}, {w}), "
        f"lambda: (lambda a, b: {two})({v}, {w}))",
        f"tf.switch_case(tf.cast(tf.reduce_sum({by}) {sign} 0.0, tf.int32), "
        f"[lambda: (lambda a, b: {one})({v}, {w}), lambda: (lambda a, b: {two})({v}, {w})])",
    )


def looped(s: Scope) -> str:
    v = s.name((0, 4), test=within(4))
    w = s.partner(v, lambda w: list(w.shape) == s.shape(v))
    body = _body(s, v, len(s.shape(v)), SAME)
    most = s.one_of("", ", maximum_iterations=2")
    return s.one_of(
        f"tf.while_loop(lambda i, a: i < {s.integer(0, 3)}, "
        f"lambda i, a: (i + 1, (lambda b: {body})({w})), (0, {v}){most})[1]",
        f"tf.while_loop(lambda a, b: tf.constant(True), lambda a, b: ({body}, a), ({v}, {w}), "
        f"maximum_iterations=2)[{s.integer(0, 1)}]",
    )


def mapped(s: Scope) -> str:
    v = s.name((1, 4), test=lambda t: within(4)(t) and t.shape[0])
    rank = len(s.shape(v)) - 1
    body = _body(s, v, rank, SAME + (ALSO if rank else []))
    w = s.partner(v, lambda w: list(w.shape) == s.shape(v)[1:] or list(w.shape) == s.shape(v))
    if s.shape(w) == s.shape(v):
        pair = f"lambda t: (lambda a, b: {body})(*t), ({v}, {w}), fn_output_signature={v}.dtype"
        return s.one_of(f"tf.map_fn({pair})", f"tf.vectorized_map({pair.split(', fn_out')[0]})")
    one = f"lambda a: (lambda b: {body})({w}), {v}"
    return s.one_of(f"tf.map_fn({one})", f"tf.vectorized_map({one})")


def scanned(s: Scope) -> str:
    v = s.name((1, 4), test=lambda t: within(2)(t) and t.shape[0])
    body = s.one_of("a * b", "a * 0.5 + tf.sin(b)", "tf.tanh(a) + b", "b * b")
    form = s.one_of("tf.scan({})", "tf.foldl({})", "tf.foldr({})", "tf.scan({}, reverse=True)",
                    "tf.scan({}, initializer=tf.ones_like({}[0]))")  # fmt: skip
    return form.format(f"lambda a, b: {body}, {v}", v)


CALLS = [called, called, branched, looped, looped, mapped, mapped, scanned]
