"""The laws that every random program is held to."""

from __future__ import annotations

import dataclasses
import zlib

import numpy as np
import relations
import tensorflow as tf
from fuzz import Program
from scenarios import block_diagonal

import tfjac
from tfjac import errors


class Unfit(Exception):
    """A program or a value of which nothing can be told, as near a kink."""


@dataclasses.dataclass(frozen=True)
class Expected:
    """What a program gives for some values.

    Args:
      values: of the sources.
      y: of the target.
      jacobians: by each source.
      rough: error that the differences may have, relative to `scale`.
    """

    values: list[np.ndarray]
    y: np.ndarray
    jacobians: list[np.ndarray]
    rough: float

    def scale(self) -> float:
        return max([1.0, *(np.abs(j).max(initial=0.0) for j in self.jacobians)])


def as_function(body, program: Program):
    return tf.function(body, input_signature=program.specs(), autograph=False)


def evaluated(program: Program, values):
    """Returns the target as a function of moved sources, in float64 but for what has none.

    What has no derivative keeps the value that it has at `values`.
    """
    exact = dict.fromkeys(("f32", "f64", "f16", "bf16"), tf.float64)
    kept: list = []
    record = program.function(
        **exact,
        stopped=lambda a: kept.append(a) or a,
        surrogate=lambda a: kept.append(a) or tf.floor(a * 4.0) / 4.0,
    )

    def held(a):
        return kept.pop(0)

    def linear(a):
        base = kept.pop(0)
        return tf.floor(base * 4.0) / 4.0 + (1.0 + base * base) * (a - base)

    moved = program.function(**exact, stopped=held, surrogate=linear)
    specs = [tf.TensorSpec(s.spec, s.tensorflow_dtype(True)) for s in program.sources]

    @tf.function(input_signature=specs + specs, autograph=False)
    def at(*tensors):
        record(*tensors[: len(specs)])
        return moved(*tensors[len(specs) :])

    still = [tf.constant(v) for v in _exactly(program, values)]
    return lambda others: at(*still, *map(tf.constant, _exactly(program, others))).numpy()


def _exactly(program: Program, values) -> list[np.ndarray]:
    dtypes = [s.tensorflow_dtype(True).as_numpy_dtype for s in program.sources]
    return [v.astype(dtype) for v, dtype in zip(values, dtypes)]


def _differences(program: Program, values) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns the target and its Jacobians by central differences in float64."""
    at, exactly = evaluated(program, values), _exactly(program, values)
    y = at(exactly)

    def derivative(k: int, entry: int, direction: complex, h: float) -> np.ndarray:
        def along(t: float) -> np.ndarray:
            flat = exactly[k].reshape(-1).copy()
            flat[entry] += t * direction
            return at([*exactly[:k], flat.reshape(exactly[k].shape), *exactly[k + 1 :]])

        return (8 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12 * h)

    def column(k: int, entry: int, h: float) -> np.ndarray:
        found = derivative(k, entry, 1.0, h)
        if np.iscomplexobj(exactly[k]):
            found = found + 1j * derivative(k, entry, 1j, h)
        return found

    def jacobians(h: float) -> list[np.ndarray]:
        columns = [[column(k, e, h) for e in range(v.size)] for k, v in enumerate(exactly)]
        return [
            np.stack(c, -1).reshape(y.shape + v.shape) if c else np.zeros(y.shape + v.shape)
            for c, v in zip(columns, exactly)
        ]

    # Values in float32 want wide steps.
    step, near = (0.03, 1e-3) if program.single else (5e-4, 1e-6)
    fine, coarse = jacobians(step), jacobians(2 * step)
    for one, other in zip(fine, coarse):
        if not np.allclose(one, other, rtol=near, atol=near * max(1, np.abs(one).max(initial=0.0))):
            raise Unfit("a kink is near, or the function is too steep")
    return y, fine


def expected(program: Program, values) -> Expected:
    """Returns what is expected at some values, or raises `Unfit`."""
    check_runs(program, values)
    if not program.hidden:
        y, jacobians = _differences(program, values)
        rough = 1e-5
    else:
        y, jacobians = _taped(program, values)
        rough = 1e-9
    if not all(np.isfinite(a).all() for a in (y, *jacobians)):
        raise Unfit("not finite")
    return Expected(list(values), y, jacobians, max(rough, roughness(program)))


def check_runs(program: Program, values) -> None:
    """Raises `Unfit` where a program does not run in a graph."""
    try:
        as_function(program.function(), program)(*map(tf.constant, values))
    except (tf.errors.InvalidArgumentError, ValueError) as error:
        raise Unfit("it does not run in a graph") from error


def _taped(program: Program, values) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns the target and its Jacobians by TensorFlow's tape, row by row."""
    fn = program.function()

    def taped(*xs):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(xs)
            y = fn(*xs)
        if y.dtype.is_complex:
            raise Unfit("a row of complex numbers is two")
        if 0 in y.shape:
            return y, [tf.zeros(y.shape + x.shape) for x in xs]

        def row(i):
            u = tf.reshape(tf.one_hot(i, tf.size(y), dtype=y.dtype), tf.shape(y))
            return tape.gradient(y, list(xs), u, unconnected_gradients="zero")

        rows = tf.map_fn(row, tf.range(tf.size(y)), fn_output_signature=[x.dtype for x in xs])
        return y, rows

    # From full shapes: TensorFlow's loop over rows does not take others.
    y, found = tf.function(taped, autograph=False)(*map(tf.constant, values))
    y = y.numpy()
    return y, [j.numpy().reshape(y.shape + v.shape) for j, v in zip(found, values)]


def roughness(program: Program) -> float:
    """Returns the relative error that computing in low precision makes."""
    code = program.definition()
    low = {"bf16": 8e-2, "f16": 1e-2, "f32": 2e-3}
    found = [error for name, error in low.items() if name in code]
    return max([0.0, *found, 2e-3 * is_single(program)])


def is_single(program: Program) -> bool:
    """Returns whether float32 occurs."""
    low = program.single or any(name in program.definition() for name in ("f32", "f16"))
    return low or any(s.dtype == "f32" for s in program.sources)


def check_close(ours, wanted, tolerance: float, what: str) -> None:
    """Raises unless two arrays have one shape and about one value."""
    assert ours.shape == wanted.shape, f"{what}: shape {ours.shape}, not {wanted.shape}"
    np.testing.assert_allclose(ours, wanted, rtol=0, atol=tolerance, err_msg=what)


def traced(body, program: Program):
    """Returns the concrete function, None where what it asks for is refused."""
    try:
        return as_function(body, program).get_concrete_function()
    except errors.UnsupportedError:
        return None


def run(concrete, values) -> list[np.ndarray]:
    flat = tf.nest.flatten(concrete(*map(tf.constant, values)))
    return [t.numpy() for t in flat]


def _whole_by(name: str, program: Program):
    """Returns the concrete function of a strategy, None where it refuses."""
    fn, dtypes = program.function(), []

    def whole(*xs):
        y = fn(*xs)
        js = tfjac.jacobian(y, list(xs), name)
        for x, j in zip(xs, js):
            assert j.shape.is_compatible_with(y.shape.concatenate(x.shape)), f"{name}: {j}"
            dtypes.append((j.dtype, x.dtype if x.dtype.is_complex else y.dtype))
        return js

    concrete = traced(whole, program)
    for ours, wanted in dtypes:
        assert ours == wanted, f"{name}: dtype {ours}, not {wanted}"
    return concrete


def check_whole(program: Program, cases: list[Expected]) -> None:
    """Raises unless all strategies that take the problem give the Jacobian of each case."""
    found: dict[str, list] = {}
    for name in tfjac.strategies.names():
        concrete = _whole_by(name, program)
        if concrete is None:
            continue
        found[name] = [run(concrete, case.values) for case in cases]
        for case, js in zip(cases, found[name]):
            for j, wanted in zip(js, case.jacobians):
                check_close(j, wanted, case.rough * case.scale(), f"{name} against differences")
    assert not found or "auto" in found, f"auto refuses what {list(found)} take"
    if is_single(program):
        return
    for name, results in found.items():
        for case, js, others in zip(cases, results, found["auto"]):
            for j, other in zip(js, others):
                check_close(j, other, 1e-10 * case.scale(), f"{name} against auto")


def check_blocks(program: Program, cases: list[Expected], names) -> bool:
    """Raises where blocks are given that are not those of the Jacobian; says whether any are."""
    given = [
        _are_blocks_right(program, cases, name, k)
        for name in names
        for k in range(len(program.sources))
    ]
    return any(given)


def _are_blocks_right(program: Program, cases: list[Expected], name: str, k: int) -> bool:
    fn = program.function()
    try:
        concrete = traced(lambda *xs: tfjac.batch_jacobian(fn(*xs), xs[k], name), program)
    except errors.InvalidValueError:  # a scalar, or sizes that differ
        return False
    if concrete is None:
        return False
    # Where the numbers of examples differ, an assertion of the graph says so.
    fitting = [case for case in cases if len(case.y) == len(case.values[k])]
    for case in fitting:
        whole, rows = case.jacobians[k], len(case.y)
        apart = block_diagonal(whole, case.y.ndim)
        (ours,) = run(concrete, case.values)
        check_close(ours, apart, case.rough * case.scale(), f"blocks by {name}")
        others = np.moveaxis(whole, (0, case.y.ndim), (0, 1))[~np.eye(rows, dtype=bool)]
        assert np.abs(others).max(initial=0.0) < 1e-3 * case.scale(), "examples mix"
    return bool(fitting)


def check_products(program: Program, cases: list[Expected]) -> None:
    """Raises unless J v and J^T u are the products with J, and adjoint to each other."""
    fn = program.function()
    case = cases[0]
    rng = np.random.default_rng(3)

    def drawn(like):
        like = np.asarray(like)
        parts = rng.uniform(-1, 1, (2, *like.shape))
        both = parts[0] + 1j * parts[1] if np.iscomplexobj(like) else parts[0]
        return both.astype(like.dtype)

    # The differences are in float64, the target may not be.
    plain = as_function(fn, program)(*map(tf.constant, case.values)).numpy()
    u, vs = drawn(plain), [drawn(x) for x in case.values]

    def pulled(*xs):
        return tfjac.vjp(fn(*xs), list(xs), tf.constant(u))

    def pushed(*xs):
        return tfjac.jvp(fn(*xs), list(xs), [tf.constant(v) for v in vs])

    back, forth = traced(pulled, program), traced(pushed, program)
    assert back is not None, "vjp is refused"
    back = run(back, case.values)
    tolerance = case.rough * case.scale() * max(1, u.size + sum(v.size for v in vs))
    for k, (j, x) in enumerate(zip(case.jacobians, case.values)):
        matrix = j.reshape(u.size, x.size)
        wanted = (
            np.real(np.conj(u.reshape(-1)) @ matrix)
            if np.iscomplexobj(u)
            else u.reshape(-1) @ matrix
        )
        check_close(back[k], wanted.reshape(x.shape), tolerance, "vjp")
    if forth is None:
        return
    (forth,) = run(forth, case.values)
    wanted = 0
    for j, v in zip(case.jacobians, vs):
        matrix, v = j.reshape(u.size, v.size), v.reshape(-1)
        wanted = wanted + (np.real(np.conj(matrix) @ v) if np.iscomplexobj(v) else matrix @ v)
    check_close(forth, np.reshape(wanted, u.shape), tolerance, "jvp")
    one = np.real(np.vdot(u, forth))
    other = sum(np.real(np.vdot(b, v)) for b, v in zip(back, vs))
    fine = 1e-3 if is_single(program) else 1e-10
    assert abs(one - other) <= fine * tolerance / case.rough, f"<u, J v> = {one}, not {other}"


def _read(program: Program):
    """Returns what the graph tells of the dependence on each source: patterns, axes apart."""
    fn, found = program.function(), []

    def read(*xs):
        y = fn(*xs)
        for x in xs:
            known = y.shape.is_fully_defined() and x.shape.is_fully_defined()
            pattern = tfjac.jacobian_sparsity(y, x).to_dense() if known else None
            ranked = y.shape.rank and x.shape.rank
            found.append((pattern, tfjac.explain_dependence(y, x) if ranked else None))
        return y

    as_function(read, program).get_concrete_function()
    return found


def check_claims(program: Program, cases: list[Expected]) -> None:
    """Raises where an entry that is not zero is said to be."""
    found = _read(program)
    for case in cases:
        for (pattern, dependence), j in zip(found, case.jacobians):
            nonzero = np.abs(j) > 1e-4 * case.scale()
            if pattern is not None:
                missed = nonzero.reshape(pattern.shape) & ~pattern
                assert not np.any(missed), "the pattern misses an entry"
            for a in range(dependence.apart if dependence else 0):
                across = np.moveaxis(nonzero, (a, case.y.ndim + a), (0, 1))
                off = ~np.eye(case.y.shape[a], dtype=bool)
                assert not np.any(across[off]), f"axis {a} is said to stay apart"


def check_briefly(program: Program) -> bool:
    """Raises unless "auto" gives what TensorFlow's tape does and no claim is wrong."""
    values = program.values()
    check_runs(program, values)
    y, jacobians = _taped(program, values)
    if not all(np.isfinite(a).all() for a in (y, *jacobians)):
        raise Unfit("not finite")
    case = Expected(values, y, jacobians, 1e-4 if is_single(program) else 1e-11)
    for j, wanted in zip(run(_whole_by("auto", program), values), jacobians):
        check_close(j, wanted, case.rough * case.scale(), "auto against a tape")
    check_claims(program, [case])
    return False


def some_of(options, program: Program, count: int) -> list:
    """Returns some of the options, which ones by the code of the program."""
    begin = zlib.crc32(program.definition().encode()) % len(options)
    return [options[(begin + 5 * k) % len(options)] for k in range(min(count, len(options)))]


def check_relations(program: Program, names=tuple(relations.RELATIONS), count: int = 2) -> bool:
    """Raises unless ways of asking that are drawn agree; says whether any could be told."""
    values, told = program.values(), False
    check_runs(program, values)
    task = relations.Task(program.function(), program.specs(), values)
    for name in some_of(names, program, count):
        try:
            relations.check_relation(name, task, max(1e-10, roughness(program)))
            told = True
        except relations.Untold:
            continue
    return told


def check_op(program: Program) -> bool:
    """Raises unless "auto" and another strategy are right, claims hold and blocks are right."""
    case = expected(program, program.values())
    for name in (
        "auto",
        *some_of([n for n in tfjac.strategies.names() if n != "auto"], program, 1),
    ):
        concrete = _whole_by(name, program)
        assert concrete is not None or name != "auto", "auto refuses"
        if concrete is None:
            continue
        for j, wanted in zip(run(concrete, case.values), case.jacobians):
            check_close(j, wanted, case.rough * case.scale(), f"{name} against differences")
    check_claims(program, [case])
    return check_blocks(program, [case], ["auto"])


def check_program(program: Program, names=("auto", "unstack")) -> bool:
    """Raises unless every law holds, `Unfit` if none can be told; says whether blocks came."""
    cases = [expected(program, program.values())]
    if program.batched() and program.smooth and not program.hidden:
        for rows in (1, 4):
            try:
                cases.append(expected(program, program.values(rows)))
            except Unfit:
                continue  # it is written for one number of examples
    check_whole(program, cases)
    check_products(program, cases)
    check_claims(program, cases)
    return check_blocks(program, cases, names)
