"""What was built for a function: kept as long as the function lives, bounded, thread-safe."""

from __future__ import annotations

import collections
import inspect
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

MAXSIZE = 128


class CacheInfo(NamedTuple):
    """Statistics of a cache, named as `functools.lru_cache` names them.

    Args:
      hits: calls that found what they needed.
      misses: calls that had to build.
      maxsize: entries kept at most; the one not used for longest goes first.
      currsize: entries kept now.
      build_seconds: seconds spent building.
    """

    hits: int
    misses: int
    maxsize: int
    currsize: int
    build_seconds: float


class Cache:
    """A bounded map from signature to what was built for it; each is built once."""

    def __init__(self, maxsize: int = MAXSIZE):
        self._maxsize = maxsize
        # Reentrant, because the function that is being built may call another prepared one.
        self._lock = threading.RLock()
        self._entries: collections.OrderedDict[Hashable, Any] = collections.OrderedDict()
        self._hits = self._misses = 0
        self._build_seconds = 0.0

    def get(
        self, key: Hashable, build: Callable[[], Any], is_current: Callable[[Any], bool] = bool
    ) -> Any:
        """Returns the entry of `key`, from `build()` where there is none; errors leave no trace.

        Args:
          key: the signature.
          build: makes the entry.
          is_current: whether an entry still serves; else it is built again.
        """
        with self._lock:
            if key in self._entries and is_current(self._entries[key]):
                self._hits += 1
                self._entries.move_to_end(key)
                return self._entries[key]
            start = time.perf_counter()
            entry = build()
            self._build_seconds += time.perf_counter() - start
            self._misses += 1
            self._entries[key] = entry
            while len(self._entries) > self._maxsize:
                self._entries.popitem(last=False)
            return entry

    def known(self, key: Hashable) -> Any:
        """Returns the entry of `key`, None where there is none; does not count as a use."""
        with self._lock:
            return self._entries.get(key)

    def put(self, key: Hashable, entry: Any) -> None:
        """Puts another entry in the place of the one of `key`."""
        with self._lock:
            self._entries[key] = entry

    def info(self) -> CacheInfo:
        """Returns the statistics."""
        with self._lock:
            return CacheInfo(
                self._hits, self._misses, self._maxsize, len(self._entries), self._build_seconds
            )

    def clear(self) -> None:
        """Drops the entries and resets the statistics."""
        with self._lock:
            self._entries.clear()
            self._hits = self._misses = 0
            self._build_seconds = 0.0


# By id rather than by equality: two equal callables need not compute the same.
_by_owner: dict[int, tuple[weakref.ref, dict[Hashable, Cache]]] = {}
_lock = threading.RLock()


def cache_of(fn: Callable[..., Any], options: Hashable) -> Cache:
    """Returns the cache of `fn` under `options`: the same one as long as `fn` lives.

    A bound method shares its object's life. What is cached must not hold `fn`, or neither is ever
    freed. A callable that cannot be referred to weakly gets a cache of its own each time.
    """
    owner, key = (fn.__self__, (fn.__func__, options)) if inspect.ismethod(fn) else (fn, options)
    with _lock:
        try:
            known = _by_owner.get(id(owner))
            if known is None:
                known = (weakref.ref(owner, _forget(id(owner))), {})
                _by_owner[id(owner)] = known
        except TypeError:
            return Cache()
        return known[1].setdefault(key, Cache())


def _forget(owner_id: int) -> Callable[[Any], None]:
    def forget(_) -> None:
        with _lock:
            _by_owner.pop(owner_id, None)

    return forget
