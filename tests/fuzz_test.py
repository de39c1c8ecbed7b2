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
import fuzz_steps  # noqa: E402
import numpy as np  # noqa: E402
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
    steps, seed, count, laws=fuzz_laws.check_program, phases=ALL_PHASES
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
    @hypothesis.given(fuzz.programs(steps))
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
