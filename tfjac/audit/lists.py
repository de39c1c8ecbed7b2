"""Samples of lists of tensors, TensorArrays, variables, called functions, branches and loops."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfjac.audit.samples import public, spread


def _stacked(handle, dtype, shape=(2,)):
    return tf.raw_ops.TensorListStack(
        input_handle=handle, element_shape=list(shape), element_dtype=dtype, num_elements=-1
    )


def _listed(x):
    return tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=list(x.shape[1:]))


def _concatenated(x, name):
    more = {"leading_dims": np.zeros(0, np.int64)} if name[-1] == "2" else {}
    return getattr(tf.raw_ops, name)(
        input_handle=_listed(x), element_dtype=x.dtype, element_shape=[2], **more
    )[0]


def _array(x, read):
    """Writes x into a TensorArray of the third version, the one of TensorFlow 1, and reads it."""
    handle, flow = tf.raw_ops.TensorArrayV3(size=3, dtype=x.dtype, clear_after_read=False)
    flow = tf.raw_ops.TensorArrayScatterV3(handle=handle, indices=[0, 1, 2], value=x, flow_in=flow)
    return read(handle, flow)


def _written(x):
    handle, flow = tf.raw_ops.TensorArrayV3(size=1, dtype=x.dtype)
    flow = tf.raw_ops.TensorArrayWriteV3(handle=handle, index=0, value=x, flow_in=flow)
    return tf.raw_ops.TensorArrayGatherV3(handle=handle, indices=[0], flow_in=flow, dtype=x.dtype)


def _split(x):
    handle, flow = tf.raw_ops.TensorArrayV3(size=2, dtype=x.dtype)
    flow = tf.raw_ops.TensorArraySplitV3(
        handle=handle, value=x, lengths=np.array([1, 2], np.int64), flow_in=flow
    )
    return tf.raw_ops.TensorArrayReadV3(handle=handle, index=1, flow_in=flow, dtype=x.dtype)


def _looped(x):
    return tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, tf.sin(h) * h), (0, x))[1]


# fmt: off
LISTS = [
    *[public(name, "stack of a tensor", lambda x: _stacked(_listed(x), x.dtype), spread(3, 2))
      for name in ("TensorListFromTensor", "TensorListStack")],
    public("TensorListGetItem", "one", lambda x: tf.raw_ops.TensorListGetItem(
        input_handle=_listed(x), index=1, element_shape=[2], element_dtype=x.dtype), spread(3, 2)),
    public("TensorListSetItem", "one", lambda x, y: _stacked(tf.raw_ops.TensorListSetItem(
        input_handle=_listed(x), index=1, item=y), x.dtype), spread(3, 2), spread(2, seed=1)),
    public("TensorListPushBack", "one", lambda x, y: _stacked(tf.raw_ops.TensorListPushBack(
        input_handle=_listed(x), tensor=y), x.dtype), spread(3, 2), spread(2, seed=1)),
    public("TensorListPopBack", "both outputs", lambda x: _popped(x), spread(3, 2)),
    public("TensorListGather", "repeated", lambda x: tf.raw_ops.TensorListGather(
        input_handle=_listed(x), indices=[2, 0, 2], element_shape=[2], element_dtype=x.dtype),
        spread(3, 2)),
    public("TensorListScatter", "plain", lambda x: _stacked(tf.raw_ops.TensorListScatter(
        tensor=x, indices=[1, 0], element_shape=[2]), x.dtype), spread(2, 2)),
    public("TensorListScatterV2", "plain", lambda x: _stacked(tf.raw_ops.TensorListScatterV2(
        tensor=x, indices=[1, 0], element_shape=[2], num_elements=-1), x.dtype), spread(2, 2)),
    public("TensorListScatterIntoExistingList", "one", lambda x, y: _stacked(
        tf.raw_ops.TensorListScatterIntoExistingList(
            input_handle=_listed(x), tensor=y, indices=[1]), x.dtype),
        spread(3, 2), spread(1, 2, seed=1)),
    public("TensorListResize", "shorter", lambda x: _stacked(tf.raw_ops.TensorListResize(
        input_handle=_listed(x), size=2), x.dtype), spread(3, 2)),
    public("TensorListSplit", "plain", lambda x: tf.raw_ops.TensorListGetItem(
        input_handle=tf.raw_ops.TensorListSplit(
            tensor=x, element_shape=[-1, 2], lengths=np.array([1, 2], np.int64)),
        index=1, element_shape=[2, 2], element_dtype=x.dtype), spread(3, 2)),
    *[public(name, "of a tensor", lambda x, name=name: _concatenated(x, name), spread(3, 2))
      for name in ("TensorListConcat", "TensorListConcatV2")],
    public("TensorListConcatLists", "two", lambda x, y: _stacked(tf.raw_ops.TensorListConcatLists(
        input_a=_listed(x), input_b=_listed(y), element_dtype=x.dtype), x.dtype),
        spread(2, 2), spread(1, 2)),
]

ARRAYS = [
    *[public(name, "scatter and gather", lambda x: _array(x, lambda handle, flow:
             tf.raw_ops.TensorArrayGatherV3(
                 handle=handle, indices=[2, 0], flow_in=flow, dtype=x.dtype)), spread(3, 2))
      for name in ("TensorArrayScatterV3", "TensorArrayGatherV3")],
    public("TensorArrayReadV3", "one", lambda x: _array(x, lambda handle, flow:
           tf.raw_ops.TensorArrayReadV3(handle=handle, index=1, flow_in=flow, dtype=x.dtype)),
           spread(3, 2)),
    public("TensorArrayConcatV3", "all", lambda x: _array(x, lambda handle, flow:
           tf.raw_ops.TensorArrayConcatV3(handle=handle, flow_in=flow, dtype=x.dtype)[0]),
           spread(3, 2)),
    public("TensorArrayWriteV3", "one", _written, spread(2)),
    public("TensorArraySplitV3", "two parts", _split, spread(3, 2)),
]

CONTROL = [
    public("StatelessWhile", "three turns", _looped, spread(2)),
    public("While", "three turns, with a stateful body", lambda x: tf.while_loop(
        lambda i, h: i < 3, lambda i, h: (i + 1, _stateful(tf.sin(h) * h)), (0, x))[1], spread(2)),
    public("StatelessIf", "one branch", lambda x: tf.cond(
        tf.reduce_sum(x) > 0, lambda: tf.sin(x), lambda: tf.exp(x)), spread(2)),
    public("If", "one branch, stateful", lambda x: tf.cond(
        tf.reduce_sum(x) > 0, lambda: _stateful(tf.sin(x)), lambda: tf.exp(x)), spread(2)),
    public("StatelessCase", "third branch", lambda x: tf.switch_case(
        tf.constant(2) + tf.cast(tf.reduce_sum(x) > 1e9, tf.int32),
        [lambda: tf.sin(x), lambda: tf.exp(x), lambda: x * x]), spread(2)),
    public("Case", "third branch, stateful", lambda x: tf.switch_case(
        tf.constant(2) + tf.cast(tf.reduce_sum(x) > 1e9, tf.int32),
        [lambda: _stateful(tf.sin(x)), lambda: _stateful(tf.exp(x)), lambda: _stateful(x * x)]),
              spread(2)),
    public("EagerPyFunc", "sine", lambda x: tf.ensure_shape(
        tf.py_function(tf.sin, [x], x.dtype), x.shape), spread(2)),
    public("PyFunc", "sine", lambda x: tf.ensure_shape(
        tf.numpy_function(np.sin, [x], x.dtype), x.shape), spread(2)),
    public("OptionalFromValue", "and its value", lambda x: tf.raw_ops.OptionalGetValue(
        optional=tf.raw_ops.OptionalFromValue(components=[x]), output_types=[x.dtype],
        output_shapes=[x.shape])[0], spread(2)),
    public("OptionalGetValue", "of a value", lambda x: tf.raw_ops.OptionalGetValue(
        optional=tf.raw_ops.OptionalFromValue(components=[x]), output_types=[x.dtype],
        output_shapes=[x.shape])[0], spread(2)),
]
# fmt: on


def _popped(x):
    handle, last = tf.raw_ops.TensorListPopBack(
        input_handle=_listed(x), element_shape=[2], element_dtype=x.dtype
    )
    return _stacked(handle, x.dtype), last


def _stateful(x):
    """Makes what it is in stateful."""
    with tf.control_dependencies([tf.numpy_function(np.zeros, [1], tf.float64)]):
        return tf.identity(x)


SAMPLES = [*LISTS, *ARRAYS, *CONTROL]
