"""What was read and made of a graph, shared by all Jacobians in it, except under a tape."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar

from tfjac import graph_memo, tf_internals

T = TypeVar("T")

_recording: contextvars.ContextVar[object] = contextvars.ContextVar("recording", default=None)


def memoized(key: Hashable, build: Callable[[], T]) -> T:
    """Returns what `build()` gave the first time for a key, here and under this tape."""
    return graph_memo.memoized(("accumulation", _recording.get(), key), build)


@contextlib.contextmanager
def seen_by_tapes() -> Iterator[None]:
    """Makes all anew within, if a tape is active: it sees only ops made while it is."""
    token = _recording.set(object() if tf_internals.is_recording() else None)
    try:
        yield
    finally:
        _recording.reset(token)
