"""The reports: their content here, their looks in a real browser."""

import dataclasses
import html.parser
import json
import re
import warnings

import browser
import networkx
import numpy as np
import pandas as pd
import pytest
import trimesh
from PIL import Image

import graphs
import rfgp
from rfgp import datasets, fields, report
from rfgp import kernels as k
from rfgp.cli.common import print_study
from rfgp.effects.variables import variables_of
from rfgp.models.graph import GraphGP
from rfgp.palette import COLORS, log_ticks, styles
from rfgp.regression import FitReport
from rfgp.report import baselines, comparing, figures, notes, page, words
from rfgp.report.glance import glance, small_multiples
from rfgp.report.holdout import split
from rfgp.rows import repeat_groups
from rfgp.tables import Table

pytestmark = [
    pytest.mark.filterwarnings("ignore::rfgp.PoorFeaturesWarning"),
    pytest.mark.filterwarnings("ignore::graphs.LargeVarianceWarning"),
    pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning"),
]


COMMAND = "rfgp fit " + "a-folder-with-a-long-name/" * 20


def table_page(table, **options):
    gp = rfgp.SparseSpectrumGP(num_frequencies=24, seed=0)
    study = report.study_table(table, gp, title="a table", **options)
    return report.table_report(study, table, settings={"seed": 0}, command=COMMAND), study


def field_page(field, **options):
    gp = GraphGP(field.graph, num_walkers=16, seed=0, **options)
    study = report.study_field(field, gp, title="a field", test_share=0.2)
    law = fields.posterior_at_nodes(gp, field)
    return report.field_report(study, field, law), study


def small_table():
    table = datasets.make_table()
    return Table(table.X[:150], table.y[:150], table.columns, table.target)


def ball(on_faces, subdivisions=2):
    mesh = trimesh.creation.icosphere(subdivisions=subdivisions)
    graph = graphs.Graph.from_mesh(mesh, nodes="faces" if on_faces else "vertices")
    height = graph.coordinates[:, 2]
    seen = np.arange(0, graph.num_nodes, 3)
    return fields.Field(graph, seen, height[seen], "height", mesh=mesh, on_faces=on_faces)


def town():
    roads = datasets.make_roads()
    graph = graphs.Graph.from_roads(*roads[:3])
    labels = np.array([f"sensor-{i}" for i in range(len(roads.values))], dtype=object)
    return fields.Field(graph, labels, roads.values, "mph", roads=roads)


@pytest.fixture(scope="module")
def pages():
    return {
        "table": table_page(small_table())[0],
        "faces": field_page(ball(True))[0],
        "vertices": field_page(ball(False), features="walks")[0],
        "roads": field_page(town())[0],
    }


class Outside(html.parser.HTMLParser):
    """Collects what a page would load, and checks that tags are closed."""

    def __init__(self):
        super().__init__()
        self.loads, self.open = [], []

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("src", "href", "action", "srcset") and not value.startswith(("#", "data:")):
                self.loads.append((tag, value))
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.slow
def test_a_page_is_well_formed_and_loads_nothing(pages):
    for name, content in pages.items():
        reader = Outside()
        reader.feed(content)
        assert reader.loads == [], name
        assert reader.open == []
        assert len(content) < 2.4e6  # nearly all of it is plotly, packed


def test_every_section_is_there(pages):
    for content in pages.values():
        for title in ("The data at a glance", "The fit", "Against the exact process", "Cost", "How it was made"):
            assert f"<h2>{title}</h2>" in content
        for words_of in ("Calibration:", "Standardized residuals", "Convergence of the fit", "KL from the exact"):
            assert words_of in content
        assert "left-out training rows" in content
    assert "<h2>Terms and effects</h2>" in pages["table"]
    for name in ("faces", "vertices", "roads"):
        assert "Posterior standard deviation" in pages[name]


def test_long_commands_are_whole_and_wrap(pages):
    assert f'<td class="text">{COMMAND}</td>' in pages["table"]


def test_hostile_names_are_shown_and_do_nothing():
    evil = '</script><script>alert(1)</script><img src=x onerror=alert(2)>"\x1b[31m'
    table = small_table()
    table = Table(table.X, table.y, (evil, *table.columns[1:]), evil)
    content, _ = table_page(table, compare=False)
    assert "alert(1)</script>" not in content
    assert "<img src=x" not in content
    assert "\x1b" not in re.sub(r"<script>.*?</script>", "", content, flags=re.DOTALL)
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in content
    reader = Outside()
    reader.feed(content)
    assert reader.open == []


def test_figures_in_the_page_are_those_of_the_study():
    content, study = table_page(small_table())
    cards = {name: figure for name, figure, _ in words.cards(study, "rows")}
    assert cards["Error on held-out data (RMSE)"] == f"{study.rmse:.4g}"
    law = study.model.predict(small_table().X[study.test])
    y = small_table().y[study.test]
    errors = y - law.mean
    assert study.rmse == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert study.r_squared == pytest.approx(1 - np.sum(errors**2) / np.sum((y - y.mean()) ** 2))
    inside = np.abs(errors) <= 1.959964 * np.sqrt(law.observed().variance)
    assert study.coverage == pytest.approx(inside.mean())
    assert f"<strong>{study.rmse:.4g}</strong>" in content
    assert len(set(study.train) | set(study.test)) == 150
    assert not set(study.train) & set(study.test)
    json.dumps(study.summary(), allow_nan=False)


def test_intervals_that_are_wrong_are_called_so():
    _, study = table_page(small_table(), compare=False, test_share=0.5)
    for factor, verdict in ((9.0, "too wide"), (1 / 25, "too narrow"), (1.0, "as expected")):
        law = study.prediction
        scaled = dataclasses.replace(law, noise=factor * (law.noise + law.latent.variance().mean()))
        changed = dataclasses.replace(study, prediction=scaled)
        assert verdict in words.cards(changed, "rows")[2][2]


def test_a_skipped_comparison_is_stated():
    content, study = table_page(small_table(), compare=False)
    assert study.comparison is None
    assert "was switched off" in content
    assert "KL from the exact process" not in {card[0] for card in words.cards(study, "rows")}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"test_share": 0.0}, rfgp.InvalidArgumentError, "strictly between 0 and 1"),
        ({"test_share": 1.0}, rfgp.InvalidArgumentError, "strictly between 0 and 1"),
        ({"fit_rows": 1}, rfgp.InvalidArgumentError, "fit_rows must be at least 2"),
    ],
)
def test_bad_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        table_page(small_table(), **options)


@pytest.mark.parametrize(
    ("kernel", "approximation", "texts"),
    [
        (k.RBF(name="rbf"), rfgp.Exact(), ["the term rbf (Exact)", comparing.EXACT]),
        (k.Matern(name="local"), rfgp.Vecchia(4), ["(Vecchia)", "KL from the exact process is"]),
    ],
)
def test_models_without_features_to_compare_have_a_remark(kernel, approximation, texts):
    table = small_table()
    gp = rfgp.GP(kernel, approximation=approximation, seed=0)
    study = report.study_table(table, gp, fit_rows=40)
    assert study.comparison is None
    content = report.table_report(study, table)
    assert all(each in content for each in texts)


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("rows", [40, 500])
def test_learned_frequencies_are_compared_only_if_rejected(rows):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 4))
    table = Table(X, np.sin(2 * X.sum(1)) + 0.1 * rng.standard_normal(600), tuple("abcd"), "y")
    gp = rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(4, learn_frequencies=True), seed=0)
    study = report.study_table(table, gp, fit_rows=rows)
    is_learned = study.model.fit_report.frequencies == "learned"
    assert is_learned == (rows == 500)
    assert ("The frequencies are learned" in study.remark) == is_learned == (study.comparison is None)


def test_selection_is_reported():
    table = small_table()
    study = report.study_table(table, rfgp.GP(seed=0))
    selection = study.model.selection
    content = report.table_report(study, table)
    assert "<h2>Model selection</h2>" in content
    assert len(selection.parts) > 1
    assert all(f"{weight:.2f} of the average" in content for weight in selection.parts.values())
    assert f"of {len(selection.parts)} members" in content
    assert all(trial.name in content for trial in selection.trials)
    assert f"Selected: {selection.reason}" in study.notes
    expected = {"options": dict(selection.chosen.options), "reason": selection.reason, "weights": selection.parts}
    assert study.summary()["selection"] == expected
    assert len(study.train) == selection.chosen.last.rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("approximation", "own"),
    [
        (rfgp.InducingPoints(20, method="sor"), "nystrom"),
        (rfgp.InducingPoints(20, method="fitc", init="pivoted-cholesky"), "fitc"),
        (rfgp.InducingPoints(20, residual=rfgp.Vecchia(5)), "residual"),
    ],
)
def test_inducing_points_are_compared_and_bounded(approximation, own):
    table = small_table()
    gp = rfgp.GP(k.RBF(), approximation=approximation, seed=0)
    study = report.study_table(table, gp)
    assert study.method_and_size == (own, 10) == study.comparison.groups()[-1]
    kl = {method: study.comparison.estimate("kl", method, 10).mean for method in (own, "iid")}
    assert kl[own] < kl["iid"]
    bounds = gp.evidence_bounds()
    assert f"is between {bounds.lower:.6g} and {bounds.upper:.6g}" in study.remark


def test_features_of_one_term_of_a_sum_are_compared():
    table = small_table()
    first, second = table.columns[:2]
    kernel = k.Linear(second) + k.RBF(first, name="smooth")
    gp = rfgp.GP(kernel, approximation={"smooth": rfgp.RandomFeatures(20)}, seed=0)
    study = report.study_table(table, gp)
    assert study.method_and_size == ("energy", 20)
    assert "of the term smooth" in study.remark
    assert study.comparison.estimate("kl", *study.method_and_size).mean < study.comparison.estimate("kl", "iid", 4).mean


def test_fits_that_plan_or_have_neighbors_take_all_rows():
    planned = rfgp.GP(k.RBF(), seed=0)
    local = rfgp.GP(k.Matern(), approximation=rfgp.Vecchia(5), seed=0)
    for model, rows in ((planned, "135"), (local, "135"), (rfgp.SparseSpectrumGP(num_frequencies=8, seed=0), "40")):
        study = report.study_table(small_table(), model, fit_rows=40, compare=False)
        assert study.reproduction_settings["rows of the fit of the hyperparameters"] == rows


@pytest.mark.slow
def test_the_card_of_the_distance_is_the_models_own():
    """The model's own coupling and size are compared, last; an exact model has no such card."""
    table = small_table()
    for coupling in ("iid", "orthogonal", "pairwise"):
        gp = rfgp.SparseSpectrumGP(num_frequencies=20, coupling=coupling, seed=0)
        study = report.study_table(table, gp)
        assert study.method_and_size == (coupling, 20) == study.comparison.groups()[-1]
        said = words.cards(study, "rows")[-1][2]
        assert f"{coupling}, m = 20" in said
        assert ("(" in said) == said.endswith(", with the standard error of the last digit in brackets")
    field = ball(True)
    for options, own in (
        ({"features": "walks", "num_walkers": 4}, ("exact-hops", 4)),
        ({"features": "walks", "num_walkers": 8, "exact_hops": 0}, ("stratified", 8)),
        ({"features": "walks", "num_walkers": 6, "step_coupling": "independent", "exact_hops": 0}, ("systematic", 6)),
        ({"features": "walks", "num_walkers": 6, "walk_options": {"max_nonzeros": 9}}, ("walks", 6)),
        ({"features": "chebyshev", "num_walkers": 6}, ("chebyshev", 5)),
        ({"features": "exact"}, None),
    ):
        study = report.study_field(field, GraphGP(field.graph, seed=0, **options), test_share=0.2)
        assert study.method_and_size == own
        assert any("KL" in card[0] for card in words.cards(study, "nodes")) == (own is not None)
        assert ("The model itself is exact" in study.remark) == (options["features"] == "exact")
        if own:
            assert study.comparison.groups()[-1] == own


class OwnCoupling(rfgp.couplings.Orthogonal):
    pass


@pytest.mark.parametrize(
    ("coupling", "features", "label"),
    [
        (OwnCoupling(), "fourier", "OwnCoupling()"),
        (rfgp.couplings.SimplexPlus(2), "fourier", "SimplexPlus(num_sweeps=2)"),
        ("pairwise-antithetic", "laplace", "pairwise-antithetic"),
    ],
)
def test_own_couplings_are_compared_with_their_options(coupling, features, label):
    gp = rfgp.SparseSpectrumGP(num_frequencies=22, coupling=coupling, kind=features, seed=0)
    study = report.study_table(small_table(), gp)
    assert study.method_and_size == (label, 22) == study.comparison.groups()[-1]
    assert f"One draw of {label}, m = 22" in report.table_report(study, small_table())


def test_other_warnings_of_the_comparison_are_not_lost(monkeypatch):
    original = comparing.node_case

    def warn(*arguments, **named):
        warnings.warn(rfgp.JitterWarning("found"), stacklevel=1)
        return original(*arguments, **named)

    monkeypatch.setattr(comparing, "node_case", warn)
    field = ball(True)
    with pytest.warns(rfgp.JitterWarning, match="found"):
        report.study_field(field, GraphGP(field.graph, seed=0), test_share=0.2)


@pytest.mark.slow
def test_divergence_is_that_of_the_reported_model():
    """A truncated spectrum has no randomness: the comparison's figure is that of the fitted model itself."""
    field = ball(True, subdivisions=1)
    for options, size in (({"features": "spectrum", "rank": 21}, 6), ({"features": "chebyshev", "degree": 3}, 5)):
        gp = GraphGP(field.graph, seed=0, **options)
        study = report.study_field(field, gp, test_share=0.2)
        assert study.method_and_size == (options["features"], size) == study.comparison.groups()[-1]
        hidden = field.nodes[study.test]
        expected = rfgp.metrics.kl_divergence(gp.exact().predict(hidden), gp.predict(hidden))
        found = study.comparison.estimate("kl", *study.method_and_size)
        assert found.mean == pytest.approx(float(expected), rel=1e-6)
        assert np.isnan(found.error)  # drawn once
        K = gp.fitted_kernel.exact(field.graph)
        error = np.linalg.norm(comparing_kernel(gp) - K) / np.linalg.norm(K)
        assert study.comparison.estimate("kernel_error", *study.method_and_size).mean == pytest.approx(error, rel=1e-6)
        content = report.field_report(study, field, fields.posterior_at_nodes(gp, field))
        name, value = next((name, value) for name, value in options.items() if name != "features")
        assert re.search(rf'<th scope="row">{name}</th><td[^>]*>{value}</td>', content)
        assert "num_walkers" not in content[content.index("How it was made</h2>") :]  # the fit has none


def comparing_kernel(gp):
    """The kernel of a model's features over all nodes, from the draw itself."""
    draw = gp.spec.term_priors[0].features.draw
    features = draw.at(range(gp.graph.num_nodes)).features(gp.fitted_kernel)
    phi = features.toarray() if hasattr(features, "toarray") else np.asarray(features)
    return phi @ phi.T


def test_dropped_columns_and_better_baselines_are_stated(monkeypatch, capsys):
    monkeypatch.setattr(comparing, "EXACT_NODES", 100)
    field = ball(False)
    rng = np.random.default_rng(0)
    field = dataclasses.replace(field, values=rng.standard_normal(len(field.values)))
    study = report.study_field(field, GraphGP(field.graph, features="spectrum", seed=0), test_share=0.2)
    said = " ".join(study.notes)
    assert "162 nodes are more than 100. Estimate of the error without it: spectrum: " in said
    best = min(study.baselines, key=lambda rule: rule.rmse)
    assert (f"the RMSE of the {best.name} is" in said) == (best.rmse < 0.99 * study.rmse)
    assert notes.of_baselines(study.baselines, 1.1 * best.rmse) != () == notes.of_baselines(study.baselines, best.rmse)
    print_study(study, "observations")
    out = capsys.readouterr().out
    assert all(note in out for note in study.notes)
    assert study.summary()["notes"] == list(study.notes)
    content = report.field_report(study, field, fields.posterior_at_nodes(study.model, field))
    assert all(note.split(":")[0] in content for note in study.notes)


def test_baselines_match_their_definitions():
    table = small_table()
    train, test = split(150, 0.2, 0)
    X, y = (table.X - table.X[train].mean(0)) / table.X[train].std(0), table.y
    near = [train[np.argmin(((X[train] - X[i]) ** 2).sum(1))] for i in test]
    line = np.linalg.solve(np.cov(X[train].T), np.cov(X[train].T, y[train])[:-1, -1])
    predicted = {
        "mean": np.full(len(test), y[train].mean()),
        "nearest row": y[near],
        "linear model": y[train].mean() + (X[test] - X[train].mean(0)) @ line,
    }
    found = baselines.baselines_of_rows(table, train, test)
    assert [rule.name for rule in found] == list(predicted)
    for rule in found:
        assert rule.rmse == pytest.approx(np.sqrt(np.mean((y[test] - predicted[rule.name]) ** 2)))
    _, study = table_page(table, compare=False)
    assert words.cards(study, "rows")[0][2].endswith(f"{min(r.rmse for r in study.baselines):.4g}")


def test_the_nearest_observed_node_is_that_by_the_way():
    field = town()
    train, test = split(len(field.values), 0.2, 0)
    lengths = field.graph.adjacency.toarray()
    ways = networkx.from_numpy_array(np.where(lengths > 0, 1 / np.where(lengths > 0, lengths, 1), 0))
    at = field.graph.index(field.nodes)
    errors = []
    for i in test:
        far = networkx.single_source_dijkstra_path_length(ways, int(at[i]))
        errors.append(field.values[i] - field.values[min(train, key=lambda j: far[int(at[j])])])
    rule = baselines.baselines_of_nodes(field, train, test)[1]
    assert rule.name == "nearest observed node"
    assert rule.rmse == pytest.approx(np.sqrt(np.mean(np.square(errors))))


def test_noise_at_its_bound_has_a_note():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    gp = rfgp.SparseSpectrumGP(num_frequencies=64, seed=0, priors={"noise": None}).fit(X, np.sin(X[:, 0]))
    found = notes.of_bounds(gp)
    assert set(gp.fit_report.at_bounds) >= {"noise"}
    assert any(note.startswith("The noise is at its lower bound, ") and "as exact" in note for note in found)
    assert len(found) == len(gp.fit_report.at_bounds)


def test_logarithms_are_shown_in_the_units_of_the_target():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 60)
    table = Table(x[:, None], 4 + np.sin(3 * x) + 0.1 * rng.standard_normal(60), ("x",), "log of price")
    study = report.study_table(table, rfgp.GP(k.RBF("x"), seed=0), compare=False)
    assert words.cards(study, "rows")[0][2].startswith("of logarithms, about ")
    frame = report.input_frame(table, study.model)
    plots = glance(table, variables_of(table, study.model, frame), frame, {"x": 1.0})
    assert [plots[0].caption, plots[2].caption] == [
        "The target, price.",
        "The target against its column, on a logarithmic axis.",
    ]
    assert plots[2].figure.layout.yaxis.type == "log"
    np.testing.assert_allclose(plots[2].figure.data[0].y, np.exp(table.y), rtol=1e-4)
    figure = figures.predicted(study.observed, study.prediction, is_log=True)
    np.testing.assert_allclose(figure.data[0].x, np.exp(study.prediction.mean), rtol=1e-4)
    np.testing.assert_allclose(figure.data[0].y, np.exp(study.observed), rtol=1e-4)


def test_lengthscales_of_indicators_have_no_notes():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(-1, 1, 60), "flat": rng.uniform(-1, 1, 60), "store": ["a", "b", "c"] * 20})
    gp = rfgp.GP(k.RBF(name="rbf"), seed=0).condition(frame, np.sin(3 * frame.x))
    bound = gp.hyperparameters.values.space.quantities["rbf.lengthscale"]
    gp.hyperparameters["rbf.lengthscale"] = bound.bounds[1] * bound.unit
    gp.fit_report = FitReport(True, 1, 1, 0.0, "", ("rbf.lengthscale",))
    (note,) = notes.of_bounds(gp)
    assert note.startswith("The lengthscales of x, flat are at their upper bound")


def test_bounds_name_the_term_and_its_columns():
    table = small_table()
    b = table.columns[1]
    kernel = k.RBF(table.columns, name="rbf") + k.Matern(table.columns, name="local")
    gp = rfgp.GP(kernel, approximation=rfgp.RandomFeatures(8), seed=0).condition(table.frame(), table.y)
    space = gp.hyperparameters.values.space
    for name, side in (("rbf.lengthscale", 1), ("local.lengthscale", 0)):
        value = gp.hyperparameters[name].detach().clone()
        value[1] = (space.quantities[name].bounds[side] * space.quantities[name].unit)[1]
        gp.hyperparameters[name] = value
    variance = space.quantities["local.outputscale"]
    gp.hyperparameters["local.outputscale"] = variance.bounds[0] * variance.unit
    at_bounds = ("rbf.lengthscale", "local.lengthscale", "local.outputscale")
    gp.fit_report = FitReport(True, 1, 1, 0.0, "", at_bounds)
    first, second, third = notes.of_bounds(gp)
    assert f"lengthscale of {b} in the term rbf is at its upper bound" in first
    assert f"lengthscale of {b} in the term local is at its lower bound" in second
    assert "the term local is as good as zero" in third


def test_convergence_shows_all_stages():
    """The axis ends at the iterations that the caption counts."""
    field = ball(True)
    fit = (
        GraphGP(field.graph, seed=0)
        .fit(field.nodes, field.values + 0.1 * np.cos(np.arange(len(field.values))))
        .fit_report
    )
    lines = figures.convergence(fit).data
    assert [line.name for line in lines] == [stage.name for stage in fit.stages]
    assert len(lines) == 3
    assert lines[-1].x[-1] == fit.iterations == sum(len(line.x) - 1 for line in lines)
    assert f"after {fit.iterations} iterations" in words.convergence(fit)
    assert lines[0].y[-1] == pytest.approx(fit.traces()[0][1][-1] / fit.stages[0].rows, rel=1e-5)
    old = dataclasses.replace(fit, trace=fit.traces()[-1][1])  # as older versions saved it
    assert [line.name for line in figures.convergence(old).data] == [fit.stages[-1].name]


def test_requirements_of_reproduction_are_listed():
    content, _ = table_page(small_table(), fit_rows=60, compare=False, test_share=0.2, seed=3)
    made = content[content.index("How it was made</h2>") :]
    for name, value in (("share of the held-out part", "0.2"), ("seed of the split", "3"), ("hyperparameters", "60")):
        assert re.search(rf"{name}</th><td[^>]*>{value}<", made)


def test_copies_of_rows_are_found():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 2)), rng.standard_normal(40)
    X[0, 0], X[7], y[7], X[9] = 0.0, X[3], y[3], X[3]  # 9 has the inputs of 3, but another target
    X[11], y[11] = X[0] * [-1.0, 1.0], y[0]  # a negative zero
    groups = repeat_groups(X, y)
    assert len(groups) - len(set(groups)) == 2
    assert groups[7] == groups[3] != groups[9]
    assert groups[11] == groups[0]
    coarse = np.repeat(np.eye(3)[:, :2], 20, axis=0)
    assert repeat_groups(coarse, np.zeros(60)) is None


def test_sensors_at_one_node_are_held_out_together():
    field = town()
    twice = np.concatenate([field.nodes, field.nodes[:7]])
    field = dataclasses.replace(field, nodes=twice, values=np.concatenate([field.values, field.values[:7]]))
    study = report.study_field(field, GraphGP(field.graph, seed=0), test_share=0.2, compare=False)
    at = field.graph.index(field.nodes)
    assert not set(at[study.train]) & set(at[study.test])
    assert study.num_repeated == 7
    assert words.repeats(study).startswith(
        "7 observations share their node with another one. Observations of one node are all held out or none"
    )
    ways = ({"oneway": "yes"}, *({},) * (len(field.roads.lines) - 1))
    field = dataclasses.replace(field, roads=field.roads._replace(road_properties=ways))
    content = report.field_report(study, field, fields.posterior_at_nodes(study.model, field))
    assert words.repeats(study) in content
    assert "Directions are ignored." in content


def test_large_meshes_are_pictures(monkeypatch):
    monkeypatch.setattr("rfgp.report.fields.MAX_FACES", 60)
    content, _ = field_page(ball(True, subdivisions=1))
    assert content.count('<img class="drawn"') == 2
    assert "mesh3d" not in content[content.rindex("</footer>") :]


def test_logarithmic_axes_have_written_out_ticks():
    for low in (1e-9, 0.03, 0.0999, 7.0):
        for span in (1.0, 3.0, 1e3, 1e12):
            ticks, (first, last) = log_ticks([low, span * low])
            assert first < low <= span * low < last
            assert 2 <= len(ticks) <= 13
            assert all(first <= tick <= last for tick in ticks)
    assert {0.05, 0.1, 0.2} <= set(log_ticks([0.03, 0.4])[0])


def test_a_method_has_one_colour_everywhere():
    report_has, compare_has = (
        styles(("iid", "orthogonal", "energy")),
        styles(("iid", "orthogonal", "pairwise", "energy")),
    )
    assert {name: compare_has[name] for name in report_has} == report_has
    walks = styles(("iid", "stratified", "chebyshev", "spectrum"))
    assert {name: styles((name, "other"))[name] for name in walks} == walks
    ours = styles(("iid", "MyCoupling(3)", "energy", "iid", "sobol"))
    assert len(set(ours.values())) == 4
    assert len(styles(f"method {i}" for i in range(20))) == 20
    assert all(0 <= number < len(COLORS) for number in styles(f"method {i}" for i in range(20)).values())


def test_too_few_rows_are_named():
    table = small_table()
    with pytest.raises(rfgp.DataError, match="at least 8"):
        table_page(Table(table.X[:7], table.y[:7], table.columns, table.target))


def test_subset_fit_and_full_posterior_are_stated():
    _, study = table_page(small_table(), fit_rows=60, compare=False)
    assert study.model.num_observations == len(study.train) == 135
    twin = rfgp.SparseSpectrumGP(num_frequencies=24, seed=0)
    rows = study.train[:60]
    twin.fit(small_table().X[rows], small_table().y[rows])
    assert repr(twin.hyperparameters) == repr(study.model.hyperparameters)


def test_sizes_of_plots_are_bounded():
    y = np.random.default_rng(0).standard_normal(50_000)
    table = Table(np.stack([y, y**2], axis=1), y, ("a", "b"), "y")
    frame, gp = table.frame(), rfgp.GP(k.RBF())
    variables = variables_of(table, gp, frame)
    assert len(small_multiples(table, variables, frame).to_json()) < 200_000
    assert len(figures.histogram(y, "y").to_json()) < 20_000


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_small_multiples_have_one_axis_per_column(count):
    table = Table(np.arange(4.0 * count).reshape(4, count), np.arange(4.0), tuple("abcd"[:count]), "y")
    frame = table.frame()
    shown = small_multiples(table, variables_of(table, rfgp.GP(k.RBF(), seed=0), frame), frame).to_dict()["layout"]
    assert sum(name.startswith("xaxis") for name in shown) == count


def test_a_page_escapes_all_its_texts():
    grid = page.Grid(["<x1>", "<x12>"], [["<x2>", "<x3>"]], "<x4>")
    sections = [page.Section("<x5>", [page.Text("<x6>"), grid, page.Command("<x13>")])]
    content = page.render("<x7>", "<x8>", [("<x9>", "<x10>", "<x11>")], sections)
    body = content[content.index("<body>") :]  # what is before it holds plotly's own script
    assert not re.search(r"<x\d", body)
    assert {int(number) for number in re.findall(r"&lt;x(\d+)&gt;", body)} == set(range(1, 14))


@pytest.mark.parametrize("block", [page.Plot, page.Picture], ids=["plot", "picture"])
def test_a_page_escapes_captions_and_figures(block):
    hostile = "'\"><x></script>\x1b"
    content = figures.figure_of([], hostile, "") if block is page.Plot else b"png"
    body = page.render("", "", [], [page.Section("", [block(content, hostile)])])
    body = body[body.index("<body>") :]
    assert "<x>" not in body
    assert "\x1b" not in body
    assert body.count("</script>") == 2 + (block is page.Plot)  # one for each script of the page
    assert re.search('(?:alt|aria-label)="&#39;&#34;&gt;&lt;x&gt;&lt;/script&gt;[?]"', body)


# --- in a browser --------------------------------------------------------------------------------


@browser.needs_browser
@pytest.mark.parametrize("name", ["table", "faces", "vertices", "roads"])
@pytest.mark.slow
def test_every_plot_is_drawn_without_an_error(pages, name, tmp_path):
    found = browser.probe(pages[name], tmp_path)
    assert found["errors"] == []
    assert found["failed"] == ""
    assert found["loaded"] == []
    assert found["drawn"] == found["of"] == len(found["plots"]) >= 7
    assert found["scroll"] <= found["width"]
    for plot in found["plots"]:
        assert plot["marks"] > 0, plot
        assert plot["width"] > 300
        assert plot["height"] > 200
    height = min(found["height"], 9000)
    picture = Image.open(browser.screenshot(pages[name], tmp_path, size=(1100, height))).convert("RGB")
    for plot in found["plots"]:
        left, top = round(plot["x"]), round(plot["y"])
        part = np.asarray(picture.crop((left, top, left + round(plot["width"]), top + round(plot["height"]))))
        assert (np.ptp(part, axis=2) > 40).sum() > 50, f"{plot['id']} has few colored pixels"


@pytest.mark.slow
@browser.needs_browser
@pytest.mark.parametrize("name", ["table", "faces", "roads"])
def test_a_phone_needs_no_sideways_scrolling(pages, name, tmp_path):
    found = browser.probe(pages[name], tmp_path, frame=(390, 800))
    assert found["errors"] == []
    assert found["drawn"] == found["of"]
    assert found["width"] == 390
    assert found["scroll"] <= 390
    assert not any(plot["wider"] for plot in found["plots"])


def body_in_frame(content, folder):
    """Open a page with one mesh 390 pixels wide; return the margins around the body (4,), and its largest share."""
    found = browser.probe(content, folder, frame=(390, 700))
    assert found["errors"] == []
    (box,) = found["plots"]
    picture = Image.open(browser.screenshot(content, folder, size=(390, 700), frame=(390, 700))).convert("RGB")
    left, top, width = round(box["x"]), round(box["y"]), round(box["width"])
    height = round(0.8 * box["height"])  # its scale is below
    part = np.asarray(picture.crop((left, top, left + width, top + height))).astype(int)
    down, across = np.nonzero(np.ptp(part, axis=2) > 40)
    margins = (across.min(), down.min(), width - 1 - across.max(), height - 1 - down.max())
    return margins, max(np.ptp(across) / width, np.ptp(down) / height)


@browser.needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("stretch", [(1, 1, 1), (6, 1, 1)])
def test_a_body_is_whole_on_a_phone_and_fills_its_frame(stretch, tmp_path, monkeypatch):
    field = ball(True)
    field.mesh.apply_scale(stretch)
    field = dataclasses.replace(field, values=field.coordinates[:, 2])

    def one_page():
        view = page.Plot(figures.mesh_view(field, field.graph.coordinates[:, 2], "height", "viridis"), "A body.", 460)
        return page.render("A body", "", [], [page.Section("It", [view])])

    margins, share = body_in_frame(one_page(), tmp_path)
    assert min(margins) > 3
    assert share > 0.4  # a long body is seen along its diagonal
    if stretch == (1, 1, 1):  # planted: a camera that is too near
        monkeypatch.setattr(figures, "distance_of_camera", lambda vertices: 0.55)
        assert min(body_in_frame(one_page(), tmp_path)[0]) <= 3


@browser.needs_browser
@pytest.mark.slow
def test_planted_faults_are_found(pages, tmp_path):
    """A page whose script fails, which loads something, or which draws nothing must not pass the tests above."""
    broken = pages["roads"].replace('id="data-3">{', 'id="data-3">}', 1)
    assert broken != pages["roads"]
    wide = broken.replace("<main>", '<main><div style="width:900px">x</div>', 1)
    found = browser.probe(wide, tmp_path, frame=(390, 800))
    assert found["errors"]
    assert found["drawn"] != found["of"]
    assert found["scroll"] > 390
    loading = pages["roads"].replace("<main>", '<main><img src="https://example.org/a.png">', 1)
    empty = re.sub(r'(id="data-2">)\{.*?\}</script>', r'\1{"data": [], "layout": {}}</script>', loading, count=1)
    found = browser.probe(empty, tmp_path)
    assert any(error.startswith("policy: img-src") for error in found["errors"])
    assert min(plot["marks"] for plot in found["plots"]) == 0


@pytest.mark.slow
@browser.needs_browser
def test_it_prints(pages, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(pages["faces"], encoding="utf-8")
    browser.run(tmp_path, path, (1100, 900), f"--print-to-pdf={tmp_path / 'page.pdf'}")
    content = (tmp_path / "page.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 12


@pytest.mark.slow
def test_walks_are_compared_with_an_exact_process(monkeypatch):
    field = ball(True, subdivisions=1)
    study = report.study_field(field, fields.whittle_matern(field, 2, seed=0), test_share=0.2)
    ((name, rmse),) = study.alternatives
    walks = GraphGP(field.graph, features="walks", seed=0).fit(field.nodes[study.train], field.values[study.train])
    assert rmse == pytest.approx(rfgp.metrics.rmse(study.observed, walks.predict(field.nodes[study.test])), rel=1e-9)
    assert study.comparison is None
    assert study.remark.endswith(f"nothing is approximated. For comparison, {name}: RMSE {rmse:.4g}.")
    content = report.field_report(study, field, fields.posterior_at_nodes(study.model, field))
    assert "the Whittle-Matern field of alpha 2 on the surface (by linear finite elements" in content
    assert "memory of the process" in content
    assert not report.study_field(field, fields.whittle_matern(field, 1, seed=0), compare=False).alternatives
    monkeypatch.setattr("rfgp.report.study.MAX_WALKED", 10)
    alone = report.study_field(field, fields.whittle_matern(field, 1, seed=0))
    assert (alone.alternatives, alone.remark) == ((), comparing.EXACT)
