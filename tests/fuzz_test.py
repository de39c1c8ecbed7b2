"""Random programs of TensorFlow: every strategy that takes one is right, and none fails.

`TFJAC_FUZZ=50 pytest tests/fuzz_test.py` tries 50 times as many, `TFJAC_FUZZ_SEED=7` others.
"""

from __future__ import annotations

import collections
import os

import pytest

hypothesis = pytest.importorskip("hypothesis")

import fuzz  # noqa: E402 (this and the others need hypothesis)
import fuzz_laws  # noqa: E402
import fuzz_moves  # noqa: E402
import fuzz_ops  # noqa: E402
import fuzz_second  # noqa: E402
import fuzz_steps  # noqa: E402
import fuzz_types  # noqa: E402
import numpy as np  # noqa: E402
import relations  # noqa: E402
import tensorflow as tf  # noqa: E402

import tfjac  # noqa: E402
from tfjac import rules  # noqa: E402
from tfjac.accumulation import maps  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")

TIMES = int(os.environ.get("TFJAC_FUZZ", "1"))
SEED = int(os.environ.get("TFJAC_FUZZ_SEED", "0"))
STEPS = [*fuzz_steps.STEPS, *fuzz_moves.MOVES]
PLAIN, CALLING = STEPS, [*STEPS, *fuzz_moves.CALLS]
# Short lots: hypothesis varies the programs of a lot, and begins anew in the next one.
LOT = 10


ALL_PHASES = tuple(hypothesis.Phase)


def tried(
    steps, seed, count, laws=fuzz_laws.check_program, phases=ALL_PHASES, programs=None
) -> collections.Counter:
    """Runs a number of programs and returns how they went; raises where a law does not hold."""
    went: collections.Counter = collections.Counter()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        print_blob=False,
        phases=phases,
        report_multiple_bugs=False,
    )
    @hypothesis.given(fuzz.programs(steps) if programs is None else programs)
    def run(program):
        try:
            went["blocks"] += laws(program)
            went["judged"] += 1
        except fuzz_laws.Unfit:
            went["unfit"] += 1

    run()
    return went


@pytest.mark.parametrize("lot", range(4 * TIMES))
def test_the_laws_hold_for_random_programs(lot):
    went = tried(PLAIN, 1000 * SEED + lot, LOT)
    assert went["judged"] > went["unfit"]
    assert went["blocks"], "blocks are never given, so that they are not judged"


@pytest.mark.parametrize("lot", range(2 * TIMES))
def test_the_laws_hold_for_random_programs_with_functions_loops_and_branches(lot):
    went = tried(CALLING, 1000 * SEED + 500 + lot, LOT)
    assert went["judged"] > went["unfit"]


@pytest.mark.parametrize("lot", range(2 * TIMES))
def test_what_is_claimed_of_random_programs_holds(lot):
    went = tried(CALLING, 1000 * SEED + 800 + lot, 3 * LOT, fuzz_laws.check_briefly)
    assert went["judged"] > went["unfit"]


@pytest.mark.parametrize("lot", range(TIMES))
def test_two_ways_of_asking_agree_for_random_programs(lot):
    went = tried(CALLING, 1000 * SEED + 300 + lot, LOT, fuzz_laws.check_relations)
    assert went["blocks"] > went["unfit"]


@pytest.mark.parametrize("lot", range(TIMES))
def test_second_derivatives_of_random_programs_are_those_of_the_values(lot):
    went = tried(CALLING, 1000 * SEED + 600 + lot, LOT, fuzz_second.check_second)
    assert went["blocks"]


@pytest.mark.parametrize("lot", range(2 * TIMES))
def test_the_laws_hold_for_calls_of_all_ops(lot):
    programs = fuzz_ops.programs()
    went = tried(None, 1000 * SEED + 700 + lot, 2 * LOT, fuzz_laws.check_op, programs=programs)
    assert went["judged"] > went["unfit"]


@pytest.mark.parametrize("lot", range(TIMES))
def test_second_derivatives_of_calls_of_all_ops_are_those_of_the_values(lot):
    programs = fuzz_ops.programs()
    went = tried(None, 1000 * SEED + 900 + lot, LOT, fuzz_second.check_second, programs=programs)
    assert went["blocks"] > went["unfit"]


def plant_wrong_kind(patch):
    patch.setattr(rules, "_TABLE", {**rules._TABLE, "Cumsum": rules.rule_for("Tanh")})


def plant_wrong_value(patch):
    patch.setitem(maps._BY_TYPE, "Cumsum", lambda op, i, o, found, dtype: ())


def plant_raw_error(patch):
    def fails(problem, strategy, chunk_size):
        raise KeyError("planted")

    patch.setattr(tfjac.planning, "choose", fails)


@pytest.mark.parametrize(
    ("plant", "error"),
    [
        (plant_wrong_kind, AssertionError),
        (plant_wrong_value, AssertionError),
        (plant_raw_error, KeyError),
    ],
)
def test_an_error_that_is_planted_is_found(plant, error, monkeypatch):
    plant(monkeypatch)
    steps = [fuzz_steps.running, fuzz_steps.smooth]
    with pytest.raises(error):
        tried(steps, 0, 5 * LOT, phases=[hypothesis.Phase.generate])


def _plant_in_jacobians(patch, is_wrong, name="jacobian"):
    real = getattr(tfjac, name)

    def planted(y, xs, *args, **options):
        found = real(y, xs, *args, **options)
        factor = tf.cast(is_wrong(y, xs, options), tf.float64)
        return tf.nest.map_structure(lambda j: j * (1.0 + 1e-3 * tf.cast(factor, j.dtype)), found)

    patch.setattr(tfjac, name, planted)


def _plant_in_prepared(patch):
    real = tfjac.prepare
    patch.setattr(
        tfjac, "prepare", lambda *a, **k: lambda *x: [1.001 * j for j in real(*a, **k)(*x)]
    )


def _plant_in_compiled(patch):
    real = relations.Task.run

    def run(task, *args, **options):
        return [a * (1.0 + options.get("jit_compile", False)) for a in real(task, *args, **options)]

    patch.setattr(relations.Task, "run", run)


def _is_variable(y, xs, options):
    return isinstance(xs[0], tf.Variable)


def _any_list(y, xs, options):
    return isinstance(y, dict)


PLANTED = {
    "variables": _is_variable,
    "variables_read": _is_variable,
    "variables_captured": _is_variable,
    "called": lambda y, xs, options: y.op.type.endswith("PartitionedCall"),
    "sizes": lambda y, xs, options: xs[0].shape[0] is None,
    "session": lambda y, xs, options: xs[0].op.type == "Placeholder" and not hasattr(
        y.graph, "captures"
    ),
    "constants": lambda y, xs, options: xs[0].op.type == "Const",
    "repeated": lambda y, xs, options: len(xs) > 1,
    "targets": _any_list,
    "chunks": lambda y, xs, options: options.get("chunk_size") == 2,
}  # fmt: skip


def _plant_for(name, patch):
    if name == "prepared":
        _plant_in_prepared(patch)
    elif name == "compiled":
        _plant_in_compiled(patch)
    elif name == "examples":
        _plant_in_jacobians(patch, lambda y, xs, options: tf.shape(y)[0] == 1, "batch_jacobian")
    else:
        _plant_in_jacobians(patch, PLANTED[name])


@pytest.mark.parametrize("name", list(relations.RELATIONS))
def test_an_error_that_is_planted_in_one_way_of_asking_is_found(name, monkeypatch):
    task = relations.Task(
        lambda x: tf.tanh(x) * x, [tf.TensorSpec([2, 2], tf.float64)], [np.ones((2, 2))]
    )
    relations.check_relation(name, task, 1e-12)
    _plant_for(name, monkeypatch)
    with pytest.raises(AssertionError):
        relations.check_relation(name, task, 1e-10)


@pytest.mark.parametrize("law", fuzz_second.LAWS)
def test_an_error_that_is_planted_in_second_derivatives_is_found(law, monkeypatch):
    source = fuzz.Source("x0", (2, 2), (2, 2), "f64")
    program = fuzz.Program((source,), ("y = tf.tanh(x0) * x0[:, :1]",), "y")
    assert fuzz_second.check_second(program, [law])
    name = "hessian" if law is fuzz_second.of_hessian else "jacobian"
    _plant_in_jacobians(monkeypatch, lambda y, xs, options: True, name)
    with pytest.raises(AssertionError):
        fuzz_second.check_second(program, [law])


def test_a_wrong_derivative_of_an_op_at_zeros_is_found(monkeypatch):
    from tfjac.rewriting import table

    call = next(c for c in fuzz_ops.CALLS if "cumprod(x, 1)" in c.code)
    source = fuzz_ops.source_of(call, "zeros", False)
    program = fuzz.Program((source,), (f"v = {call.code.replace('x', 'x0')}",), "v")
    fuzz_laws.check_op(program)
    monkeypatch.delitem(table.TABLE, "Cumprod")
    monkeypatch.setitem(maps._BY_TYPE, "Cumprod", lambda op, i, o, found, dtype: ())
    with pytest.raises(AssertionError):
        fuzz_laws.check_op(program)


def test_every_op_that_has_a_rule_is_drawn_or_has_a_reason_not_to_be():
    missing = fuzz_types.known_types() - fuzz_types.drawn_types()
    assert missing - set(fuzz_types.NEVER) == set(), "draw these, or say why not"
    assert set(fuzz_types.NEVER) - missing == set(), "these are drawn: take them off the list"


def test_a_program_prints_as_code_that_runs():
    def check_runs(program):
        scope: dict = {}
        exec(repr(program), scope)
        names = [source.name for source in program.sources]
        compiled = tf.function(scope["fn"], input_signature=scope["specs"], autograph=False)
        given = compiled(*(scope[name] for name in names)).numpy()
        values = map(tf.constant, program.values())
        np.testing.assert_array_equal(given, program.function()(*values).numpy())
        return False

    tried(PLAIN, 4, LOT, check_runs)
