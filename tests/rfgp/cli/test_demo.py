"""The demo: its cases are those that the documentation names, and walks have a finite variance in each."""

import re
import warnings
from pathlib import Path

import pytest
import trimesh
from commands import run

import graphs
from rfgp.cli.compare import demo, demo_cases
from rfgp.compare import Plan, compare_file
from rfgp.models.graph import GraphGP

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
    assert "four generated inputs" in (ROOT / "README.md").read_text(encoding="utf-8")
    for words in (
        f"a terrain of {faces['terrain.ply']:,} faces to {options['terrain.ply']['num_train']}.",
        f"to {options['mesh.ply']['num_train']} of its faces",
        f"probability {options['terrain.ply']['p_halt']}",
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
    code, out, err = run(monkeypatch, capsys, "demo", "--out", tmp_path / "o")
    assert code == 0, err
    assert "Warning" not in out + err
    for word in ("variance", "infinite", "nan"):
        assert word not in out.lower()
    for name in ("table", "mesh", "roads", "terrain"):
        assert (tmp_path / "o" / f"{name}.png").stat().st_size > 10_000
