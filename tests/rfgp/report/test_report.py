"""The reports: their content here, their looks in a real browser."""

import dataclasses
import html.parser
import json
import re
import warnings

import browser
import numpy as np
import pytest
import trimesh
from PIL import Image
from scipy import stats

import graphs
import rfgp
from rfgp import datasets, fields, report
from rfgp.models.graph import GraphGP
from rfgp.report import figures, page, words
from rfgp.report import study as study_module
from rfgp.report.study import copies, split
from rfgp.tables import Table

pytestmark = [
    pytest.mark.filterwarnings("ignore::rfgp.PoorFeaturesWarning"),
    pytest.mark.filterwarnings("ignore::graphs.LargeVarianceWarning"),
    pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning"),
]


def table_page(table, **options):
    gp = rfgp.SparseSpectrumGP(num_frequencies=24, seed=0)
    study = report.study_table(table, gp, title="a table", **options)
    return report.table_report(study, table, settings={"seed": 0}, command="rfgp fit"), study


def field_page(field, **options):
    gp = GraphGP(field.graph, num_walkers=16, seed=0, **options)
    study = report.study_field(field, gp, title="a field", test_share=0.2)
    law = fields.law_at_nodes(gp, field)
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
        assert len(content) < 8e6


def test_every_section_is_there(pages):
    for content in pages.values():
        for title in ("The data at a glance", "The fit", "Against the exact process", "Cost", "How it was made"):
            assert f"<h2>{title}</h2>" in content
        for words_of in ("Calibration:", "Standardised residuals", "Convergence of the fit", "KL from the exact"):
            assert words_of in content
    assert "Relevance:" in pages["table"]
    for name in ("faces", "vertices", "roads"):
        assert "Posterior standard deviation" in pages[name]


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
    errors = small_table().y[study.test] - law.mean
    assert study.rmse == pytest.approx(np.sqrt(np.mean(errors**2)))
    inside = np.abs(errors) <= 1.959964 * np.sqrt(law.observed().variance)
    assert study.coverage == pytest.approx(inside.mean())
    assert f"<strong>{study.rmse:.4g}</strong>" in content
    assert len(set(study.train) | set(study.test)) == 150
    assert not set(study.train) & set(study.test)
    json.dumps(study.summary(), allow_nan=False)


def test_intervals_that_are_wrong_are_called_so():
    _, study = table_page(small_table(), compare=False, test_share=0.5)
    for factor, verdict in ((9.0, "too wide"), (1 / 25, "too narrow"), (1.0, "as it should be")):
        law = study.prediction
        scaled = dataclasses.replace(law, noise=factor * (law.noise + law.law.variance().mean()))
        changed = dataclasses.replace(study, prediction=scaled)
        assert verdict in words.cards(changed, "rows")[2][2]


def test_what_was_not_computed_is_said():
    content, study = table_page(small_table(), compare=False)
    assert study.comparison is None
    assert "was not asked for" in content
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


@pytest.mark.slow
def test_the_card_of_the_distance_is_the_models_own():
    """The model's own coupling and size are compared, last; an exact model has no such card."""
    table = small_table()
    for coupling in ("iid", "orthogonal", "pairwise"):
        gp = rfgp.SparseSpectrumGP(num_frequencies=20, coupling=coupling, seed=0)
        study = report.study_table(table, gp)
        assert study.own == (coupling, 20) == study.comparison.groups()[-1]
        assert f"{coupling}, m = 20" in words.cards(study, "rows")[-1][2]
    field = ball(True)
    for options, own in (
        ({"features": "walks", "num_walkers": 4}, ("exact-hops", 4)),
        ({"features": "walks", "num_walkers": 8, "exact_hops": 0}, ("stratified", 8)),
        ({"features": "walks", "num_walkers": 6, "directions": "independent", "exact_hops": 0}, ("systematic", 6)),
        ({"features": "walks", "num_walkers": 6, "walk_options": {"max_nonzeros": 9}}, None),
        ({"features": "exact"}, None),
    ):
        study = report.study_field(field, GraphGP(field.graph, seed=0, **options), test_share=0.2)
        assert study.own == own
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
def test_couplings_with_options_and_ones_own_are_compared_as_they_are(coupling, features, label):
    gp = rfgp.SparseSpectrumGP(num_frequencies=22, coupling=coupling, features=features, seed=0)
    study = report.study_table(small_table(), gp)
    assert study.own == (label, 22) == study.comparison.groups()[-1]
    assert f"({label} frequencies)" in report.table_report(study, small_table())


def test_other_warnings_of_the_comparison_are_not_lost(monkeypatch):
    original = study_module.node_case

    def warn(*arguments):
        warnings.warn(rfgp.JitterWarning("found"), stacklevel=1)
        return original(*arguments)

    monkeypatch.setattr(study_module, "node_case", warn)
    field = ball(True)
    with pytest.warns(rfgp.JitterWarning, match="found"):
        report.study_field(field, GraphGP(field.graph, seed=0), test_share=0.2)


def test_observations_of_one_node_stay_together():
    groups = np.arange(200) % 40
    train, test = split(200, 0.2, 0, groups)
    assert not set(groups[train]) & set(groups[test])
    assert sorted([*train, *test]) == list(range(200))
    with pytest.raises(rfgp.DataError, match="too few different nodes"):
        split(20, 0.5, 0, np.zeros(20, dtype=np.int64))


def test_as_many_are_held_out_as_are_asked_for_where_groups_are_large():
    """Twenty of a hundred places are a fifth of all; any member of a fifth of the rows would hide nearly all places."""
    groups = np.random.default_rng(0).integers(0, 100, 1000)
    train, test = split(1000, 0.2, 0, groups)
    assert not set(groups[train]) & set(groups[test])
    assert 200 <= len(test) < 200 + np.bincount(groups).max()
    alone, held = split(1000, 0.2, 0, np.arange(1000))
    for found, expected in zip((alone, held), split(1000, 0.2, 0), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_copies_of_rows_are_on_one_side_of_the_split_and_counted():
    table = small_table()
    X, y = np.concatenate([table.X, table.X[:40]]), np.concatenate([table.y, table.y[:40]])
    twice = Table(X, y, table.columns, table.target)
    gp = rfgp.SparseSpectrumGP(num_frequencies=16, coupling="iid", seed=0)
    study = report.study_table(twice, gp, compare=False, test_share=0.3)
    assert study.summary()["repeated"] == study.repeated == 40
    assert not {X[i].tobytes() for i in study.train} & {X[i].tobytes() for i in study.test}
    assert words.repeats(study) == "40 rows repeat another exactly; copies are held out, or trained on, together."
    assert "40 rows repeat another exactly" in report.table_report(study, twice)


def test_equal_rows_of_few_levels_are_no_copies():
    table = small_table()
    assert copies(table) == (None, 0)
    X, y = np.round(table.X[:, :1] > 0).astype(float), np.round(table.y > 0).astype(float)
    assert copies(Table(X, y, ("a",), "b")) == (None, 0)
    X = np.concatenate([table.X, table.X[:2]])
    assert copies(Table(X, np.concatenate([table.y, table.y[:2] + 1]), table.columns, table.target)) == (None, 0)
    zeros = Table(np.array([[0.0], [-0.0], [1.0]]), np.array([-0.0, 0.0, 1.0]), ("a",), "b")
    assert copies(zeros)[1] == 1


def test_coverage_is_said_beside_what_chance_allows():
    _, study = table_page(small_table(), compare=False, test_share=0.5)
    low, high = stats.binom.ppf([0.025, 0.975], len(study.test), 0.95)
    assert f"({low:.0f} to {high:.0f} are to be expected)" in words.cards(study, "rows")[2][2]


def test_a_noise_at_its_bound_is_said():
    fit = rfgp.SparseSpectrumGP(num_frequencies=4, seed=0).fit(small_table().X, small_table().y).fit_report
    said = {name: words.convergence(dataclasses.replace(fit, at_bounds=(name,))) for name in ("noise", "lengthscale")}
    assert {name: "error bars rest on that" in text for name, text in said.items()} == {
        "noise": True,
        "lengthscale": False,
    }


def test_variance_explained_is_that_of_the_held_out_targets():
    _, study = table_page(small_table(), compare=False)
    y = small_table().y[study.test]
    law = study.model.predict(small_table().X[study.test])
    assert study.explained == pytest.approx(1 - np.sum((y - law.mean) ** 2) / np.sum((y - y.mean()) ** 2))


def test_large_meshes_are_pictures(monkeypatch):
    monkeypatch.setattr("rfgp.report.fields.MOST_FACES", 60)
    content, _ = field_page(ball(True, subdivisions=1))
    assert content.count('<img class="drawn"') == 2
    assert "mesh3d" not in content[content.rindex("</footer>") :]


def test_names_that_are_cut_alike_keep_their_own_bars():
    names = [f"a_column_with_a_very_long_name_number_{i}" for i in range(3)]
    bars = figures.relevance(names, np.array([1.0, 2.0, 3.0])).data[0]
    assert len(set(bars.y)) == 3


def test_logarithmic_axes_have_written_out_ticks():
    ticks = figures.log_ticks([0.03, 0.4])
    assert ticks["ticktext"][:3] != ["1", "2", "5"]
    assert {"0.05", "0.1", "0.2"} <= set(ticks["ticktext"])


def test_too_few_rows_are_named():
    table = small_table()
    with pytest.raises(rfgp.DataError, match="at least 8"):
        table_page(Table(table.X[:7], table.y[:7], table.columns, table.target))


def test_hyperparameters_come_from_some_rows_and_the_posterior_from_all():
    _, study = table_page(small_table(), fit_rows=60, compare=False)
    assert study.model.num_observations == len(study.train) == 135
    twin = rfgp.SparseSpectrumGP(num_frequencies=24, seed=0)
    rows = study.train[:60]
    twin.fit(small_table().X[rows], small_table().y[rows])
    assert repr(twin.hyperparameters) == repr(study.model.hyperparameters)


def test_sizes_of_plots_are_bounded():
    y = np.random.default_rng(0).standard_normal(50_000)
    table = Table(np.stack([y, y**2], axis=1), y, ("a", "b"), "y")
    assert len(figures.columns(table, [0, 1]).to_json()) < 200_000
    assert len(figures.histogram(y, "y").to_json()) < 20_000


def test_a_page_escapes_all_its_texts():
    grid = page.Grid(["<x1>"], [["<x2>", "<x3>"]], "<x4>")
    sections = [page.Section("<x5>", [page.Text("<x6>"), grid])]
    content = page.render("<x7>", "<x8>", [("<x9>", "<x10>", "<x11>")], sections)
    body = content[content.index("<body>") :]  # what is before it holds plotly's own script
    assert not re.search(r"<x\d", body)
    assert {int(number) for number in re.findall(r"&lt;x(\d+)&gt;", body)} == set(range(1, 12))


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
        colors, counts = np.unique(part.reshape(-1, 3), axis=0, return_counts=True)
        saturated = counts[np.ptp(colors.astype(int), axis=1) > 40].sum()
        assert saturated > 50, f"{plot['id']} shows {len(colors)} colours, {saturated} coloured pixels"


@browser.needs_browser
@pytest.mark.parametrize("name", ["table", "faces", "roads"])
def test_a_phone_needs_no_sideways_scrolling(pages, name, tmp_path):
    found = browser.probe(pages[name], tmp_path, frame=(390, 800))
    assert found["errors"] == []
    assert found["drawn"] == found["of"]
    assert found["width"] == 390
    assert found["scroll"] <= 390
    assert not any(plot["wider"] for plot in found["plots"])


@browser.needs_browser
@pytest.mark.slow
def test_planted_faults_are_found(pages, tmp_path):
    """A page whose script fails, which loads something, or which draws nothing must not pass the tests above."""
    broken = pages["roads"].replace('id="data-3">{', 'id="data-3">}', 1)
    assert broken != pages["roads"]
    found = browser.probe(broken, tmp_path)
    assert found["errors"]
    assert found["drawn"] != found["of"]
    loading = pages["roads"].replace("<main>", '<main><img src="https://example.org/a.png">', 1)
    assert any(error.startswith("policy: img-src") for error in browser.probe(loading, tmp_path)["errors"])
    empty = re.sub(r'(id="data-2">)\{.*?\}</script>', r'\1{"data": [], "layout": {}}</script>', pages["roads"], count=1)
    assert min(plot["marks"] for plot in browser.probe(empty, tmp_path)["plots"]) == 0
    wide = pages["roads"].replace("<main>", '<main><div style="width:900px">x</div>', 1)
    assert browser.probe(wide, tmp_path, frame=(390, 800))["scroll"] > 390


@browser.needs_browser
def test_it_prints(pages, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(pages["faces"], encoding="utf-8")
    browser.run(tmp_path, path, (1100, 900), f"--print-to-pdf={tmp_path / 'page.pdf'}")
    content = (tmp_path / "page.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 12
