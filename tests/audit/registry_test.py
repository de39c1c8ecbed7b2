"""Every registered op type is sampled, or it is said why not."""

import collections

import pytest
import registered
import tensorflow as tf

from tfjac.audit import families, measure, reasons, samples

pytestmark = pytest.mark.skipif(
    tf.__version__ != "2.21.0", reason="another version registers other op types"
)


def test_the_registry_is_told_whole_and_grows_by_no_use_of_tensorflow():
    """Needed by the audit."""
    before = registered.registered_op_types()
    assert len(before) == 609
    x = tf.constant([[0.3, 0.6]])
    tf.nn.relu(tf.signal.stft(x, 2, 1)[0].shape[0] * x)
    tf.image.rgb_to_grayscale(tf.ones([1, 2, 2, 3]))
    tf.linalg.svd(x)
    tf.sparse.reduce_sum(tf.sparse.from_dense(x))
    tf.raw_ops.Relu(features=x)
    assert registered.registered_op_types() == before


def test_samples_and_reasons_part_the_registry():
    sampled = {sample.op_type for sample in families.OPS}
    assert sorted(sampled | set(reasons.NOT_SAMPLED)) == sorted(registered.registered_op_types())
    assert not sampled & set(reasons.NOT_SAMPLED)


def test_no_two_samples_of_an_op_type_have_the_same_name():
    names = collections.Counter((sample.op_type, sample.name) for sample in families.SAMPLES)
    assert [name for name, count in names.items() if count > 1] == []


def test_a_sample_has_an_op_of_its_type():
    for sample in families.OPS:
        found = types_of(sample)
        assert found is None or sample.op_type in found, (sample.op_type, sample.name)


def types_of(sample):
    """Returns the op types in the graph of a sample; None if its dtype is not taken."""
    probe = None
    try:
        inputs = samples.cast(sample, (sample.dtypes or (samples.own_dtype(sample),))[0])
        probe = measure.Probe(sample.fn, inputs, sample)
    except measure.NotTaken:
        return None
    finally:
        if probe:
            probe.close()
    return {op.type for op in probe.graph.get_operations()}


def test_a_sample_that_is_taken_in_no_dtype_is_none():
    taken = collections.defaultdict(bool)
    for sample in families.OPS:
        taken[sample.op_type] |= types_of(sample) is not None
    assert [op_type for op_type, is_taken in taken.items() if not is_taken] == []
