"""Remembered answers: what a pure function said for arguments it has seen."""

from __future__ import annotations

from functools import lru_cache, wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


def memo(function: Callable[P, T]) -> Callable[P, T]:
    """Cache a pure function; arguments without a hash are answered afresh each time.

    The checks run on arguments nothing is known about yet, so a list where a name should be must
    reach them, not fail in the cache.
    """
    cached = lru_cache(maxsize=4096)(function)

    @wraps(function)
    def answer(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return cached(*args, **kwargs)  # type: ignore[arg-type]
        except Exception:
            if _has_hash((*args, *kwargs.values())):
                raise
        return function(*args, **kwargs)

    return answer


def _has_hash(arguments: tuple[object, ...]) -> bool:
    try:
        hash(arguments)
    except Exception:  # noqa: BLE001 - a memoryview says ValueError, a class whatever it likes
        return False
    return True
