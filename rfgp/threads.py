"""How many threads torch computes with: one where the work is small, for there they only wait for each other."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_OUTSIDE: ContextVar[int] = ContextVar("threads outside", default=1)
"""The number of threads of torch outside of `in_one_thread`."""


def num_threads() -> int:
    """Return how many threads loops of our own take: as many as torch, by `OMP_NUM_THREADS` or `set_num_threads`.

    Those that keep torch to one thread, as `in_one_thread` does, do not keep such loops to one.

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
    """Keep torch to one thread, where that is wanted, and then to as many as before.

    Only the calling thread's number changes, and that of threads which compute for the first time in the meantime.
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
