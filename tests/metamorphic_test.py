"""Two ways of asking for one Jacobian give one answer, for every scenario and for models."""

from __future__ import annotations

import os

import models
import numpy as np
import pytest
import relations
import tensorflow as tf
from scenarios import SCENARIOS

pytestmark = pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")

NAMES = list(relations.RELATIONS)
# Each row is held to some, to all with TFJAC_FUZZ=2 or more: neighbors to others.
ALL = int(os.environ.get("TFJAC_FUZZ", "1")) > 1
# XLA of scenarios is run by scenarios_test.py, in a way that names what it does not take.
OF_SCENARIOS = [name for name in NAMES if name != "compiled"]


def some_names(names, number: int, count: int):
    """Returns some of the names, others for the next number."""
    begin = number * count
    return names if ALL else [names[(begin + k) % len(names)] for k in range(count)]


def check_all(names, task, tolerance) -> int:
    """Raises unless relations hold; returns how many could be told."""
    told = 0
    for name in names:
        try:
            relations.check_relation(name, task, tolerance)
            told += 1
        except relations.Untold:
            continue
    return told


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_relations_hold_for_scenarios(scenario):
    task = relations.Task(scenario.fn, scenario.specs(), scenario.inputs, scenario.options)
    names = some_names(OF_SCENARIOS, SCENARIOS.index(scenario), 4)
    assert check_all(names, task, max(scenario.tolerance, 1e-12))


# XLA gives a vectorized map over the branches of a tf.cond, of other shapes each, a wrong shape.
NOT_COMPILED = {"keras.Resizing.pad"}

SAMPLE = [m for m in models.MODELS if m.oracle][:: 1 if ALL else 12]


@pytest.mark.parametrize("model", SAMPLE, ids=lambda m: m.name)
def test_relations_hold_for_models(model):
    fn, x = model.make(), model.inputs()
    if not np.array_equal(*[fn(tf.constant(x)).numpy() for _ in range(2)]):
        pytest.skip("it draws at random")
    task = relations.Task(fn, [tf.TensorSpec([None, *model.shape], tf.float32)], [x])
    names = OF_SCENARIOS if model.name in NOT_COMPILED else NAMES
    check_all(some_names(names, SAMPLE.index(model), 2), task, 1e-4)
