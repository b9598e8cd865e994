"""Studies: splits, scores, baselines and comparisons against their definitions."""

import dataclasses
import json

import checks
import networkx
import numpy as np
import pytest
from refusals import refused
from scipy import stats
from studies import ball, small_table, town

import rfgp
from rfgp import fields, report
from rfgp import kernels as k
from rfgp.report.holdout import split
from rfgp.tables import Table

pytestmark = [
    pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning"),
    pytest.mark.filterwarnings("ignore::graphs.GraphWarning"),
]


def small_gp(**options):
    return rfgp.SparseSpectrumGP(**{"num_frequencies": 24, "seed": 0, **options})


def studied(table, gp=None, **options):
    return report.study_table(table, gp or small_gp(), **{"compare": False, **options})


# --- splits ------------------------------------------------------------------------------------------------------

RAMP = np.repeat(np.arange(59), np.arange(1, 60))
"""Groups of 1 to 59 rows."""


def test_small_groups_have_one_probability_of_being_held_out():
    """Of 1,770 rows 177 are wanted; groups of at most a quarter of these are drawn."""
    parts = [split(len(RAMP), 0.1, seed, RAMP)[1] for seed in range(1500)]
    counts = np.stack([np.bincount(RAMP[test], minlength=59) for test in parts])
    drawn = np.arange(1, 60) <= 44
    assert (counts[:, ~drawn] == 0).all()
    checks.assert_mean(counts[:, drawn] > 0, np.full(44, 177 / np.arange(1, 45).sum()))
    checks.assert_mean(np.array([[len(test)] for test in parts]), np.array([177.0]))
    assert max(abs(len(test) - 177) for test in parts) <= 44


def test_large_groups_are_drawn_if_others_have_too_few_rows():
    groups = np.concatenate([np.arange(20), np.repeat([20, 21], 60)])
    held = [np.bincount(groups[split(140, 0.2, seed, groups)[1]], minlength=22) > 0 for seed in range(1500)]
    checks.assert_mean(np.stack(held), np.full(22, 28 / 140))


@pytest.mark.parametrize(("number", "least"), [(3, 1), (4, 2), (10, 2)])
def test_few_groups_leave_two_in_either_part_if_possible(number, least):
    for seed in range(20):
        train, test = split(100, 0.05, seed, np.arange(100) % number)
        assert len(set(test % number)) == least
        assert len(set(train % number)) >= 2


def test_rows_of_a_group_and_copies_of_a_row_stay_together():
    table, at = small_table(), np.arange(150) // 5
    study = studied(table, groups=np.array([f"station {i}" for i in at]), test_share=0.2)
    assert sorted([*study.train, *study.test]) == list(range(150))
    assert not set(at[study.train]) & set(at[study.test])
    assert (study.num_groups, len(study.test), round(study.num_independent, 6)) == (6, 30, 6)
    X, y = table.X.copy(), table.y.copy()
    X[50:60], y[50:60] = X[:10], y[:10]
    study = studied(Table(X, y, table.columns, "y"), test_share=0.4)
    assert study.num_repeated == 10
    assert all((i in study.test) == (i + 50 in study.test) for i in range(10))
    uneven = studied(small_table(), groups=np.minimum(np.arange(150) // 3, 40), test_share=0.3)
    sizes = np.unique(np.minimum(uneven.test // 3, 40), return_counts=True)[1]
    assert uneven.num_independent == pytest.approx(sizes.sum() ** 2 / (sizes**2).sum())


def test_the_last_rows_are_held_out_in_their_order():
    study = studied(small_table(), holdout="last", test_share=0.2)
    assert study.test.tolist() == list(range(120, 150))
    assert study.train.tolist() != sorted(study.train)  # a fit takes the first of them


@pytest.mark.slow
def test_observations_of_a_node_and_of_a_group_stay_together():
    field = town()
    nodes, values = np.r_[field.nodes, field.nodes[:7]], np.r_[field.values, field.values[:7]]
    field = dataclasses.replace(field, nodes=nodes, values=values)
    gp = rfgp.GraphGP(field.graph, features="exact", seed=0)
    study = report.study_field(field, gp, test_share=0.2, compare=False)
    at = field.graph.index(field.nodes)
    assert not set(at[study.train]) & set(at[study.test])
    assert study.num_repeated == 7
    groups = np.arange(len(values)) // 4
    grouped = dataclasses.replace(field, groups=groups, group_name="company")
    study = report.study_field(grouped, gp, test_share=0.2, compare=False)
    assert not set(groups[study.train]) & set(groups[study.test])
    assert not set(at[study.train]) & set(at[study.test])


BAD_CALLS = [
    ({"test_share": 1.0}, rfgp.InvalidArgumentError, "between 0 and 1"),
    ({"fit_rows": 1}, rfgp.InvalidArgumentError, "fit_rows"),
    ({"holdout": "first"}, rfgp.InvalidArgumentError, "holdout"),
    ({"groups": np.arange(5)}, rfgp.InvalidArgumentError, "groups"),
    ({"groups": np.arange(150), "holdout": "last"}, rfgp.InvalidArgumentError, "groups"),
    ({"groups": np.arange(150) % 2}, rfgp.DataError, "2 groups"),
]


@pytest.mark.parametrize(("options", "error", "word"), BAD_CALLS)
def test_bad_calls_are_named(options, error, word):
    refused(lambda: studied(small_table(), **options), error, word)


def test_too_few_rows_are_named():
    refused(lambda: studied(small_table(7)), rfgp.DataError, "at least 8")


# --- scores and baselines ----------------------------------------------------------------------------------------


def test_scores_match_their_definitions():
    table = small_table()
    study = studied(table, fit_rows=60, test_share=0.2)
    y, law = table.y[study.test], study.model.predict(table.X[study.test])
    sd = np.sqrt(law.observed().variance)
    assert study.rmse == pytest.approx(np.sqrt(np.mean((y - law.mean) ** 2)))
    assert study.r_squared == pytest.approx(1 - np.sum((y - law.mean) ** 2) / np.sum((y - y.mean()) ** 2))
    assert study.coverage == pytest.approx((np.abs(y - law.mean) <= 1.959964 * sd).mean())
    values = stats.norm.logpdf(y, law.mean, sd)
    assert study.log_density == pytest.approx((values.mean(), values.std() / np.sqrt(30)))
    assert study.target_std == pytest.approx(table.y[study.train].std(), rel=0.02)
    summary = json.loads(json.dumps(study.summary(), allow_nan=False))
    assert (summary["rmse"], summary["train"], summary["test"]) == (pytest.approx(study.rmse), 120, 30)
    assert summary["baselines"] == {rule.name: pytest.approx(rule.rmse) for rule in study.baselines}


@pytest.mark.slow
def test_hyperparameters_are_fitted_to_a_subset_and_all_rows_predict():
    table = small_table()
    study = studied(table, fit_rows=60)
    assert study.model.num_observations == len(study.train) == 135
    rows = study.train[:60]
    reference = small_gp().fit(table.X[rows], table.y[rows])
    assert repr(reference.hyperparameters) == repr(study.model.hyperparameters)
    near = studied(table, rfgp.GP(k.Matern(), approximation=rfgp.Vecchia(5), seed=0), fit_rows=40)
    assert near.reproduction_settings["rows of the fit of the hyperparameters"] == "135"


def test_baselines_of_rows_match_their_definitions():
    table = small_table()
    study = studied(table, test_share=0.2)
    train, test, y = study.train, study.test, table.y
    X = (table.X - table.X[train].mean(0)) / table.X[train].std(0)
    near = [train[np.argmin(((X[train] - X[i]) ** 2).sum(1))] for i in test]
    line = np.linalg.lstsq(np.column_stack([np.ones(len(train)), X[train]]), y[train])[0]
    predicted = {
        "mean": np.full(len(test), y[train].mean()),
        "nearest row": y[near],
        "linear model": line[0] + X[test] @ line[1:],
    }
    expected = {name: pytest.approx(np.sqrt(np.mean((y[test] - mean) ** 2))) for name, mean in predicted.items()}
    assert {rule.name: rule.rmse for rule in study.baselines} == expected


def test_the_nearest_observed_node_is_that_along_the_roads():
    field = town()
    gp = rfgp.GraphGP(field.graph, features="exact", seed=0)
    study = report.study_field(field, gp, test_share=0.2, compare=False)
    weights = field.graph.adjacency.toarray()
    ways = networkx.from_numpy_array(np.divide(1, weights, out=np.zeros_like(weights), where=weights > 0))
    at, errors = field.graph.index(field.nodes), []
    for i in study.test:
        far = networkx.single_source_dijkstra_path_length(ways, int(at[i]))
        errors.append(field.values[i] - field.values[min(study.train, key=lambda j: far[int(at[j])])])
    found = {rule.name: rule.rmse for rule in study.baselines}
    assert found["nearest observed node"] == pytest.approx(np.sqrt(np.mean(np.square(errors))))


@pytest.mark.slow
def test_better_baselines_and_bounds_are_noted():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (80, 2))
    noise = studied(Table(X, rng.standard_normal(80), ("a", "b"), "y"), small_gp(num_frequencies=8))
    best = min(noise.baselines, key=lambda rule: rule.rmse)
    assert any(f"the RMSE of the {best.name} is" in note for note in noise.notes) == (best.rmse < 0.99 * noise.rmse)
    exact = studied(Table(X, np.sin(X[:, 0]), ("a", "b"), "y"), small_gp(num_frequencies=64, priors={"noise": None}))
    assert any(note.startswith("The noise is at its lower bound") for note in exact.notes)


# --- comparisons with the exact process --------------------------------------------------------------------------


class OwnCoupling(rfgp.couplings.Orthogonal):
    pass


GRAPH = {"features": "walks", "num_walkers": 6, "exact_hops": 0}
OWN = [
    ({"num_frequencies": 20, "coupling": OwnCoupling()}, ("OwnCoupling()", 20)),
    ({"num_frequencies": 22, "coupling": "pairwise-antithetic", "kind": "laplace"}, ("pairwise-antithetic", 22)),
    ("sor", ("nystrom", 10)),
    ("fitc", ("fitc", 10)),
    (GRAPH, ("stratified", 6)),
    ({**GRAPH, "step_coupling": "independent"}, ("systematic", 6)),
    ({**GRAPH, "walk_options": {"max_nonzeros": 9}}, ("walks", 6)),
    ({"features": "walks", "num_walkers": 4}, ("exact-hops", 4)),
    ({"features": "chebyshev", "degree": 3}, ("chebyshev", 5)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "own"), OWN, ids=[f"{method}" for _, (method, _) in OWN])
def test_the_own_approximation_is_compared_last(options, own):
    if "features" in options:
        field = ball()
        study = report.study_field(field, rfgp.GraphGP(field.graph, seed=0, **options), test_share=0.2)
    elif isinstance(options, dict):
        study = report.study_table(small_table(), small_gp(**options))
    else:
        model = rfgp.GP(k.RBF(), approximation=rfgp.InducingPoints(20, method=options), seed=0)
        study = report.study_table(small_table(), model)
        kl = {method: study.comparison.estimate("kl", method, 10).mean for method in (own[0], "iid")}
        assert kl[own[0]] < kl["iid"]
        assert f"between {model.evidence_bounds().lower:.6g} and" in study.remark
    assert study.method_and_size == own == study.comparison.groups()[-1]


@pytest.mark.slow
def test_the_divergence_is_that_of_the_model():
    """A truncated spectrum has no randomness: the figure of the comparison is that of the fitted model."""
    field = ball(subdivisions=1)
    gp = rfgp.GraphGP(field.graph, seed=0, features="spectrum", rank=21)
    study = report.study_field(field, gp, test_share=0.2)
    hidden = field.nodes[study.test]
    found = study.comparison.estimate("kl", *study.method_and_size)
    expected = rfgp.metrics.kl_divergence(gp.exact().predict(hidden), gp.predict(hidden))
    assert found.mean == pytest.approx(float(expected), rel=1e-6)
    assert np.isnan(found.error)  # drawn once


@pytest.mark.slow
def test_features_of_one_term_of_a_sum_are_compared():
    table = small_table()
    first, second = table.columns[:2]
    kernel = k.Linear(second) + k.RBF(first, name="smooth")
    study = report.study_table(table, rfgp.GP(kernel, approximation={"smooth": rfgp.RandomFeatures(20)}, seed=0))
    assert study.method_and_size == ("energy", 20)
    assert "of the term smooth" in study.remark
    kl = study.comparison.estimate("kl", *study.method_and_size).mean
    assert kl < study.comparison.estimate("kl", "iid", 4).mean


@pytest.mark.parametrize(
    ("kernel", "approximation", "remark"),
    [
        (k.RBF(name="rbf"), rfgp.Exact(), "exact"),
        (k.Matern(name="local"), rfgp.Vecchia(4), "KL from the exact process is"),
        pytest.param(
            k.RBF(), rfgp.RandomFeatures(4, learn_frequencies=True), "frequencies are learned", marks=pytest.mark.slow
        ),
    ],
)
def test_models_without_features_to_compare_have_a_remark(kernel, approximation, remark):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 4))
    table = Table(X, np.sin(2 * X.sum(1)) + 0.1 * rng.standard_normal(600), tuple("abcd"), "y")
    study = report.study_table(table, rfgp.GP(kernel, approximation=approximation, seed=0), fit_rows=500)
    assert study.comparison is None
    assert remark in study.remark


@pytest.mark.slow
def test_an_exact_field_is_compared_with_walks():
    field = ball(subdivisions=1)
    study = report.study_field(field, fields.whittle_matern(field, 2, seed=0), test_share=0.2)
    ((_, rmse),) = study.alternatives
    walks = rfgp.GraphGP(field.graph, features="walks", seed=0).fit(field.nodes[study.train], field.values[study.train])
    assert rmse == pytest.approx(rfgp.metrics.rmse(study.observed, walks.predict(field.nodes[study.test])), rel=1e-9)
    assert study.comparison is None
