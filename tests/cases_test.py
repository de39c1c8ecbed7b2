"""Every reported case under every strategy, prepared, in a function, in a Session and under XLA."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import pathlib
import re

import numpy as np
import pytest
import scenarios
import tensorflow as tf

import tfjac

# Which ops fall back to a loop is the business of laws_test.py.
pytestmark = pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")

FOLDER = pathlib.Path(__file__).parent / "cases"
NAMES = sorted(path.stem for path in FOLDER.glob("[0-9]*.py"))
# Those that take any model; structure_test.py is about the other.
STRATEGIES = [name for name in tfjac.strategies.names() if name != "structural"]

# Which strategies raise UnsupportedError: number -> {strategy or strategy/kind: reason}. Exact.
_ROWS = "the number of rows is not known while the graph is built"
_SIZES = "a size on the way is not known while the graph is built"
_APART = "indices keep the first axis apart, which its local Jacobians do not tell"
UNSUPPORTED: dict[int, dict[str, str]] = {
    2: {"unstack": _ROWS, "cross_country": _SIZES},
    3: {"unstack/full-signature": _ROWS, "cross_country/full-signature": _SIZES}
    | {"cross_country/batch-signature": _SIZES},
    13: {"unstack/full-signature": _ROWS, "cross_country/full-signature": _SIZES},
    15: {"unstack": _ROWS},
    35: {"cross_country/batch-signature": _SIZES},
    36: {"cross_country/batch": _APART},
    47: {"unstack": _ROWS},
    50: {"cross_country": "complex tensors go by their own conventions"},
    55: {"forward": "the gradient of ResizeBilinear cannot be differentiated again"},
    59: {"unstack/full-signature": _ROWS},
    64: {"unstack/full-signature": _ROWS},
    71: {"unstack/full": _ROWS},
    78: {"unstack/full-signature": _ROWS},
}

# Where TensorFlow multiplies an infinite local derivative by zero, so that NaN of one example
# reaches the blocks of others in the full Jacobian: number -> {id: where NaN is, exactly}.
NAN_SPREADS: dict[int, dict[str, np.ndarray]] = {}

# What TensorFlow gives where the gradient of an op is at fault: the flat Jacobian, or the op type
# or text that its error names.
KNOWN_UPSTREAM: dict[int, np.ndarray | str] = {
    24: "ResizeBilinear",
    26: np.array([[0.0, 3.0, 2.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
    27: np.diag([1.0, 0.0, 0.0, 0.0]),
    29: np.array([[np.nan, 0, 0], [np.nan, -0.25, 0], [np.nan, 0, -0.0625]]),
    52: "[Ii]ncompatible shapes|must be equal",
    58: np.diag([0.0, 1.0, 1.0, 0.0]),
}

# Of these, what strategies make right by a rule of their own: number -> strategies.
MENDED: dict[int, set[str]] = {
    **dict.fromkeys((26, 27), set(tfjac.strategies.names())),
    29: {"auto", "cross_country"},
}

# Cases whose function cannot be built in a tf.Graph that runs in a Session: number -> reason.
_EAGER = "its function holds weights made eagerly"
NOT_IN_A_SESSION: dict[int, str] = {
    1: _EAGER,
    3: _EAGER,
    4: _EAGER,
    17: _EAGER,
    20: _EAGER,
    21: _EAGER,
    22: _EAGER,
    67: _EAGER,
    71: _EAGER,
    74: _EAGER,
    101: _EAGER,
    105: _EAGER,
    111: _EAGER,
}

# Cases of which XLA cannot compile the function or one gradient of it: number -> reason.
_NO_KERNEL = "an op on the way has no XLA kernel"
_BOUND = "a loop has no maximum_iterations"
NOT_UNDER_XLA: dict[int, str] = {
    18: _NO_KERNEL,
    23: _NO_KERNEL,
    47: _NO_KERNEL,
    55: "XLA for CPU mixes float16 and float32 in the gradient of a resize",
    60: _BOUND,
    61: _NO_KERNEL,
    71: _BOUND,
    79: _NO_KERNEL,
    104: _NO_KERNEL,
    111: _NO_KERNEL,
}

# Cases of which TensorFlow has no derivative, so that all refuse them by name: number -> op type.
REFUSED = {105: "Betainc"}


if tf.__version__ < "2.17":
    NOT_UNDER_XLA[51] = "XLA of TensorFlow 2.16 has no float64 Fourier transform"

# Limits of ours under XLA, where TensorFlow alone gives one gradient and no strategy the Jacobian;
# in a Session TensorFlow's own gradient fails as well.
LIMITS: dict[int, str] = {
    2: "a function within, called with jit_compile=True, gives a target of unknown sizes: in a "
    "Session XLA finds a Switch in its gradient, and under XLA the loop's count is not constant",
}


@functools.cache
def _module(name):
    spec = importlib.util.spec_from_file_location(f"case_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def _case(name):
    """Returns the case; the same one for all tests, so that they share what is built for it."""
    return {**_module(name).case(), "number": _number(name)}


def _number(name):
    return int(name.split("_")[0])


def _argnums(case):
    return tuple(case.get("wrt", range(len(case["inputs"]))))


def _holomorphic(case):
    sources = [case["inputs"][i] for i in _argnums(case)]
    return all(map(np.iscomplexobj, [*sources, *tf.nest.flatten(case.get("expected", 0.0))]))


def _specs(case, with_signature):
    shapes = case["signature"] if with_signature else [x.shape for x in case["inputs"]]
    return [tf.TensorSpec(s, x.dtype) for s, x in zip(shapes, case["inputs"], strict=True)]


# Cases whose examples stay apart without this being seen: a vectorized map over the examples, and
# under XLA what TensorFlow makes of a tape within.
ASSUMED = {36, 37, 63}


def _operator(case, batch):
    if not batch:
        return tfjac.jacobian
    return functools.partial(tfjac.batch_jacobian, independence=_independence(case))


def _independence(case):
    return "assume" if case["number"] in ASSUMED else "prove"


def _graph_jacobian(case, strategy, batch, tensors):
    xs = case["variables"] if "variables" in case else [tensors[i] for i in _argnums(case)]
    operator = _operator(case, batch)
    return operator(case["fn"](*tensors), xs, strategy, holomorphic=_holomorphic(case))


# Ways of calling. Each takes (case, strategy, batch, with_signature), returns a flat list.


def _prepared(case, strategy, batch, with_signature, jit=False):
    if "variables" in case:  # prepare differentiates by arguments only
        return _in_function(case, strategy, batch, with_signature, jit)
    jac = tfjac.prepare(
        case["fn"],
        batch=batch,
        strategy=strategy,
        argnums=_argnums(case),
        jit_compile=jit or case.get("jit", False),
        holomorphic=_holomorphic(case),
        input_signature=_specs(case, True) if with_signature else None,
        independence=_independence(case),
    )
    return tf.nest.flatten(jac(*case["inputs"]))


def _in_function(case, strategy, batch, with_signature, jit=False):
    function = tf.function(
        lambda *tensors: _graph_jacobian(case, strategy, batch, tensors),
        input_signature=_specs(case, with_signature),
        jit_compile=jit or case.get("jit") or None,
    )
    return tf.nest.flatten(function(*map(tf.constant, case["inputs"])))


def _in_session(case, strategy, batch, with_signature):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        feeds = [tf.compat.v1.placeholder(s.dtype, s.shape) for s in _specs(case, with_signature)]
        found = tf.nest.flatten(_graph_jacobian(case, strategy, batch, feeds))
        return session.run(found, dict(zip(feeds, case["inputs"])))


RUNNERS = {
    "prepared": _prepared,
    "function": _in_function,
    "session": _in_session,
    "xla": functools.partial(_prepared, jit=True),
}
NOT_RUN = {"session": NOT_IN_A_SESSION | LIMITS, "xla": NOT_UNDER_XLA | LIMITS}


def _wanted(case, batch):
    """Returns the flat list of what is expected."""
    full = [np.asarray(j) for j in _flat(case["expected"])]
    if not batch:
        return full
    sources = itertools.cycle([case["inputs"][i] for i in _argnums(case)])
    return [scenarios.block_diagonal(j, j.ndim - x.ndim) for j, x in zip(full, sources)]


def _flat(expected):
    return (
        [j for part in expected for j in _flat(part)] if isinstance(expected, list) else [expected]
    )


def _agrees(found, wanted, tolerance):
    """Returns where `found` is as wanted; NaN is right only where both have it."""
    scale = max(1.0, np.abs(np.nan_to_num(wanted)).max(initial=0.0))
    double = np.complex128 if np.iscomplexobj(wanted) else np.float64
    return np.isclose(
        found.astype(double), wanted.astype(double), rtol=0, atol=tolerance * scale, equal_nan=True
    )


def check_values(found, wanted, tolerance, tensorflow_gives=None):
    """Raises unless each entry is as wanted, or as TensorFlow gives where that is given."""
    found = np.asarray(found)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    right = _agrees(found, wanted, tolerance)
    if tensorflow_gives is None:
        right |= np.isnan(wanted)  # NaN in `expected` stands for any value
    else:
        right |= _agrees(found, tensorflow_gives.reshape(wanted.shape), tolerance)
    assert right.all(), f"found\n{found}\nwanted\n{wanted}"


def check_jacobian_or_error(name, mode, strategy, kind):
    """Runs the case; raises unless values, or what goes wrong, are as the case says."""
    case, number = _case(name), _number(name)
    run = functools.partial(
        RUNNERS[mode], case, strategy, "batch" in kind, kind.endswith("signature")
    )
    refused = UNSUPPORTED.get(number, {})
    upstream = KNOWN_UPSTREAM.get(number)
    if "expected_error" in case:
        (named,) = re.findall(r"(?:op type|dtype) (\w+)", case["expected_error"])
        with pytest.raises(tfjac.errors.TfjacError, match=named):
            run()
    elif number in REFUSED:
        with pytest.raises(tfjac.errors.NotDifferentiableError, match=REFUSED[number]):
            run()
    elif strategy in refused or f"{strategy}/{kind}" in refused:
        assert strategy != "auto"
        with pytest.raises(tfjac.errors.UnsupportedError, match=strategy):
            run()
    else:
        try:
            found = run()
        except (tfjac.errors.UnsupportedError, ValueError, tf.errors.InvalidArgumentError) as error:
            if isinstance(upstream, str) and re.search(upstream, str(error)):
                return
            raise
        is_right = isinstance(upstream, str) or strategy in MENDED.get(number, ())
        given = None if is_right else upstream
        spreads = NAN_SPREADS.get(number, {}).get(f"{strategy}/{mode}/{kind}")
        for j, wanted in zip(found, _wanted(case, "batch" in kind), strict=True):
            if spreads is not None:
                np.testing.assert_array_equal(np.isnan(j).any(-1), spreads)
                wanted = np.where(np.isnan(j), np.nan, wanted)
            check_values(j, wanted, case["tol"], given)


def _names_of(attribute):
    return [name for name in NAMES if hasattr(_module(name), attribute)]


def _kinds(name, unknown_shapes_too):
    case = _case(name)
    kinds = ["full"] + ["batch"] * bool(case["batch"] and "expected_error" not in case)
    return kinds + [f"{k}-signature" for k in kinds if unknown_shapes_too and "signature" in case]


def _rows():
    for name in _names_of("case"):
        for kind in _kinds(name, True):
            for strategy in STRATEGIES:
                yield pytest.param(name, "prepared", strategy, kind, id=f"{name}-{strategy}-{kind}")
        for mode in ("function", "session", "xla"):
            if _number(name) not in NOT_RUN.get(mode, {}):
                for kind in _kinds(name, mode == "session"):
                    yield pytest.param(name, mode, "auto", kind, id=f"{name}-auto-{mode}-{kind}")


@pytest.mark.parametrize("name, mode, strategy, kind", list(_rows()))
def test_the_jacobian_is_as_expected(name, mode, strategy, kind):
    check_jacobian_or_error(name, mode, strategy, kind)


# One row of 2500 entries at a time is slow, and its point is what "auto" does.
_AUTO_ONLY = {88}


@pytest.mark.parametrize(
    "name, strategy",
    [
        pytest.param(name, strategy, id=f"{name}-{strategy}")
        for name in _names_of("check")
        for strategy in (["auto"] if _number(name) in _AUTO_ONLY else STRATEGIES)
    ],
)
def test_the_behavior_is_as_the_case_says(name, strategy):
    def jac(fn, inputs):
        argnums = 0 if len(inputs) == 1 else range(len(inputs))
        found = tfjac.prepare(fn, strategy=strategy, argnums=argnums)(*inputs)
        return tf.nest.map_structure(np.asarray, found)

    if _number(name) == 88:
        _forget_peak_memory()
    _module(name).check(jac)


def _forget_peak_memory():
    """Lets the case see its own peak rather than that of the tests before it, on Linux."""
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/clear_refs").write_text("5")


def _pulled_back(case, tensors):
    """Returns one vector-Jacobian product, by TensorFlow alone."""
    ys = [y for y in tf.nest.flatten(case["fn"](*tensors))]
    xs = case["variables"] if "variables" in case else [tensors[i] for i in _argnums(case)]
    return ys + [g for g in tf.gradients(ys, xs) if g is not None]


@pytest.mark.parametrize("name", [n for n in NAMES if _number(n) in NOT_UNDER_XLA])
def test_xla_cannot_compile_one_gradient(name):
    case = _case(name)
    function = tf.function(lambda *tensors: _pulled_back(case, tensors), jit_compile=True)
    with pytest.raises((tf.errors.OpError, ValueError)):
        function(*map(tf.constant, case["inputs"]))


@pytest.mark.parametrize("name", [n for n in NAMES if _number(n) in NOT_IN_A_SESSION])
def test_a_session_cannot_run_the_function(name):
    case = _case(name)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        feeds = [tf.compat.v1.placeholder(x.dtype, x.shape) for x in case["inputs"]]
        with pytest.raises((AttributeError, RuntimeError)):
            session.run(case["fn"](*feeds), dict(zip(feeds, case["inputs"])))


@pytest.mark.parametrize("name", [n for n in NAMES if _number(n) in KNOWN_UPSTREAM])
def test_tensorflow_is_at_fault(name):
    case, gives = _case(name), KNOWN_UPSTREAM[_number(name)]
    assert case["upstream"]
    (x,) = map(tf.constant, case["inputs"])

    @tf.function(autograph=False)
    def jacobian(x):
        y = tf.reshape(case["fn"](x), [-1])
        rows = [tf.gradients(y[i], x)[0] for i in range(y.shape[0])]
        return [row for row in rows if row is not None]

    if isinstance(gives, str):
        try:
            assert not jacobian(x)  # None: TensorFlow does not even say that it failed
        except (ValueError, LookupError, tf.errors.OpError) as error:
            assert re.search(gives, str(error))
    else:
        found = np.asarray(jacobian(x))
        assert _agrees(found.reshape(gives.shape), gives, 1e-8).all()


def test_tables_name_cases():
    numbers = {_number(name) for name in _names_of("case")}
    upstream = {_number(n) for n in _names_of("case") if _case(n).get("upstream")}
    assert set(KNOWN_UPSTREAM) == upstream >= set(MENDED)
    for table in (UNSUPPORTED, NOT_IN_A_SESSION, NOT_UNDER_XLA):
        assert set(table) <= numbers


def test_the_checker_sees_planted_errors():
    one, nan = np.array([1.0, 2.0]), np.array([np.nan, 2.0])
    check_values(one, nan, 0)
    check_values(nan, one, 0, tensorflow_gives=nan)
    for found, wanted, given in [
        (one + 1e-9, one, None),
        (nan, one, None),
        (one[:1], one, None),
        (one.astype(np.float32), one, None),
        (one + 1, one, nan),
    ]:
        with pytest.raises(AssertionError):
            check_values(found, wanted, 1e-12, given)
