"""Every scenario under every strategy, in every way of calling, full and per example."""

import functools

import numpy as np
import pytest
import scenarios
import tensorflow as tf

import tfjac

STRATEGIES = tfjac.strategies.names()

# Which ops fall back to a loop is the business of laws_test.py.
pytestmark = pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")


def _operator(scenario, batch):
    if not batch:
        return tfjac.jacobian
    return functools.partial(tfjac.batch_jacobian, independence=scenario.independence)


def _in_function(scenario, strategy, batch, jit=False):
    def run(*xs):
        return _operator(scenario, batch)(scenario.fn(*xs), list(xs), strategy, **scenario.options)

    function = tf.function(run, input_signature=scenario.specs(), jit_compile=jit, autograph=False)
    return [np.asarray(j) for j in function(*map(tf.constant, scenario.inputs))]


def _in_session(scenario, strategy, batch):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        xs = [tf.compat.v1.placeholder(s.dtype, s.shape) for s in scenario.specs()]
        found = _operator(scenario, batch)(scenario.fn(*xs), xs, strategy, **scenario.options)
        return session.run(found, dict(zip(xs, scenario.inputs)))


def _prepared(scenario, strategy, batch):
    jac = tfjac.prepare(
        scenario.fn,
        batch=batch,
        strategy=strategy,
        argnums=range(len(scenario.inputs)),
        independence=scenario.independence,
        **scenario.options,
    )
    return [np.asarray(j) for j in jac(*scenario.inputs)]


RUNNERS = {
    "function": _in_function,
    "prepared": _prepared,
    "session": _in_session,
    "xla": functools.partial(_in_function, jit=True),
}


@functools.cache
def _oracle(scenario_name):
    scenario = next(s for s in scenarios.SCENARIOS if s.name == scenario_name)
    return scenario.oracle()


def check_close(found, wanted, tolerance):
    assert found.shape == wanted.shape
    scale = max(1.0, np.abs(wanted).max(initial=0.0))
    np.testing.assert_allclose(found.astype(wanted.dtype), wanted, rtol=0, atol=tolerance * scale)


def _rows():
    for scenario in scenarios.SCENARIOS:
        for strategy in STRATEGIES:
            for mode in scenario.modes:
                for kind in ("full", "batch") if scenario.batch else ("full",):
                    yield pytest.param(
                        scenario,
                        strategy,
                        mode,
                        kind,
                        id=f"{scenario.name}-{strategy}-{mode}-{kind}",
                    )


# Strategies that need some structure, and say so where there is none.
MAY_REFUSE = ("structural", "cross_country")


def _is_taken(run, scenario, batch, strategy):
    """Returns whether a strategy takes a scenario."""
    try:
        run(scenario, strategy, batch)
    except tfjac.errors.UnsupportedError as error:
        assert f"{strategy}: " in str(error) or "could not prove" in str(error)
        return False
    return True


@pytest.mark.parametrize("strategy, least", [("structural", 8), ("cross_country", 33)])
def test_strategies_that_may_refuse_take_some_scenarios(strategy, least):
    taken = [s for s in scenarios.SCENARIOS if _is_taken(_prepared, s, False, strategy)]
    assert len(taken) >= least


@pytest.mark.parametrize("scenario, strategy, mode, kind", list(_rows()))
def test_the_jacobian_is_the_oracles_or_is_refused(scenario, strategy, mode, kind):
    run = RUNNERS[mode]
    batch = kind == "batch"
    if strategy in MAY_REFUSE and not _is_taken(run, scenario, batch, strategy):
        return
    if f"{strategy}/{kind}" in scenario.refused:
        with pytest.raises(tfjac.errors.UnsupportedError, match=strategy):
            run(scenario, strategy, batch)
        return
    found = run(scenario, strategy, batch)
    target = tf.function(scenario.fn, autograph=False).get_concrete_function(*scenario.specs())
    for jacobian, full, x in zip(found, _oracle(scenario.name), scenario.inputs, strict=True):
        wanted = scenarios.block_diagonal(full, full.ndim - x.ndim) if batch else full
        check_close(jacobian, wanted, scenario.tolerance)
        y_dtype = target.structured_outputs.dtype.as_numpy_dtype
        assert (
            jacobian.dtype == np.result_type(wanted.dtype, y_dtype)
            if (np.iscomplexobj(wanted))
            else jacobian.dtype == y_dtype
        )


def test_the_checker_sees_a_planted_error():
    with pytest.raises(AssertionError):
        check_close(np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-9]), 1e-12)
    with pytest.raises(AssertionError):
        check_close(np.ones((2, 1)), np.ones(2), 1e-12)


def test_central_differences_agree_with_a_closed_form():
    found = scenarios.central_differences(tf.sin, (np.array([0.3, -0.4]),), 0)
    np.testing.assert_allclose(found, np.diag(np.cos([0.3, -0.4])), atol=1e-11)


def test_block_diagonal_picks_the_blocks():
    full = np.arange(2 * 3 * 2 * 5).reshape(2, 3, 2, 5)
    blocks = scenarios.block_diagonal(full, 2)
    np.testing.assert_array_equal(blocks, np.stack([full[0, :, 0], full[1, :, 1]]))
