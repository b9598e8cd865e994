"""Comparisons with other packages: verdicts, files of results, and tables."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.rivals import page, scores


def line(racer, nlpd, seed=0, table="made", seconds=1.0):
    return {"table": table, "rows": 90, "seed": seed, "racer": racer, "nlpd": nlpd, "rmse": 0.5, "processor": seconds}


def compared(ours, theirs):
    """Return the comparison of rows of NLPD by repeat."""
    lines = [line("default", value, seed) for seed, value in enumerate(ours)]
    lines += [line("gpboost", value, seed) for seed, value in enumerate(theirs)]
    return next(scores.comparisons(list(map(scores.score_of, lines)), "default"))


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ([1.0, 2.0], [1.02, 2.02], "win"),
        ([1.02, 2.02], [1.0, 2.0], "loss"),
        ([1.0, 2.0], [1.005, 2.005], "tie"),
        ([1.0, 2.0], [1.5, 1.9], "tie"),  # repeats disagree
        ([1.0, 2.0, 9.0], [1.02, 2.02], "win"),  # only common repeats count
    ],
)
def test_a_verdict_needs_the_margin_in_every_repeat(ours, theirs, verdict):
    found = compared(ours, theirs)
    assert found.verdict == verdict
    np.testing.assert_allclose(found.differences, np.subtract(theirs, ours[: len(theirs)]))


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Results of two data sets in a file: one loss, one win, and one fit that failed."""
    monkeypatch.setattr(scores, "RESULTS", tmp_path)
    lines = [
        line("default", 1.0, seconds=2.0) | {"coverage": 0.9},
        line("gpboost", 0.75, seconds=6.0),
        line("features-64", 1.25),
    ]
    lines += [line("default", 1.0, table="other"), line("gpboost", 1.5, table="other", seconds=3.0)]
    lines += [{"table": "made", "rows": 90, "seed": 0, "racer": "svgp", "failed": "a trace\nlonger than 400 s"}]
    file = tmp_path / "lines.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    scores.add("tables", [file])
    return scores.read(tmp_path)


def test_tables_have_losses_and_verdicts(results):
    text = dict(page.tables(results))
    assert "| made | GPBoost | 0.250 | 2.0 | 6.0 |" in text["rivals-losses"]
    assert "| Twenty tables | GPBoost | 1 | 0 | 1 | 0 | 3.0 |" in text["rivals-verdicts"]
    assert "| Twenty tables | GPyTorch, SVGP | 0 | 0 | 0 | 1 |  |" in text["rivals-verdicts"]
    assert "GPyTorch, SVGP on made (longer than 400 s)" in text["rivals-tables"]
    assert "| made | 90 | 0.900 |  |  |" in text["rivals-tables"]


def test_added_lines_replace_those_of_the_same_fit(results, tmp_path):
    file = tmp_path / "more.jsonl"
    file.write_text(json.dumps(line("svgp", 2.0)))
    scores.add("tables", [file])
    found = {(s.dataset, s.racer): s.nlpd for s in scores.read(tmp_path)["tables"][0]}
    assert found["made", "svgp"] == 2.0
    assert found["made", "default"] == 1.0
    assert len(found) == 6


def test_page_includes_the_tables_of_each_race():
    text = (Path(__file__).parents[2] / "docs" / "rivals.md").read_text(encoding="utf-8")
    assert set(re.findall(r"generated/tables/([\w-]+)\.md", text)) == set(dict(page.tables(scores.read())))


def test_the_table_of_the_readme_has_todays_verdicts():
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| (\d+) \| (\d+) \| (\d+) \| ([\d.]+) \|$", readme, re.MULTILINE)
    verdicts = [
        line.strip("| \n").split(" | ") for line in dict(page.tables(scores.read()))["rivals-verdicts"].splitlines()
    ]
    assert len(rows) == 6
    for package, *figures in rows:
        words = package.replace(",", "").split()[:1]
        assert any(words[0] in row[1] and [*row[2:5], row[6]] == figures for row in verdicts if len(row) == 7), package
