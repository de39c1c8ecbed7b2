"""Samples of sparse and ragged tensors, by their values."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfjac.audit.samples import public, spread

_AT = [[0, 0], [0, 2], [1, 1]]
_OTHER = [[0, 0], [1, 1], [1, 2]]


def _tensor(values, at=_AT):
    return tf.SparseTensor(tf.constant(at, tf.int64), values, [2, 3])


def _matrix(values, at=_AT):
    """Returns a compressed sparse matrix made by an op that is not the one under test."""
    return tf.raw_ops.SparseTensorToCSRSparseMatrix(
        indices=tf.constant(at, tf.int64), values=values, dense_shape=[2, 3]
    )


def _dense(matrix, dtype=tf.float64):
    return tf.raw_ops.CSRSparseMatrixToDense(sparse_input=matrix, type=dtype)


def _values(matrix, dtype=tf.float64):
    return tf.raw_ops.CSRSparseMatrixToSparseTensor(sparse_matrix=matrix, type=dtype)[1]


def _variant(ragged):
    return tf.raw_ops.RaggedTensorToVariant(
        rt_nested_splits=[ragged.row_splits], rt_dense_values=ragged.flat_values, batched_input=True
    )


def _ragged(values):
    return tf.RaggedTensor.from_row_splits(values, [0, 2, 2, 4])


_OWN = {"dtypes": ("float64",)}

# fmt: off
TENSORS = [
    public("SparseAdd", "two", lambda a, b: tf.sparse.add(_tensor(a), _tensor(b, _OTHER)).values,
           spread(3), spread(3, seed=1)),
    *[public(name, "broadcast", lambda a, b, name=name: getattr(tf.raw_ops, name)(
        sp_indices=_AT, sp_values=a, sp_shape=[2, 3], dense=b), spread(3), spread(3, low=0.7,
              seed=1))
      for name in ("SparseDenseCwiseAdd", "SparseDenseCwiseDiv", "SparseDenseCwiseMul")],
    public("SparseFillEmptyRows", "one empty", lambda v, d: tf.raw_ops.SparseFillEmptyRows(
        indices=tf.constant(_AT, tf.int64), values=v, dense_shape=[3, 3], default_value=d)[1],
        spread(3), np.array(0.4)),
    public("RaggedFillEmptyRows", "one empty", lambda v, d: tf.raw_ops.RaggedFillEmptyRows(
        value_rowids=tf.constant([0, 0, 2], tf.int64), values=v, nrows=tf.constant(3, tf.int64),
        default_value=d)[1], spread(3), np.array(0.4)),
    public("SparseReduceSum", "rows", lambda v: tf.raw_ops.SparseReduceSum(
        input_indices=tf.constant(_AT, tf.int64), input_values=v, input_shape=[2, 3],
        reduction_axes=[1]), spread(3)),
    public("SparseReorder", "reversed", lambda v: tf.raw_ops.SparseReorder(
        input_indices=tf.constant(_AT[::-1], tf.int64), input_values=v, input_shape=[2, 3])[1],
        spread(3)),
    public("SparseSlice", "columns", lambda v: tf.sparse.slice(
        _tensor(v), [0, 1], [2, 2]).values, spread(3)),
    public("SparseSoftmax", "rows", lambda v: tf.sparse.softmax(_tensor(v)).values, spread(3)),
    *[public(f"SparseSparse{kind}", "two", lambda a, b, op=op: op(
        _tensor(a), _tensor(b, _OTHER)).values, spread(3), spread(3, seed=1))
      for kind, op in (("Maximum", tf.sparse.maximum), ("Minimum", tf.sparse.minimum))],
    public("SparseTensorDenseAdd", "plain", lambda a, b: tf.raw_ops.SparseTensorDenseAdd(
        a_indices=tf.constant(_AT, tf.int64), a_values=a, a_shape=tf.constant([2, 3], tf.int64),
              b=b),
        spread(3), spread(2, 3, seed=1)),
    *[public("SparseTensorDenseMatMul", f"adjoint_a={a}, adjoint_b={b}",
             lambda v, d, a=a, b=b: tf.sparse.sparse_dense_matmul(
                 _tensor(v), d, adjoint_a=a, adjoint_b=b), spread(3),
             spread(*((2, 2) if a else (2, 3) if b else (3, 2)), seed=1))
      for a, b in ((False, False), (True, False), (False, True))],
    public("SparseToDense", "by values and default", lambda v, d: tf.raw_ops.SparseToDense(
        sparse_indices=_AT, output_shape=[2, 3], sparse_values=v, default_value=d), spread(3),
        np.array(0.4)),
    public("SparseConcat", "columns", lambda a, b: tf.sparse.concat(
        1, [_tensor(a), _tensor(b, _OTHER)]).values, spread(3), spread(3, seed=1)),
    public("SparseAddGrad", "plain", lambda g: tf.raw_ops.SparseAddGrad(
        backprop_val_grad=g, a_indices=tf.constant(_AT, tf.int64),
        b_indices=tf.constant(_OTHER, tf.int64),
        sum_indices=tf.constant([[0, 0], [0, 2], [1, 1], [1, 2]], tf.int64)), spread(4)),
]

MATRICES = [
    public("SparseTensorToCSRSparseMatrix", "to values", lambda v: _values(_matrix(v)), spread(3),
           **_OWN),
    public("CSRSparseMatrixToSparseTensor", "of values", lambda v: _values(_matrix(v)), spread(3),
           **_OWN),
    public("CSRSparseMatrixToDense", "of values", lambda v: _dense(_matrix(v)), spread(3), **_OWN),
    public("DenseToCSRSparseMatrix", "to values", lambda x: _values(
        tf.raw_ops.DenseToCSRSparseMatrix(
            dense_input=x, indices=tf.where(tf.ones([2, 2], tf.bool)))), spread(2, 2), **_OWN),
    *[public("SparseMatrixMatMul", name, lambda v, b, given=given: tf.raw_ops.SparseMatrixMatMul(
        a=_matrix(v), b=b, **given), spread(3), b, **_OWN)
      for name, given, b in (("plain", {}, spread(3, 2, seed=1)),
                             ("transpose_a", {"transpose_a": True}, spread(2, 2, seed=1)),
                             ("adjoint_b", {"adjoint_b": True}, spread(2, 3, seed=1)))],
    public("SparseMatrixSparseMatMul", "plain", lambda a, b: _dense(
        tf.raw_ops.SparseMatrixSparseMatMul(a=_matrix(a), b=_matrix(b), type=tf.float64,
                                            transpose_b=True)), spread(3), spread(3, seed=1),
                                                  **_OWN),
    public("SparseMatrixTranspose", "plain", lambda v: _values(
        tf.raw_ops.SparseMatrixTranspose(input=_matrix(v), type=tf.float64)), spread(3), **_OWN),
]

RAGGED = [
    public("RaggedTensorToTensor", "by values and default", lambda v, d:
           tf.raw_ops.RaggedTensorToTensor(
               shape=[3, 2], values=v, default_value=d, row_partition_tensors=[[0, 2, 2, 4]],
               row_partition_types=["ROW_SPLITS"]), spread(4), np.array(0.4)),
    public("RaggedTensorToSparse", "values", lambda v: _ragged(v).to_sparse().values, spread(4)),
    public("RaggedTensorToVariant", "and back", lambda v: tf.raw_ops.RaggedTensorFromVariant(
        encoded_ragged=_variant(_ragged(v)), input_ragged_rank=0, output_ragged_rank=1,
        Tvalues=v.dtype, Tsplits=tf.int64)[1], spread(4), **_OWN),
    public("RaggedTensorFromVariant", "and back", lambda v: tf.raw_ops.RaggedTensorFromVariant(
        encoded_ragged=_variant(_ragged(v)), input_ragged_rank=0, output_ragged_rank=1,
        Tvalues=v.dtype, Tsplits=tf.int64)[1], spread(4), **_OWN),
]
# fmt: on


SAMPLES = [*TENSORS, *MATRICES, *RAGGED]
