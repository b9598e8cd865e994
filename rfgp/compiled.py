"""Compilation of loops: serial and `nogil`, so that threads can run them in parallel."""

from collections.abc import Callable
from typing import Any

import numba


def jit(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that compiles a function on first use.

    The compiled function is cached on disk if a folder is writable.

    Args:
        **options: Options of `numba.njit`.

    Examples:
        >>> jit()(lambda x: x + 1)(1)
        2
    """

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            made: Callable[..., Any] = numba.njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # numba found no folder for its cache
            made = numba.njit(nogil=True, **options)(function)
        return made

    return compiled
