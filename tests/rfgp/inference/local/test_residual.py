"""What inducing points leave of a kernel, taken up by neighbours, against the exact process of that kernel."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from rfgp.inference.local import LatentEvidence, LocalEvidence, blocks
from rfgp.inference.local import prior as parts
from rfgp.inference.priors import FeaturePrior, KernelPrior
from two_parts import F64, data, theta

from rfgp.features import Nystrom
from rfgp.inference import LocalPrior, Residual, dense, evidence
from rfgp.local import kinds
from rfgp.sparse import SparsityPattern


def values():
    """Return lengthscale, variance, noise, mean and inducing points; those that no gradient is wanted in apart."""
    of = theta()
    z = torch.randn(7, 3, dtype=F64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    return {**{name: of[name] for name in ("lengthscale", "variance", "noise", "mean")}, "points": z}


def detached():
    return {name: value.detach() for name, value in values().items()}


def features_of(p, name):
    def phi(x, lengthscale, points):
        return Nystrom(points / lengthscale, kinds.spectrum_of(name))(x / lengthscale)

    return FeaturePrior(phi, len(p["points"]), (p["lengthscale"], p["points"]), p["variance"])


def residual_prior(p, name="matern32", neighbors=60):
    return LocalPrior(features_of(p, name), name, p["lengthscale"], p["variance"], neighbors, 0, is_residual=True)


def kernel_of(p, name, a, b):
    return p["variance"] * kinds.spectrum_of(name).kernel_between(a / p["lengthscale"], b / p["lengthscale"])


def exact(p, rows, name="matern32"):
    def kernel(a, b):
        return kernel_of(p, name, a, b)

    prior = KernelPrior(kernel, lambda a: kernel(a, a).diagonal())
    return dense.KernelEvidence(prior, rows, p["mean"], p["noise"])


@pytest.mark.parametrize("name", ["matern12", "matern32", "gaussian"])
def test_with_all_predecessors_it_is_the_exact_process(name):
    p, rows, new = detached(), data(), torch.randn(9, 3, dtype=F64, generator=torch.Generator().manual_seed(1))
    new[2], new[3], new[4] = new[1], rows.inputs[0], p["points"][0]
    with torch.no_grad():
        found = LocalEvidence.of(residual_prior(p, name), rows, p["mean"], p["noise"])
        twin = exact(p, rows, name)
        one, other = found.log_marginal_likelihood(), twin.log_marginal_likelihood()
        assert one.item() == pytest.approx(other.item(), abs=1e-8)
        pairs = [*zip(found.leave_one_out(), twin.leave_one_out(), strict=True)]
        law, exactly = found.posterior().law(new), twin.posterior().law(new)
        pairs += [(getattr(law, of)(), getattr(exactly, of)()) for of in ("mean", "variance", "covariance")]
    for a, b in pairs:
        assert torch.allclose(a, b, rtol=0, atol=1e-8)


def by_definition(p, rows, name, pattern):
    """Return the log density of rows in order, each given some of those before it in what the points leave."""
    phi, count = features_of(p, name).scaled(rows.inputs), len(rows)
    left = kernel_of(p, name, rows.inputs, rows.inputs) - phi @ phi.mT
    noise = rows.noise_diag(p["noise"]).expand(count)
    lines = []
    for i in range(count):
        near, line = pattern.indices[pattern.indptr[i] : pattern.indptr[i + 1] - 1], torch.zeros(count, dtype=F64)
        b = torch.linalg.solve(left[near][:, near] + noise[near].diag(), left[near, i])
        scale = (left[i, i] + noise[i] - left[i, near] @ b).rsqrt()
        places = torch.as_tensor([*near, i])
        lines.append(line.index_put((places,), torch.cat([-scale * b, scale[None]])))
    V = torch.stack(lines)
    covariance = torch.linalg.inv(V.mT @ V) + phi @ phi.mT
    law = torch.distributions.MultivariateNormal(torch.zeros(count, dtype=F64), covariance)
    return law.log_prob((rows.targets - p["mean"]).mT).sum()


@pytest.mark.parametrize("name", ["matern32", "gaussian"])
@pytest.mark.parametrize("count", [0, 5])
def test_few_neighbors_and_gradients_are_those_of_the_definition(name, count):
    p, rows = values(), replace(data(40, uneven=False), fixed_noise=torch.linspace(0.01, 0.1, 40, dtype=F64))
    prior = residual_prior(p, name, max(count, 1))
    pattern = prior.neighbors(rows.inputs) if count else SparsityPattern(np.arange(41), np.arange(40), (40, 40))
    found = LocalEvidence(prior, rows, p["mean"], p["noise"], pattern).log_marginal_likelihood()
    expected = by_definition(p, rows, name, pattern)
    assert found.item() == pytest.approx(expected.item(), abs=1e-8)
    for a, b in zip(*(torch.autograd.grad(v, [*p.values()]) for v in (found, expected)), strict=True):
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-7)


def test_without_neighbors_it_is_fitc():
    p, rows = detached(), data(uneven=False)
    none = SparsityPattern(np.arange(51), np.arange(50), (50, 50))
    found = LocalEvidence(residual_prior(p), rows, p["mean"], p["noise"], none).log_marginal_likelihood()
    fitc = replace(features_of(p, "matern32"), residual=Residual(True, lambda *given: None))
    assert found.item() == pytest.approx(
        evidence(fitc, rows, p["mean"], p["noise"]).log_marginal_likelihood().item(), abs=1e-9
    )


def test_by_blocks_many_rows_say_the_same(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_FEATURES", 200)
    p, rows, new = detached(), data(300), torch.zeros(3, 3, dtype=F64)
    prior = residual_prior(p, neighbors=6)
    with torch.no_grad():
        one, many = (of(prior, rows, p["mean"], p["noise"]) for of in (LocalEvidence.of, blocks.BlockedLocalEvidence))
        assert many.log_marginal_likelihood().item() == pytest.approx(one.log_marginal_likelihood().item(), abs=1e-8)
        for of in ("mean", "variance"):
            a, b = (getattr(told.posterior().law(new), of)() for told in (one, many))
            assert torch.allclose(a, b, atol=1e-11)


def test_given_values_of_the_function_it_is_the_exact_process_too():
    p, rows = detached(), data(uneven=False)
    p["noise"], new = torch.tensor(0.7, dtype=F64), torch.linspace(-1, 1, 12, dtype=F64).reshape(4, 3)
    found, twin = LatentEvidence(residual_prior(p), rows, p["mean"], p["noise"]), exact(p, rows)
    law, exactly = found.posterior().law(new), twin.posterior().law(new)
    assert torch.allclose(law.mean(), exactly.mean(), atol=1e-5)
    assert torch.allclose(law.covariance(), exactly.covariance(), atol=1e-5)
    error = found.log_marginal_likelihood().item() - twin.log_marginal_likelihood().item()
    assert abs(error) < 6 * found.likelihood_error + 1e-5


@pytest.mark.parametrize("fault", ["rows", "points", "scale"])
def test_planted_errors_are_seen(fault, monkeypatch):
    """Features of rows left out of the conditionals, those of new points, and their scale."""
    p, rows = detached(), data()
    new, twin = rows.inputs[:5] + 0.1, exact(p, rows)

    def is_right():
        found = LocalEvidence.of(residual_prior(p), rows, p["mean"], p["noise"])
        laws = [of.posterior().law(new) for of in (found, twin)]
        near = math.isclose(float(found.log_marginal_likelihood()), float(twin.log_marginal_likelihood()), abs_tol=1e-8)
        return near and torch.allclose(laws[0].mean(), laws[1].mean(), rtol=0, atol=1e-8)

    assert is_right()
    factor, conditionals = parts.inverse_factor, parts.conditionals
    if fault == "points":
        monkeypatch.setattr(parts, "conditionals", lambda *given: conditionals(*given[:-1], scaled(*given[-1])))
    else:
        by = {"rows": lambda phi: None, "scale": lambda phi: 0.9999 * phi}[fault]
        monkeypatch.setattr(parts, "inverse_factor", lambda *given: factor(*given[:-1], by(given[-1])))
    assert not is_right()


def scaled(rows, points):
    return rows, 0.9999 * points
