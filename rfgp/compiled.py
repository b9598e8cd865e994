"""Compiled loops: serial and `nogil`, so that threads may each take a block."""

from collections.abc import Callable
from typing import Any

import numba


def jit(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that compiles on first use, with a cache on disk where there is a writable folder for one."""

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            made: Callable[..., Any] = numba.njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # numba found no folder for its cache
            made = numba.njit(nogil=True, **options)(function)
        return made

    return compiled
