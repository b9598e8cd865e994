"""Distributions of latent values, through a posterior defined here, against dense algebra."""

import pickle
import threading
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from toy_posterior import PRIOR, LinearPosterior, data, dense, points

import rfgp
from rfgp.blocks import Prior
from rfgp.inference import MarginalDistribution, MixturePrediction
from rfgp.inference.caching import ResultCache
from rfgp.inference.composite import HeteroscedasticPosterior, IndependentFunctions, tensors_by_prefix
from rfgp.inference.conditioned import ConditionedGP
from rfgp.inference.distributions import LatentDistribution, LinearFunctionals
from rfgp.inference.mixture import MixtureInference, MixtureMember, MixturePosterior
from rfgp.inference.observed import observations
from rfgp.inference.prediction import Prediction
from rfgp.likelihoods import Categorical, Heteroscedastic, StudentT
from rfgp.linalg import covariance_root

ENTRIES = "rfgp.inference.distributions.ENTRIES"
ONE = torch.ones((), dtype=torch.float64)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def distribution(inputs=None, outputs=1):
    return LatentDistribution(LinearPosterior.given(*data(outputs)), points() if inputs is None else inputs)


def predicted(latent, kind=Prediction, of_observations=None, as_numpy=True):
    return kind(latent, 10 * ONE, 2 * ONE, 0.5 * ONE, torch.empty(0).double(), as_numpy, False, of_observations)


class Blocks:
    """Inputs that are read in blocks, with a count of the passes."""

    def __init__(self, inputs):
        self.inputs, self.passes = inputs, 0

    def blocks(self, size):
        self.passes += 1
        yield from torch.split(self.inputs, size)


# --- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("entries", [2**22, 40], ids=["one chunk", "many chunks"])
def test_moments_match_dense_algebra(outputs, entries, monkeypatch):
    monkeypatch.setattr(ENTRIES, entries)
    latent, (mean, covariance) = distribution(outputs=outputs), dense(*data(outputs), points())
    close(latent.mean(), mean)
    close(latent.variance(), covariance.diagonal())
    close(latent.covariance(), covariance)
    close(latent.root() @ latent.root().mT, covariance)


def test_chunks_are_bounded_and_of_one_length(monkeypatch):
    monkeypatch.setattr(ENTRIES, 40)
    latent = distribution(points(31))
    latent.mean()
    sizes = latent.posterior.projected
    assert max(sizes) <= 10
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == 31


def test_no_points_have_empty_moments():
    latent = distribution(points(0))
    assert latent.mean().shape == (0, 1)
    assert latent.variance().shape == (0,)
    assert latent.covariance().shape == (0, 0)
    assert predicted(latent).sample(2, seed=0).shape == (2, 0)


def test_blocks_of_inputs_are_read_once_for_both_moments():
    inputs = Blocks(points())
    latent = LatentDistribution(LinearPosterior.given(*data()), inputs)
    close(latent.variance(), distribution().variance())
    close(latent.mean(), distribution().mean())
    assert inputs.passes == 1
    assert latent.num_points is None
    for ask in (latent.covariance, latent.root):
        with pytest.raises(rfgp.InvalidArgumentError, match="in blocks"):
            ask()


# --- caching ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance_first", [False, True])
def test_many_chunks_are_projected_twice_at_most(variance_first, monkeypatch):
    monkeypatch.setattr(ENTRIES, 40)
    latent = distribution()
    p = predicted(latent)
    asked = [lambda: p.std, lambda: p.mean] if variance_first else [lambda: p.mean, lambda: p.std]
    asked += [p.interval, lambda: p.interval(0.5), lambda: p.observed().std, lambda: p.observed().interval()]
    for ask in asked:
        ask()
    assert sum(latent.posterior.projected) == (1 if variance_first else 2) * 25


def test_one_chunk_is_projected_once():
    latent = distribution()
    p = predicted(latent)
    for _ in range(2):
        assert p.mean.shape == p.std.shape == p.observed().std.shape
        assert p.covariance.shape == (25, 25)
        p.interval(), p.sample(2, seed=0), p.observed().sample(2, seed=0), p.log_prob(p.mean)
    assert latent.posterior.projected == [25]


def test_covariance_and_root_are_computed_once(monkeypatch):
    monkeypatch.setattr(ENTRIES, 40)
    latent = distribution()
    p = predicted(latent)
    for _ in range(3):
        p.covariance, p.observed().covariance, p.sample(1, seed=0), p.observed().sample(1, seed=0)
    assert latent.posterior.projected.count(25) == 2


def test_one_projection_is_in_memory_at_a_time(monkeypatch):
    monkeypatch.setattr(ENTRIES, 40)
    alive, most = [], []

    class Watched(LinearPosterior):
        def project(self, inputs):
            out = super().project(inputs)
            most.append(sum(each() is not None for each in alive))
            alive.append(weakref.ref(out))
            return out

    latent = LatentDistribution(Watched.given(*data()), points())
    latent.mean(), latent.variance(), latent.covariance(), latent.root()
    assert len(most) == 8
    assert max(most) == 0
    assert all(each() is None for each in alive)


def test_results_of_predictions_may_be_changed_in_place():
    p = predicted(distribution())
    labels = predicted(several(), of_observations=classes).observed()
    for ask in (lambda: p.mean, lambda: p.variance, lambda: p.covariance, lambda: labels.mean, lambda: labels.variance):
        first = ask().copy()
        ask()[...] = -1
        assert (ask() == first).all()


class Counting(StudentT):
    """A likelihood without moments in closed form that counts its integrals."""

    def moments(self, mean, variance):
        COUNTS.append("moments")


COUNTS: list[str] = []


def test_predictions_are_in_the_users_units():
    """The mean is 10 and the unit is 2. Observations have the noise 0.5 in that unit."""
    latent = distribution()
    p = predicted(latent)
    np.testing.assert_allclose(p.mean, 10 + 2 * latent.mean()[:, 0], rtol=1e-12)
    np.testing.assert_allclose(p.covariance, 4 * latent.covariance(), rtol=1e-12)
    np.testing.assert_allclose(p.observed().variance, p.variance + 4 * 0.5, rtol=1e-12)
    np.testing.assert_allclose(p.observed().covariance - p.covariance, 2 * np.eye(len(p.mean)), atol=1e-12)


def test_moments_of_observations_are_integrated_once():
    COUNTS.clear()
    p = predicted(distribution(), of_observations=lambda q: observations(q, Counting(scale=0.5, df=4.0)))
    for _ in range(2):
        p.observed().mean, p.observed().std, p.observed().cdf(10.0)
        p.observed().interval()
    assert COUNTS == ["moments"]
    assert p.latent.posterior.projected == [25]


def test_threads_compute_without_a_lock_and_get_one_result():
    cache, both, found = ResultCache(), threading.Barrier(2, timeout=20), []

    def compute():
        both.wait()  # ends only if both threads are inside at once
        return torch.ones(1)

    threads = [threading.Thread(target=lambda: found.append(cache.get("x", compute))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 2
    assert found[0] is found[1]


# --- gradients -------------------------------------------------------------------------------------


def of_inputs():
    x = points(5).requires_grad_()
    return distribution(x), x


def of_prior():
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    trend, season = PRIOR.weights
    prior = Prior(weights=(replace(trend, variance=scale), season))
    return LatentDistribution(LinearPosterior.given(*data(), prior), points(5)), scale


def of_posterior():
    posterior = LinearPosterior.given(*data())
    precision = posterior.precision.clone().requires_grad_()
    weights = torch.linalg.solve(precision, posterior.precision @ posterior.weights)
    return LatentDistribution(replace(posterior, precision=precision, weights=weights), points(5)), precision


SOURCES = {"inputs": of_inputs, "prior": of_prior, "posterior": of_posterior}
ANSWERS = ("mean", "variance", "covariance", "root")


@pytest.mark.parametrize("many", [False, True], ids=["one chunk", "many chunks"])
@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("source", SOURCES)
def test_results_without_gradients_need_them_disabled(source, name, many, monkeypatch):
    if many:
        monkeypatch.setattr(ENTRIES, 8)
    latent, leaf = SOURCES[source]()
    if name == "root":  # the covariance of five points is singular
        latent = LatentDistribution(Full(**vars(latent.posterior)), latent.inputs)
    with torch.no_grad():
        for each in ANSWERS[: 2 if many else 4]:
            getattr(latent, each)()
        before = getattr(latent, name)()
    is_shared = source == "prior" or (source, name) == ("posterior", "mean")  # the graph of the weights
    for _ in range(2):  # a graph that a backward pass freed is not served again
        value = getattr(latent, name)()
        (gradient,) = torch.autograd.grad(value.square().sum(), leaf, retain_graph=is_shared)
        assert bool((gradient != 0).any())
        close(value.detach(), before)


def test_inputs_with_gradients_are_projected_again():
    latent, x = of_inputs()
    with torch.no_grad():
        before = latent.mean()
        x += 1.0
        assert not torch.equal(latent.mean(), before)


def test_results_of_inference_mode_are_not_kept():
    latent = distribution(points(5))
    with torch.inference_mode():
        latent.mean()
    with torch.no_grad():
        mean = latent.mean()
    w = torch.ones(5, 1, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad((mean * w).sum(), w)
    close(gradient, mean)


def test_results_with_gradients_serve_calls_without():
    latent = distribution()
    mean = latent.mean()
    with torch.no_grad():
        assert latent.mean() is mean


# --- pickling --------------------------------------------------------------------------------------


def classes(prediction):
    return observations(prediction, Categorical(num_classes=2))


def student(prediction):
    return observations(prediction, StudentT(scale=0.5, df=4.0))


def varying(prediction):
    return observations(prediction, Heteroscedastic(noise=0.2))


def several():
    """Return the distribution of two independent functions."""
    posteriors = (LinearPosterior.given(*data()), LinearPosterior.given(*data(rows=7)))
    return LatentDistribution(IndependentFunctions(posteriors), points())


def mixture():
    """Return a posterior of two members with different means and noises."""
    members = (LinearPosterior.given(*data()), LinearPosterior.given(*data(rows=7)))
    shifts = (torch.zeros(1).double(), torch.full((1,), 0.7, dtype=torch.float64))
    return MixturePosterior(members, (0.25, 0.75), shifts, (0.5 * ONE, 0.2 * ONE))


def with_noise():
    posteriors = (LinearPosterior.given(*data()), LinearPosterior.given(*data(rows=7)))
    return LatentDistribution(HeteroscedasticPosterior(*posteriors), points())


PREDICTIONS = {
    "latent": lambda: predicted(distribution()),
    "observed": lambda: predicted(distribution()).observed(),
    "functionals": lambda: predicted(distribution()).linear([[1.0] * 25]),
    "log-normal": lambda: predicted(distribution()).exp(),
    "of observations": lambda: predicted(distribution(), of_observations=student),
    "observations": lambda: predicted(distribution(), of_observations=student).observed(),
    "classes": lambda: predicted(several(), of_observations=classes).observed(),
    "noise process": lambda: predicted(with_noise(), of_observations=varying).observed(),
    "mixture": lambda: predicted(mixture().at(points()), MixturePrediction).observed(),
}


@pytest.mark.parametrize("name", PREDICTIONS)
def test_predictions_are_pickled_without_results(name):
    p = PREDICTIONS[name]()
    posterior = getattr(p, "log", p).latent
    empty = len(pickle.dumps(replace(posterior)))
    before = len(pickle.dumps(p))
    answers = {"mean": p.mean, "variance": p.variance, "sample": p.sample(2, seed=0)}
    if getattr(p, "of_observations", None):
        answers["observed"] = p.observed().mean
    again = pickle.loads(pickle.dumps(p))
    assert abs(len(pickle.dumps(p)) - before) < 100 <= empty
    assert {key: (getattr(again, key) == answers[key]).all() for key in ("mean", "variance")}
    assert (again.sample(2, seed=0) == answers["sample"]).all()
    if "observed" in answers:
        assert (again.observed().mean == answers["observed"]).all()


# --- roots and samples -----------------------------------------------------------------------------


class Full(LinearPosterior):
    """A posterior with a covariance that is not singular."""

    def covariance(self, inputs, projected):
        return super().covariance(inputs, projected) + torch.eye(len(inputs), dtype=torch.float64)


def test_roots_of_singular_covariances_have_their_rank():
    latent = distribution(torch.cat([points(40), points(40)]))
    root = latent.root()
    close(root @ root.mT, latent.covariance())
    assert root.shape[1] <= 5
    draws = predicted(latent).sample(3, seed=0)
    assert abs(draws[:, :40] - draws[:, 40:]).max() < 1e-5


def test_noise_of_functionals_may_be_singular():
    p = predicted(distribution()).linear(torch.ones(3, 25))
    draws = p.observed().sample(4, seed=1)
    assert abs(draws[:, :1] - draws).max() < 1e-5
    assert abs(draws[:, 0] - p.sample(4, seed=1)[:, 0]).max() > 0.1


class Operations(TorchDispatchMode):
    """Counts multiplications of products and factorizations, and the largest tensor."""

    def __init__(self):
        super().__init__()
        self.count, self.largest = 0.0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name, first = func.__name__.split(".")[0], args[0] if args and isinstance(args[0], torch.Tensor) else None
        size = first.shape[-1] if first is not None and first.ndim else 0
        if name in ("mm", "bmm"):
            self.count += args[0].numel() * args[1].shape[-1]
        elif name in ("linalg_cholesky_ex", "linalg_solve_triangular"):
            self.count += size**3 / 3
        elif "linalg" in name or "eig" in name:
            self.count += 9 * size**3
        self.largest = max(self.largest, out.numel() if isinstance(out, torch.Tensor) else 0)
        return out


def operations_of_a_draw(posterior, n):
    with Operations() as counted:
        predicted(LatentDistribution(posterior, points(n))).observed().sample(1, seed=0)
    return counted


def test_joint_draw_takes_one_cholesky_factorization():
    """At n points n^3 / 3 multiplications, 4.2e10 of them at 5,000; an eigendecomposition takes 27 times as many."""
    n = 200
    assert 0.33 * n**3 < operations_of_a_draw(Full.given(*data()), n).count < 0.5 * n**3


def test_draws_of_5000_points_by_weights_form_no_covariance():
    class Rooted(LinearPosterior):
        def root(self, inputs, projected):
            return projected @ torch.linalg.cholesky(torch.linalg.inv(self.precision))

    counted = operations_of_a_draw(Rooted.given(*data()), 5000)
    assert counted.count < 5000 * 100
    assert counted.largest <= 5000 * 4


def test_covariance_root_uses_no_eigenvalues():
    with Operations() as counted:
        root = covariance_root(distribution(points(50)).covariance())
    assert root.shape[1] <= 5
    assert counted.count < 50**3


# --- functionals, marginals ------------------------------------------------------------------------


def test_functionals_have_the_moments_of_sums():
    latent = distribution(outputs=2)
    w = torch.randn(3, 25, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    shift = torch.tensor([1.0, -2.0], dtype=torch.float64)
    found, (mean, covariance) = LinearFunctionals(latent, w, shift), dense(*data(2), points())
    close(found.mean(), w @ (mean + shift))
    close(found.covariance(), w @ covariance @ w.mT)
    close(found.variance(), found.covariance().diagonal())
    close(found.root() @ found.root().mT, found.covariance())
    assert found.num_points == 3
    assert latent.posterior.projected == [25]


def test_centered_values_are_contrasts_to_their_mean():
    latent, (mean, covariance) = distribution(), dense(*data(), points())
    left = torch.eye(25, dtype=torch.float64) - torch.full((25, 25), 1 / 25, dtype=torch.float64)
    close(latent.centered().mean(), mean - mean.mean())
    close(latent.centered().covariance(), left @ covariance @ left)
    close(latent.centered().mean().sum(), 0 * ONE)


def test_marginals_have_no_joint_distribution():
    spread = torch.eye(3).double().expand(4, 3, 3) * torch.arange(1.0, 5.0).double()[:, None, None]
    marginal = MarginalDistribution(torch.ones(4, 3).double(), spread)
    close(marginal.variance(), torch.arange(1.0, 5.0).double()[:, None].expand(4, 3))
    close(marginal.function_covariance(), spread)
    for ask in (marginal.covariance, marginal.root):
        with pytest.raises(rfgp.InvalidArgumentError, match="marginal"):
            ask()


# --- several functions -----------------------------------------------------------------------------


@pytest.mark.parametrize("entries", [2**22, 80], ids=["one chunk", "many chunks"])
def test_independent_functions_are_concatenated(entries, monkeypatch):
    monkeypatch.setattr(ENTRIES, entries)
    latent, twins = several(), [dense(*data(), points()), dense(*data(rows=7), points())]
    covariance = torch.stack([each for _, each in twins], dim=2)
    close(latent.mean(), torch.cat([mean for mean, _ in twins], dim=1))
    close(latent.covariance(), covariance)
    close(latent.variance(), covariance.diagonal().mT)
    close(latent.function_covariance(), torch.diag_embed(latent.variance()))
    close(latent.root() @ latent.root().mT, torch.block_diag(*(each for _, each in twins)))


def test_independent_functions_have_draws_terms_and_tensors():
    posterior = several().posterior
    (first, second), x = posterior.functions, points()
    draws = posterior.sample_functions(3, torch.Generator().manual_seed(0))(x)
    generator = torch.Generator().manual_seed(0)
    expected = [each.sample_functions(3, generator)(x) for each in (first, second)]
    close(draws, torch.cat(expected, dim=2))
    term = ConditionedGP(posterior).of("trend").at(x)
    close(term.mean()[:, 1:], dense(*data(rows=7), x, ["trend"])[0])
    cross = ConditionedGP(posterior).cross_covariance(x, "trend", "season")
    close(cross[:, :, 1], dense(*data(rows=7), x, ["trend"], ["season"])[1])
    parts = tensors_by_prefix(posterior.tensors())
    assert parts.keys() == {"0", "1"}
    assert parts["1"]["weights"] is second.weights


def test_noise_processes_have_their_own_distributions():
    latent = with_noise()
    (mean, covariance), (log_mean, log_covariance) = dense(*data(), points()), dense(*data(rows=7), points())
    close(latent.mean(), mean)
    close(latent.covariance(), covariance)
    close(latent.noise.mean(), log_mean)
    close(latent.noise.covariance(), log_covariance)
    assert latent.noise is latent.noise
    assert distribution().noise is None
    observed = predicted(latent, of_observations=varying).observed()
    noise = 0.2 * (log_mean[:, 0] + log_covariance.diagonal() / 2).exp()
    close(torch.from_numpy(observed.variance), 4 * (covariance.diagonal() + noise))
    parts = tensors_by_prefix(latent.posterior.tensors())
    assert parts.keys() == {"", "noise"}
    assert parts["noise"]["weights"] is latent.posterior.noise_process.weights
    term = ConditionedGP(latent.posterior).of("season")
    close(term.at(points()).mean(), dense(*data(), points(), ["season"])[0])
    close(term.at(points()).noise.mean(), log_mean)


# --- mixtures --------------------------------------------------------------------------------------


def mixed_twin(x):
    """Return the mean and covariance of the mixture by its definition."""
    twins = [dense(*data(), x), dense(*data(rows=7), x)]
    means = [twins[0][0], twins[1][0] + 0.7]
    mean = 0.25 * means[0] + 0.75 * means[1]
    second = [c + m @ m.mT for m, (_, c) in zip(means, twins, strict=True)]
    return means, mean, 0.25 * second[0] + 0.75 * second[1] - mean @ mean.mT


@pytest.mark.parametrize("entries", [2**22, 80], ids=["one chunk", "many chunks"])
@pytest.mark.parametrize("as_gaussian", [False, True], ids=["members", "as one Gaussian"])
def test_mixtures_have_the_moments_of_their_definition(entries, as_gaussian, monkeypatch):
    monkeypatch.setattr(ENTRIES, entries)
    x = points()
    latent = LatentDistribution(mixture(), x) if as_gaussian else ConditionedGP(mixture()).at(x)
    _, mean, covariance = mixed_twin(x)
    close(latent.mean(), mean)
    close(latent.variance(), covariance.diagonal())
    close(latent.covariance(), covariance)
    close(latent.root() @ latent.root().mT, covariance)
    assert latent.num_points == 25
    assert hasattr(latent, "members") != as_gaussian


def test_members_of_a_mixture_are_projected_twice_at_most(monkeypatch):
    monkeypatch.setattr(ENTRIES, 40)
    posterior = mixture()
    p = predicted(posterior.at(points()), MixturePrediction)
    p.mean, p.std, p.interval(), p.observed().std, p.observed().interval(), p.log_prob(p.mean)
    assert all(sum(member.projected) <= 2 * 25 for member in posterior.members)


def test_predictions_of_mixtures_are_weighted_members():
    x = points(6)
    p = predicted(mixture().at(x), MixturePrediction).observed()
    means, mean, _ = mixed_twin(x)
    y = 10 + 2 * (mean[:, 0] + 0.3)
    noises, density = (0.5, 0.2), torch.zeros(6).double()
    for weight, m, noise, (_, covariance) in zip(
        (0.25, 0.75), means, noises, [dense(*data(), x), dense(*data(rows=7), x)], strict=True
    ):
        deviation = 2 * (covariance.diagonal() + noise).sqrt()
        density += weight * torch.distributions.Normal(10 + 2 * m[:, 0], deviation).log_prob(y).exp()
    close(torch.from_numpy(p.log_prob(y)).exp(), density)
    functional = p.linear([1.0, -1.0, 0, 0, 0, 0])
    differences = [2 * float(m[0] - m[1]) for m in means]
    assert functional.mean[0] == pytest.approx(0.25 * differences[0] + 0.75 * differences[1], rel=1e-9)
    parts = list(functional.parts())
    assert [float(mean) for _, mean, _ in parts] == pytest.approx(differences, rel=1e-9)


def test_inference_of_a_mixture_is_that_of_its_members():
    class Known(rfgp.solvers.Inference):
        def __init__(self, member):
            BUILT.append(member)
            self.member = member

        def log_marginal_likelihood(self):
            return self.member.noise

        def leave_one_out(self):
            return self.member.mean.expand(3, 1), self.member.noise.expand(3)

        def posterior(self):
            return LinearPosterior.given(*data())

    BUILT.clear()
    members = [
        MixtureMember(w, PRIOR, torch.full((1,), m).double(), n * ONE) for w, m, n in ((0.25, 2, 1), (0.75, 4, 3))
    ]
    found = MixtureInference(members, Known)
    assert found.log_marginal_likelihood() == 1
    assert members[:1] == BUILT  # a fit needs no other
    mean, variance = found.leave_one_out()
    close(mean, torch.full((3, 1), 3.5).double())
    close(variance, torch.full((3,), 0.25 * (1 + 1.5**2) + 0.75 * (3 + 0.5**2)).double())
    posterior = found.posterior()
    assert posterior.weights == (0.25, 0.75)
    assert [float(shift) for shift in posterior.shifts] == [0, 2]
    assert [float(noise) for noise in posterior.noises] == [1, 3]
    with pytest.raises(rfgp.InvalidArgumentError, match="cannot draw functions"):
        posterior.sample_functions(1, torch.Generator())


BUILT: list[MixtureMember] = []


# --- terms -----------------------------------------------------------------------------------------


def conditioned():
    return ConditionedGP(LinearPosterior.given(*data()))


def test_terms_have_their_own_distributions():
    gp, x = conditioned(), points()
    assert gp.terms == ("trend", "season")
    for one, other in (("trend", "season"), ("season", "trend")):
        mean, covariance = dense(*data(), x, [one])
        for term in (gp.of(one), gp.without(other)):
            close(term.at(x).mean(), mean)
            close(term.at(x).covariance(), covariance)
        close(gp.cross_covariance(x, one, [other]), dense(*data(), x, [one], [other])[1])
    close(gp.of("trend", "season").at(x).mean(), gp.at(x).mean())
    both = [gp.of(name).at(x).covariance() for name in gp.terms]
    cross = gp.cross_covariance(x, "trend", "season")
    close(both[0] + both[1] + cross + cross.mT, gp.at(x).covariance())


def test_process_draws_functions_and_keeps_tensors():
    gp, x = conditioned(), points(4)
    drawn = gp.sample_functions(2, torch.Generator().manual_seed(3))
    close(drawn(x), gp.posterior.sample_functions(2, torch.Generator().manual_seed(3))(x))
    assert drawn(x).shape == (2, 4, 1)
    assert gp.tensors().keys() == {"weights", "precision"}
    assert pickle.loads(pickle.dumps(gp)).terms == gp.terms


@pytest.mark.parametrize(
    "ask",
    [
        lambda gp: gp.of("trend", "tide"),
        lambda gp: gp.without("tide"),
        lambda gp: gp.of(),
        lambda gp: gp.without("trend", "season"),
        lambda gp: gp.cross_covariance(points(), "trend", "tide"),
        lambda gp: gp.cross_covariance(points(), [], "trend"),
    ],
)
def test_errors_name_unknown_and_missing_terms(ask):
    with pytest.raises(rfgp.InvalidArgumentError, match=r"'trend', 'season', got ('tide'|none)"):
        ask(conditioned())


def test_posteriors_without_terms_raise():
    with pytest.raises(rfgp.InvalidArgumentError, match="not divided into terms"):
        ConditionedGP(mixture()).of("trend")
