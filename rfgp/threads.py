"""How many threads torch computes with: one where the work is small, for there its others only wait for each other."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL = 1000
"""Rows of a matrix of all pairs up to which one thread is as fast as two (`benchmarks/races/small.py`)."""


@contextmanager
def few_threads(rows: int) -> Iterator[None]:
    """Compute with one thread where there are few rows, and afterwards with as many as before.

    Only the calling thread's number changes (and that of threads which compute for the first time in the meantime).

    Args:
        rows: n.
    """
    before = torch.get_num_threads()
    if rows > SMALL or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
