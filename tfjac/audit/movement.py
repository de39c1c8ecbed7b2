"""Samples of ops that move, cut, join or scatter entries."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfjac.audit.samples import complexes, ints, public, raw, single, spread

# fmt: off
RESHAPING = [
    *[raw("Reshape", spread(*given), shape=out)
      for given, out in (((2, 3), [3, 2]), ((2, 6), [2, -1, 3]), ((), [1, 1]), ((0, 3), [3, 0]))],
    raw("Squeeze", spread(1, 3, 1, 2), axis=[]),
    raw("Squeeze", spread(1, 3, 1, 2), axis=[-2]),
    raw("ExpandDims", spread(2, 3), axis=1),
    raw("Transpose", spread(2, 3), perm=[1, 0]),
    raw("Transpose", spread(2, 1, 3), perm=[2, 0, 1]),
    raw("ConjugateTranspose", complexes(2, 3, 1), perm=[1, 2, 0]),
    raw("ConjugateTranspose", spread(2, 3), perm=[1, 0]),
    raw("Slice", spread(3, 4), begin=[0, 1], size=[3, 2]),
    raw("Slice", spread(3, 4), begin=[0, 1], size=[3, 0]),
    *[public("StridedSlice", name, fn, spread(4, 3)) for name, fn in (
        ("rows", lambda x: x[1:3]), ("last", lambda x: x[..., 0]), ("strides", lambda x: x[::2,
              ::-1]),
        ("new axis", lambda x: x[:, tf.newaxis, 1:]), ("empty", lambda x: x[2:2]))],
    raw("Pad", spread(2, 3), paddings=[[0, 0], [1, 2]]),
    raw("PadV2", spread(2, 3), np.array([[0, 1], [0, 0]], np.int32), np.array(0.4), name="below"),
    raw("PadV2", spread(2, 3), np.array([[0, 0], [0, 0]], np.int32), np.array(0.4), name="nothing"),
    *[raw("MirrorPad", spread(2, 3), paddings=[[0, 0], [2, 1]], mode=mode)
      for mode in ("REFLECT", "SYMMETRIC")],
    raw("ConcatV2", spread(2, 3), spread(2, 1, seed=1), listed="values", axis=1),
    raw("ConcatV2", spread(2, 3), spread(0, 3), listed="values", axis=0),
    raw("Concat", spread(2, 3), spread(2, 2), listed="values", concat_dim=1),
    raw("Split", spread(3, 4), axis=1, num_split=2),
    raw("SplitV", spread(3, 6), size_splits=[1, 3, 2], axis=-1, num_split=3),
    raw("Pack", spread(2, 3), spread(2, 3, seed=1), listed="values", axis=1),
    raw("Unpack", spread(2, 3), num=3, axis=-1),
    raw("Tile", spread(2, 3), multiples=[1, 3]),
    raw("Tile", spread(2, 1), multiples=[2, 0]),
    raw("BroadcastTo", spread(3, 1), shape=[2, 3, 4]),
    raw("BroadcastTo", np.array(0.7), shape=[2, 2]),
    raw("Reverse", spread(2, 3), dims=[False, True]),
    raw("ReverseV2", spread(2, 3), axis=[-1]),
    raw("ReverseSequence", spread(2, 4, 2), seq_lengths=[3, 2], seq_dim=1, batch_dim=0),
    raw("ReverseSequence", spread(2, 4), seq_lengths=[0, 4], seq_dim=1, batch_dim=0),
    raw("Roll", spread(3, 4), shift=[1, -2], axis=[0, 1]),
    raw("SpaceToDepth", spread(1, 2, 4, 2), block_size=2),
    raw("DepthToSpace", spread(1, 1, 2, 8), block_size=2),
    raw("SpaceToBatch", spread(1, 2, 4, 2), paddings=[[0, 0], [0, 0]], block_size=2),
    raw("BatchToSpace", spread(4, 1, 2, 2), crops=[[0, 0], [0, 0]], block_size=2),
    raw("SpaceToBatchND", spread(1, 3, 2, 2), block_shape=[2, 3], paddings=[[1, 0], [0, 1]]),
    raw("BatchToSpaceND", spread(6, 2, 2), block_shape=[3], crops=[[1, 1]]),
    raw("Fill", np.array(0.4), dims=[2, 3]),
    raw("Fill", np.array(0.4), dims=[0, 3]),
    raw("MatrixBandPart", spread(3, 4), num_lower=np.int64(1), num_upper=np.int64(0)),
    raw("ExtractImagePatches", spread(1, 3, 4, 2), ksizes=[1, 2, 2, 1], strides=[1, 1, 2, 1],
        rates=[1, 1, 1, 1], padding="VALID"),
    raw("ExtractImagePatches", spread(1, 4, 3, 1), ksizes=[1, 2, 1, 1], strides=[1, 2, 1, 1],
        rates=[1, 2, 1, 1], padding="SAME"),
    raw("ExtractVolumePatches", spread(1, 2, 3, 2, 1), ksizes=[1, 2, 2, 1, 1],
        strides=[1, 1, 1, 1, 1], padding="VALID"),
]

DIAGONALS = [
    raw("MatrixDiag", spread(2, 3)),
    *[raw(name, spread(*shape), k=k, num_rows=rows, num_cols=columns, padding_value=0.0)
      for name in ("MatrixDiagV2", "MatrixDiagV3") for shape, k, rows, columns in (
          ((2, 3), 0, -1, -1), ((2, 2), [-1, -1], 3, 4), ((2, 3, 4), [-1, 1], 4, 4),
          ((2, 2), [0, 1], 2, 3))],
    *[raw("MatrixDiagV3", spread(2, 3), k=[-1, 0], num_rows=3, num_cols=3, padding_value=0.5,
          align=align) for align in ("LEFT_LEFT", "RIGHT_LEFT")],
    *[raw(name, spread(2, 3), np.array(0, np.int32), np.array(3, np.int32), np.array(4, np.int32),
          np.array(0.3), name="by the padding") for name in ("MatrixDiagV2", "MatrixDiagV3")],
    raw("MatrixDiagPart", spread(2, 3, 2)),
    *[raw(name, spread(*shape), k=k, padding_value=0.0)
      for name in ("MatrixDiagPartV2", "MatrixDiagPartV3")
      for shape, k in (((3, 4), 1), ((2, 3, 4), [-1, 1]), ((3, 3), 0))],
    *[raw(name, spread(2, 3), np.array([-1, 1], np.int32), np.array(0.3), name="by the padding")
      for name in ("MatrixDiagPartV2", "MatrixDiagPartV3")],
    raw("MatrixSetDiag", spread(2, 3, 4), spread(2, 3, seed=1)),
    *[raw(name, spread(*shape), spread(*diagonal, seed=1), k=k)
      for name in ("MatrixSetDiagV2", "MatrixSetDiagV3") for shape, diagonal, k in (
          ((2, 3, 4), (2, 3), 0), ((3, 4), (2,), -1), ((3, 3), (3, 3), [-1, 1]))],
    raw("Diag", spread(2, 3)),
    raw("DiagPart", spread(4, 4)),
]

INDEXING = [
    raw("Gather", spread(4, 3), indices=[2, 0, 2]),
    *[raw("GatherV2", spread(*shape), indices=indices, axis=axis, batch_dims=batch)
      for shape, indices, axis, batch in (
          ((4, 3), [2, 0, 2], 0, 0), ((2, 4, 2), [1, 3], -2, 0), ((2, 4), 3, 1, 0),
          ((2, 4, 2), [[1, 0, 2], [3, 3, 3]], 1, 1))],
    raw("GatherV2", spread(4, 3), indices=np.zeros(0, np.int32), axis=0, batch_dims=0,
        name="no index"),
    *[raw("GatherNd", spread(*shape), indices=indices) for shape, indices in (
        ((3, 2, 2), [[2, 1], [0, 0], [2, 1]]), ((3, 2), [[2], [0]]), ((3,), [[0], [2]]),
        ((3, 4), [1]))],
    raw("GatherNd", spread(3, 2), indices=np.zeros((2, 0), np.int32), name="no index"),
    *[raw("ScatterNd", np.array(indices, np.int32), spread(*updates), shape=shape)
      for indices, updates, shape in (
          ([[3], [1]], (2, 3), [4, 3]), ([[1], [1]], (2, 3), [2, 3]),
          ([[0, 1], [1, 2]], (2,), [2, 3]))],
    *[raw(name, spread(*shape), np.array(indices, np.int32), spread(*updates, low=-1.7, seed=1),
          name=label)
      for name in ("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub",
                   "TensorScatterMax", "TensorScatterMin", "ScatterNdNonAliasingAdd")
      for shape, indices, updates, label in (
          ((4, 3), [[3], [1]], (2, 3), "rows"), ((2, 3), [[0, 1], [1, 1]], (2,), "entries"),
          ((3, 2), [[1], [1]], (2, 2), "repeated"))
      if name != "TensorScatterUpdate" or label != "repeated"],
    *[raw(name, np.ones([3]), ints([1], [2]), np.ones([2]), name="ties")
      for name in ("TensorScatterMax", "TensorScatterMin")],
    public("TensorStridedSliceUpdate", "rows", lambda x, v: tf.raw_ops.TensorStridedSliceUpdate(
        input=x, begin=[1, 0], end=[3, 2], strides=[1, 1], value=v), spread(4, 3), spread(2, 2)),
    *[raw(name, *[spread(*shape, seed=n) for n, shape in enumerate(shapes)], listed="data",
          indices=indices, name=label)
      for name in ("DynamicStitch", "ParallelDynamicStitch") for indices, shapes, label in (
          ([[2, 0], [1]], [(2, 3), (1, 3)], "rows"),
          ([[0, 1], [1, 2]], [(2,), (2,)], "repeated index"))],
    public("DynamicPartition", "two parts", lambda x: tf.dynamic_partition(x, [1, 0, 1, 1], 2),
           spread(4, 3)),
    public("DynamicPartition", "an empty part", lambda x: tf.dynamic_partition(x, [1, 1], 2),
           spread(2)),
    raw("TopKV2", spread(2, 5), k=3),
    raw("TopKV2", np.array([1.0, 2.0, 2.0, 0.0]), k=2, name="ties"),
    raw("NthElement", spread(2, 5), n=2),
    raw("NthElement", np.array([1.0, 2.0, 2.0, 0.0]), n=1, reverse=True, name="ties"),
    raw("ApproxTopK", single(2, 5), k=2),
    public("RaggedGather", "rows", lambda x: tf.gather(
        tf.RaggedTensor.from_row_splits(x, [0, 2, 3, 4]), [2, 0]).flat_values, spread(4)),
]
# fmt: on

SAMPLES = [*RESHAPING, *DIAGONALS, *INDEXING]
