"""Averages of exact kernels: their shares, their moments, and that they stay what they are."""

import copy
import dataclasses
import json
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import rfgp
from rfgp.choosing import averages, choose, costs, entries, grounds
from rfgp.fitting import Plan
from rfgp.fitting.maximize import Objective
from rfgp.regression import Measurement, begin
from rfgp.regression.table import offers, table_options
from rfgp.rows import Chunk
from rfgp.saving.container import read_file, write_file

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.OverfittingWarning")
NEW = np.random.default_rng(9).uniform(-1, 1, (7, 2))


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, 5 + 2 * np.sin(4 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(n)


@pytest.fixture(scope="module")
def averaged():
    gp = rfgp.TableGP(seed=0).fit(*table())
    assert len(gp.members) >= 3
    return gp


# --- shares --------------------------------------------------------------------------------------------


def objective(weights, densities, counts, prior):
    mixed = np.log(np.exp(densities) @ weights)
    return float(counts @ mixed + prior * np.log(weights).sum())


@pytest.mark.parametrize("seed", range(3))
def test_weights_are_the_likeliest_of_a_mixture_with_a_prior(seed):
    rng = np.random.default_rng(seed)
    densities = rng.normal([0.0, 0.3, -0.2], 1, (50, 3))
    counts = rng.integers(1, 4, 50).astype(float)
    found = averages.stacking_weights([torch.tensor(column) for column in densities.T], torch.tensor(counts))

    def loss(logits):
        weights = np.exp(logits - logits.max())
        return -objective(weights / weights.sum(), densities, counts, averages.PRIOR)

    best = minimize(loss, np.zeros(3), tol=1e-10)
    assert sum(found) == pytest.approx(1)
    assert objective(np.array(found), densities, counts, averages.PRIOR) == pytest.approx(-best.fun, abs=1e-4)
    without = objective(np.full(3, 1 / 3), densities, counts, averages.PRIOR)
    assert -best.fun > without + 0.1  # equal weights would fail


def test_what_would_have_little_has_no_share(monkeypatch):
    monkeypatch.setattr(averages, "LEAST", 0.1)
    good, same = torch.zeros(200), torch.zeros(200) + 0.01 * torch.arange(200).sub(99.5).sign()
    one, two, three = averages.shares([good, same, torch.full((200,), -0.45)], torch.ones(200))
    assert three == 0
    assert one + two == pytest.approx(1)
    mixed = torch.tensor([1.0, -9.0]).repeat(100)  # ahead on half of the rows, and far behind in all
    assert averages.shares([good, mixed], torch.ones(200))[1] > 0.1
    assert averages.shares([good[:20], torch.full((20,), -9.0)], torch.ones(20))[1] > 0.1  # few rows do not tell
    assert averages.shares([good], torch.ones(200)) == [1.0]


def words(member):
    return offers.in_words(table_options(member.family))


def test_the_record_has_the_shares_and_the_largest_is_the_models(averaged):
    choice = averaged.selection
    weights = {words(member): weight for weight, member in averaged.members}
    taken = [trial for number, trial in enumerate(choice.trials) if choice.shares[number]]
    assert [weights[trial.name] for trial in taken] == list(filter(None, choice.shares))
    assert averaged.members[0][0] == max(choice.shares) == choice.shares[choice.best]
    assert "The average of " in choice.reason
    assert choice.chosen.name in repr(choice)
    assert sum("of the average" in line for line in choice.table()) == len(averaged.members)
    own = averaged.members[0][1].hyperparameters
    assert str(own.values) == str(averaged.hyperparameters.values)
    assert "averaged with" in repr(averaged)


def test_several_outputs_other_likelihoods_and_one_kernel_are_not_averaged():
    X, y = table()
    assert rfgp.TableGP(seed=0).fit(X, np.stack([y, y**2], 1)).members == ()
    assert rfgp.TableGP("exact", "gaussian", local=None).fit(X, y).members == ()
    assert rfgp.TableGP(features=None, num_neighbors=5, seed=0).fit(X, y).members == ()
    counts = np.round(np.abs(y))
    assert rfgp.TableGP("exact", likelihood="poisson", local=None, seed=0).fit(X, counts).members == ()


def test_a_small_budget_leaves_fewer(monkeypatch):
    X, y = table(90)
    assert rfgp.TableGP(seed=0, budget=0.05).fit(X, y).members == ()
    monkeypatch.setattr("rfgp.choosing.rounds.FEW", 30)
    monkeypatch.setattr("rfgp.choosing.rounds.SOON", 0.0)
    monkeypatch.setattr("rfgp.choosing.rounds.ANOTHER", 0.0)
    gp = rfgp.TableGP(seed=0).fit(X, y)
    assert len(gp.members) <= 2
    assert any("more than twice the best" in trial.remark for trial in gp.selection.trials)


G, M32, M12, S32, S12 = "gaussian", "matern32", "matern12", "gaussian + matern32", "gaussian + matern12"


@pytest.mark.parametrize(
    ("rows", "ranked", "budget", "going"),
    [
        (900, [G, M32, M12, S32, S12], None, [G, S32]),  # no sum fits in three seconds
        (600, [G, M32, M12, S32, S12], None, [G, M32, M12]),  # one would
        (900, [S32, S12, G, M32, M12], None, [S32, S12]),
        (300, [M32, G, M12, S32, S12], None, [M32, G, M12, S32, S12]),
        (900, [G, M32, M12, S32, S12], 8.0, [G, M32]),  # over the budget, where it would take 5.6 s beside 2.2 and .5
        (1100, [G, M32, M12, S32, S12], None, [G, M32]),  # over eight seconds
    ],
)
def test_a_sum_goes_on_beside_a_kernel_alone_where_none_would_fit(monkeypatch, rows, ranked, budget, going):
    """Densities are said, best first; few rows confuse the two."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (rows, 8))
    made = choose.rounds_of(begin(rfgp.TableGP(seed=0, budget=budget).family, Chunk(X, X[:, 0])), Plan())
    reached = {}

    def measured(ground, options, size, start):
        name = offers.in_words(options).removeprefix("exact ")
        reached[name] = size
        values = torch.full((len(ground.told),), -0.01 * ranked.index(name), dtype=torch.float64)
        found = SimpleNamespace(hyperparameters=SimpleNamespace(standardized=lambda name: torch.tensor(0.1)))
        report = SimpleNamespace(frequencies="fixed")
        return SimpleNamespace(density=values, searched=size, is_whole=False, regression=found, report=report)

    monkeypatch.setattr(grounds.Grounds, "measured", measured)
    made.run()
    assert [name for name in ranked if reached[name] == min(rows, grounds.MOST_LEFT_OUT)] == going


def test_searches_end_where_they_gain_little_and_say_that_they_have_converged(monkeypatch):
    X, y = table()
    evaluated, done = [], Objective.evaluated

    def counted(self, *arguments):
        evaluated.append(1)
        return done(self, *arguments)

    monkeypatch.setattr(Objective, "evaluated", counted)
    gp, taken = rfgp.TableGP(seed=0).fit(X, y), len(evaluated)
    whole = rfgp.TableGP(**gp.selection.chosen.options).fit(X, y)
    assert gp.fit_report.converged
    apart = whole.fit_report.log_marginal_likelihood - gp.fit_report.log_marginal_likelihood
    assert -1e-3 < apart < 3 * grounds.GAIN
    evaluated.clear()
    monkeypatch.setattr(grounds, "GAIN", 0.0)
    rfgp.TableGP(seed=0).fit(X, y)
    assert taken < 0.9 * len(evaluated)


# --- moments -------------------------------------------------------------------------------------------


def moments(laws, weights):
    """Of a mixture, by its definition."""
    means = np.stack([law.mean for law in laws])
    mean = weights @ means
    return mean, sum(
        w * (law.covariance + np.outer(m - mean, m - mean)) for w, m, law in zip(weights, means, laws, strict=True)
    )


def test_the_law_has_the_moments_of_the_mixture(averaged):
    weights, laws = np.array([w for w, _ in averaged.members]), [m.predict(NEW) for _, m in averaged.members]
    mean, covariance = moments(laws, weights)
    law = averaged.predict(NEW)
    np.testing.assert_allclose(law.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(law.covariance, covariance, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(law.variance, np.diag(covariance), rtol=1e-8)
    observed_mean, observed = moments([one.observed() for one in laws], weights)
    np.testing.assert_allclose(law.observed().mean, observed_mean, rtol=1e-10)
    np.testing.assert_allclose(law.observed().covariance, observed, rtol=1e-8, atol=1e-10)
    within = sum(w * one.covariance for w, one in zip(weights, laws, strict=True))
    assert np.abs(covariance - within).max() > 1e-4  # a law that forgets where members disagree would fail
    sums = np.ones((1, 7))
    np.testing.assert_allclose(law.linear(sums).variance, (sums @ covariance @ sums.T)[0], rtol=1e-8)


def parts_of(gp, observed=True):
    laws = [member.predict(NEW) for _, member in gp.members]
    return [w for w, _ in gp.members], [law.observed() if observed else law for law in laws]


@pytest.mark.parametrize("observed", [False, True])
def test_densities_and_probabilities_are_those_of_the_mixture(averaged, observed):
    weights, laws = parts_of(averaged, observed)
    law = averaged.predict(NEW).observed() if observed else averaged.predict(NEW)
    for y in (law.mean, law.mean + 3 * law.std, law.mean - 0.5 * law.std):
        mixed = sum(w * np.exp(one.log_density(y)) for w, one in zip(weights, laws, strict=True))
        np.testing.assert_allclose(law.log_density(y), np.log(mixed), rtol=1e-9)
        below = sum(w * one.cdf(y) for w, one in zip(weights, laws, strict=True))
        np.testing.assert_allclose(law.cdf(y), below, rtol=1e-9)
    assert (law.cdf(5.0) == law.cdf(np.full(7, 5.0))).all()
    normal = -0.5 * (3**2 + np.log(2 * np.pi * law.variance))  # a law that is the normal one would fail
    assert np.abs(law.log_density(law.mean + 3 * law.std) - normal).max() > 0.02
    quantiles = law.quantile([0.01, 0.5, 0.9])
    assert quantiles.shape == (3, 7)
    for p, q in zip([0.01, 0.5, 0.9], quantiles, strict=True):
        np.testing.assert_allclose(law.cdf(q), p, rtol=1e-9)
    np.testing.assert_allclose(law.interval(0.98)[0], quantiles[0], rtol=1e-12)
    assert law.quantile(0.5).shape == (7,)


@pytest.mark.parametrize("observed", [False, True])
def test_draws_are_of_the_mixture_and_joint(averaged, observed):
    law = averaged.predict(NEW).observed() if observed else averaged.predict(NEW)
    draws = law.sample(20_000, seed=0)
    ends = np.stack([law.quantile(p) for p in (0.02, 0.3, 0.7)])
    for p, end in zip((0.02, 0.3, 0.7), ends, strict=True):
        share = (draws <= end).mean(0)
        z = (share - p) / np.sqrt(p * (1 - p) / 20_000)
        assert np.abs(z).max() < 6  # 42 z-scores of binomial shares: a false alarm in 10^7 runs
    centered = (draws - law.mean) @ np.ones(7)
    squares = centered**2
    z = (squares.mean() - np.ones(7) @ law.covariance @ np.ones(7)) / (squares.std() / np.sqrt(20_000))
    assert abs(z) < 6
    assert law.sample(0, seed=0).shape == (0, 7)
    np.testing.assert_array_equal(law.sample(3, seed=1), law.sample(3, seed=1))


def test_functionals_are_mixtures_too_and_exponentials_are_of_the_normal_law(averaged):
    w = np.array([[1.0, -1.0, 0, 0, 0, 0, 0], [1.0] * 7])
    weights, laws = parts_of(averaged)
    law = averaged.predict(NEW).linear(w).observed()
    parts = [one.linear(w) for one in laws]
    y = law.mean + law.std
    mixed = sum(weight * np.exp(one.log_density(y)) for weight, one in zip(weights, parts, strict=True))
    np.testing.assert_allclose(np.exp(law.log_density(y)), mixed, rtol=1e-8)
    np.testing.assert_allclose(law.covariance, w @ averaged.predict(NEW).observed().covariance @ w.T, rtol=1e-8)
    np.testing.assert_allclose(law.linear([1.0, 1.0]).mean, [law.mean.sum()], rtol=1e-9)
    assert law.sample(2, seed=0).shape == (2, 2)
    grown = averaged.predict(NEW).observed().exp()
    normal = averaged.predict(NEW).observed()
    np.testing.assert_allclose(grown.mean, np.exp(normal.mean + normal.variance / 2), rtol=1e-9)
    np.testing.assert_allclose(np.log(grown.median), normal.mean, rtol=1e-9)


def test_quantiles_are_differentiable_in_the_inputs(averaged):
    x = torch.tensor(NEW[:2], requires_grad=True)
    slope = torch.autograd.grad(averaged.predict(x).quantile(0.3).sum(), x)[0]
    step = np.array([[1e-5, 0.0]])
    ends = [averaged.predict(NEW[:2] + sign * step).quantile(0.3) for sign in (1, -1)]
    np.testing.assert_allclose(slope[:, 0], (ends[0] - ends[1]) / 2e-5, rtol=1e-4)


def test_metrics_are_of_the_mixture(averaged):
    law = averaged.predict(NEW)
    y = law.mean + law.observed().std * np.array([-3.0, -1, 0, 0.5, 1, 2, 4])
    assert rfgp.metrics.nlpd(y, law) == pytest.approx(-law.observed().log_density(y).mean())
    observed = law.observed()
    whole = 0.0  # its definition, an integral over t, below y and above
    for end, reached in ((observed.mean - 12 * observed.std, 0), (observed.mean + 12 * observed.std, 1)):
        places = y + np.linspace(0, 1, 1001)[:, None] * (end - y)
        squares = np.array([(observed.cdf(t) - reached) ** 2 for t in places])
        whole += ((squares[1:] + squares[:-1]).mean(0) / 2 * abs(end - y)).mean()
    assert rfgp.metrics.crps(y, law) == pytest.approx(whole, rel=1e-5)
    normal = rfgp.metrics.crps(y, averaged.predict(NEW).exp().log)
    assert abs(normal - whole) > 1e-3 * whole  # that of the normal law would fail
    low, high = law.observed().interval(0.9)
    inside = ((y > low) & (y < high)).mean()
    assert float(rfgp.metrics.interval_coverage(y, law, [0.9])[0]) == inside
    assert np.isfinite(rfgp.metrics.standardized_residuals(y + 1e3, law).numpy()).all()


def test_a_target_of_one_column_is_averaged_drawn_and_saved(averaged, tmp_path):
    X, y = table()
    gp = rfgp.TableGP(seed=0).fit(X, y[:, None])
    np.testing.assert_allclose(gp.predict(NEW).mean[:, 0], averaged.predict(NEW).mean, rtol=1e-9)
    draws = gp.predict(NEW).observed().sample(5, seed=0)
    assert draws.shape == (5, 7, 1)
    assert gp.predict(NEW).quantile([0.1, 0.9]).shape == (2, 7, 1)
    assert gp.predict(NEW).linear(np.ones((2, 7))).sample(3, seed=0).shape == (3, 2, 1)
    gp.save(tmp_path / "model", data=True)
    np.testing.assert_allclose(rfgp.load(tmp_path / "model").predict(NEW).mean, gp.predict(NEW).mean, rtol=1e-12)


def test_where_no_candidate_can_be_fitted_the_error_is_theirs(monkeypatch):
    monkeypatch.setattr("rfgp.choosing.rounds.FEW", 20)
    with pytest.raises(rfgp.InvalidArgumentError, match="nois"):
        rfgp.TableGP(seed=0).fit(*table(), fixed="nois")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda law: law.quantile(1.0), "strictly between"),
        (lambda law: law.log_density([1.0]), "y has shape"),
        (lambda law: law.cdf("a"), "no"),
        (lambda law: law.sample(-1), "num_samples"),
        (lambda law: law.linear([np.nan] * 7), "weights must be finite"),
        (lambda law: law.observed(exposure=2.0), "exposure"),
    ],
)
def test_what_cannot_be_asked_is_named(averaged, call, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        call(averaged.predict(NEW))


def test_rows_left_out_have_the_moments_of_the_mixture(averaged):
    weights, members = zip(*averaged.members, strict=True)
    parts, found = [member.leave_one_out() for member in members], averaged.leave_one_out()
    mean = sum(w * one.mean for w, one in zip(weights, parts, strict=True))
    variance = sum(w * (one.variance + (one.mean - mean) ** 2) for w, one in zip(weights, parts, strict=True))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-7)


def test_the_prior_is_the_mixture_and_the_likelihood_that_of_the_largest_share(averaged):
    kernels = sum(w * member.prior_covariance(NEW).detach() for w, member in averaged.members)
    torch.testing.assert_close(averaged.prior_covariance(NEW).detach(), kernels)
    own = averaged.members[0][1]
    assert float(averaged.log_marginal_likelihood().detach()) == float(own.log_marginal_likelihood().detach())
    averaged.log_marginal_likelihood().backward()
    assert any(raw.grad is not None for raw in averaged.hyperparameters.parameters())


def test_predictions_are_differentiable_in_the_inputs(averaged):
    x = torch.tensor(NEW[:1], requires_grad=True)
    law = averaged.predict(x)
    slope = torch.autograd.grad(law.mean.sum() + law.variance.sum(), x)[0]
    step = np.array([[1e-5, 0.0]])
    ends = [averaged.predict(NEW[:1] + sign * step) for sign in (1, -1)]
    change = sum(sign * (end.mean[0] + end.variance[0]) for sign, end in zip((1, -1), ends, strict=True)) / 2e-5
    assert float(slope[0, 0]) == pytest.approx(change, rel=1e-4)


# --- it stays what it is -------------------------------------------------------------------------------


def same(one, other):
    np.testing.assert_allclose(one.predict(NEW).mean, other.predict(NEW).mean, rtol=1e-12)
    np.testing.assert_allclose(one.predict(NEW).variance, other.predict(NEW).variance, rtol=1e-9)


def test_new_rows_are_told_to_all(averaged):
    more = copy.deepcopy(averaged)
    more.update(NEW[:3], [5.0, 6.0, 7.0])
    members = [(w, member.update(NEW[:3], [5.0, 6.0, 7.0])) for w, member in averaged.members]
    expected = sum(w * member.predict(NEW).mean for w, member in members)
    np.testing.assert_allclose(more.predict(NEW).mean, expected, rtol=1e-9)
    assert more.num_observations == 63
    assert averaged.num_observations == 60
    other = copy.deepcopy(averaged).condition(*table(40, seed=1))
    assert len(other.members) == len(averaged.members)
    assert other.num_observations == 40


def test_it_is_its_own_exact_process_and_another_fit_chooses_anew(averaged, tmp_path):
    exact = averaged.exact()
    same(exact, averaged)
    assert len(exact.members) == len(averaged.members)
    assert "averaged with" in repr(exact)
    exact.save(tmp_path / "exact", data=True)
    same(rfgp.load(tmp_path / "exact"), averaged)
    X, y = table()
    alone = exact.fit(X, y)
    assert float(alone.log_marginal_likelihood().detach()) > averaged.fit_report.log_marginal_likelihood - 1e-3
    assert np.abs(alone.predict(NEW).mean - averaged.predict(NEW).mean).max() > 1e-6


def test_hyperparameters_that_are_set_are_those_of_the_largest_share(averaged):
    changed = copy.deepcopy(averaged)
    changed.hyperparameters.noise = 2.0
    weights = [w for w, _ in averaged.members]
    before, after = (gp.predict(NEW).observed().variance - gp.predict(NEW).variance for gp in (averaged, changed))
    own = float(averaged.hyperparameters.noise)
    np.testing.assert_allclose(after - before, weights[0] * (2.0 - own), rtol=1e-6)


def test_files_and_pickles_keep_all(averaged, tmp_path):
    averaged.save(tmp_path / "model", data=True)
    loaded = rfgp.load(tmp_path / "model")
    same(loaded, averaged)
    same(pickle.loads(pickle.dumps(averaged)), averaged)
    assert [w for w, _ in loaded.members] == [w for w, _ in averaged.members]
    assert loaded.selection == averaged.selection
    assert str(loaded) == str(averaged)
    same(loaded.update(NEW[:1], [5.0]), copy.deepcopy(averaged).update(NEW[:1], [5.0]))


def wrong(header, tensors, what):
    average = header["options"]["average"]
    if what == "weights":
        average["weight"] += 0.1
    if what == "negative":
        average["members"][0]["weight"] *= -1
    if what == "nobody":
        average["members"] = []
    if what == "one less":
        average["members"].pop()
    if what == "kernel":
        average["members"][0]["options"]["resolved"]["terms"] = []
    if what == "no factor":
        tensors = {name: t for name, t in tensors.items() if name != "predictor.1.factor"}
    if what == "flat factor":
        tensors["predictor.1.factor"] = torch.zeros_like(tensors["predictor.1.factor"])
    if what == "lengthscale":
        name = next(name for name in tensors if name.startswith("members.0.") and "lengthscale" in name)
        tensors[name] = torch.zeros(5)
    if what == "shares":
        header["choice"]["shares"] = [1.0, 1.0]
    return header, tensors


@pytest.mark.parametrize(
    "what",
    ["weights", "negative", "nobody", "one less", "kernel", "no factor", "flat factor", "lengthscale", "shares"],
)
def test_planted_a_file_that_does_not_fit_together_is_refused(averaged, tmp_path, what):
    averaged.save(tmp_path / "model", data=True)
    header, tensors = read_file(tmp_path / "model")
    write_file(tmp_path / "wrong", *wrong(json.loads(json.dumps(header)), dict(tensors), what))
    with pytest.raises(rfgp.ModelFileError):
        rfgp.load(tmp_path / "wrong")


def test_planted_a_law_without_what_members_disagree_on_fails(averaged, monkeypatch):
    monkeypatch.setattr(
        "rfgp.inference.mixture.mixture_moments",
        lambda weights, means, variances: (
            sum(w * m for w, m in zip(weights, means, strict=True)),
            sum(w * v for w, v in zip(weights, variances, strict=True)),
        ),
    )
    with pytest.raises(AssertionError):
        test_the_law_has_the_moments_of_the_mixture(averaged)


def test_functions_cannot_be_drawn(averaged):
    with pytest.raises(rfgp.InvalidArgumentError, match="average of exact processes has no functions"):
        averaged.sample_functions(2, seed=0)


def test_a_fit_that_was_killed_while_it_chose_goes_on(tmp_path, monkeypatch):
    X, y = table()
    whole = rfgp.TableGP(seed=0).fit(X, y)
    evaluated, done = [], Objective.evaluated

    def counted(self, *arguments):
        evaluated.append(1)
        return done(self, *arguments)

    def kill(iteration, value):
        if len(evaluated) >= 40:
            raise KeyboardInterrupt

    monkeypatch.setattr(Objective, "evaluated", counted)
    with pytest.raises(KeyboardInterrupt):
        rfgp.TableGP(seed=0).fit(X, y, checkpoint=tmp_path / "c", callback=kill)
    before = len(evaluated)
    again = rfgp.TableGP(seed=0).fit(X, y, checkpoint=tmp_path / "c")
    after = len(evaluated) - before
    rfgp.TableGP(seed=0).fit(X, y)
    assert len(evaluated) - before - after > after + 35  # what was computed was read; the first is compared
    assert again.selection == whole.selection
    np.testing.assert_array_equal(again.predict(NEW).mean, whole.predict(NEW).mean)


def test_where_no_part_has_noise_one_that_has_holds_the_tails():
    def entry(noise, value):
        made = entries.Entry(None, costs.Cost(1.0, 0.0), 0.0)
        values = SimpleNamespace(standardized=lambda name: torch.tensor(noise))
        made.found = SimpleNamespace(regression=SimpleNamespace(hyperparameters=values))
        made.measured = [Measurement(10, value, 1.0, 0.0, 0.0)]
        return made

    rough, other, loud, likelier = entry(1e-9, 3.0), entry(1e-8, 2.0), entry(0.5, -1.0), entry(0.2, 0.0)
    every = [rough, other, loud, likelier]
    parts = averages.with_tails([(rough, 0.75), (other, 0.25)], every)
    assert [each for each, _ in parts] == [rough, other, likelier]
    assert [share for _, share in parts] == pytest.approx([0.7425, 0.2475, 0.01])
    assert averages.with_tails([(rough, 0.5), (loud, 0.5)], every) == [(rough, 0.5), (loud, 0.5)]
    assert averages.with_tails([(rough, 1.0)], [rough, other]) == [(rough, 1.0)]


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
def test_a_twin_that_contradicts_a_row_costs_an_average_little(monkeypatch):
    """Rows without twins look free of noise to rough kernels; the fourth row comes again with another value."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 1))
    y = np.sign(np.sin(20 * X[:, 0]))

    def quiet(self, options, size, start):
        found = measured(self, options, size, start)
        if options.spectrum == rfgp.spectra.Gaussian() and not options.has_both:
            return found
        with torch.no_grad():
            found.regression.hyperparameters.raw["noise"].fill_(-30.0)
        return dataclasses.replace(found, density=found.density + 9)

    measured = grounds.Grounds.measured
    monkeypatch.setattr(grounds.Grounds, "measured", quiet)
    monkeypatch.setattr(averages, "PRIOR", 0.01)  # of five rows, which hold the tails of sixty by themselves
    gp = rfgp.TableGP(seed=0).fit(X, y)
    assert min(share for share, _ in gp.members) == pytest.approx(averages.TAILS)
    assert float(gp.predict(X[3:4]).observed().log_density(-y[3:4])[0]) > -20
