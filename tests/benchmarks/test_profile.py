"""The profile of the default: each second has one kind, and the kinds are those of the work."""

import argparse
import functools
import time

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import rfgp
from benchmarks.races import profile


def products(a, sparse):
    for _ in range(20):
        a @ a


def factors(a, sparse):
    for _ in range(20):
        torch.linalg.cholesky(a)


def waves(a, sparse):
    for _ in range(20):
        a.sin()


def arithmetic(a, sparse):
    for _ in range(50):
        2 * a + a


def sparse_products(a, sparse):
    for _ in range(10):
        sparse @ a.numpy()


def derivatives(a, sparse):
    for _ in range(5):
        values = a.clone().requires_grad_()
        (values @ values).sum().backward()


def python(a, sparse):
    for number in range(300_000):
        str(number)


WORK = {
    products: "dense products",
    factors: "factors and solves",
    waves: "features",
    arithmetic: "other tensor work",
    sparse_products: "sparse algebra",
    derivatives: "derivatives in torch",
    python: "other",
}


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_work_of_one_kind_is_of_that_kind(work):
    a = 600 * torch.eye(600, dtype=torch.float64) + torch.ones(600, 600, dtype=torch.float64)
    sparse = sp.random(600, 600, 0.1, "csr", random_state=0)
    _, found = profile.profiled(lambda: work(a, sparse))
    kinds = profile.by_kind(found)
    assert max(kinds, key=kinds.get) == WORK[work]


def test_products_of_features_are_features():
    caller = ("/x/rfgp/couplings/frequencies.py", 1, "project")
    assert profile.kind_of(("/x/profile.py", 1, "<operator __matmul__>"), caller) == "features"
    assert profile.kind_of(("~", 0, "<built-in method torch.cholesky_solve>"), caller) == "factors and solves"


@pytest.mark.parametrize("clock", ["processor", "wall"])
def test_kinds_add_up_to_the_seconds_of_a_call(clock):
    timer = time.process_time if clock == "processor" else time.perf_counter
    began = 0.0

    def call():
        nonlocal began
        began = timer()
        for _ in range(5):
            python(None, None)
        return timer() - began

    seconds, found = profile.profiled(call, clock)
    assert sum(profile.by_kind(found).values()) == pytest.approx(seconds, rel=0.05)


def test_operators_are_restored():
    known = {name: torch.Tensor.__dict__.get(name) for name in profile.OPERATORS}
    with pytest.raises(ZeroDivisionError):
        profile.profiled(lambda: 1 / 0)
    assert {name: torch.Tensor.__dict__.get(name) for name in profile.OPERATORS} == known


def rows(count=300):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, 2))
    return x, np.sin(x[:, 0]) + 0.1 * rng.standard_normal(count)


def test_a_fit_is_mostly_kernels_and_factors():
    def fit():
        return rfgp.GP(rfgp.kernels.RBF(), seed=0).fit(*rows())

    fit()  # imports
    _, found = profile.profiled(fit)
    kinds = profile.by_kind(found)
    assert min(kinds["kernel matrices"], kinds["factors and solves"]) > 0.05 * sum(kinds.values())
    assert min(kinds.values()) >= 0


@pytest.mark.slow
def test_a_selection_has_a_profile(tmp_path, monkeypatch):
    x, y = rows(40)
    monkeypatch.setattr(rfgp, "GP", functools.partial(rfgp.GP, approximation=rfgp.RandomFeatures(4)))  # few candidates
    np.savez(tmp_path / "rows.npz", X=x, y=y)
    options = argparse.Namespace(threads=1, clock="processor", top=5)
    found = profile.run(tmp_path / "rows.npz", 0, "profiled", options)
    assert set(found["kinds"]) == set(profile.KINDS)
    assert sum(found["kinds"].values()) == pytest.approx(found["processor"], rel=0.05)
    assert len(found["longest"]) == 5
