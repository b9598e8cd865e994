"""Many rows in memory: standardised as they are read, without a copy of all of them."""

import numpy as np
import pytest
import torch
from planting import planted

import rfgp
from rfgp import kernels as k
from rfgp import scaling
from rfgp.regression.spec import spec, starts
from rfgp.rows import training


def rows(weighted=False):
    """Return inputs, two targets and weights of rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(5, 9, (300, 2))
    y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2]) + 0.1 * rng.normal(size=(300, 2))
    return X, y, rng.integers(1, 4, 300).astype(float) if weighted else None


def check_few_and_many(monkeypatch, approximation, outputs=1, weighted=False):
    """Compare a model whose rows are copied with one whose rows are standardised as they are read."""
    X, y, weight = rows(weighted)
    y = y[:, 0] if outputs == 1 else y
    found = []
    monkeypatch.setattr(starts, "MAX_SAMPLED", 100)
    monkeypatch.setattr(spec, "NORMALIZED_ROWS", 100)
    for most in (10**6, 10):
        monkeypatch.setattr(training, "MAX_COPIED", most)
        gp = rfgp.GP(k.RBF(lengthscale=2.0), approximation=approximation, start={"noise": 0.1}, seed=0)
        gp.condition(X, y, sample_weight=weight)
        found.append((gp, gp.predict(X[:20]), gp.log_marginal_likelihood().item()))
    (few, first, one), (many, second, two) = found
    assert one == pytest.approx(two, rel=1e-9)
    np.testing.assert_allclose(second.mean, first.mean, atol=1e-9)
    np.testing.assert_allclose(second.std, first.std, rtol=1e-9)
    assert "standardized_block" in vars(few.state.rows)
    return many


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
def test_lattices_need_no_copy_of_the_rows(monkeypatch, outputs, weighted):
    many = check_few_and_many(monkeypatch, rfgp.EquispacedFourier(), outputs, weighted)
    assert "standardized_block" not in vars(many.state.rows)


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.Vecchia(10), rfgp.RandomFeatures(20)], ids=repr)
def test_other_models_are_the_same_with_many_rows(monkeypatch, approximation):
    check_few_and_many(monkeypatch, approximation)


def test_planted_error_in_rows_that_are_read_is_seen(monkeypatch):
    wrong = "return standardized(self.chunk.take(rows)._replace(y=2 * self.chunk.take(rows).y), self.scaling)"
    right = "return standardized(self.chunk.take(rows), self.scaling)"
    with planted(training, right, wrong), pytest.raises(AssertionError):
        check_few_and_many(monkeypatch, rfgp.EquispacedFourier())


def test_values_out_of_range_are_refused_with_their_row(monkeypatch):
    monkeypatch.setattr(training, "MAX_COPIED", 10)
    X = np.random.default_rng(0).uniform(0, 1e-30, (30, 1)).astype(np.float32)
    gp = rfgp.GP(k.RBF(), seed=0).condition(X, X[:, 0] * 1e30)
    X[17] = 3e38
    with pytest.raises(rfgp.DataError, match="row 17"):
        gp.condition(X, np.zeros(30, dtype=np.float32))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_in_blocks_are_those_of_all_rows(monkeypatch, dtype, weighted):
    X, _, weight = rows(weighted)
    x = torch.as_tensor(X * [1e3, 1e-3], dtype=dtype)
    weight = None if weight is None else torch.as_tensor(weight)
    expected = scaling.moments(x, weight)
    monkeypatch.setattr(scaling, "BLOCK_ROWS", 64)
    for one, two in zip(scaling.moments(x, weight), expected, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12 if dtype == torch.float64 else 1e-5)
        assert one.dtype == dtype
    for one, two in zip(scaling.moments(x[:, 0], weight), expected, strict=True):
        np.testing.assert_allclose(one, two[0], rtol=1e-12 if dtype == torch.float64 else 1e-5)
