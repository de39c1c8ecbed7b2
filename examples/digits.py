"""Handwritten digits: MNIST from a file or from Keras, else the small set within scikit-learn."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import io
import socket
import sys
import zipfile
import zlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

SIDE = 28
PIXELS = SIDE * SIDE
CLASSES = 10

_KEYS = ("x_train", "y_train", "x_test", "y_test")
_SECONDS_TO_CONNECT = 10.0
_NETWORK_ERRORS = (OSError, http.client.HTTPException)


class DataError(Exception):
    """The digits cannot be had; the message says in one line why, and what to do."""


@dataclasses.dataclass(frozen=True)
class Digits:
    """Digits split into a training and a test set.

    Args:
      name: short name of the set.
      source: where it came from.
      x_train: pixels from 0 to 1, shape `[n, 784]`, float32.
      y_train: the digits, shape `[n]`, int32.
      x_test: as x_train.
      y_test: as y_train.
    """

    name: str
    source: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def load(path: str | None = None) -> Digits:
    """Returns the digits of the npz file at `path`, or without a path the best that is at hand.

    Args:
      path: a file as Keras keeps it (`~/.keras/datasets/mnist.npz`). None: Keras's copy, which it
        downloads once, or without a network the 1797 digits that come with scikit-learn.

    Raises:
      DataError: the file is unfit, or there is neither a network nor scikit-learn.
    """
    if path is not None:
        return _digits("MNIST", path, *_read(path))
    try:
        return _digits("MNIST", "Keras's copy", *_from_keras())
    except DataError as error:
        return _from_scikit_learn(because=str(error))


def _read(path: str) -> list[np.ndarray]:
    """Returns the arrays of the npz file at `path` in the order of `_KEYS`."""
    try:
        archive = np.load(path)
        if isinstance(archive, np.ndarray):
            raise DataError(f"{path} is one array, not an npz file: give a Keras mnist.npz")
        with archive:
            missing = [key for key in _KEYS if key not in archive]
            if missing:
                raise DataError(f"{path} has no {', '.join(missing)}: give a Keras mnist.npz")
            arrays = [archive[key] for key in _KEYS]
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} cannot be read as an npz file: {error}") from None
    _check(path, arrays)
    return arrays


def _check(path: str, arrays: list[np.ndarray]) -> None:
    for images, labels in (arrays[:2], arrays[2:]):
        if images.shape[1:] != (SIDE, SIDE) or labels.shape != images.shape[:1] or not len(labels):
            raise DataError(
                f"{path} must hold images [n, 28, 28] and labels [n], at least one of "
                f"each; got {list(images.shape)} and {list(labels.shape)}"
            )
        if (
            images.dtype != np.uint8
            or labels.dtype.kind not in "iu"
            or (labels.min() < 0 or labels.max() >= CLASSES)
        ):
            raise DataError(
                f"{path} must hold uint8 images and integer labels from 0 to 9; "
                f"got {images.dtype} and {labels.dtype}"
            )


def _from_keras() -> list[np.ndarray]:
    """Returns MNIST as Keras has it, cached or downloaded."""
    try:
        with _connecting_quickly(), _quiet_unless_terminal():
            train, test = tf.keras.datasets.mnist.load_data()
    except Exception as error:
        # Keras turns the URLError of a failed download into a bare Exception.
        cause = error if isinstance(error, _NETWORK_ERRORS) else error.__context__
        if not isinstance(cause, _NETWORK_ERRORS):
            raise
        raise DataError(f"MNIST could not be downloaded ({cause})") from None
    return [*train, *test]


def _from_scikit_learn(because: str) -> Digits:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError(
            f"{because} and scikit-learn is not installed: pass --data=mnist.npz, or "
            "pip install 'tfjac[examples]'"
        ) from None
    small = load_digits()
    images = small.images * (255 / 16)
    labels = small.target
    return _digits(
        "scikit-learn's digits",
        f"8x8 pixels, scaled to 28x28, since {because}",
        enlarged(images[:-297]),
        labels[:-297],
        enlarged(images[-297:]),
        labels[-297:],
    )


def enlarged(images: np.ndarray) -> np.ndarray:
    """Returns images `[n, h, w]` scaled to `[n, 28, 28]`, their pixels rounded to uint8."""
    scaled = tf.image.resize(images[..., None], [SIDE, SIDE], method="bilinear")[..., 0]
    return np.rint(scaled.numpy()).astype(np.uint8)


def _digits(name: str, source: str, x_train, y_train, x_test, y_test) -> Digits:
    def pixels(images):
        return images.reshape([-1, PIXELS]).astype(np.float32) / 255

    return Digits(
        name,
        source,
        pixels(x_train),
        y_train.astype(np.int32),
        pixels(x_test),
        y_test.astype(np.int32),
    )


@contextlib.contextmanager
def _connecting_quickly() -> Iterator[None]:
    """Has connections that stay silent fail: Keras's download sets no limit of its own."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SECONDS_TO_CONNECT)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _quiet_unless_terminal() -> contextlib.AbstractContextManager:
    """Drops Keras's progress bar where it would be a line for each twentieth of a second."""
    if sys.stdout.isatty():
        return contextlib.nullcontext()
    return contextlib.redirect_stdout(io.StringIO())
