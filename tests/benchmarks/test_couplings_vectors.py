"""The closed forms of Reid et al.'s (2024) tables on vectors, against dense and independent ones."""

import numpy as np
import pytest
import torch
from checks import assert_mean
from scipy import special, stats

from benchmarks import protocol, record
from benchmarks.papers.couplings.vectors import attention, climb, ensembles, estimates, folds, growth, splits, tables
from benchmarks.record import Value
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
    found = estimates.draw_errors(case, estimates.Exact.of(case), draws, kind).numpy()
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
        expected = [error, protocol.kl(exact, drawn), missed]
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


def pairs_of(are_opposed):
    """Return the rows (1000, 6, 3) of draws, and the lengths (1000, 6) of rows and of their opposites."""
    coupling = ensembles.OppositePairs(are_opposed)
    rows = np.array([coupling.sample(6, 3, seed=seed).dense().numpy() for seed in range(1000)])
    lengths = np.linalg.norm(rows, axis=2)
    units = rows / lengths[:, :, None]
    cosines = units @ units.transpose(0, 2, 1)
    np.testing.assert_allclose(np.sort(cosines, axis=2)[:, :, 0], -1, atol=1e-12)
    return rows, lengths, np.take_along_axis(lengths, cosines.argmin(2), axis=1)


def test_opposite_pairs_have_independent_norms():
    rows, lengths, partner = pairs_of(are_opposed=False)
    assert_mean(np.exp(rows @ np.array([0.3, -0.2, 0.4])).mean(1), np.exp(0.29 / 2))
    centred = (lengths - lengths.mean()) * (partner - lengths.mean())
    assert_mean(centred[:, 0], 0.0)


def test_opposed_norms_are_negatively_monotone():
    rows, lengths, partner = pairs_of(are_opposed=True)
    assert_mean(np.exp(rows @ np.array([0.3, -0.2, 0.4])).mean(1), np.exp(0.29 / 2))
    chi = stats.chi(3)
    np.testing.assert_allclose(chi.cdf(lengths) + chi.cdf(partner), 1, atol=1e-9)


def test_rotated_halton_points_are_shifted_ones_turned():
    for seed in range(3):
        rows = ensembles.Rotated().sample(5, 3, generator=random.generator(seed)).dense()
        shifted = couplings.Halton("shifted").sample(5, 3, generator=random.generator(seed)).dense()
        np.testing.assert_allclose(torch.linalg.svdvals(rows), torch.linalg.svdvals(shifted), rtol=1e-9)
        assert abs(rows[:, 0].sort().values - shifted[:, 0].sort().values).max() > 0.1


class TestAuthorsFolds:
    @pytest.mark.parametrize("name", splits.TABLES)
    def test_folds_are_disjoint_and_have_all_but_the_last_rows(self, name):
        X, y = folds.rows_of(name)
        size = 208 if name == "machine" else 506 if name == "housing" else 512
        assert len(X) == len(y) == size
        held = np.concatenate([folds.parts(size, fold)[0] for fold in range(folds.FOLDS)])
        assert len(np.unique(held)) == len(held) == 20 * (size // 20)
        for fold in (0, 7, 19):
            test, others = folds.parts(size, fold)
            np.testing.assert_array_equal(np.sort(np.concatenate([test, others])), np.arange(size))

    def test_folds_11_to_19_train_on_the_same_rows(self):
        train = [folds.parts(512, fold)[1][:256].tolist() for fold in range(20)]
        assert all(rows == train[11] for rows in train[11:])
        assert train[10] != train[11]

    def test_rows_are_those_of_the_sources(self):
        assert folds.order(512, folds.AUTHORS)[:3].tolist() == [279, 75, 177]
        firsts = {"abalone": 7.0, "machine": 269.0, "airfoil": 126.201, "power-plant": 463.26}
        assert {name: folds.rows_of(name)[1][0] for name in firsts} == firsts
        assert {name: folds.rows_of(name)[0].shape[1] for name in splits.TABLES} == {
            "concrete": 8,
            "abalone": 7,
            "machine": 7,
            "power-plant": 4,
            "airfoil": 5,
            "housing": 13,
        }

    def test_columns_and_targets_are_standardised_outside_the_fold(self):
        case = folds.case("power-plant", "laplace", 3)
        X, y = folds.rows_of("power-plant")
        test, others = folds.parts(512, 3)
        expected = (X[test] - X[others].mean(0)) / X[others].std(0) / case.fit.lengthscale
        np.testing.assert_allclose(case.test.numpy(), expected, rtol=1e-12)
        np.testing.assert_allclose(case.truth.numpy() * case.scale + y[others].mean(), y[test], rtol=1e-12)
        rows = case.train.numpy() * case.fit.lengthscale
        distances = [np.linalg.norm(rows - row, axis=1) for row in rows]
        assert case.fit.lengthscale == pytest.approx(2 * np.mean(distances), rel=1e-12)


class TestAdam:
    def problem(self):
        rng = np.random.default_rng(5)
        x, y = rng.standard_normal((20, 2)), rng.standard_normal(20)
        return ((x[:, None] - x) ** 2).sum(2), y

    def test_slopes_are_those_of_the_dense_likelihood(self):
        squares, y = self.problem()
        place = np.log([1.3, 0.8, 0.4])

        def value(place):
            length, signal, noise = np.exp(place)
            law = stats.multivariate_normal(
                np.zeros(20), signal**2 * np.exp(-squares / (2 * length**2)) + noise**2 * np.eye(20)
            )
            return -law.logpdf(y)

        found, slopes = climb.slopes(squares, y, place)
        assert found == pytest.approx(value(place), rel=1e-10)
        steps = 1e-6 * np.eye(3)
        np.testing.assert_allclose(slopes, [(value(place + s) - value(place - s)) / 2e-6 for s in steps], rtol=1e-5)

    def test_scales_climb_as_torch_does(self):
        squares, y = self.problem()
        gram, target = torch.as_tensor(np.exp(-squares / (2 * 1.3**2))), torch.as_tensor(y)
        logs = torch.log(torch.tensor([1.0, 0.1], dtype=torch.float64)).requires_grad_()
        adam = torch.optim.Adam([logs], lr=climb.RATE, eps=1e-7)
        for _ in range(climb.STEPS):
            signal, noise = torch.exp(2 * logs)
            covariance = signal * gram + noise * torch.eye(20, dtype=torch.float64)
            law = torch.distributions.MultivariateNormal(torch.zeros(20, dtype=torch.float64), covariance)
            adam.zero_grad()
            (-law.log_prob(target) / 20).backward()
            adam.step()
        fit = climb.climb_scales(squares, y, 1.3)
        signal, noise = np.exp(2 * logs.detach().numpy())
        assert (fit.signal, fit.noise * fit.signal) == pytest.approx((signal, noise), rel=1e-4)


def test_errors_of_figures_are_those_of_draws():
    rng = np.random.default_rng(6)
    table = tables.TABLE_1
    ratios, errors = [], []
    for _ in range(400):
        found = {}
        for name, mean in (("i.i.d.", 1.0), ("PNC", 2.0)):
            draws = mean + rng.standard_normal((5, 30, 3)) / 3
            found[name] = np.stack([draws.mean(1), draws.var(1, ddof=1) / 30], 1)
        ratio, error = tables.by_draws(table, found, "PNC")
        ratios.append(ratio)
        errors.append(error)
    assert np.mean(ratios) == pytest.approx(2, abs=0.02)
    assert np.mean(errors) == pytest.approx(np.std(ratios), rel=0.12)


def test_figures_are_near_up_to_one_printed_error_and_rounding():
    near = [Value("a", ours, 0.0, "0.004", 0.001) for ours in (0.0026, 0.0054, 0.0024, 0.0056)]
    assert [tables.is_near(value) for value in near] == [True, True, False, False]


@pytest.mark.parametrize(("table", "least"), [("table-1", 35), ("table-3", 45), ("table-4", 36)])
def test_results_agree_with_the_printed_figures(table, least):
    """The counts that the result files state are those of their figures."""
    values = record.values_of(record.read()[f"couplings/{table}"])
    apart = ("over folds", "other permutations")
    figures = [v for v in values if v.comparable and v.printed and not v.name.endswith(apart)]
    name = f"figures of {len(figures)} within one printed standard error"
    assert sum(map(tables.is_near, figures)) == next(v.ours for v in values if v.name == name) >= least


def test_true_pnc_is_better_than_printed_but_on_machine():
    values = record.values_of(record.read()["couplings/table-1"])
    own = [v for v in values if v.name.endswith("RLF, PNC + antithetic")]
    assert len(own) == 6
    assert all(v.ours + 2 * v.error < float(v.printed) for v in own if not v.name.startswith("machine"))


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
