"""A function of the user's own as a job."""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfjac import errors
from tfjac.bench.jobs import Job


def job(name: str, framework: str, **options: Any) -> Job:
    """Returns the job of a function; `options` are `shape`, `dtype`, `path` and `batch`."""
    assert framework == "tensorflow", framework
    function = load(name)
    x = tf.constant(_input(options["shape"], options["dtype"], options["path"]))
    return Job(lambda _, x: function(x), None, x, options["batch"])


def load(name: str) -> Callable[[Any], Any]:
    """Returns what `module:name` or the path of a `.keras` file stands for.

    Raises:
      InvalidValueError: there is no such thing, or it cannot be called.
    """
    if name.endswith(".keras"):
        return tf.keras.models.load_model(name)
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise _unknown(name, str(error)) from None
    if not callable(found):
        raise _unknown(name, f"it is a {type(found).__name__}")
    return found


def _unknown(name: str, why: str) -> errors.InvalidValueError:
    return errors.InvalidValueError(
        errors.message(
            "function",
            "`module:name` of a function of one tensor, or the path of a .keras file",
            f"{name!r} ({why})",
            "Run it from the folder in which Python finds the module.",
        )
    )


def _input(shape: tuple[int, ...] | None, dtype: str, path: str | None) -> np.ndarray:
    if path is not None:
        return np.load(pathlib.Path(path)).astype(dtype)
    return np.random.default_rng(0).normal(size=shape).astype(dtype)
