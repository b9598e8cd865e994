"""Gradients of predictions in X through sparse precisions, against exact covariances and finite differences."""

import numpy as np
import pytest
import torch

import rfgp
from graphs.precisions import ChainField
from rfgp import kernels as k

N = 30
NUS = (0.5, 1.5, 2.5)
DIGITS = 1e-8
"""The agreement with exact covariances of chains whose values are apart, so that their precisions lose no digits."""


def table(n, seed, span=(0.0, 5.0)):
    """Return n rows of two numbers and a level."""
    rng = np.random.default_rng(seed)
    columns = rng.uniform(*span, n), rng.uniform(0, 3, n), rng.integers(0, 3, n)
    return torch.tensor(np.stack(columns, axis=1))


def rows():
    """Return rows whose values are apart, some of them repeated, and targets."""
    X = (2 * table(N, 0)).round() / 2
    return X, torch.sin(X[:, 0]) + 0.3 * X[:, 1] * X[:, 2] + 0.1 * torch.cos(9 * X[:, 0])


def kernels(nu):
    """Return kernels by the names of their cases, with the terms that have a sparse precision."""
    chain = k.Matern(0, nu=nu, lengthscale=1.2)
    other = k.Matern(1, nu=1.5, lengthscale=2.0)
    return {
        "a column": (chain.named("chain"), ["chain"]),
        "a column and a slope": (chain.named("chain") + k.Linear(1, name="slope"), ["chain"]),
        "two terms": (chain.named("chain") + other.named("other"), ["chain", "other"]),
        "two columns": ((chain * other).named("chain"), ["chain"]),
        "a coefficient": ((chain * k.Linear(1)).named("chain"), ["chain"]),
        "a coefficient of itself": ((chain * k.Linear(0)).named("chain"), ["chain"]),
        "a series of each level": ((chain * k.Group(2)).named("chain") + k.Group(2, name="level"), ["chain"]),
        "slopes of levels": ((k.Linear(0) * k.Group(2)).named("slopes"), ["slopes"]),
    }


def model(nu, case, likelihood="gaussian", targets=None):
    kernel, names = kernels(nu)[case]
    chosen = {name: rfgp.SparsePrecision() for name in names}
    options = {"start": {"noise": 0.05}} if likelihood == "gaussian" else {"inference": "laplace"}
    gp = rfgp.GP(kernel, likelihood, chosen, seed=0, **options)
    X, y = rows()
    return gp.condition(X, y if targets is None else targets)


def value(gp, X, read):
    """Return a sum of values with different weights, so that no slopes cancel."""
    found = read(gp.predict(X)).reshape(-1)
    return (found * torch.linspace(1, 2, len(found), dtype=found.dtype)).sum()


def gradient(gp, X, read):
    leaf = X.clone().requires_grad_()
    (found,) = torch.autograd.grad(value(gp, leaf, read), leaf)
    return found


def differences(gp, X, read, columns=(0, 1), step=1e-5):
    out = torch.zeros_like(X)
    for i in range(len(X)):
        for j in columns:
            move = torch.zeros_like(X)
            move[i, j] = step
            out[i, j] = (value(gp, X + move, read) - value(gp, X - move, read)) / (2 * step)
    return out


READS = [lambda p: p.mean, lambda p: p.std]
EVERY = pytest.mark.parametrize("read", READS, ids=["mean", "std"])


@pytest.mark.thinned(5, slow=5)
@EVERY
@pytest.mark.parametrize("nu", NUS)
@pytest.mark.parametrize("case", kernels(0.5))
def test_gradients_match_exact_covariances_and_differences(case, nu, read):
    gp, new = model(nu, case), table(7, 1, span=(-1.0, 6.5))
    found = gradient(gp, new, read)
    np.testing.assert_allclose(found, gradient(gp.exact(), new, read), atol=DIGITS)
    np.testing.assert_allclose(found, differences(gp, new, read), atol=1e-6)


@EVERY
@pytest.mark.parametrize("nu", NUS)
@pytest.mark.parametrize("case", ["a column", "a column and a slope"])
def test_gradients_at_rows_match_exact_covariances(case, nu, read):
    """The slope of a process with nu 0.5 has a jump there, and both have the mean of its sides."""
    gp, X = model(nu, case), rows()[0]
    np.testing.assert_allclose(gradient(gp, X, read), gradient(gp.exact(), X, read), atol=DIGITS)


@EVERY
@pytest.mark.parametrize("nu", NUS)
def test_gradients_of_terms_match_exact_covariances(nu, read):
    gp, new = model(nu, "two terms"), table(7, 2)
    for name in ("chain", "other"):
        own = [gradient(one, new, lambda p, name=name: read(p.terms[name])) for one in (gp, gp.exact())]
        np.testing.assert_allclose(*own, atol=DIGITS)
        assert float(own[0][:, 1 if name == "chain" else 0].abs().max()) == 0


@EVERY
@pytest.mark.parametrize("nu", NUS)
def test_gradients_through_crowded_rows_match_differences(nu, read):
    """Some of the rows are read by interpolation between knots."""
    X = table(400, 3, span=(0.0, 0.5))
    gp = rfgp.GP(k.Matern(0, nu=nu, lengthscale=1.0), approximation=rfgp.SparsePrecision(), start={"noise": 0.05})
    gp, new = gp.condition(X, torch.sin(9 * X[:, 0])), table(5, 4, span=(-0.1, 0.6))
    found, expected = gradient(gp, new, read), differences(gp, new, read, columns=[0], step=1e-7)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@EVERY
def test_gradients_under_labels_match_differences(read):
    gp = model(1.5, "a column and a slope", "bernoulli", (rows()[1] > 0.5).double())
    new = table(5, 5)
    np.testing.assert_allclose(gradient(gp, new, read), differences(gp, new, read), atol=1e-6)


def test_observed_outputs_have_gradients():
    X, y = rows()
    gp = rfgp.GP(k.Matern(0, nu=1.5), approximation=rfgp.SparsePrecision(), start={"noise": 0.05}, seed=0)
    gp, new = gp.condition(X, torch.stack([y, y.square()], dim=1)), table(5, 6)
    for read in (lambda p: p.observed().mean, lambda p: p.observed().variance):
        np.testing.assert_allclose(gradient(gp, new, read), gradient(gp.exact(), new, read), atol=DIGITS)


@pytest.mark.parametrize("ask", [lambda p: p.covariance, lambda p: p.sample(1, seed=0)])
def test_joint_distributions_are_not_differentiable(ask):
    gp, new = model(1.5, "a column"), table(4, 7).requires_grad_()
    with pytest.raises(rfgp.NotDifferentiableError, match="detach"):
        ask(gp.predict(new))
    with torch.no_grad():
        ask(gp.predict(new))
    ask(gp.predict(new.detach()))


def test_covariances_of_other_terms_are_differentiable():
    gp, new = model(1.5, "a column and a slope"), table(4, 10)
    found = [gradient(one, new, lambda p: p.terms["slope"].covariance) for one in (gp, gp.exact())]
    np.testing.assert_allclose(*found, atol=DIGITS)
    with pytest.raises(rfgp.NotDifferentiableError, match="detach"):
        gp.predict(new.requires_grad_()).cross_covariance("slope", "chain")


def test_levels_alone_keep_their_covariances_differentiable():
    X, y = rows()
    gp = rfgp.GP(k.RBF(0) + k.Group(2), approximation={"group(2)": rfgp.SparsePrecision()}, seed=0).condition(X, y)
    new = table(4, 8)
    found = [gradient(one, new, lambda p: p.covariance) for one in (gp, gp.exact())]
    np.testing.assert_allclose(*found, atol=1e-6)  # the weights of the kernel at the rows have a jitter


def test_gradients_are_taken_once():
    gp, new = model(1.5, "a column"), table(4, 9).requires_grad_()
    (found,) = torch.autograd.grad(gp.predict(new).mean.square().sum(), new, create_graph=True)
    with pytest.raises(rfgp.NotDifferentiableError, match="once"):
        found.sum().backward()


@pytest.mark.parametrize("part", [0, 1])
def test_planted_wrong_slopes_are_seen(monkeypatch, part):
    right = ChainField.conditional_slopes

    def wrong(self, *given):
        return tuple(1.01 * one if i == part else one for i, one in enumerate(right(self, *given)))

    monkeypatch.setattr(ChainField, "conditional_slopes", wrong)
    with pytest.raises(AssertionError):
        test_gradients_match_exact_covariances_and_differences("a column", 1.5, READS[1])
