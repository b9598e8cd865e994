"""Small computations take one thread of torch and of BLAS, and the numbers of the process are the same afterwards."""

from threading import Barrier, Thread

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

import graphs.threads
import rfgp
from rfgp import kernels as k
from rfgp.local import factor
from rfgp.threads import in_one_thread, num_threads


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    limits = threadpool_limits(2, user_api="blas")
    with threadpool_limits():  # other threads may set numbers too
        pass
    yield
    limits.restore_original_limits()
    with threadpool_limits():
        pass
    torch.set_num_threads(before)


def numbers():
    """Return the numbers of threads of torch and of each BLAS."""
    return torch.get_num_threads(), *(info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas")


def table(rows):
    x = np.linspace(0, 1, rows)[:, None]
    return x, np.sin(6 * x[:, 0])


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


@pytest.mark.parametrize(
    ("approximation", "is_small"),
    [(rfgp.Exact(), False), (rfgp.RandomFeatures(20), False), (rfgp.RandomFeatures(4), True)],
)
@pytest.mark.parametrize("rows", [30, 60])
def test_threads_of_a_fit_depend_on_its_cost(two_threads, limits, approximation, is_small, rows):
    """Of 60 rows, 8 features cost less than an exact kernel on 40 rows, and 40 features cost more."""
    limits(small_rows=40)
    seen, before, is_small = [], numbers(), is_small or rows == 30
    gp = rfgp.GP(k.RBF(), approximation=approximation, seed=0)
    with pytest.warns(rfgp.RfgpWarning):
        gp.fit(*table(rows), max_iterations=1, callback=lambda *_: seen.append(numbers()))
    assert seen[-1] == ((1,) * len(before) if is_small else before)
    assert numbers() == before


@pytest.mark.parametrize("call", ["predict", "joint", "sample", "observed", "leave_one_out", "update", "select"])
def test_public_calls_of_few_rows_take_one_thread(two_threads, monkeypatch, call):
    x, y = table(30)
    gp = rfgp.GP(k.RBF(), approximation=rfgp.Exact(), seed=0).condition(x, y)
    seen, before, cholesky = [], numbers(), torch.linalg.cholesky_ex
    monkeypatch.setattr(torch.linalg, "cholesky_ex", lambda *args, **options: seen.append(numbers()) or cholesky(*args))
    {
        "predict": lambda: gp.predict(x[:3]).variance,
        "joint": lambda: gp.predict(x[:3]).covariance,
        "sample": lambda: gp.predict(x[:3]).sample(2, seed=0),
        "observed": lambda: gp.predict(x[:3]).observed().std,
        "leave_one_out": lambda: gp.leave_one_out().mean,
        "update": lambda: gp.update([[2.0]], [0.0]).log_marginal_likelihood(),
        "select": lambda: rfgp.GP(seed=0).select(x[:12], y[:12]),
    }[call]()
    assert set(seen) == {(1,) * len(before)}
    assert numbers() == before


def test_errors_restore_the_threads(two_threads):
    before = numbers()

    def fail(*_):
        raise KeyError("planted")

    with pytest.raises(KeyError, match="planted"):
        rfgp.GP(k.RBF(), approximation=rfgp.Exact(), seed=0).fit(*table(30), callback=fail)
    assert numbers() == before


@pytest.mark.parametrize("context", [in_one_thread, graphs.threads.single_threaded_blas])
def test_threads_that_leave_in_any_order_restore_numbers(two_threads, context):
    """The first one to enter leaves first, while the other is still within its context."""
    before, inside, after = numbers(), [], []
    both, one_left = Barrier(2), Barrier(2)

    def first():
        with context():
            both.wait()
        after.append(numbers()[0])
        one_left.wait()

    def second():
        with context():
            both.wait()
            one_left.wait()
            inside.append(numbers()[1:])
        after.append(numbers()[0])

    threads = [Thread(target=first), Thread(target=second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(inside[0]) == {1}
    assert set(before) == {2}
    if context is in_one_thread:  # the other does not change torch
        assert after == [before[0]] * 2
    assert numbers() == before
