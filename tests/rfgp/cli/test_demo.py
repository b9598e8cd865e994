"""The demo: its cases are those that the documentation names, and walks have a finite variance in each."""

import dataclasses
import html
import re
import shlex
import warnings
from pathlib import Path

import browser
import numpy as np
import pytest
import trimesh
import typer
from commands import succeed

import graphs
from rfgp.cli.compare import demo, demo_cases
from rfgp.cli.program import app
from rfgp.compare import Plan, compare_file
from rfgp.models.graph import GraphGP
from rfgp.report.demo import DemoCase, demo_page

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "howto" / "command-compare.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return demo_cases(tmp_path_factory.mktemp("demo"))


def test_the_cases_are_as_documented(cases):
    assert [path.name for path, _ in cases] == ["table.csv", "mesh.ply", "roads.geojson", "terrain.ply"]
    faces = {path.name: len(trimesh.load(path, process=False).faces) for path, _ in cases if path.suffix == ".ply"}
    assert faces == {"mesh.ply": 1280, "terrain.ply": 5408}
    options = {path.name: options for path, options in cases}
    assert "four generated data sets" in (ROOT / "README.md").read_text(encoding="utf-8")
    for words in (
        f"a terrain of {faces['terrain.ply']:,} faces, fitted to values at {options['terrain.ply']['num_train']}.",
        f"fitted to values at {options['mesh.ply']['num_train']} of its faces",
        f"halting probability {options['terrain.ply']['p_halt']}",
    ):
        assert words in " ".join(PAGE.split())
    assert re.search(r"a terrain of 5,408 faces", demo.__doc__)


@pytest.mark.slow
def test_walks_have_a_finite_variance_in_each_case(cases):
    """No warning, and a halting probability below half of the largest, as `graphs.choose_p_halt` takes it."""
    for path, options in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("error", graphs.GraphWarning)
            few = {"sizes": (16,), "methods": ("iid",), "plan": Plan(splits=1, draws=1, seed=0)}
            found, _ = compare_file(path, **{**options, **few})
        process = found.example.process
        if isinstance(process, GraphGP):
            limit = graphs.max_p_halt(process.graph, process.fitted_kernel)
            assert options.get("p_halt", 0.1) < limit / 2


@pytest.mark.slow
def test_the_demo_warns_of_nothing_and_draws_each_case(monkeypatch, capsys, tmp_path):
    out, err = succeed(monkeypatch, capsys, "demo", "--out", tmp_path / "o")
    assert "Warning" not in out + err
    for word in ("variance", "infinite", "nan"):
        assert word not in out.lower()
    for name in ("table", "mesh", "roads", "terrain"):
        assert (tmp_path / "o" / f"{name}.png").stat().st_size > 10_000
    page = (tmp_path / "o" / "index.html").read_text(encoding="utf-8")
    assert str(tmp_path / "o" / "index.html") in out.replace("\n", "")
    assert headings(page) == ["A table", "A mesh", "Roads", "A terrain"]
    assert {parsed(line) for line in commands(page)} == {"fit", "mesh", "traffic"}
    if browser.BINARY is None:
        return
    for size, frame in (((1300, 900), None), ((1100, 900), (390, 800))):
        found = browser.probe(page, tmp_path, size=size, frame=frame)
        assert (found["errors"], found["failed"], found["loaded"]) == ([], "", [])
        assert found["drawn"] == found["of"] == len(found["plots"]) > 20
        assert found["scroll"] <= found["width"]
        assert all(plot["marks"] > 0 for plot in found["plots"])


# --- the page ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def few(cases):
    """The table and the roads with two draws of few features."""
    found = []
    for path in (cases[0][0], cases[2][0]):
        comparison, posterior = compare_file(
            path, sizes=(4, 16), methods=("iid",), plan=Plan(splits=1, draws=2, seed=0)
        )
        found.append(DemoCase(path, comparison, posterior() if posterior else None))
    return found


@pytest.fixture(scope="module")
def page(few):
    return demo_page(few)


def headings(page):
    """Return the titles of the sections of a page."""
    return re.findall(r"<h2>(.*?)</h2>", page)


def commands(page):
    """Return the command lines of a page."""
    return [html.unescape(line) for line in re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", page)]


def parsed(line):
    """Return the name of a command of rfgp. Its options are parsed, and it is not run."""
    program, name, *arguments = shlex.split(line)
    assert program == "rfgp"
    command = typer.main.get_command(app).commands[name]
    command.make_context(name, arguments)
    return name


def closest(case):
    """Return the smallest mean KL of a method, a size and a held-out point, from the draws alone."""
    draws = case.comparison.draws
    groups = {(draw.method, draw.size) for draw in draws}
    means = [np.mean([draw.kl for draw in draws if (draw.method, draw.size) == group]) for group in groups]
    return min(means) / len(case.comparison.example.observed)


def test_page_has_input_terms_and_distances(page):
    assert headings(page) == ["A table", "Roads"]
    for text in ("table.csv:", "roads.geojson:", "rbf(angle)", "rbf(temperature, thickness)", "nodes.lengthscale"):
        assert text in page
    assert page.count("KL from the exact to the approximate posterior") == 2 * 2  # captions and their labels
    assert page.count("hyperparameters of the exact process") == 2


def test_commands_of_page_are_understood(page):
    assert [parsed(line) for line in commands(page)] == ["fit", "fit", "traffic"]
    with pytest.raises(Exception, match="No such option"):
        parsed("rfgp fit table.csv --taget yield")


def test_cards_have_smallest_divergence(few, page):
    for case in few:
        assert case.card[1] == f"{closest(case):.2g}"
        assert f"<strong>{case.card[1]}</strong>" in page


def test_card_follows_the_draws(few):
    """A planted error: the largest KL in place of the smallest one."""
    case = few[0]
    draws = [dataclasses.replace(draw, kl=1e3 if draw.size == 16 else draw.kl) for draw in case.comparison.draws]
    changed = dataclasses.replace(case, comparison=dataclasses.replace(case.comparison, draws=draws))
    assert (case.closest, changed.closest) == (("iid", 16), ("iid", 4))
    assert changed.card[1] == f"{closest(changed):.2g}" != case.card[1]
