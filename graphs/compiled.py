"""Compilation of loops: serial and `nogil`, so that threads can run them in parallel."""

from collections.abc import Callable
from typing import Any

import numba


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function on first use, cached on disk if there is a writable folder.

    Args:
        function: The function.

    Returns:
        The compiled function.

    Examples:
        >>> from graphs.compiled import jit
        >>> jit(lambda x: x + 1).__name__
        '<lambda>'
    """
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # numba found no folder for its cache
        return numba.njit(nogil=True)(function)
