"""Small computations take one thread of torch and of BLAS, and the numbers of the process are the same afterwards."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch
from refusals import refused
from threadpoolctl import threadpool_info, threadpool_limits

import rfgp
from rfgp import kernels as k

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")


@pytest.fixture(autouse=True)
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


@pytest.mark.slow
@pytest.mark.parametrize("condition_on", ["responses", "latent"])
def test_loops_in_threads_are_those_in_one(condition_on):
    """Each thread computes the factor of a block of rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (3000, 2))
    y, found = np.sin(9 * X[:, 0]) + 0.1 * rng.standard_normal(3000), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        near = rfgp.Vecchia(30, condition_on=condition_on, seed=0)
        gp = rfgp.GP(k.Matern(nu=1.5, lengthscale=0.3), approximation=near, seed=0).condition(X, y)
        likelihood, p = gp.log_marginal_likelihood(), gp.predict(X[:9] + 0.01)
        raw = [value for value in gp.hyperparameters.parameters() if value.requires_grad]
        slopes = torch.autograd.grad(likelihood, raw, materialize_grads=True)
        found.append(np.concatenate([[likelihood.item()], *(slope.flatten() for slope in slopes), p.mean, p.variance]))
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("approximation", "is_small"),
    [(rfgp.Exact(), False), (rfgp.RandomFeatures(20), False), (rfgp.RandomFeatures(4), True)],
)
@pytest.mark.parametrize("rows", [30, 60])
def test_threads_of_a_fit_depend_on_its_cost(limits, approximation, is_small, rows):
    """Of 60 rows, 8 features cost less than an exact kernel on 40 rows, and 40 features cost more."""
    limits(small_rows=40)
    seen, before, is_small = [], numbers(), is_small or rows == 30
    gp = rfgp.GP(k.RBF(), approximation=approximation, seed=0)
    gp.fit(*table(rows), max_iterations=1, callback=lambda *_: seen.append(numbers()))
    assert seen[-1] == ((1,) * len(before) if is_small else before)
    assert numbers() == before


@pytest.mark.parametrize("call", ["predict", "sample", "leave_one_out", "update", "select"])
def test_calls_of_few_rows_take_one_thread(monkeypatch, call):
    x, y = table(30)
    gp = rfgp.GP(k.RBF(), approximation=rfgp.Exact(), seed=0).condition(x, y)
    seen, before, cholesky = [], numbers(), torch.linalg.cholesky_ex
    monkeypatch.setattr(torch.linalg, "cholesky_ex", lambda *args, **options: seen.append(numbers()) or cholesky(*args))
    {
        "predict": lambda: gp.predict(x[:3]).variance,
        "sample": lambda: gp.predict(x[:3]).sample(2, seed=0),
        "leave_one_out": lambda: gp.leave_one_out().mean,
        "update": lambda: gp.update([[2.0]], [0.0]).log_marginal_likelihood(),
        "select": lambda: rfgp.GP(seed=0).select(x[:12], y[:12]),
    }[call]()
    assert set(seen) == {(1,) * len(before)}
    assert numbers() == before


def fit(callback):
    rfgp.GP(k.RBF(), approximation=rfgp.Exact(), seed=0).fit(*table(30), max_iterations=1, callback=callback)


def test_errors_restore_the_threads():
    before = numbers()

    def fail(*_):
        raise KeyError("mine")

    refused(lambda: fit(fail), KeyError, "mine")
    assert numbers() == before


def test_fits_that_end_in_any_order_restore_the_threads():
    """The first one to begin ends first, while the other is still within its fit."""
    before, inside, after = numbers(), [], []
    both, one_left = Barrier(2, timeout=60), Barrier(2, timeout=60)

    def once(action):
        done = []
        return lambda *_: done or done.append(action())

    def first():
        fit(once(both.wait))
        after.append(numbers()[0])
        one_left.wait()

    def second():
        fit(once(lambda: (both.wait(), one_left.wait(), inside.append(numbers()))))
        after.append(numbers()[0])

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(first), pool.submit(second)]:
            done.result(120)
    assert set(inside[0]) == {1}
    assert set(before) == {2}
    assert after == [2, 2]
    assert numbers() == before
