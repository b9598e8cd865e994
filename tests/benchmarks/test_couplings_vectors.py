"""The closed forms behind the couplings paper's tables on vectors, beside dense and independent ones."""

import numpy as np
import pytest
import torch
from checks import assert_mean
from scipy import special

from benchmarks import protocol
from benchmarks.papers.couplings.vectors import attention, bars, ensembles, estimates, growth, readings, splits, tables
from rfgp import couplings, random, theory


@pytest.fixture(params=["fourier", "laplace"])
def kind(request):
    return request.param


def a_case(kind):
    rng = np.random.default_rng(0)
    x, truth = rng.standard_normal((30, 3)) / (2 if kind == "fourier" else 5), rng.standard_normal(30)
    train, test = torch.as_tensor(x[:18]), torch.as_tensor(x[18:])
    fit = splits.Fit(1.0, 0.1, 1.7, 0.0)
    return splits.Case(train, test, torch.as_tensor(truth[:18]), torch.as_tensor(truth[18:]), fit)


def test_low_rank_figures_are_those_of_dense_matrices(kind):
    case = a_case(kind)
    draws = [couplings.by_name("iid").sample(4, 3, seed=seed) for seed in range(3)]
    found = estimates.judged(case, estimates.Exact.of(case), draws, kind).numpy()
    rows = torch.cat([case.train, case.test])
    dense = protocol.Split(rows, case.y, case.fit.noise, case.fit.signal, splits.Gaussian())
    exact, phi = dense.posterior(dense.kernel), estimates.evaluated(draws, kind, rows)
    noise = 0.1 * torch.eye(12, dtype=torch.float64)
    zero = torch.zeros(12, dtype=torch.float64)
    priors = growth.prior_divergences(dense.kernel[18:, 18:], phi[:, 18:], 0.1).numpy()
    for values, prior, part in zip(found, priors, phi, strict=True):
        gram = part @ part.T
        drawn = dense.posterior(gram)
        error = float((gram - dense.kernel)[18:, 18:].square().mean())
        missed = float((drawn[0] - case.truth).square().mean().sqrt())
        expected = [error, protocol.kl(exact, drawn), protocol.kl(drawn, exact), missed]
        np.testing.assert_allclose(values, expected, rtol=1e-8)
        law = zero, dense.kernel[18:, 18:] + noise
        assert prior == pytest.approx(protocol.kl(law, (zero, gram[18:, 18:] + noise)))


def test_positive_features_have_the_lengthscale_of_the_paper():
    """Eq. 36, over pairs of training rows: there the mean of |x + y| is 1/2."""
    case = a_case("fourier")
    rows = torch.cat([case.train, case.test])
    found = protocol.Split(rows, case.y, 0.1, 1.7, splits.Gaussian()).for_positive_features().x
    norms = [float((x + y).norm()) for x in found[:18] for y in found[:18]]
    assert np.mean(norms) == pytest.approx(0.5, rel=1e-12)


def test_divergences_of_single_rows_are_those_of_normal_variables(kind):
    case = a_case(kind)
    draws = [couplings.by_name("iid").sample(4, 3, seed=seed) for seed in range(3)]
    train, test = (estimates.evaluated(draws, kind, x) for x in (case.train, case.test))
    rows = torch.cat([case.train, case.test])
    dense = protocol.Split(rows, case.y, case.fit.noise, case.fit.signal, splits.Gaussian())
    exact, expected = dense.posterior(dense.kernel), []
    for part in estimates.evaluated(draws, kind, rows):
        drawn = dense.posterior(part @ part.T)
        for place in range(12):
            laws = [(mean[[place]], covariance[place, place].reshape(1, 1)) for mean, covariance in (exact, drawn)]
            expected.append(protocol.kl(*laws))
    found = readings.marginal(case, estimates.Exact.of(case), train, test)
    assert found == pytest.approx(np.mean(expected), rel=1e-8)


def test_bars_of_the_chosen_reading_are_those_of_the_table():
    """Table 1 compares the bars of i.i.d. features, and the readings all of them, by one formula."""
    rng = np.random.default_rng(0)
    some = {e: np.abs(rng.standard_normal((20, len(tables.COLUMNS)))) + 1 for e in bars.ENSEMBLES}
    found = {"fourier": dict.fromkeys(splits.TABLES, some)}
    both = bars.compared(found, *bars.CHOSEN)
    assert both.shape == (18, 2)
    assert both[0, 0] == pytest.approx(tables.spread(tables.kernel_errors(some["i.i.d."]))[0], rel=1e-12)
    assert both[:3, 1].tolist() == [0.028, 0.019, 0.019]
    assert bars.agreeing(np.array([[1.0, 1.1], [1.0, 3.0]]), 20) == 1
    assert len(bars.compared(found, "signal variance 1", "standard error of the splits' own ratios")) == 12


def test_the_fit_is_where_no_other_is_likelier():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((25, 2)), rng.standard_normal(25)
    squares = ((x[:, None] - x) ** 2).sum(2)
    fit = splits.best_scales(squares, y, 1.3)

    def likelihood(signal, noise):
        covariance = signal * (np.exp(-squares / 2 / 1.3**2) + noise * np.eye(25))
        return -(y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1]) / 2

    best = likelihood(fit.signal, fit.noise)
    assert best == pytest.approx(fit.log_likelihood)
    for signal, noise in ((1.01, 1), (0.99, 1), (1, 1.02), (1, 0.98)):
        assert likelihood(fit.signal * signal, fit.noise * noise) <= best + 1e-9


def test_opposite_directions_with_norms_of_their_own():
    """Each has the spectral law, and the two of a line have independent norms."""
    draws = [ensembles.OwnNorms().sample(6, 3, seed=seed).dense().numpy() for seed in range(1000)]
    rows = np.array(draws)
    assert_mean(np.exp(rows @ np.array([0.3, -0.2, 0.4])).mean(1), np.exp(0.29 / 2))
    units = rows / np.linalg.norm(rows, axis=2, keepdims=True)
    cosines = units @ units.transpose(0, 2, 1)
    np.testing.assert_allclose(np.sort(cosines, axis=2)[:, :, 0], -1, atol=1e-12)
    lengths = np.linalg.norm(rows, axis=2)
    partner = np.take_along_axis(lengths, cosines.argmin(2), axis=1)
    centred = (lengths - lengths.mean()) * (partner - lengths.mean())
    assert_mean(centred[:, 0], 0.0)


class TestMomentsOfAttention:
    def test_two_directions_of_the_plane(self):
        """The second is the first turned left or right: averages of I0 over the circle."""
        rng = np.random.default_rng(2)
        u, v = rng.standard_normal((2, 2))
        r, s = 1.4, 0.6
        turned = np.array([-v[1], v[0]])
        expected = np.mean([special.iv(0, np.linalg.norm(r * u + sign * s * turned)) for sign in (1, -1)])
        t = np.array([(r**2 * u @ u + s**2 * v @ v) / 4])
        area = np.array([(r * s) ** 2 * ((u @ u) * (v @ v) - (u @ v) ** 2) / 16])
        assert attention.two_frame(t, area, 2)[0] == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize("name", ["orthogonal", "PNC"])
    def test_variances_are_those_of_the_theory(self, name):
        """One token twice: a single score, whose variance has a closed form of its own."""
        x = np.random.default_rng(3).standard_normal((1, 6)) / 3
        variance, covariance, _ = attention.moments(x)[name]
        coupling, length = attention.COUPLINGS[name], 2 * np.linalg.norm(x)
        moment = theory.variance(coupling, length, 6, 6, features="laplace")
        # in units of the squared mean exp(v^2 / 2)^2
        assert variance == pytest.approx(float(moment) / np.exp(length**2), rel=1e-6)
        assert covariance == pytest.approx(variance)

    @pytest.mark.parametrize("name", list(attention.COUPLINGS))
    def test_covariances_are_those_of_draws(self, name):
        x = np.random.default_rng(4).standard_normal((3, 4)) / 5
        generator = random.generator(0)
        draws = [
            couplings.by_name(attention.COUPLINGS[name]).sample(4, 4, generator=generator).dense() for _ in range(4000)
        ]
        phi = np.exp(x @ torch.stack(draws).numpy().transpose(0, 2, 1) - (x * x).sum(1)[:, None] / 2)
        exact = np.exp(x @ x.T)
        errors = (phi @ phi.transpose(0, 2, 1) / 4 - exact) / exact.mean(1)[:, None]
        squares = np.stack([(errors**2).mean((1, 2)), (errors.mean(2) ** 2).mean(1)], 1)
        assert_mean(squares, attention.moments(x)[name][:2])
