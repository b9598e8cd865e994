"""The number of threads. Small computations use one, because threads would only wait for each other."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from threading import Lock
from typing import Any, TypeVar, cast

import torch

from graphs.compiled import single_threaded_blas as single_threaded_blas
from rfgp.torch_context import with_torch_defaults

F = TypeVar("F", bound=Callable[..., Any])

_OUTSIDE: ContextVar[int] = ContextVar("threads outside", default=1)
"""The number of threads of torch outside of `in_one_thread`."""


class _Inside:
    """The threads within `in_one_thread`, and torch's number before the first of them."""

    lock, count, before = Lock(), 0, 1

    @classmethod
    def renew_lock(cls) -> None:
        """Replace the lock in a forked child, where its holder does not exist."""
        cls.lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Inside.renew_lock)


def num_threads() -> int:
    """Return the number of threads of compiled loops.

    It is torch's number, set by `OMP_NUM_THREADS` or `set_num_threads`, also within `in_one_thread`.

    Examples:
        >>> import torch
        >>> from rfgp.threads import in_one_thread, num_threads
        >>> with in_one_thread():
        ...     inside = torch.get_num_threads(), num_threads()
        >>> inside == (1, torch.get_num_threads())
        True
    """
    return max(_OUTSIDE.get(), torch.get_num_threads())


def in_threads(work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return work(*task) of all tasks, each in a thread if there are several.

    Args:
        work: The function, which should release the interpreter's lock.
        tasks: The arguments of each call.

    Examples:
        >>> from rfgp.threads import in_threads
        >>> in_threads(lambda a, b: a + b, [(1, 2), (3, 4)])
        [3, 7]
    """
    if len(tasks) == 1:
        return [work(*tasks[0])]
    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(lambda task: work(*task), tasks))


@contextmanager
def in_one_thread(wanted: bool = True) -> Iterator[None]:
    """Restrict torch and the BLAS of numpy and scipy to one thread if wanted, and restore the old numbers afterwards.

    Torch's number belongs to a thread, and new threads start with the last one that was set. A thread that first
    computes while another one is within the context would keep one, so it takes the number of the other.

    Args:
        wanted: Whether to restrict them. The default is True.

    Examples:
        >>> with in_one_thread():
        ...     torch.get_num_threads()
        1
    """
    if not wanted:
        yield
        return
    before = torch.get_num_threads()
    with _Inside.lock:
        if _Inside.count == 0:
            _Inside.before = before
        elif before == 1 and _OUTSIDE.get() == 1:
            before = _Inside.before
        _Inside.count += 1
    outside = _OUTSIDE.set(max(before, _OUTSIDE.get()))
    torch.set_num_threads(1)
    try:
        with single_threaded_blas():
            yield
    finally:
        torch.set_num_threads(before)
        _OUTSIDE.reset(outside)
        with _Inside.lock:
            _Inside.count -= 1


def computed(method: F) -> F:
    """Compute a method under the default settings of torch and numpy, in one thread if rows and points are few.

    Args:
        method: A method of an object with the attribute `is_small`.
    """

    @wraps(method)
    def inner(self: Any, *args: Any, **kwargs: Any) -> Any:
        with with_torch_defaults(), in_one_thread(self.is_small):
            return method(self, *args, **kwargs)

    return cast(F, inner)
