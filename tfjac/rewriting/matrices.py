"""Determinants of complex matrices."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfjac.rewriting.replacement import Replacement


def _is_complex(op: tf.Operation, given: Sequence[bool]) -> bool:
    return op.inputs[0].dtype.is_complex


@tf.custom_gradient
def _det(matrix: tf.Tensor):
    def pulled(cotangent):
        # d det = det tr(A^-1 dA), and TensorFlow's gradient is the adjoint of that.
        scale = cotangent * tf.math.conj(_det(matrix))
        return scale[..., tf.newaxis, tf.newaxis] * tf.linalg.inv(matrix, adjoint=True)

    return tf.linalg.det(matrix), pulled


@tf.custom_gradient
def _slogdet(matrix: tf.Tensor):
    def pulled(of_sign, of_log):
        # With z = log det: d log|det| = Re dz, d sign = i sign Im dz, dz = tr(A^-1 dA).
        turned = -tf.math.imag(tf.math.conj(of_sign) * _slogdet(matrix)[0])
        scale = tf.complex(tf.math.real(of_log), turned)
        return scale[..., tf.newaxis, tf.newaxis] * tf.linalg.inv(matrix, adjoint=True)

    return tuple(tf.linalg.slogdet(matrix)), pulled


def _determinant(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    return [_det(inputs[0])]


def _log_determinant(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    return list(_slogdet(inputs[0]))


TABLE = {
    "LogMatrixDeterminant": Replacement(
        _log_determinant, "the sign of a complex determinant counts as constant", _is_complex
    ),
    "MatrixDeterminant": Replacement(
        _determinant, "the derivative of a complex determinant is not conjugated", _is_complex
    ),
}
