"""How many threads torch computes with: one where the work is small, for there they only wait for each other."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def in_one_thread(wanted: bool = True) -> Iterator[None]:
    """Keep torch to one thread, where that is wanted, and then to as many as before.

    Only the calling thread's number changes, and that of threads which compute for the first time in the meantime.
    """
    before = torch.get_num_threads()
    if not wanted or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
