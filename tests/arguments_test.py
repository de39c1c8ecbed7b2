"""What may be an argument, a source or a target: extension types, composite tensors, variables.

The oracle of a structure is the same function of its tensors one by one, or a closed form.
"""

import collections
import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from scenarios import array

import tfjac
from tfjac.errors import InvalidTypeError, InvalidValueError


class Mesh(tf.experimental.ExtensionType):
    """Floating tensors, one of integers, one within another type, and a field that is static."""

    class Scale(tf.experimental.ExtensionType):
        factors: tf.Tensor

    points: tf.Tensor
    order: tf.Tensor
    scale: Scale
    power: int = 2

    def __validate__(self):  # of what a user makes, not of what a Jacobian by it is held in
        self.points.shape.assert_is_compatible_with([3])


class Ragged(tf.experimental.ExtensionType):
    rows: tf.RaggedTensor
    weight: tf.Tensor


class Counts(tf.experimental.ExtensionType):
    counts: tf.Tensor


class Pair(NamedTuple):
    a: object
    b: object


@dataclasses.dataclass
class Point:
    """A dataclass as TensorFlow understands it."""

    a: object
    power: int

    def __tf_flatten__(self):
        return (self.power,), (self.a,)

    @classmethod
    def __tf_unflatten__(cls, fixed, parts):
        return cls(parts[0], fixed[0])


@dataclasses.dataclass
class Unhashable(Point):
    def __tf_flatten__(self):
        return ([self.power],), (self.a,)


@dataclasses.dataclass(frozen=True)
class Plain:
    """A dataclass that TensorFlow does not open."""

    a: object


P, S = array(3, seed=1), array(3, seed=2)
ORDER = np.array([2, 0, 1])


def mesh(power=2, points=P):
    return Mesh(tf.constant(points), tf.constant(ORDER), Mesh.Scale(tf.constant(S)), power)


def value_of(m):
    return tf.gather(m.points**m.power * m.scale.factors, m.order)


# d value / d points and / d factors, row i of entry order[i].
BY_POINTS = np.eye(3)[ORDER] * (2 * P * S)
BY_FACTORS = np.eye(3)[ORDER] * P**2


def in_graph(body, *args):
    return tf.function(body, autograph=False)(*args)


def check_mesh(found, by_points, by_factors):
    assert isinstance(found, Mesh) and found.power == 2
    np.testing.assert_array_equal(found.order, ORDER)  # what is no source comes back as it was
    np.testing.assert_allclose(found.points, by_points)
    np.testing.assert_allclose(found.scale.factors, by_factors)


def test_an_extension_type_is_a_source_of_a_prepared_function():
    jac = tfjac.prepare(value_of)
    check_mesh(jac(mesh()), BY_POINTS, BY_FACTORS)
    y, found = jac.value_and_jacobian(mesh())
    np.testing.assert_allclose(y, (P**2 * S)[ORDER])
    check_mesh(found, BY_POINTS, BY_FACTORS)
    assert "strategy" in jac.explain(mesh())


def test_a_second_call_of_an_extension_type_builds_nothing_and_other_static_fields_do():
    traces = []

    def fn(x, m):
        traces.append(m.power)
        return x * value_of(m)

    jac, x = tfjac.prepare(fn), tf.constant(array(3))
    for m in (mesh(), mesh(points=2 * P), mesh(power=3), mesh(), mesh(power=3, points=3 * P)):
        wanted = np.diag((m.points.numpy() ** m.power * S)[ORDER])
        np.testing.assert_allclose(jac(x, m), wanted)
    assert traces == [2, 3]
    info = jac.cache_info()
    assert (info.hits, info.misses) == (3, 2)


def test_extension_types_go_by_keyword_in_lists_and_under_several_argnums():
    def fn(x, ms, *, other):
        return x * value_of(ms[0]) * value_of(other)

    jac = tfjac.prepare(fn, argnums=(0, 1))
    by_x, (by_m,) = jac(tf.ones([3], tf.float64), [mesh()], other=mesh())
    y = (P**2 * S)[ORDER]
    np.testing.assert_allclose(by_x, np.diag(y**2))
    check_mesh(by_m, y[:, None] * BY_POINTS, y[:, None] * BY_FACTORS)


def test_an_extension_type_is_a_target():
    def fn(x):
        return Mesh(x**2, tf.constant(ORDER), Mesh.Scale(tf.constant(S)))

    found = tfjac.prepare(fn)(tf.constant(P))
    check_mesh(found, np.diag(2 * P), np.zeros([3, 3]))
    ys, _ = tfjac.prepare(fn).value_and_jacobian(tf.constant(P))
    np.testing.assert_allclose(ys.points, P**2)


@pytest.mark.parametrize("operator", ["vjp", "jvp", "hvp", "ntk", "ggn", "losses", "norms"])
def test_products_by_an_extension_type_are_those_by_its_tensors(operator):
    v = Mesh(tf.constant(S), tf.constant(ORDER), Mesh.Scale(tf.constant(P)))

    def asked(y, xs, v):
        if operator == "vjp":
            return tfjac.vjp(y, xs, tf.constant(P))
        if operator == "jvp":
            return tfjac.jvp(y, xs, v)
        if operator == "hvp":
            return tfjac.hvp(tf.reduce_sum(y**2), xs, v)
        if operator == "ntk":
            return tfjac.ntk(y, xs, tf.constant(P))
        if operator == "ggn":
            return tfjac.ggn(tf.reduce_sum(y**2), y, xs, v)
        if operator == "losses":
            return tfjac.per_example_gradients(y, xs)
        return tfjac.per_example_gradient_norms(y, xs)

    def both():
        m = in_this_graph(mesh())
        y = value_of(m)
        parts = asked(y, [m.points, m.scale.factors], [v.points, v.scale.factors])
        return asked(y, m, v), parts

    found, parts = in_graph(both)
    if isinstance(found, Mesh):
        check_mesh(found, *parts)
    else:
        np.testing.assert_allclose(found, parts)


def in_this_graph(m):
    return tf.nest.map_structure(tf.identity, m, expand_composites=True)


def test_a_tape_differentiates_a_jacobian_by_an_extension_type():
    @tf.function(autograph=False)
    def called(m):
        return value_of(m)

    def gradient(fn):
        m = in_this_graph(mesh())
        with tf.GradientTape() as tape:
            tape.watch([m.points, m.scale.factors])
            found = tfjac.jacobian(fn(m), m)
            loss = tf.reduce_sum(found.points**3) + tf.reduce_sum(found.scale.factors**3)
        return tape.gradient(loss, [m.points, m.scale.factors])

    wanted = [24 * P**2 * S**3 + 6 * P**5, 24 * P**3 * S**2]
    for fn in (value_of, called):
        for g, expected in zip(in_graph(gradient, fn), wanted):
            np.testing.assert_allclose(g, expected)


@pytest.mark.parametrize("kind", ["ragged", "sparse", "slices", "operator", "within"])
def test_composite_tensors_are_arguments_and_their_values_are_no_part_of_the_signature(kind):
    traces = []
    made = {
        "ragged": lambda s: tf.ragged.constant([[s, 1.0], [], [2.0]], dtype=tf.float64),
        "sparse": lambda s: tf.sparse.from_dense(tf.constant([[s, 1.0], [0, 0], [2.0, 0]])),
        "slices": lambda s: tf.IndexedSlices(
            tf.constant([[s + 1], [2.0]]), tf.constant([0, 2]), tf.constant([3, 1])
        ),
        "operator": lambda s: tf.linalg.LinearOperatorDiag([s + 1, 0.0, 2.0]),
        "within": lambda s: Ragged(tf.ragged.constant([[s, 1.0], [], [2.0]]), tf.constant(1.0)),
    }[kind]
    sums = {
        "ragged": lambda r: tf.reduce_sum(r, 1),
        "sparse": lambda r: tf.sparse.reduce_sum(r, 1),
        "slices": lambda r: tf.convert_to_tensor(r)[:, 0],
        "operator": lambda r: r.diag_part(),
        "within": lambda r: r.weight * tf.reduce_sum(r.rows, 1),
    }[kind]

    def fn(x, r):
        traces.append(1)
        return x * tf.cast(sums(r), x.dtype)

    jac, x = tfjac.prepare(fn), tf.constant(array(3))
    for s in (3.0, 5.0):
        np.testing.assert_allclose(jac(x, made(s)), np.diag([s + 1, 0, 2]))
        np.testing.assert_allclose(in_graph(jac, x, made(s)), np.diag([s + 1, 0, 2]))
    assert len(traces) == 3 and jac.cache_info().misses == 1  # and one for each graph around it


def test_an_input_signature_may_be_of_type_specs():
    spec = Mesh.Spec(
        points=tf.TensorSpec([3], tf.float64),
        order=tf.TensorSpec([3], tf.int64),
        scale=Mesh.Scale.Spec(factors=tf.TensorSpec(None, tf.float64)),
        power=2,
    )
    jac = tfjac.prepare(value_of, input_signature=[spec])
    check_mesh(jac(mesh()), BY_POINTS, BY_FACTORS)
    one = Mesh(tf.constant(P), tf.constant(ORDER), Mesh.Scale(tf.constant(2.0, tf.float64)))
    np.testing.assert_allclose(jac(one).points, np.eye(3)[ORDER] * 4 * P)
    assert jac.cache_info().misses == 1
    with pytest.raises(InvalidValueError, match=r"args\[0\]"):
        jac(mesh(power=3))
    rows = tfjac.prepare(
        lambda x, r: x * tf.reduce_sum(r, 1),
        input_signature=[tf.TensorSpec([None]), tf.RaggedTensorSpec([None, None])],
    )
    for r in ([[1.0], [2.0, 3.0]], [[4.0, 1.0], [], [2.0]]):
        found = rows(tf.ones([len(r)]), tf.ragged.constant(r))
        np.testing.assert_allclose(found, np.diag([sum(row) for row in r]))
    assert rows.cache_info().misses == 1


def test_named_tuples_and_dataclasses_come_back_as_they_are():
    jac = tfjac.prepare(lambda p: Pair(p.a * p.b, {"a": p.a}))
    found = jac(Pair(tf.constant(P), tf.constant(S)))
    assert type(found) is Pair and type(found.a) is Pair
    np.testing.assert_allclose(found.a.b, np.diag(P))
    np.testing.assert_allclose(found.b["a"].b, np.zeros([3, 3]))
    traces = []

    def fn(point):
        traces.append(point.power)
        return Point(point.a**point.power, 7)

    jac = tfjac.prepare(fn)
    for power in (2, 3, 2):
        found = jac(Point(tf.constant(P), power))
        assert found.power == 7 and found.a.power == power
        np.testing.assert_allclose(found.a.a, np.diag(power * P ** (power - 1)))
    assert traces == [2, 3]


def test_numpy_values_are_tensors_and_python_values_are_constants_as_in_a_tf_function():
    traces = []

    def fn(x, c):
        traces.append(c)
        return x * tf.cast(tf.reduce_sum(c), x.dtype)

    jac, x = tfjac.prepare(fn), tf.ones([2])
    for c in (np.float64(2.0), np.float64(3.0), np.array([1.0, 2.0]), np.array([3.0, 4.0])):
        np.testing.assert_allclose(jac(x, c), np.eye(2) * c.sum())
    assert len(traces) == 2 and all(tf.is_symbolic_tensor(c) for c in traces)
    for c in (2.0, 3.0, 2.0, [1.0, 2.0], [1.0, 2.0], 7):
        np.testing.assert_allclose(jac(x, c), np.eye(2) * np.sum(c))
    assert traces[2:] == [2.0, 3.0, [1.0, 2.0], 7]
    by = tfjac.prepare(lambda x: tf.nest.map_structure(lambda t: 3.0 * t, x))
    for x, wanted in ((2.0, 3.0), (np.float32(2.0), 3.0), (np.ones(2), 3 * np.eye(2))):
        np.testing.assert_allclose(by(x), wanted)


def keras_variable(*shape, seed=0):
    import keras

    return keras.Variable(array(*shape, seed=seed), dtype="float64")


@pytest.mark.parametrize("source", [True, False])
def test_a_variable_of_keras_is_an_argument_that_is_read_at_each_call(source):
    traces = []

    def fn(x, v):
        traces.append(v)
        return x * v[0] * v[1]

    jac = tfjac.prepare(fn, argnums=1 if source else 0)
    a, b = keras_variable(3, seed=1), tf.Variable(array(3, seed=2))
    x = tf.constant(array(3))
    for factor in (1.0, 2.0):
        a.assign(factor * P)
        found = jac(x, [a, b])
        if source:
            np.testing.assert_allclose(found[0], np.diag(x * b))
            np.testing.assert_allclose(found[1], np.diag(x * a.numpy()))
        else:
            np.testing.assert_allclose(found, np.diag(a.numpy() * b.numpy()))
    assert len(traces) == 1 and tf.is_symbolic_tensor(traces[0][0])


# What takes a source, of y [3] by a variable [3]; each with a tf.Variable is its own oracle.
OF_ONE = {
    "jacobian": tfjac.jacobian,
    "vjp": lambda y, w: tfjac.vjp(y, w, y),
    "jvp along itself": lambda y, w: tfjac.jvp(y, w, w),
    "hessian": lambda y, w: tfjac.hessian(tf.reduce_sum(y), w),
    "hvp along itself": lambda y, w: tfjac.hvp(tf.reduce_sum(y), w, w),
    "ggn": lambda y, w: tfjac.ggn(tf.reduce_sum(y**2), y, w, w),
    "ntk": lambda y, w: tfjac.ntk(y, w, y),
    "operator": lambda y, w: tfjac.jacobian_operator(y, w).matvec(y),
    "operator adjoint": lambda y, w: tfjac.jacobian_operator(y, w).matvec(y, adjoint=True),
    "operator to_dense": lambda y, w: tfjac.jacobian_operator(y, w).to_dense(),
    "per_example_gradients": tfjac.per_example_gradients,
    "per_example_gradient_norms": tfjac.per_example_gradient_norms,
    "laplacian": lambda y, w: tfjac.laplacian(tf.reduce_sum(y), w),
    "laplacian, estimated": lambda y, w: tfjac.laplacian(tf.reduce_sum(y), w, probes=3),
    "structured": lambda y, w: tfjac.jacobian(y, w, structured=True).to_dense(),
    "slogdet": lambda y, w: tfjac.slogdet(y, w)[0],
    **{
        name: getattr(tfjac, name)
        for name in (
            *("det", "trace", "frobenius_norm", "spectral_norm", "singular_values", "gramian"),
            *("diag_jacobian", "logdet"),
        )
    },
}


@pytest.mark.parametrize("name", OF_ONE)
def test_a_variable_of_keras_is_a_source_wherever_one_of_tensorflow_is(name):
    def made(used, unused):
        def run(x):
            y = tf.tanh(tf.linalg.matvec(x, used)) + used**2
            return OF_ONE[name](y, used), OF_ONE[name](y, unused)

        return in_graph(run, tf.constant(array(3, 3, seed=5)))

    found = made(keras_variable(3, seed=1), keras_variable(3, seed=2))
    wanted = made(tf.Variable(array(3, seed=1)), tf.Variable(array(3, seed=2)))
    for mine, expected in zip(found, wanted):
        np.testing.assert_array_equal(mine, expected)
    assert np.any(found[0]) and not np.any(np.nan_to_num(found[1], neginf=0.0))


def test_variables_of_keras_nest_with_others():
    model = tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(2)])
    extra, own = keras_variable(2), tf.Variable(array(2))
    sources = {"model": model.trainable_variables, "extra": (extra, own)}

    def run(x):
        y = model(x) + tf.cast(own, tf.float32)
        plans = tfjac.plan(y, sources)
        assert len(plans) == 1
        return tfjac.jacobian(y, sources), tfjac.vjp(y, sources, y)

    found, pulled = in_graph(run, tf.ones([1, 2]))
    np.testing.assert_allclose(found["model"][0][0], np.einsum("jk,i->jik", np.eye(2), np.ones(2)))
    np.testing.assert_allclose(found["extra"][1][0], np.eye(2))
    assert found["extra"][0].shape == [1, 2, 2] and not np.any(found["extra"][0])
    assert pulled["extra"][0].dtype == tf.float64 and not np.any(pulled["extra"][0])


def test_a_variable_of_keras_is_found_where_keras_casts_what_is_read():
    class Inner(tf.keras.layers.Layer):
        def build(self, shape):
            self.w = self.add_weight(shape=[2], initializer="ones")

        def call(self, x):
            return tfjac.jacobian(x * tf.convert_to_tensor(self.w), self.w)

    layer = Inner(dtype="mixed_float16")
    found = in_graph(layer, tf.constant([3.0, 4.0]))
    assert found.dtype == tf.float16
    np.testing.assert_allclose(found, np.diag([3.0, 4.0]))


@pytest.mark.parametrize("ask", ["batch_jacobian", "explain_dependence", "jacobian_sparsity"])
def test_what_a_variable_cannot_be_is_said_of_one_of_keras_too(ask):
    v = keras_variable(3)
    with pytest.raises(InvalidValueError, match="variable|rank 1|known sizes"):
        in_graph(lambda x: getattr(tfjac, ask)(x * tf.convert_to_tensor(v), v), tf.constant(P))


def _jacobian_of(structure):
    return lambda: in_graph(lambda x: tfjac.jacobian(structure(x), x), tf.constant(P))


def _jacobian_by(structure, **options):
    def run(x):
        m = structure(x)
        return tfjac.jacobian(tf.reduce_sum(x), m, **options)

    return lambda: in_graph(run, tf.constant(P))


def _ragged(x):
    return tf.RaggedTensor.from_row_lengths(x, [2, 1])


def _hessian():
    def run(x):
        m = Mesh(x, tf.constant(ORDER), Mesh.Scale(x))
        return tfjac.hessian(tf.reduce_sum(value_of(m)), m)

    return in_graph(run, tf.constant(P))


def _along(tangent):
    def run():
        m = in_this_graph(mesh())
        return tfjac.jvp(value_of(m), m, tangent)

    return lambda: in_graph(run)


BAD = {
    "ragged source": (_jacobian_by(_ragged), InvalidTypeError, ["`xs`", "RaggedTensor"]),
    "ragged field of a source": (
        _jacobian_by(lambda x: Ragged(_ragged(x), x[0])),
        InvalidTypeError,
        ["`xs`", "RaggedTensor", "flat_values"],
    ),
    "ragged field of a target": (
        _jacobian_of(lambda x: Ragged(_ragged(x), x[0])),
        InvalidTypeError,
        ["`ys`", "RaggedTensor"],
    ),
    "structured target": (
        _jacobian_of(lambda x: tfjac.jacobian(x**2, x, structured=True)),
        InvalidTypeError,
        ["`ys`", "BlockDiagonal", "blocks"],
    ),
    "no floats": (
        _jacobian_by(lambda x: Counts(tf.constant([1, 2]))),
        InvalidTypeError,
        ["`xs`", "Counts", "Cast"],
    ),
    "prepared without floats": (
        lambda: tfjac.prepare(lambda c: c.counts)(Counts(tf.constant([1]))),
        InvalidTypeError,
        ["`args[0]`", "Counts"],
    ),
    "None in a field": (
        _jacobian_by(
            lambda x: Mesh(x, tf.constant(ORDER), Mesh.Scale(2.0 * x)), unconnected_gradients="none"
        ),
        InvalidValueError,
        ["`unconnected_gradients`", "`xs`", "Mesh"],
    ),
    "hessian by an extension type": (_hessian, InvalidTypeError, ["`xs`", "Mesh", "list"]),
    "tangents of another kind": (
        _along(tf.constant(P)),
        InvalidValueError,
        ["`tangents`", "Mesh is wanted"],
    ),
    "tangents with a float too many": (
        _along(Mesh(tf.constant(P), tf.constant(P), Mesh.Scale(tf.constant(P)))),
        InvalidValueError,
        ["`tangents`", "2 tensors are wanted, not 3"],
    ),
    "plain dataclass": (
        lambda: tfjac.prepare(lambda p: p.a)(Plain(tf.ones([2]))),
        InvalidTypeError,
        ["`args[0]`", "Plain", "ExtensionType", "__tf_flatten__"],
    ),
    "plain dataclass beside a source": (
        lambda: tfjac.prepare(lambda x, p: p.a)(1.0, Plain(tf.ones([2]))),
        InvalidTypeError,
        ["`args[1]`", "Plain", "ExtensionType"],
    ),
    "unhashable metadata": (
        lambda: tfjac.prepare(lambda p: p.a)(Unhashable(tf.ones([2]), 2)),
        InvalidTypeError,
        ["`args`", "__tf_flatten__", "[2]"],
    ),
    "linearize at an extension type": (
        lambda: tfjac.linearize(value_of, mesh()),
        InvalidTypeError,
        ["`x`", "Mesh", "tfjac.prepare"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_has_no_meaning_is_refused_by_name(case):
    provoke, error, words = BAD[case]
    with pytest.raises(error) as raised:
        provoke()
    for word in words:
        assert word in str(raised.value)


# Laws of the graph functions and of prepare, for each kind of source.


def test_a_source_given_twice_has_the_same_jacobian_twice():
    v = keras_variable(3, seed=1)

    def run(x):
        m = in_this_graph(mesh())
        y = value_of(m) * x * tf.convert_to_tensor(v)
        by_m, again, by_points = tfjac.jacobian(y, [m, m, m.points])
        by_v, by_inner = tfjac.jacobian(y, [v, v.value])
        pulled = tfjac.vjp(y, [m, m.points], y)
        return by_m, again, by_points, by_v, by_inner, pulled

    by_m, again, by_points, by_v, by_inner, pulled = in_graph(run, tf.constant(P))
    np.testing.assert_array_equal(by_m.points, again.points)
    np.testing.assert_array_equal(by_m.points, by_points)
    np.testing.assert_array_equal(by_v, by_inner)
    np.testing.assert_array_equal(pulled[0].points, pulled[1])
    fn = lambda a, b: a * b**2  # noqa: E731
    x = tf.constant(P)
    first, second = tfjac.prepare(fn, argnums=(0, 1))(x, x)  # two arguments, though one value
    np.testing.assert_allclose(first, np.diag(P**2))
    np.testing.assert_allclose(second, np.diag(2 * P**2))


def test_targets_together_are_targets_apart():
    def targets(x):
        m = Mesh(tf.sin(x), tf.constant(ORDER), Mesh.Scale(x**3))
        return {"m": m, "pair": Pair(tf.reduce_sum(x), x * x)}

    x = tf.constant(P)
    together = tfjac.prepare(targets)(x)
    parts = tf.nest.flatten(together, expand_composites=True)
    apart = [
        tfjac.prepare(lambda x, k=k: tf.nest.flatten(targets(x), expand_composites=True)[k])(x)
        for k, part in enumerate(parts)
        if part.dtype.is_floating
    ]
    kept = [part for part in parts if part.dtype.is_floating]
    assert len(kept) == len(apart) == 4
    for found, wanted in zip(kept, apart):
        np.testing.assert_allclose(found, wanted)


@pytest.mark.parametrize("batch", [False, True])
def test_fed_by_a_constant_is_fed_by_an_argument(batch):
    fixed = mesh()
    ragged = tf.ragged.constant([[1.0, 2.0], [], [3.0]], dtype=tf.float64)
    v = keras_variable(3, seed=3)

    def fn(x, m, r, w, scale):
        return scale * tf.sin(x) * value_of(m) * tf.reduce_sum(r, 1) * tf.convert_to_tensor(w)

    x = tf.constant(P)
    given = tfjac.prepare(fn, batch=batch)(x, fixed, ragged, v, np.float64(2.0))
    bound = tfjac.prepare(lambda x: fn(x, fixed, ragged, v, 2.0), batch=batch)(x)
    np.testing.assert_allclose(given, bound)
    inside = in_graph(
        lambda x: (tfjac.batch_jacobian if batch else tfjac.jacobian)(
            fn(x, fixed, ragged, v, 2.0), x
        ),
        x,
    )
    np.testing.assert_allclose(inside, bound)


def test_collections_of_each_kind_have_one_signature_each():
    traces = []

    def fn(x, c):
        traces.append(type(c))
        return x * tf.add_n(tf.nest.flatten(c))

    jac, x, t = tfjac.prepare(fn), tf.ones([2]), tf.ones([2])
    kinds = [[t, t], (t, t), {"a": t, "b": t}, collections.OrderedDict(a=t, b=t), Pair(t, t)]
    for _ in range(2):
        for c in kinds:
            np.testing.assert_allclose(jac(x, c), 2 * np.eye(2))
    assert traces == [list, tuple, dict, collections.OrderedDict, Pair]
