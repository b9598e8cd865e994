"""The demo: its commands run, its page shows its numbers, and its size is that of the documentation."""

import html
import re
from pathlib import Path

import browser
import pytest
import trimesh
from commands import command

from rfgp.compare import Plan, compare_file

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The folder of a demo, and what it printed; warnings are errors, those of walks with an infinite variance too."""
    folder = tmp_path_factory.mktemp("demo")
    answer = command("demo --out o", folder)
    return folder / "o", answer


def test_nothing_is_warned_of_and_each_case_is_drawn(demo):
    folder, answer = demo
    for word in ("warning", "variance", "infinite", "nan"):
        assert word not in (answer.out + answer.err).lower()
    for name in ("table", "mesh", "roads", "terrain"):
        assert (folder / f"{name}.png").stat().st_size > 10_000


def test_the_page_has_each_case_with_its_smallest_divergence(demo):
    page = (demo[0] / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<h2>(.*?)</h2>", page) == ["A table", "A mesh", "Roads", "A terrain"]
    found, _ = compare_file(demo[0] / "table.csv", plan=Plan(splits=1, draws=3, seed=0))
    means = [found.estimate("kl", *group).mean for group in found.groups()]
    assert f"<strong>{min(means) / len(found.example.observed):.2g}</strong>" in page


def test_commands_of_the_page_are_understood(demo):
    page = (demo[0] / "index.html").read_text(encoding="utf-8")
    lines = [html.unescape(line) for line in re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", page)]
    assert {line.split()[1] for line in lines} == {"fit", "mesh", "traffic"}
    for line in lines:
        command(f"{line.removeprefix('rfgp ')} --help", demo[0])
    command("fit table.csv --taget yield --help", demo[0], 2)


@browser.needs_browser
@pytest.mark.parametrize(("size", "frame"), [((1300, 900), None), ((1100, 900), (390, 800))])
def test_the_page_is_drawn_in_a_browser(size, frame, demo, tmp_path):
    found = browser.probe((demo[0] / "index.html").read_text(encoding="utf-8"), tmp_path, size=size, frame=frame)
    assert (found["errors"], found["failed"], found["loaded"]) == ([], "", [])
    assert found["drawn"] == found["of"] == len(found["plots"]) > 20
    assert found["scroll"] <= found["width"]
    assert all(plot["marks"] > 0 for plot in found["plots"])


def test_the_cases_are_as_documented(demo):
    page = " ".join((ROOT / "docs" / "howto" / "command-line.md").read_text(encoding="utf-8").split())
    faces = len(trimesh.load(demo[0] / "terrain.ply", process=False).faces)
    assert f"a terrain of {faces:,} faces" in page
