"""Every message that tfjac raises is on docs/errors.md, and every message there is raised.

The page is the list of messages: an entry is the text with … for what varies, and the class. Each
case below, and each of errors_test.py, provokes one and must meet exactly one entry. A `raise` that
no case reaches fails, so that a new message comes with its case and its entry.
"""

import ast
import functools
import pathlib
import platform
import re
import sys
import tempfile
import types
import warnings
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from arguments_test import BAD as BAD_ARGUMENTS
from errors_test import BAD, X, in_function

import tfjac
import tfjac.keras
from tfjac import planning, rates, rules, tf_internals
from tfjac.bench import command, own
from tfjac.rules import Kind, Local, Rule

TESTS = pathlib.Path(__file__).parent
PACKAGE = pathlib.Path(tfjac.__file__).parent
PAGE = TESTS.parent / "docs" / "errors.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the pages are not beside the tests")

# Makes jvp, a determinant or a Laplacian go another way, and is never shown.
ASKED_WITHIN = {
    "an op on the way is not known",
    "it is zero",
    "an axis of unknown size",
    "blocks that are not square",
    "a tensor without examples",
}
# Raised for the code that asked, which turns them into a strategy's reason or a line of a report.
ANSWERS = {"Refused", "_Refused", "Failed", "LeftOut", "NotTaken", "NotTaped"}


def spread(*shape):
    return np.linspace(0.3, 1.7, int(np.prod(shape))).reshape(shape)


def by_a_gather_of_a_list(x):
    elements = tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=[2])
    with tf.GradientTape() as tape:
        tape.watch(elements)
        y = tf.raw_ops.TensorListGather(
            input_handle=elements, indices=[1], element_shape=[2], element_dtype=tf.float32
        )
    return tf.raw_ops.TensorListStack(
        input_handle=tape.gradient(y, elements, x[:1]),
        element_shape=[2],
        element_dtype=tf.float32,
    )


def drawn_beside_cumprod():
    @tf.function
    def inner(x):
        return tf.math.cumprod(x) * tf.random.uniform([2, 2])

    return in_function(lambda x: tfjac.jacobian(inner(x), x), X)


def singular(strategy):
    return lambda: tfjac.prepare(tf.linalg.det, strategy=strategy)(tf.ones([4, 4]))


def drawn_again():
    drop = tf.recompute_grad(lambda x: tf.nn.dropout(x, 0.5))
    return in_function(lambda x: tfjac.jacobian(drop(x), x), X)


def ctc_twice():
    def loss(x):
        labels, lengths = tf.constant([[1, 1]]), tf.constant([2])
        return tf.reduce_sum(
            tf.nn.ctc_loss(labels, x[:, tf.newaxis], lengths, lengths + 1, blank_index=0)
        )

    return in_function(lambda x: tfjac.hessian(loss(x), x), tf.ones([3, 2]))


def unknown_sizes():
    spec = tf.TensorSpec([None, 2], tf.float32)
    traced = tf.function(lambda x: tfjac.jacobian_sparsity(x * 2.0, x), autograph=False)
    traced.get_concrete_function(spec)


def checked_with(op_type, rule, fn, x):
    def provoke():
        with mock.patch.dict(rules._TABLE, {op_type: rule}):
            tfjac.testing.check_rule(op_type, fn, x)

    return provoke


def constantly(kind, *links):
    return Rule(lambda op, i, o: Local(kind, links))


@tf.custom_gradient
def _clipped(x):
    return x, lambda upstream: tf.clip_by_value(upstream, -1.0, 1.0)


def adjoint_differs():
    with mock.patch.object(tfjac.rule_checks, "_second", lambda y, *_: tf.ones_like(y) * 7.0):
        tfjac.testing.check_rule("Tanh", tf.tanh, spread(3))


def moved_wrongly():
    wrong = np.zeros(6, int)
    with mock.patch.object(tfjac.rule_checks.positions, "sources_of", lambda *_: wrong):
        tfjac.testing.check_rule("Transpose", tf.transpose, spread(2, 3))


def damaged_rates():
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = pathlib.Path(folder, "rates.json")
        path.write_text("{}")
        patch.setenv("TFJAC_RATES", str(path))
        rates.current.cache_clear()
        rates.current()
    rates.current.cache_clear()


def outside_of_linux():
    with mock.patch.object(platform, "system", lambda: "Darwin"):
        tfjac.keep_freed_memory()


def out_of_memory():
    def fails(concrete, tensors):
        raise tf.errors.ResourceExhaustedError(None, None, "no memory")

    with mock.patch.object(tf_internals, "call_concrete", fails):
        tfjac.prepare(lambda x: x @ x, strategy="vectorized", chunk_size=2)(X)


class NotAfterAll:
    """A strategy that takes everything for nothing, and cannot build."""

    name = "not_after_all"

    def supports(self, problem):
        return tfjac.strategies.Support(True)

    def cost(self, problem):
        return tfjac.strategies.Cost(1, 0.0, 1, 1)

    def build(self, problem):
        raise tfjac.errors.UnsupportedError("op 'a' of type B is at fault")


def best_that_cannot_build():
    known = (NotAfterAll(), *planning.STRATEGIES)
    with mock.patch.object(planning, "STRATEGIES", known):
        tfjac.prepare(lambda x: x**5)(X)


def flag_given_wrongly():
    values = tfjac.flags.flags.FlagValues()
    tfjac.flags.define(flag_values=values)
    values(["program", "--chunk_size=0"])


def flags_twice():
    values = tfjac.flags.flags.FlagValues()
    for _ in range(2):
        tfjac.flags.define(flag_values=values)


def bench_with(**values):
    def provoke():
        given = types.SimpleNamespace(**values)
        with mock.patch.object(command.flags, "FLAGS", given):
            command.main([])

    return provoke


def of_function(body, spec):
    """Returns what traces `body` for a shape that is not known in full."""
    return lambda: tf.function(body, autograph=False).get_concrete_function(spec)


def operator_that_leaves_its_function():
    tf.function(lambda x: tfjac.jacobian_operator(tf.sin(x), x), autograph=False)(X)


def without_scipy():
    _, operator = tfjac.linearize(tf.sin, X)
    with mock.patch.dict(sys.modules, {"scipy.sparse": None}):
        operator.to_scipy()


def loop_that_swaps(x):
    def body(a, b):
        return tf.concat([a[1:], a[:1]], 0), a

    return tf.while_loop(lambda a, b: True, body, (x, x), maximum_iterations=2)[1]


def one_way_gradient(x):
    return tfjac.jvp(tf.image.crop_and_resize(x, [[0.0, 0.0, 1.0, 1.0]], [0], [2, 2]), x, x)


def pool_as_large(x):
    return tfjac.jvp(tf.nn.max_pool2d(x, 2, 1, "SAME"), x, x)


CASES = {
    "derivative missing by an input": (
        in_function(lambda x: tfjac.jacobian(tf.math.zeta(x, 2.0), x), X),
        tfjac.errors.NotDifferentiableError,
    ),
    "derivative that is wrong": (
        in_function(
            lambda x: tfjac.jacobian(tf.math.real(tf.linalg.sqrtm(tf.complex(x, x))), x), X
        ),
        tfjac.errors.NotDifferentiableError,
    ),
    "derivative that cannot be run": (ctc_twice(), tfjac.errors.NotDifferentiableError),
    "gradient that draws again": (drawn_again(), tfjac.errors.NotDifferentiableError),
    "op at fault that may run once": (drawn_beside_cumprod(), tfjac.errors.UnsupportedError),
    "strategy that fails when it runs": (singular("unstack"), tfjac.errors.UnsupportedError),
    "the next one after it": (singular("auto"), tfjac.errors.StrategyFallbackWarning),
    "target that is a value, in a function": (
        in_function(lambda x: tfjac.jacobian(X, x), X),
        tfjac.errors.InvalidTypeError,
    ),
    "examples that mix": (
        in_function(lambda x: tfjac.batch_jacobian(x - tf.reduce_mean(x, 0), x), X),
        tfjac.errors.ExamplesMixError,
    ),
    "examples not shown to stay apart": (
        in_function(
            lambda x: tfjac.batch_jacobian(
                tf.ensure_shape(tf.py_function(tf.sin, [x], tf.float32), [2, 2]), x
            ),
            X,
        ),
        tfjac.errors.ExamplesMixError,
    ),
    "dependence of a scalar": (
        in_function(lambda x: tfjac.explain_dependence(tf.reduce_sum(x), x), X),
        tfjac.errors.InvalidValueError,
    ),
    "unknown independence": (
        lambda: tfjac.prepare(tf.sin, batch=True, independence="yes"),
        tfjac.errors.InvalidValueError,
    ),
    "pattern of unknown sizes": (unknown_sizes, tfjac.errors.InvalidValueError),
    "diagonal of two shapes": (
        in_function(lambda x: tfjac.diag_jacobian(tf.reduce_sum(x, 0), x), X),
        tfjac.errors.InvalidValueError,
    ),
    "hessian of a vector": (
        in_function(lambda x: tfjac.hessian(x[0], x), X),
        tfjac.errors.InvalidValueError,
    ),
    "hessian per example of a scalar": (
        in_function(lambda x: tfjac.batch_hessian(tf.reduce_sum(x), x), X),
        tfjac.errors.InvalidValueError,
    ),
    "laplacian per example of a scalar": (
        in_function(lambda x: tfjac.laplacian(tf.reduce_sum(x), x, batch=True), X),
        tfjac.errors.InvalidValueError,
    ),
    "product with the hessian of a vector": (
        in_function(lambda x: tfjac.hvp(x[0], x, x), X),
        tfjac.errors.InvalidValueError,
    ),
    "loss of Gauss-Newton that is a vector": (
        in_function(lambda x: tfjac.ggn(x[0], x, x, x), X),
        tfjac.errors.InvalidValueError,
    ),
    "losses that are reduced over examples": (
        in_function(lambda x: tfjac.per_example_gradients(tf.reduce_sum(x), x), X),
        tfjac.errors.InvalidValueError,
    ),
    "determinant that is not square": (
        in_function(lambda x: tfjac.det(x[0], x), X),
        tfjac.errors.InvalidValueError,
    ),
    "determinant of a complex target": (
        in_function(lambda x: tfjac.det(tf.cast(x, tf.complex64), x), X),
        tfjac.errors.InvalidTypeError,
    ),
    "determinant of a complex source": (
        in_function(lambda x: tfjac.det(tf.math.real(x), x), tf.cast(X, tf.complex64)),
        tfjac.errors.InvalidTypeError,
    ),
    "gramian of neither": (
        in_function(lambda x: tfjac.gramian(x, x, of="J"), X),
        tfjac.errors.InvalidValueError,
    ),
    "probes of none": (
        in_function(lambda x: tfjac.trace(x, x, probes=0), X),
        tfjac.errors.InvalidValueError,
    ),
    "iterations of none": (
        in_function(lambda x: tfjac.spectral_norm(x, x, iterations=0), X),
        tfjac.errors.InvalidValueError,
    ),
    "seed of a float": (
        in_function(lambda x: tfjac.trace(x, x, probes=1, seed=0.5), X),
        tfjac.errors.InvalidValueError,
    ),
    "singular values of unknown sizes": (
        of_function(
            lambda x: tfjac.singular_values(tf.cumsum(x), x), tf.TensorSpec([None], tf.float32)
        ),
        tfjac.errors.InvalidValueError,
    ),
    "singular values of a large matrix": (
        of_function(
            lambda x: tfjac.singular_values(tf.cumsum(x), x), tf.TensorSpec([2049], tf.float32)
        ),
        tfjac.errors.InvalidValueError,
    ),
    "operator that leaves its function": (
        operator_that_leaves_its_function,
        tfjac.errors.UnsupportedError,
    ),
    "operator of a graph for SciPy": (
        in_function(lambda x: tfjac.jacobian_operator(tf.sin(x), x).to_scipy(), X),
        tfjac.errors.UnsupportedError,
    ),
    "operator for SciPy that is not there": (without_scipy, tfjac.errors.UnsupportedError),
    "linearize no function": (lambda: tfjac.linearize(X, X), tfjac.errors.InvalidTypeError),
    "linearize in a function": (
        in_function(lambda x: tfjac.linearize(tf.sin, x)[0], X),
        tfjac.errors.InvalidTypeError,
    ),
    "linearize at integers": (
        lambda: tfjac.linearize(tf.sin, [1, 2]),
        tfjac.errors.InvalidTypeError,
    ),
    "linearize several targets": (
        lambda: tfjac.linearize(lambda x: [x, x], X),
        tfjac.errors.InvalidTypeError,
    ),
    "penalty unknown": (
        lambda: tfjac.keras.JacobianPenalty(tf.keras.layers.Dense(2), "small"),
        tfjac.errors.InvalidValueError,
    ),
    "probes of another penalty": (
        lambda: tfjac.keras.JacobianPenalty(tf.keras.layers.Dense(2), "spectral", probes=1),
        tfjac.errors.InvalidValueError,
    ),
    "iterations of another penalty": (
        lambda: tfjac.keras.JacobianPenalty(tf.keras.layers.Dense(2), iterations=1),
        tfjac.errors.InvalidValueError,
    ),
    "jvp of a pooling": (
        in_function(pool_as_large, tf.constant(spread(1, 3, 3, 1))),
        tfjac.errors.UnsupportedError,
    ),
    "jvp of an op that is differentiated once": (
        in_function(one_way_gradient, tf.constant(spread(1, 3, 3, 1).astype(np.float32))),
        tfjac.errors.UnsupportedError,
    ),
    "memory budget of text": (
        lambda: tfjac.prepare(tf.sin, memory_budget="1 GB"),
        tfjac.errors.InvalidTypeError,
    ),
    "memory budget and chunk size": (
        lambda: tfjac.prepare(tf.sin, memory_budget=2**20, chunk_size=3),
        tfjac.errors.InvalidValueError,
    ),
    "no memory budget": (
        lambda: tfjac.prepare(tf.sin, memory_budget=0),
        tfjac.errors.InvalidValueError,
    ),
    "tuning of one strategy": (
        lambda: tfjac.prepare(tf.sin, strategy="forward", autotune=True),
        tfjac.errors.InvalidValueError,
    ),
    "budget too small": (
        lambda: tfjac.prepare(tf.sin, strategy="forward", memory_budget=1)(X),
        tfjac.errors.UnsupportedError,
    ),
    "rule that exists": (
        lambda: rules.register_rule("Tanh", rules.rule_for("Tanh")),
        tfjac.errors.InvalidValueError,
    ),
    "rule that does not exist": (
        lambda: tfjac.testing.check_rule("Tanhh", tf.tanh, spread(2)),
        tfjac.errors.InvalidValueError,
    ),
    "function of two ops": (
        lambda: tfjac.testing.check_rule("Tanh", lambda x: tf.tanh(tf.tanh(x)), spread(2)),
        tfjac.errors.InvalidValueError,
    ),
    "rule of an op without a right gradient": (
        lambda: tfjac.testing.check_rule("Zeta", tf.math.zeta, spread(3) + 2.0, spread(3)),
        tfjac.testing.RuleError,
    ),
    "rule of an op whose adjoint differs": (adjoint_differs, tfjac.testing.RuleError),
    "rule that links what is not there": (
        checked_with("Transpose", constantly(Kind.SELECTION, (2, 0)), tf.transpose, spread(2, 3)),
        tfjac.testing.RuleError,
    ),
    "rule that links other sizes": (
        checked_with("Transpose", constantly(Kind.SELECTION, (0, 0)), tf.transpose, spread(2, 3)),
        tfjac.testing.RuleError,
    ),
    "rule that claims zero": (
        checked_with("Tanh", constantly(Kind.ZERO), tf.tanh, spread(2, 3)),
        tfjac.testing.RuleError,
    ),
    "rule that claims one entry": (
        checked_with("Cumsum", constantly(Kind.DIAGONAL), lambda x: tf.cumsum(x, 1), spread(2, 3)),
        tfjac.testing.RuleError,
    ),
    "rule that claims ones": (
        checked_with("Neg", constantly(Kind.SELECTION, (0, 0), (1, 1)), tf.negative, spread(2, 3)),
        tfjac.testing.RuleError,
    ),
    "rule that claims identity": (
        checked_with(
            "Reverse",
            constantly(Kind.IDENTITY),
            lambda x: tf.raw_ops.Reverse(tensor=x, dims=[True]),
            spread(3),
        ),
        tfjac.testing.RuleError,
    ),
    "movement from elsewhere": (moved_wrongly, tfjac.testing.RuleError),
    "Jacobian that is wrong": (
        lambda: tfjac.testing.check_jacobian(_clipped, spread(3) * 9.0),
        tfjac.testing.JacobianMismatchError,
    ),
    "Jacobian of another shape": (
        lambda: tfjac.testing.check_jacobian(tf.sin, spread(3), jacobian=tf.cos),
        tfjac.testing.JacobianMismatchError,
    ),
    "check of a complex target": (
        lambda: tfjac.testing.check_jacobian(lambda x: tf.cast(x, tf.complex128), spread(3)),
        tfjac.errors.InvalidTypeError,
    ),
    "ops that a map loops over": (
        lambda: tfjac.prepare(
            lambda x: tf.gather_nd(tf.sin(x), [[1, 1], [0, 1]]), strategy="vectorized"
        )(X),
        tfjac.errors.LoopFallbackWarning,
    ),
    "loop that a map does not take": (
        lambda: tfjac.prepare(loop_that_swaps, strategy="vectorized")(X),
        tfjac.errors.LoopFallbackWarning,
    ),
    "transform that is truncated": (
        lambda: tfjac.prepare(lambda x: tf.math.real(tf.signal.rfft(x, [2])))(tf.ones([4])),
        tfjac.errors.UnsupportedError,
    ),
    "best strategy that cannot build": (
        best_that_cannot_build,
        tfjac.errors.StrategyFallbackWarning,
    ),
    "out of memory": (out_of_memory, tfjac.errors.OutOfMemoryWarning),
    "rates that are damaged": (damaged_rates, tfjac.errors.RatesIgnoredWarning),
    "memory kept outside of Linux": (outside_of_linux, RuntimeWarning),
    "flag with a wrong value": (flag_given_wrongly, tfjac.flags.flags.IllegalFlagValueError),
    "flags defined twice": (flags_twice, tfjac.errors.InvalidValueError),
    "bench of no module": (lambda: own.load("nowhere:f"), tfjac.errors.InvalidValueError),
    "bench of no function": (lambda: own.load("math:pi"), tfjac.errors.InvalidValueError),
    "bench without an input": (
        bench_with(shape=None, input=None, function="math:pi"),
        command.app.UsageError,
    ),
    "bench of a wrong function": (
        bench_with(shape=["2"], input=None, function="math:pi"),
        command.app.UsageError,
    ),
}
# A function that AutoGraph converts, prepared: TensorFlow puts the user's line in front.
CONVERTED = {"variable per example"}
CASES |= {name: (provoke, kind) for name, (provoke, kind, _) in BAD.items()}
CASES |= {name: (provoke, kind) for name, (provoke, kind, _) in BAD_ARGUMENTS.items()}


# Why a strategy would not build: (strategy, a function of a tensor, the tensor).
REASONS = {
    "rows not known": ("unstack", lambda x: tf.boolean_mask(x, x > 0.0), X),
    "gradient that is differentiated once": (
        "forward",
        tf.quantization.fake_quant_with_min_max_args,
        X,
    ),
    "elements of a list": ("vectorized", by_a_gather_of_a_list, X),
    "pooling as large as its input": (
        "forward",
        lambda x: tf.nn.max_pool2d(x, 2, 1, "SAME"),
        tf.constant(spread(1, 3, 3, 1)),
    ),
    "complex source, real target": ("forward", tf.math.real, tf.cast(X, tf.complex64)),
    "loop under XLA": (
        "vectorized",
        lambda x: tf.while_loop(lambda y: tf.reduce_sum(y) < 9.0, lambda y: [y * 2.0], [x])[0],
        X,
    ),
    "one example in a product": ("vectorized", lambda x: x @ x, X[tf.newaxis]),
    "called with jit_compile": (
        "vectorized",
        tf.function(
            lambda x: tf.nn.avg_pool2d(x[tf.newaxis, tf.newaxis], 2, 1, "VALID", "NCHW"),
            jit_compile=True,
        ),
        X,
    ),
    "complex in structural": ("structural", tf.math.real, tf.cast(X, tf.complex64)),
    "no rule": (
        "structural",
        lambda x: tf.ensure_shape(tf.py_function(tf.sin, [x], tf.float32), [2, 2]),
        X,
    ),
    "not elementwise": ("structural", tf.nn.softmax, X),
    "not a vector": ("structural", lambda x: tf.constant([[1.0, 2.0]] * 3) @ x, X),
    "before a product": ("structural", lambda x: tf.linalg.matvec(X, x[::2]), tf.ones([3])),
    "memory budget": ("forward", tf.sin, X),
}


def reason(name):
    strategy, fn, x = REASONS[name]
    with pytest.raises(tfjac.errors.UnsupportedError) as caught:
        tfjac.prepare(
            fn,
            strategy=strategy,
            jit_compile="XLA" in name,
            memory_budget=1 if "budget" in name else None,
        )(x)
    return str(caught.value).split(f"{strategy}: ")[1]


@functools.cache
def provoked(name):
    """Returns what a case raises, a warning being raised as an error is."""
    provoke, kind = CASES[name]
    with warnings.catch_warnings(), pytest.raises(kind) as caught:
        for category in (RuntimeWarning, UserWarning):
            warnings.filterwarnings("error", category=category, module="tfjac|error_page_test")
        provoke()
    return caught.value


def message(name):
    text = str(provoked(name))
    if name in CONVERTED:
        assert text.startswith("in user code:")
        return text.split(f"{CASES[name][1].__name__}: ")[1]
    return text


def entries(heading):
    """Returns the pattern of each message under a heading, and the class that it names."""
    text = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(r"^- (`+) ?(.+?) ?\1(?:\n  \*\*(\w+):\*\*)?", text, re.MULTILINE)
    return {words: kind for _, words, kind in found}


def pattern(words):
    return "(?s)" + ".*?".join(re.escape(part) for part in words.split("…"))


def is_met(words, text):
    return re.match(pattern(words), text) is not None


MESSAGES = entries("Messages") if PAGE.exists() else {}


@pytest.mark.parametrize("name", list(CASES))
def test_a_message_has_one_entry_on_the_page_which_names_its_class(name):
    error, text = provoked(name), message(name)
    found = [words for words in MESSAGES if is_met(words, text)]
    assert len(found) == 1, f"{found} for {text}"
    # The command line repeats an error as one of usage.
    repeated = error.__context__ if isinstance(error, command.app.UsageError) else None
    assert MESSAGES[found[0]] == type(repeated or error).__name__


@pytest.mark.parametrize("words", list(MESSAGES))
def test_an_entry_of_the_page_is_a_message_that_comes(words):
    assert any(is_met(words, message(name)) for name in CASES)


def reasons_in_the_code():
    """Yields the text of each reason that is written out, as an entry of the page has it."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _name(node) in {"Support", "Refused", "_Refused"}:
                text = "".join(map(_as_on_the_page, _parts(node.args[-1])))
                if text and text not in ASKED_WITHIN:
                    yield text


def _parts(node):
    """Returns the parts of a text that is written out; nothing for any other value."""
    if isinstance(node, ast.JoinedStr):
        return node.values
    return [node] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def _as_on_the_page(part):
    if isinstance(part, ast.Constant):
        return part.value
    is_op = ast.unparse(part.value).startswith(("base.named", "named(", "place"))
    return "op … of type …" if is_op else "…"


def test_each_reason_is_on_the_page_and_each_on_the_page_is_given():
    listed = entries("Reasons")
    given = {name: reason(name) for name in REASONS}
    given |= {text: text for text in reasons_in_the_code()}
    met = {name: [w for w in listed if is_met(w, text)] for name, text in given.items()}
    assert all(len(found) == 1 for found in met.values()), (met, given)
    assert set(listed) == {words for found in met.values() for words in found}


def raise_sites():
    """Returns (file, first line, last line) of each `raise` of a new error, and of each warning."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            is_raise = isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
            is_warning = isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn"
            if is_warning or (is_raise and _name(node.exc) not in ANSWERS):
                yield str(path), node.lineno, node.end_lineno


def _name(call):
    return ast.unparse(call.func).split(".")[-1]


def frames(error):
    """Yields (file, line) of the frames that an error, and those behind it, went through."""
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
            trace = trace.tb_next
        error = error.__cause__ or error.__context__


def test_every_raise_of_the_package_is_reached_by_a_case():
    reached = {frame for name in CASES for frame in frames(provoked(name))}
    missed = [
        f"{pathlib.Path(file).relative_to(PACKAGE)}:{first}"
        for file, first, last in raise_sites()
        if not any(where == file and first <= line <= last for where, line in reached)
    ]
    assert not missed


def test_the_page_names_every_class_of_errors():
    classes = re.findall(r"^class (\w+)", (PACKAGE / "errors.py").read_text(), re.MULTILINE)
    assert set(classes) <= set(re.findall(r"`(\w+)`", PAGE.read_text()))


def test_examples_that_differ_in_number_are_told_when_the_graph_runs():
    (words,) = entries("When the graph runs")

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, 2])])
    def shrunk(x):
        return tfjac.batch_jacobian(x[1:] * 2.0, x, independence="assume")

    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        shrunk(X)
    assert re.search(pattern(words), caught.value.message)
