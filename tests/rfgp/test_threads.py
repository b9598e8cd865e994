"""Loops of our own take as many threads as torch."""

import numpy as np
import pytest
import torch

from rfgp.local import factor
from rfgp.threads import in_one_thread, num_threads


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_loops_take_the_threads_of_torch(two_threads):
    starts = np.arange(0, 2 * factor.IN_THREADS + 1, 4)
    assert len(factor.in_blocks(starts, lambda a, b: (a, b))) == 2
    torch.set_num_threads(1)
    assert factor.in_blocks(starts, lambda a, b: (a, b)) == [(0, len(starts) - 1)]


def test_one_thread_of_torch_keeps_those_of_loops(two_threads):
    with in_one_thread():
        assert (torch.get_num_threads(), num_threads()) == (1, 2)
        with in_one_thread():
            assert num_threads() == 2
    assert num_threads() == 2


def test_one_thread_is_one_thread(two_threads):
    torch.set_num_threads(1)
    with in_one_thread():
        assert num_threads() == 1
