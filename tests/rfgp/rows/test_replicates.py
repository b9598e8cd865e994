"""Rows with equal inputs, merged: one row each, with the likelihood and the posterior of all."""

import numpy as np
import pytest
import torch

import rfgp
from rfgp import kernels as k
from rfgp.regression import GPState
from rfgp.rows import Block, input_groups, merge_replicates


def regressions(approximation, kernel):
    """Return the regression of 60 rows with 15 distinct inputs, and that of the merged rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(15, 2))[rng.integers(15, size=60)]
    gp = rfgp.GP(kernel, approximation=approximation, seed=0).condition(X, X[:, 0] + 0.3 * rng.normal(size=60))
    found: GPState = gp.state
    merged = merge_replicates(found.require_rows(purpose="a test"))
    return found, found.replace(rows=merged, num_observations=len(merged))


@pytest.mark.parametrize(
    ("approximation", "kernel"),
    [(rfgp.Exact(), k.Matern()), (rfgp.RandomFeatures(4), k.RBF()), (rfgp.SparsePrecision(), k.Matern(0, nu=0.5))],
)
def test_merged_likelihood_and_gradient_equal_those_of_all(approximation, kernel):
    values = []
    for one in regressions(approximation, kernel):
        names = list(one.hyperparameters.space.names)
        leaves = one.hyperparameters.leaves(names)
        value = one.replace(hyperparameters=leaves).infer(one.rows).log_marginal_likelihood()
        values.append((value, torch.autograd.grad(value, [leaves.raw[name] for name in names])))
    (whole, slopes), (merged, merged_slopes) = values
    assert merged.item() == pytest.approx(whole.item(), abs=1e-8)
    for one, other in zip(slopes, merged_slopes, strict=True):
        torch.testing.assert_close(other.double(), one.double(), rtol=1e-7, atol=1e-8)


def test_merged_posterior_equals_that_of_all():
    found, merged = regressions(rfgp.Exact(), k.Matern())
    points = torch.linspace(-2, 2, 10, dtype=torch.float64).reshape(5, 2)
    for name in ("mean", "variance"):
        one, other = (getattr(each.process.at(points), name)() for each in (found, merged))
        torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-10)


def test_weights_and_scatter_are_merged_again():
    x, y = torch.tensor([[1.0], [1.0]], dtype=torch.float64), torch.tensor([[2.0], [5.0]], dtype=torch.float64)
    rows = Block(x, y, None, torch.tensor([2.0, 1.0]).double(), None, torch.tensor([[0.5], [0.0]]).double())
    merged = merge_replicates(rows)
    assert merged.targets.item() == 3.0
    assert merged.replicate_sum_of_squares.item() == pytest.approx(0.5 + 2 * 1.0 + 4.0)


def test_distinct_rows_are_not_changed():
    rows = Block(torch.arange(3.0)[:, None], torch.zeros(3, 1).double())
    assert merge_replicates(rows) is rows


def test_groups_of_near_inputs_by_spacing():
    x = torch.tensor([[0.0], [1e-6], [1.0]])
    assert len(set(input_groups(x))) == 3
    first, second, third = input_groups(x, 1e-4)
    assert first == second != third
