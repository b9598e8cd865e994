"""Neighbours of the function itself, against the exact process of the sum kernel and dense algebra."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rfgp.inference.iterated import evidence as iterated
from rfgp.inference.iterated import systems
from rfgp.inference.local import LatentEvidence, LatentPosterior, LocalEvidence, latent
from two_parts import F64, data, exact, local_prior, theta

import rfgp
from rfgp.inference import choice


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


def loud(**changes):
    """Return values at which the noise hides what neighbours say."""
    values = {key: value.detach() for key, value in theta().items()}
    return values | {"noise": torch.tensor(2.0, dtype=F64), "local lengthscale": torch.tensor(1.5, dtype=F64)} | changes


def points(n=9, seed=1):
    return torch.randn(n, 3, dtype=F64, generator=torch.Generator().manual_seed(seed))


def found(p, rows, **options):
    return LatentEvidence(local_prior(p, **options), rows, p["mean"], p["noise"])


def divergence(law, other):
    """Return the mean KL of the exact marginal laws from others."""
    v, w = other.variance(), law.variance()
    return float((0.5 * (v / w + (law.mean() - other.mean()).square().T / w - 1 - (v / w).log())).mean())


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize(("name", "with_features"), [("matern32", True), ("gaussian", True), ("matern12", False)])
def test_with_all_predecessors_it_is_the_exact_process(name, with_features, uneven):
    p, rows, new = loud(), data(uneven=uneven), points()
    new[2], new[3] = new[1], rows.inputs[0]
    of = {"name": name, "with_features": with_features}
    ours, twin = found(p, rows, **of), exact(p, rows, **of)
    assert ours.log_marginal_likelihood().item() == pytest.approx(twin.log_marginal_likelihood().item(), abs=1e-7)
    assert ours.likelihood_error < 1e-6
    for a, b in zip(ours.leave_one_out(), twin.leave_one_out(), strict=True):
        assert torch.allclose(a, b, rtol=1e-7, atol=1e-8)
    law, other = ours.posterior().law(new), twin.posterior().law(new)
    assert torch.allclose(law.mean(), other.mean(), atol=1e-7)
    assert torch.allclose(law.variance(), other.variance(), atol=1e-7)
    assert torch.allclose(law.covariance(), other.covariance(), atol=1e-7)


def test_few_neighbors_say_far_more_than_few_observations():
    p, rows, new = loud(**{"local lengthscale": torch.tensor(4.0, dtype=F64)}), data(400), points(100)
    twin, prior = exact(p, rows).posterior().law(new), local_prior(p, neighbors=10)
    by_observations = divergence(LocalEvidence.of(prior, rows, p["mean"], p["noise"]).posterior().law(new), twin)
    by_values = divergence(found(p, rows, neighbors=10).posterior().law(new), twin)
    assert by_values < 0.1 * by_observations, (by_values, by_observations)


def dense_twin(prior, x, noise):
    """Return C of rows in order, dense, from conditionals that are solved for in numpy."""
    kernel = replace(prior, features=None).kernel(x, x).numpy()
    pattern, n = prior.neighbors(x), len(x)
    B, d = np.zeros((n, n)), np.empty(n)
    for i in range(n):
        near = pattern.indices[pattern.indptr[i] : pattern.indptr[i + 1] - 1]
        B[i, near] = np.linalg.solve(kernel[np.ix_(near, near)], kernel[near, i])
        d[i] = kernel[i, i] - B[i] @ kernel[:, i]
    T, phi = np.linalg.inv(np.eye(n) - B), prior.phi(x).numpy()
    return phi @ phi.T + T @ np.diag(d) @ T.T + np.diag(noise.numpy())


def distinct(n):
    """Return rows without copies."""
    rows = data(n)
    return replace(rows, inputs=torch.randn(n, 3, dtype=F64, generator=torch.Generator().manual_seed(5)))


def system(neighbors, n, noise):
    prior, rows = local_prior(loud(), neighbors=neighbors), distinct(n)
    return latent.LatentSystem(prior, rows.inputs, noise * torch.linspace(1, 2, n, dtype=F64)), prior, rows.inputs


def test_systems_are_those_of_the_neighbors():
    ours, prior, x = system(6, 150, 1.0)
    C, right = dense_twin(prior, x, torch.linspace(1, 2, 150, dtype=F64)), points(150, seed=3)
    np.testing.assert_allclose(ours.product(right), C @ right.numpy(), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours.solve(right, 1e-12), np.linalg.solve(C, right.numpy()), rtol=1e-7, atol=1e-8)
    log_determinant = ours.paths(200, 1e-9).log_determinant
    assert 0 < log_determinant.error < 0.5
    assert abs(log_determinant.value - np.linalg.slogdet(C)[1]) < 6.6 * log_determinant.error


def test_the_preconditioner_leaves_little_to_do(monkeypatch):
    ours, _, _ = system(12, 300, 0.01)
    monkeypatch.setattr(systems, "ROUNDS", 1)
    monkeypatch.setattr(systems, "MOST_ITERATIONS", 12)
    ours.solve(points(300), 1e-4)
    with monkeypatch.context() as patch:
        patch.setattr(latent, "multiply", lambda blocks, v: v)
        with pytest.raises(rfgp.SolverError, match='Take conditioning="observations"'):
            system(12, 300, 0.01)[0].solve(points(300), 1e-4)


def test_draws_estimate_the_variances(monkeypatch):
    monkeypatch.setattr(iterated, "NUM_PATHS", 4096)
    p, rows, new = loud(), data(120), points(30)
    ours = found(p, rows, neighbors=8)
    law, prior = ours.posterior().law(new), local_prior(p).diagonal(new)
    solved = law.variance()
    mean, estimated = ours.posterior().moments(new)
    explained = prior - solved
    stated = np.sqrt(2 / 4096) * explained / torch.hypot(explained, solved)
    assert torch.equal(mean, law.mean())
    assert float(((estimated - solved) / (stated * solved)).abs().max()) < 6.6
    monkeypatch.setattr(iterated, "MOST_SOLVED", 0)
    assert torch.equal(ours.posterior().law(new).variance(), estimated)


def test_a_joint_law_has_the_variances_of_single_points():
    p, rows, new = loud(), data(120), points(40)
    posterior = found(p, rows, neighbors=5).posterior()
    covariance = posterior.law(new).covariance()
    assert float(torch.linalg.eigvalsh(covariance)[0]) > -1e-10
    single = torch.cat([posterior.law(x[None]).variance() for x in new])
    assert torch.allclose(covariance.diagonal(), single, rtol=1e-6)
    with pytest.raises(rfgp.InvalidArgumentError, match="2001 points is asked for"):
        posterior.joint(torch.zeros(2001, 3, dtype=F64))


@pytest.mark.parametrize(
    ("noise", "scale", "wanted"), [(2.0, 0.6, True), (1e-3, 0.6, False), (2.0, 1e-4, False), (2.0, 3e6, False)]
)
def test_it_is_taken_where_the_noise_is_large_beside_what_neighbors_leave(noise, scale, wanted):
    changes = {"noise": torch.tensor(noise, dtype=F64), "local variance": torch.tensor(scale, dtype=F64)}
    p, rows = loud(**changes), data(400)
    chosen = choice.evidence(local_prior(p, neighbors=10), rows, p["mean"], p["noise"])
    assert isinstance(chosen, LatentEvidence) is wanted
    for name, kind in (("latent", LatentEvidence), ("observations", LocalEvidence)):
        prior = replace(local_prior(p, neighbors=10), conditioning=name)
        assert isinstance(choice.evidence(prior, rows, p["mean"], p["noise"]), kind)


@pytest.mark.filterwarnings("error")
def test_gradients_are_those_by_observations_and_the_value_is_the_same():
    p, rows = loud(), data(400)
    value = found(p, rows, neighbors=10).log_marginal_likelihood()
    lively = {key: value.clone().requires_grad_() for key, value in p.items()}
    with torch.enable_grad():
        prior, rest = local_prior(lively, neighbors=10), (rows, lively["mean"], lively["noise"])
        chosen = choice.evidence(prior, *rest)
        told, other = (each.log_marginal_likelihood() for each in (chosen, LocalEvidence.of(prior, *rest)))
        slopes, expected = (torch.autograd.grad(each, list(lively.values())) for each in (told, other))
    assert isinstance(chosen, LatentEvidence)
    assert told.item() == value.item()
    assert abs(other.item() - value.item()) > 0.1
    for a, b in zip(slopes, expected, strict=True):
        assert torch.allclose(a, b, rtol=1e-12)


def test_where_it_cannot_be_solved_observations_are_taken(monkeypatch):
    p, rows = loud(), data(400)
    chosen = choice.evidence(local_prior(p, neighbors=5), rows, p["mean"], p["noise"])
    assert chosen.solved.system.most_iterations == systems.MOST_ITERATIONS > latent.ENOUGH
    products, spread = [], latent.LatentSystem.spread
    monkeypatch.setattr(latent, "ENOUGH", 1)
    monkeypatch.setattr(latent.LatentSystem, "spread", lambda self, u: products.append(u) or spread(self, u))
    assert isinstance(choice.evidence(local_prior(p, neighbors=5), rows, p["mean"], p["noise"]), LocalEvidence)
    assert len(products) == 2  # a step, and what it leaves, which is far behind a third of the way: no more is tried


def test_a_joint_law_is_of_so_many_points_as_memory_takes(monkeypatch):
    p, rows = loud(), data(120)
    posterior = found(p, rows, neighbors=5).posterior()
    monkeypatch.setattr(latent, "MOST_NUMBERS", 120 * 300)
    with pytest.raises(rfgp.InvalidArgumentError, match="301 points is asked for; at most 300"):
        posterior.joint(torch.zeros(301, 3, dtype=F64))
    monkeypatch.setattr(latent, "MOST_NUMBERS", 1)
    with pytest.raises(rfgp.InvalidArgumentError, match="at most 256"):
        posterior.joint(torch.zeros(257, 3, dtype=F64))


def test_a_posterior_comes_back_from_its_tensors():
    p, rows, new = loud(), data(120), points()
    posterior = found(p, rows, neighbors=8).posterior()
    again = choice.restore(local_prior(p, neighbors=8), posterior.tensors())
    assert isinstance(again, LatentPosterior)
    assert torch.equal(again.law(new).mean(), posterior.law(new).mean())
    assert torch.equal(again.law(new).covariance(), posterior.law(new).covariance())
    with pytest.raises(rfgp.InvalidArgumentError, match="no functions to draw"):
        posterior.sample_functions(2, torch.Generator())


@pytest.mark.parametrize("fault", ["weights", "deviation", "gather"])
def test_planted_errors_are_seen(fault, monkeypatch):
    root, p, rows = latent.LocalPrior.latent_root, loud(), data()

    def wrong(*args):
        made, pattern = root(*args), args[2]
        own = np.zeros(len(made.entries), dtype=bool)
        own[pattern.indptr[1:] - 1] = True
        if fault == "gather":
            original = made.gather
            object.__setattr__(made, "gather", lambda v: original(1.0001 * v))
            return made
        made.entries[own if fault == "deviation" else ~own] *= 1.001
        return made

    monkeypatch.setattr(latent.LocalPrior, "latent_root", wrong)
    law, twin = found(p, rows).posterior().law(points()), exact(p, rows).posterior().law(points())
    same = torch.allclose(law.mean(), twin.mean(), atol=1e-7) and torch.allclose(law.variance(), twin.variance())
    assert not same
