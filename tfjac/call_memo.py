"""What was made for one call of a public function, shared by all that it asks for.

Under a tape nothing that was made before may be used, for the tape did not see it: but what one
call makes while the tape is active, it may use again.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar

from tfjac import graph_memo, tf_internals

T = TypeVar("T")

_made: contextvars.ContextVar[dict | None] = contextvars.ContextVar("made", default=None)


@contextlib.contextmanager
def one_call() -> Iterator[None]:
    """A context of which all share what `memoized` makes, the outermost one counting."""
    if _made.get() is not None:
        yield
        return
    token = _made.set({})
    try:
        yield
    finally:
        _made.reset(token)


def memoized(key: Hashable, build: Callable[[], T]) -> T:
    """Returns what `build()` gave for a key, in this graph; under a tape in this call."""
    made = _made.get()
    if not tf_internals.is_recording():
        return graph_memo.memoized(key, build)
    if made is None:
        return build()
    if key not in made:
        made[key] = build()
    return made[key]
