"""Compiled loops, serial and `nogil` so that threads can run them, and one thread of BLAS around small matrices."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController


def jit(function: Callable[..., Any] | None = None, /, **options: Any) -> Callable[..., Any]:
    """Compile a function on first use, cached on disk if there is a writable folder.

    Args:
        function: The function. If None, the result is a decorator.
        **options: Options of `numba.njit`.

    Returns:
        The compiled function.

    Examples:
        >>> from graphs.compiled import jit
        >>> jit(lambda x: x + 1)(1), jit(fastmath=True)(lambda x: x + 1)(1)
        (2, 2)
    """
    import numba

    if function is None:
        return partial(jit, **options)
    compiled = partial(numba.njit, nogil=True, **options)
    try:
        made: Callable[..., Any] = compiled(cache=True)(function)
    except RuntimeError:  # numba found no folder for its cache
        made = compiled()(function)
    return made


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # the search for libraries takes 50 ms


def _let_others_set() -> None:
    """Let any thread set the numbers. Since threadpoolctl 3.7 those of OpenBLAS belong to the first that set them."""
    with _controller().limit(limits=None):
        pass


class _Limit:
    """The limit of the process: the first to enter sets it, and the last to leave restores the former numbers."""

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0

    def enter(self) -> None:
        """Set the limit if nobody else has."""
        with self._lock:
            if self._inside == 0:
                is_single = all(one.num_threads == 1 for one in _controller().lib_controllers if one.user_api == "blas")
                self._limiter: Any = None if is_single else _controller().limit(limits=1, user_api="blas")
                if not is_single:
                    _let_others_set()
            self._inside += 1

    def leave(self) -> None:
        """Restore the numbers if nobody else needs the limit."""
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._limiter is not None:
                self._limiter.restore_original_limits()
                _let_others_set()

    def renew_lock(self) -> None:
        """Replace the lock in a forked child, where its holder does not exist."""
        self._lock = Lock()


_limit = _Limit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit.renew_lock)


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread, in all threads of the process.

    The numbers are as before once no thread is within such a context, in whatever order they leave.

    Examples:
        >>> import numpy as np
        >>> from graphs.compiled import single_threaded_blas
        >>> with single_threaded_blas():
        ...     float((np.eye(2) @ np.eye(2)).sum())
        2.0
    """
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()
