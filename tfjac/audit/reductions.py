"""Samples of ops that sum, multiply, choose or accumulate along axes or segments."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfjac.audit.samples import complexes, ints, public, raw, single, spread


def _reduced(types):
    samples = []
    for name in types.split():
        samples += [
            raw(name, spread(2, 3), axis=[1], keep_dims=False, name="last axis"),
            raw(name, spread(2, 3, 2), axis=[-1, 0], keep_dims=True, name="two axes"),
            raw(name, spread(3), axis=[0], keep_dims=False, name="to a scalar"),
            raw(name, spread(2, 1), axis=[1], keep_dims=False, name="one entry"),
            raw(name, spread(2, 3), axis=np.zeros(0, np.int32), keep_dims=False, name="no axis"),
            raw(name, np.zeros([2, 0]), axis=[1], keep_dims=False, name="empty"),
            raw(name, np.array([1.0, 2.0, 2.0]), axis=[0], keep_dims=False, name="ties"),
            raw(name, np.array([0.0, 2.0, 3.0]), axis=[0], keep_dims=False, name="one zero"),
            raw(name, np.array([0.0, 0.0, 3.0]), axis=[0], keep_dims=False, name="two zeros"),
            raw(name, np.zeros([2]), axis=[0], keep_dims=False, name="all zeros"),
        ]
    return samples


def _running(types):
    samples = []
    for name in types.split():
        given = {"low": 0.3, "high": 1.9}
        samples += [
            raw(name, spread(2, 4, **given), axis=1, exclusive=exclusive, reverse=reverse)
            for exclusive in (False, True)
            for reverse in (False, True)
        ]
        samples += [
            raw(name, np.array([2.0, 0.0, 3.0]), axis=0, name="one zero"),
            raw(name, np.array([0.0, 2.0, 0.0]), axis=0, name="two zeros"),
            raw(name, np.array([1.0, 1.0, 1.0]), axis=0, name="ones"),
            raw(name, np.zeros([0, 2]), axis=0, name="empty"),
            raw(name, spread(1), axis=0, name="one entry"),
        ]
    return samples


# fmt: off
SEGMENTS = [
    *[raw(name, spread(*shape), np.array(ids, np.int32), name=label)
      for name in ("SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd")
      for shape, ids, label in (((4, 2), [0, 0, 1, 2], "rows"), ((3,), [0, 1, 1], "entries"),
                                ((3, 2), [0, 0, 2], "an empty segment"))],
    *[raw(name, np.array([1.0, 1.0, 0.0]), ints(0, 0, 0), name="ties")
      for name in ("SegmentMax", "SegmentMin", "SegmentProd")],
    *[raw(name, np.array([0.0, 0.0, 2.0]), ints(0, 0, 0),
          name="zeros") for name in ("SegmentProd",)],
    *[raw(name, spread(*shape), segment_ids=ids, num_segments=count, name=label)
      for name in ("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin",
                   "UnsortedSegmentProd")
      for shape, ids, count, label in (
          ((4, 2), [2, 0, 2, 1], 3, "rows"), ((4,), [2, 0, 2, -1], 3,
                "an empty one and one dropped"),
          ((2, 2), [[1, 0], [1, 1]], 2, "of rank 2"))],
    *[raw(name, np.array([1.0, 1.0, 0.0]), segment_ids=[0, 0, 0], num_segments=1, name="ties")
      for name in ("UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd")],
    raw("UnsortedSegmentProd", np.array([0.0, 0.0, 2.0]), segment_ids=[0, 0, 0], num_segments=1,
        name="two zeros"),
    *[raw(f"SparseSegment{kind}", spread(3, 2), indices=[0, 2, 2], segment_ids=[0, 0, 1],
          name="repeated rows") for kind in ("Sum", "Mean", "SqrtN")],
    *[raw(f"SparseSegment{kind}WithNumSegments", spread(3, 2), indices=[0, 2, 2],
          segment_ids=[0, 0, 2], num_segments=4, name="an empty segment")
      for kind in ("Sum", "Mean", "SqrtN")],
]
# fmt: on

OTHERS = [
    *[
        raw(name, x, name=label)
        for name in ("LogSoftmax", "Softmax")
        for label, x in (
            ("rows", spread(2, 3)),
            ("ties", np.zeros([1, 3])),
            ("one class", spread(2, 1)),
            ("empty", np.zeros([0, 3])),
            ("far apart", np.array([[0.0, 40.0]])),
        )
    ],
    raw("L2Loss", spread(2, 3)),
    raw("Cross", spread(2, 3), spread(2, 3, seed=1)),
    raw("Sum", complexes(2, 3), axis=[0], keep_dims=False, name="complex"),
    public(
        "EuclideanNorm",
        "real part of complex",
        lambda x: tf.math.real(tf.raw_ops.EuclideanNorm(input=x, axis=[0])),
        complexes(3),
    ),
    raw("IsotonicRegression", single(2, 4), name="float32"),
    raw("IsotonicRegression", np.array([[3.0, 1.0, 0.0]]), name="decreasing"),
    raw("IsotonicRegression", np.array([[1.0, 1.0, 0.0]]), name="ties"),
]

SAMPLES = [
    *_reduced("EuclideanNorm Max Mean Min Prod Sum"),
    *_running("Cumprod Cumsum CumulativeLogsumexp"),
    *SEGMENTS,
    *OTHERS,
]
