"""Pages of reports: their texts and figures are those of the studies, and a real browser draws them."""

import dataclasses
import html.parser
import json
import re

import browser
import numpy as np
import pytest
from PIL import Image
from plotly import graph_objects
from scipy import stats
from studies import ball, small_table, town

import rfgp
from rfgp import fields, report
from rfgp import kernels as k
from rfgp.tables import Table

pytestmark = [
    pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning"),
    pytest.mark.filterwarnings("ignore::graphs.GraphWarning"),
]

COMMAND = "rfgp fit " + "a-folder-with-a-long-name/" * 20


def table_page(table, gp=None, **options):
    gp = gp or rfgp.SparseSpectrumGP(num_frequencies=24, seed=0)
    study = report.study_table(table, gp, title="a table", **options)
    return report.table_report(study, table, settings={"seed": 0}, command=COMMAND), study


def field_page(field, gp=None, **options):
    gp = gp or rfgp.GraphGP(field.graph, num_walkers=16, seed=0, **options)
    study = report.study_field(field, gp, title="a field", test_share=0.2)
    return report.field_report(study, field, fields.posterior_at_nodes(gp, field))


PAGES = {
    "table": lambda: table_page(small_table())[0],
    "faces": lambda: field_page(ball(True)),
    "vertices": lambda: field_page(ball(False), features="walks"),
    "roads": lambda: field_page(town()),
}


@pytest.fixture(scope="module")
def pages():
    return {name: make() for name, make in PAGES.items()}


@pytest.fixture(scope="module")
def plain():
    """A page of a table without a comparison, and its study."""
    return table_page(small_table(), compare=False, fit_rows=60, test_share=0.2, seed=3)


class Reader(html.parser.HTMLParser):
    """Collects what a page would load, and checks that tags are closed."""

    def __init__(self, content):
        super().__init__()
        self.loads, self.open = [], []
        self.feed(content)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("src", "href", "action", "srcset") and not value.startswith(("#", "data:")):
                self.loads.append((tag, value))
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def plots_of(page):
    """Return the plots of a page by their captions, as plotly reads them."""
    captions = re.findall(r'class="plot" id="plot-\d+" role="img" aria-label="(.*?)"', page)
    texts = re.findall(r'<script type="application/json" id="data-\d+">(.*?)</script>', page)
    return dict(zip(captions, map(json.loads, texts), strict=True))


def plot_of(page, word):
    (found,) = [plot for caption, plot in plots_of(page).items() if word in caption]
    return found


@pytest.mark.slow
def test_pages_have_each_section_and_load_nothing(pages):
    for name, content in pages.items():
        for title in ("The data at a glance", "The fit", "Against the exact process", "Cost", "How it was made"):
            assert f"<h2>{title}</h2>" in content
        for word in ("Calibration:", "Standardized residuals", "Convergence of the fit", "KL from the exact"):
            assert word in content
        assert ("<h2>Terms and effects</h2>" in content) == (name == "table")
        assert ("Posterior standard deviation" in content) == (name != "table")
        assert ("Directions are ignored." in content) == (name == "roads")
        reader = Reader(content)
        assert (reader.loads, reader.open) == ([], [])
        assert len(content) < 2.4e6  # nearly all of it is plotly, packed
    assert f'<td class="text">{COMMAND}</td>' in pages["table"]


def test_texts_of_a_page_are_those_of_the_study(plain):
    content, study = plain
    for text in (f"{study.rmse:.4g}", f"{100 * study.r_squared:.1f} %", f"{100 * study.coverage:.1f} %"):
        assert f"<strong>{text}</strong>" in content
    best = min(study.baselines, key=lambda rule: rule.rmse)
    assert f"best baseline ({best.name}): {best.rmse:.4g}" in content
    assert "was switched off" in content
    assert "KL from the exact process" not in content
    made = content[content.index("How it was made</h2>") :]
    for name, value in (("share of the held-out part", "0.2"), ("seed of the split", "3"), ("hyperparameters", "60")):
        assert re.search(rf"{name}</th><td[^>]*>{value}<", made)


def test_figures_of_a_page_are_those_of_the_study(plain):
    content, study = plain
    points = plot_of(content, "Held-out observations against predictions")["data"][0]
    np.testing.assert_allclose(points["x"], study.prediction.mean, rtol=1e-3)
    np.testing.assert_allclose(points["y"], study.observed, rtol=1e-3)
    fit = study.model.fit_report
    lines = plot_of(content, "Convergence of the fit")["data"]
    assert [line["name"] for line in lines] == [stage.name for stage in fit.stages]
    assert lines[-1]["x"][-1] == fit.iterations == sum(len(line["x"]) - 1 for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_plotly_knows_every_property_of_a_plot(pages, name):
    for plot in plots_of(pages[name]).values():
        graph_objects.Figure(plot)  # raises if it does not


@pytest.mark.slow
def test_sensors_are_drawn_on_their_roads(pages):
    field, traces = town(), plot_of(pages["roads"], "Posterior mean")["data"]
    sensors = field.coordinates[np.unique(field.graph.index(field.nodes))]
    np.testing.assert_allclose(np.transpose([traces[-1]["x"], traces[-1]["y"]]), sensors, rtol=0, atol=6e-7)


@pytest.mark.slow
def test_intervals_of_wrong_width_are_named():
    table = small_table()
    _, study = table_page(table, compare=False, test_share=0.5)
    law = study.prediction.observed()
    normal = stats.norm.ppf((np.random.default_rng(0).permutation(75) + 0.5) / 75)
    for spread, verdict in ((0.2, "too wide"), (5, "too narrow"), (1, "as expected")):
        changed = dataclasses.replace(study, observed=law.mean + spread * law.std * normal)
        assert verdict in report.table_report(changed, table)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "share", "verdict"),
    [(10, 0.2, "cannot be assessed: 2 held-out groups, 30 of the 60 rows"), (60, 0.4, "expected in 24 groups")],
)
def test_coverage_counts_groups(number, share, verdict):
    rng = np.random.default_rng(0)
    x = rng.uniform(size=300)
    table = Table(x[:, None], np.sin(4 * x) + 0.1 * rng.standard_normal(300), ("a",), "y")
    groups = np.arange(300) % number
    content, _ = table_page(table, groups=groups, split_by="station", test_share=share, compare=False)
    assert "held-out part, at random, by station" in content
    assert verdict in content


@pytest.mark.slow
def test_a_selection_is_reported():
    content, study = table_page(small_table(), rfgp.GP(seed=0))
    selection = study.model.selection
    assert "<h2>Model selection</h2>" in content
    assert len(selection.parts) > 1
    assert all(f"{weight:.2f} of the average" in content for weight in selection.parts.values())
    assert all(trial.name in content for trial in selection.trials)
    assert f"Selected: {selection.reason}" in study.notes
    expected = {"options": dict(selection.chosen.options), "reason": selection.reason, "weights": selection.parts}
    assert study.summary()["selection"] == expected


def test_logarithms_are_shown_in_the_units_of_the_target():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 60)
    table = Table(x[:, None], 4 + np.sin(3 * x) + 0.1 * rng.standard_normal(60), ("x",), "log of price")
    content, study = table_page(table, rfgp.GP(k.RBF("x"), seed=0), compare=False)
    assert "of logarithms, about " in content
    target = plot_of(content, "The target against its column, on a logarithmic axis.")
    assert target["layout"]["yaxis"]["type"] == "log"
    np.testing.assert_allclose(target["data"][0]["y"], np.exp(table.y), rtol=1e-3)
    points = plot_of(content, "Held-out observations against predictions")["data"][0]
    np.testing.assert_allclose(points["x"], np.exp(study.prediction.mean), rtol=1e-3)
    np.testing.assert_allclose(points["y"], np.exp(study.observed), rtol=1e-3)


@pytest.mark.slow
def test_each_column_has_an_axis_and_plots_are_bounded():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20_000, 4))
    table = Table(X, X.sum(1) + 0.1 * rng.standard_normal(20_000), tuple("abcd"), "y")
    gp = rfgp.SparseSpectrumGP(num_frequencies=4, coupling="iid", seed=0)
    content, _ = table_page(table, gp, compare=False, fit_rows=50)
    assert sum(name.startswith("xaxis") for name in plot_of(content, "The target against")["layout"]) == 4
    assert all(len(json.dumps(plot)) < 200_000 for plot in plots_of(content).values())


def test_hostile_names_are_shown_and_do_nothing():
    evil = '</script><script>alert(1)</script><img src=x onerror=alert(2)>"\x1b[31m'
    table = small_table()
    table = Table(table.X, table.y, (evil, *table.columns[1:]), evil)
    study = report.study_table(table, rfgp.SparseSpectrumGP(num_frequencies=4, seed=0), title=evil, compare=False)
    content = report.table_report(study, table, settings={evil: evil}, command=evil)
    body = content[content.index("<body>") :]
    assert not any(text in content for text in ("alert(1)</script>", "<img src=x"))
    assert "\x1b" not in body
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in body
    assert Reader(content).open == []


# --- in a browser ------------------------------------------------------------------------------------------------


def crop(picture, plot):
    """Return the pixels of a plot in a picture of its page."""
    left, top = round(plot["x"]), round(plot["y"])
    right, bottom = left + round(plot["width"]), top + round(plot["height"])
    return np.asarray(Image.open(picture).convert("RGB").crop((left, top, right, bottom))).astype(int)


@browser.needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_every_plot_is_drawn_without_an_error(pages, name, tmp_path):
    found = browser.probe(pages[name], tmp_path)
    assert (found["errors"], found["failed"], found["loaded"]) == ([], "", [])
    assert found["drawn"] == found["of"] == len(found["plots"]) >= 7
    assert found["scroll"] <= found["width"]
    picture = browser.screenshot(pages[name], tmp_path, size=(1100, min(found["height"], 9000)))
    for plot in found["plots"]:
        assert plot["marks"] > 0, plot
        assert (plot["width"] > 300, plot["height"] > 200) == (True, True)
        assert (np.ptp(crop(picture, plot), axis=2) > 40).sum() > 50, f"{plot['id']} has few colored pixels"


@browser.needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("name", ["table", "roads"])
def test_a_phone_needs_no_sideways_scrolling(pages, name, tmp_path):
    found = browser.probe(pages[name], tmp_path, frame=(390, 800))
    assert (found["errors"], found["drawn"], found["width"]) == ([], found["of"], 390)
    assert found["scroll"] <= 390
    assert not any(plot["wider"] for plot in found["plots"])


@browser.needs_browser
@pytest.mark.slow
def test_a_page_prints(pages, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(pages["faces"], encoding="utf-8")
    browser.run(tmp_path, path, (1100, 900), f"--print-to-pdf={tmp_path / 'page.pdf'}")
    content = (tmp_path / "page.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 12
