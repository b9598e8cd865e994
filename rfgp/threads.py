"""The number of threads of torch. Small computations use one, because threads would only wait for each other."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_OUTSIDE: ContextVar[int] = ContextVar("threads outside", default=1)
"""The number of threads of torch outside of `in_one_thread`."""


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


@contextmanager
def in_one_thread(wanted: bool = True) -> Iterator[None]:
    """Restrict torch to one thread if wanted, and restore the old number afterwards.

    This affects the calling thread, and threads that compute for the first time within the context.

    Args:
        wanted: Whether to restrict torch. The default is True.

    Examples:
        >>> with in_one_thread():
        ...     torch.get_num_threads()
        1
    """
    before = torch.get_num_threads()
    if not wanted or before == 1:
        yield
        return
    outside = _OUTSIDE.set(before)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _OUTSIDE.reset(outside)
