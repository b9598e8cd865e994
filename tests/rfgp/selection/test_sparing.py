"""What a choice does not do twice: starts that are known, frequencies that are learned, rows that say nothing more."""

import dataclasses

import numpy as np
import pytest
import torch

import rfgp
from rfgp.choosing import choose, costs, grounds
from rfgp.fitting import Plan, fit_terms, neighbors
from rfgp.regression import begin
from rfgp.regression.table import offers, table_options
from rfgp.rows import Chunk
from rfgp.solvers.whitened import blocked

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning", "ignore::rfgp.RfgpWarning")


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, np.sin(6 * X[:, 0]) * np.cos(4 * X[:, 1]) + 0.1 * rng.standard_normal(n)


def ground_of(X, y):
    """Return grounds of a table, and the options of the candidates by name."""
    gp = rfgp.TableGP(seed=0, num_neighbors=8)
    ground = grounds.Grounds.of(begin(gp.family, Chunk(X, y)), Plan(given_iterations=8), keeps_out=True)
    return ground, {offers.in_words(offer.options): offer.options for offer in gp.options.menu(len(X))}


@pytest.mark.parametrize("rows", [3_000, 20_000, 10**6])
def test_measuring_features_is_predicted_to_cost_no_more_than_a_fit_to_all_rows(rows):
    """It sees fewer rows; what was predicted of 32,000 was twice of what is of more, where 8,000 are searched on."""
    for offer in rfgp.TableGP(features="fourier", local=None).options.menu(rows):
        fit = costs.fit_cost(offer.options, rows, 8)
        for seen in (1_000, min(rows, 32_000)):
            told = costs.posterior_operations(offer.options, rows, 8)
            assert costs.search_operations(offer.options, seen, 8, rows) + told <= fit.operations


@pytest.mark.parametrize(("share", "is_kept"), [(0.8, True), (0.81, False)])
def test_frequencies_that_were_learned_from_most_rows_are_told_all(monkeypatch, share, is_kept):
    """Four fifths of 300 are 240; what is reported is of all rows."""
    original, fit, fits = grounds.Grounds.measured, choose.fit_terms, []

    def measured(self, options, size, start):
        found = original(self, options, size, start)
        return dataclasses.replace(found, density=found.density + (9.0 if options.frequencies == "learned" else 0.0))

    monkeypatch.setattr(grounds, "MOST", share)
    monkeypatch.setattr(grounds.Grounds, "measured", measured)
    monkeypatch.setattr(choose, "fit_terms", lambda begun, plan: fits.append(plan) or fit(begun, plan))
    X, y = table(300)
    gp = rfgp.TableGP(features="fourier", num_frequencies=4, local=None, seed=0).fit(X, y, max_iterations=20)
    assert gp.selection.chosen.options["frequencies"] == "learned"
    assert [plan.has_rivals for plan in fits] == ([] if is_kept else [True])
    assert gp.num_observations == 300
    assert ("told all" in gp.fit_report.message) == is_kept
    likelihood = float(gp.log_marginal_likelihood())
    assert gp.fit_report.log_marginal_likelihood == pytest.approx(likelihood, abs=1e-6)
    with torch.no_grad():
        noise, values = float(gp.hyperparameters.noise), np.linalg.eigvalsh(np.asarray(gp.prior_covariance(X)))
    used = np.sum(values / (values + noise)) / 8  # a cosine and a sine of each
    assert gp.fit_report.weights_used == pytest.approx(used, rel=1e-5)
    before = np.asarray(gp.predict(X[:5]).mean)
    np.testing.assert_allclose(np.asarray(gp.condition(X, y).predict(X[:5]).mean), before, atol=1e-8)


@pytest.mark.parametrize("has_rivals", [False, True])
def test_fixed_frequencies_are_not_fitted_to_the_end_beside_a_candidate_that_has_them(has_rivals):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 30))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(600)
    gp = rfgp.SparseSpectrumGP(num_frequencies=24, seed=0, learn_frequencies=True)  # more numbers than rows
    _, report = fit_terms(begin(gp.family, Chunk(X, y)), Plan(given_iterations=20, has_rivals=has_rivals))
    assert any(stage.name.startswith("all rows") for stage in report.stages) != has_rivals


@pytest.mark.parametrize("beside", ["", "128 fixed frequencies + "])
def test_a_local_process_begins_where_another_ended(beside):
    """Its own kernel, the draw of the features beside it, and the hyperparameters that were found."""
    ground, options = ground_of(*table(200))
    one, other = (options[f"{beside}{kernel} neighbours"] for kernel in ("matern32", "matern12"))
    found = ground.measured(one, 100, None)
    begun = grounds.start_of(ground.begun, other, ground.rows, found)
    assert table_options(begun.family).local == other.local
    values = begun.hyperparameters, found.regression.hyperparameters
    if beside:
        families = begun.family, found.regression.family
        drawn = [each.prior(values[1]).dense.scaled(ground.rows.inputs) for each in families]
        assert torch.equal(*drawn)
    assert values[0].raw.keys() == values[1].raw.keys()
    assert all(torch.equal(values[0].raw[name], values[1].raw[name]) for name in values[1].raw)
    assert ground.plan_of(other, found).is_begun


def test_other_features_begin_anew():
    """Neighbours alone are of their head's kind; inducing points with what they leave are not."""
    made = choose.rounds_of(begin(rfgp.TableGP(seed=0).family, Chunk(*table(2100))), Plan())
    named = {offers.in_words(entry.offer.options): entry for entry in made.entries}
    named["matern32 neighbours"].found = "it"
    for name, found in (("matern12 neighbours", "it"), ("512 inducing points, matern32 + residual neighbours", None)):
        assert named[name].found_of(named["matern32 neighbours"]) is found


def test_a_variant_on_all_rows_is_fitted_as_it_would_be_alone():
    X, y = table(100)
    ground = grounds.Grounds.of(begin(rfgp.TableGP(features=None, seed=0).family, Chunk(X, y)), Plan(), keeps_out=False)
    one, other = (rfgp.TableGP(features=None, local=kernel, seed=0) for kernel in ("matern32", "matern12"))
    found = ground.measured(other.options, 100, ground.measured(one.options, 100, None))
    assert found.is_whole
    assert found.report.trace == other.fit(X, y).fit_report.trace


@pytest.mark.parametrize(
    ("given", "anew"),
    [
        ({"features": None}, {"matern32 neighbours"}),
        (
            {"num_frequencies": 4, "local": "auto"},
            {"4 fixed frequencies + matern32 neighbours", "4 learned frequencies + matern32 neighbours"},
        ),
    ],
)
def test_variants_with_another_local_process_begin_there(monkeypatch, given, anew):
    """But not those with other features, learned ones and inducing points."""
    original, starts = grounds.Grounds.measured, {}

    def measured(self, options, size, start):
        starts.setdefault(offers.in_words(options), start if grounds.is_warm(options, start) else None)
        return original(self, options, size, start)

    monkeypatch.setattr(grounds.Grounds, "measured", measured)
    rfgp.TableGP(seed=0, num_neighbors=8, **given).fit(*table(150), max_iterations=4)
    assert {name for name, start in starts.items() if start is None and "neighbours" in name} == anew
    assert len([name for name in starts if "neighbours" in name]) == 3


@pytest.mark.parametrize(
    ("given", "most", "goes_on"),
    [({"features": None}, 40, True), ({"features": None}, None, False), ({"num_frequencies": 4}, 40, False)],
)
def test_more_rows_are_searched_on_from_where_fewer_ended(given, most, goes_on):
    """To measure a local process alone; beside features there are other optima, and a last fit is its own."""
    gp = rfgp.TableGP(local="matern32", frequencies="fixed", seed=0, **given)
    fit = neighbors.NeighborFit.of(begin(gp.family, Chunk(*table(200))), Plan(most_rows=most))
    start = fit.regression.hyperparameters
    ended = start.shifted(noise=1.0)
    wider = fit.with_more(ended)
    assert wider.most == 2 * fit.most
    assert (wider.regression.hyperparameters is ended) == goes_on
    assert (wider.regression.hyperparameters is start) != goes_on


@pytest.mark.parametrize("has_twins", [False, True])
def test_of_very_many_rows_some_say_whether_fewer_mislead(monkeypatch, has_twins):
    """As all of them say."""
    X, _ = table(1200)
    y = np.sin(2 * X[:, 0])
    if has_twins:
        X[1::2] = X[::2] + 1e-7
        y[1::2] += np.random.default_rng(1).standard_normal(600)
    gp = rfgp.TableGP(features=None, local="matern52", num_neighbors=8, seed=0)
    fit = neighbors.NeighborFit.of(begin(gp.family, Chunk(X, y)), Plan(most_rows=20))
    values = fit.regression.hyperparameters
    values = values.replaced({"noise": values.space.quantities["noise"].bounds[0].log()})
    values, report = fit.search(values, "")
    values = values.replaced({"noise": values.space.quantities["noise"].bounds[0].log()}) if has_twins else values
    said = [fit.has_missed(values, report)]
    monkeypatch.setattr(neighbors, "MOST_CHECKED", 1000)
    monkeypatch.setattr(neighbors, "MOST_ROWS", 300)
    assert [*said, fit.has_missed(values, report)] == [has_twins] * 2
    last, sizes = neighbors.NeighborFit.of(fit.regression, Plan()), []
    monkeypatch.setattr(blocked, "is_large", lambda prior, count: sizes.append(count) or False)
    monkeypatch.setattr(neighbors, "MOST_ROWS", 20)
    dataclasses.replace(last, most=20).has_missed(values, report)
    assert sizes == [1200]  # before a last fit all of them are asked


def test_of_very_many_rows_a_local_process_is_given_those_around_the_judged(monkeypatch):
    """As likely so as given all of 1,960; planted, those near by columns that say nothing, or too few, tell less."""
    rng, (X, y) = np.random.default_rng(1), table(2000)
    monkeypatch.setattr(grounds, "KEPT_OUT", (0.2, 40))
    ground, options = ground_of(np.column_stack([X, rng.uniform(-1, 1, (2000, 3))]), y)
    near = options["matern32 neighbours"]
    every = ground.measured(near, 200, None).density
    assert ground.num_given(near, 200) == 1960
    monkeypatch.setattr(grounds, "MOST_GIVEN", 1000)
    counts, likely, original = [], [], grounds.nearest
    planted = {
        "none": original,
        "columns": lambda rows, judged, count: original(rows / rows.std(0), judged / rows.std(0), count),
        "few": lambda rows, judged, count: original(rows, judged, 1),
    }
    for fault in planted:
        monkeypatch.setattr(
            grounds, "nearest", lambda *given, fault=fault: counts.append(given[2]) or planted[fault](*given)
        )
        likely.append(ground.measured(near, 200, None).density)
    assert counts == [2 * 8] * 3
    assert ground.num_given(near, 200) == 2 * 8 * 40
    far = [float((each - every).abs().mean()) for each in likely]
    assert far[0] < 0.01
    assert min(far[1:]) > 0.1
    ground.measured(rfgp.SparseSpectrumGP(num_frequencies=8, seed=0).options, 200, None)
    assert len(counts) == 3


def test_measuring_is_predicted_of_the_rows_that_are_given(monkeypatch):
    made = choose.rounds_of(begin(rfgp.TableGP(seed=0).family, Chunk(*table(2100))), Plan())
    near = next(each for each in made.entries if offers.in_words(each.offer.options) == "matern32 neighbours")
    exact = rfgp.TableGP("exact", "gaussian", local=None).options
    predicted = []
    monkeypatch.setattr(grounds.Grounds, "measured", lambda *given: "not today")
    for most, around in ((2**17, 0), (1000, 2), (1000, 0)):
        monkeypatch.setattr(grounds, "MOST_GIVEN", most)
        monkeypatch.setattr(grounds, "AROUND", around)
        made.predicted, near.remark = 0.0, ""
        made.measure([near], 200, 0.0)
        predicted.append(made.predicted)
    assert predicted[0] == predicted[1] > predicted[2]
    assert made.grounds.num_given(exact, 200) == 1680
    monkeypatch.setattr(grounds, "MOST_EXACT", 300)
    assert made.grounds.num_given(exact, 200) == 300


@pytest.mark.parametrize(
    ("given", "rows", "columns", "seconds"),
    [
        ({"num_frequencies": 128}, 6889, 4, 14.3),
        ({"num_frequencies": 128}, 10756, 18, 14.6),
        ({"num_frequencies": 128}, 30768, 20, 16.3),
        ({"num_frequencies": 64}, 10756, 18, 5.4),
    ],
)
def test_learning_is_predicted_to_take_what_it_took(given, rows, columns, seconds):
    """Of a core at 2 10^10 operations a second: power-plant, elevators and keggdirected."""
    options = rfgp.SparseSpectrumGP(learn_frequencies=True, seed=0, **given).options
    assert 0.6 < costs.search_operations(options, rows, columns, rows) / 2e10 / seconds < 1.6


def test_learned_frequencies_have_a_rival_where_fixed_ones_are_a_candidate():
    for given, has_rivals in (({}, True), ({"frequencies": "learned"}, False)):
        gp = rfgp.TableGP(features="fourier", local=None, seed=0, **given)
        made = choose.rounds_of(begin(gp.family, Chunk(*table(300))), Plan())
        assert made.grounds.plan.has_rivals == has_rivals
        assert len(made.entries) > 1


def test_frequencies_beside_neighbours_are_fitted_to_all_rows():
    for near, is_told in ((None, True), ("matern32", False)):
        options = rfgp.TableGP(num_frequencies=4, frequencies="learned", local=near, seed=0).options
        assert grounds.is_told_all(options, 240, 300) == is_told
        assert not grounds.is_told_all(options, 209, 300)
