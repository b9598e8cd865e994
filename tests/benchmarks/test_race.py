"""Scores of predicted distributions, and the pages of races."""

import json

import numpy as np
import pytest
from scipy import integrate, stats

from benchmarks import race, scores
from benchmarks.race import Model, Race, Split
from benchmarks.scores import Counts, Normal

MIXTURE = Normal(np.array([[0.0], [2.0]]), np.array([[1.0], [0.25]]), [0.3, 0.7])


def test_scores_of_mixtures_match_quadrature():
    def density(x):
        return 0.3 * stats.norm.pdf(x) + 0.7 * stats.norm.pdf(x, 2, 0.5)

    def below(x):
        return 0.3 * stats.norm.cdf(x) + 0.7 * stats.norm.cdf(x, 2, 0.5)

    y = 1.2
    crps = integrate.quad(lambda x: (below(x) - (x >= y)) ** 2, -8, 8, points=[y])[0]
    assert MIXTURE.crps(np.array([y]))[0] == pytest.approx(crps, rel=1e-6)
    assert MIXTURE.log_prob(np.array([y]))[0] == pytest.approx(np.log(density(y)), rel=1e-12)
    assert MIXTURE.covers(np.array([-1.5, -1.2, 1.2, 2.8, 3.2])).tolist() == [False, True, True, True, False]


@pytest.mark.parametrize("shape", [None, 2.0])
@pytest.mark.parametrize("variance", [0.0, 0.2])
def test_probabilities_of_counts_sum_to_one_and_cover(shape, variance):
    y = np.arange(400.0)
    law = Counts(np.full(400, 0.8), np.full(400, variance), shape)
    p = np.exp(law.log_prob(y))
    assert p.sum() == pytest.approx(1, abs=1e-6)
    assert p @ y == pytest.approx(law.mean[0], rel=1e-4)
    assert 0.95 <= p[law.covers(y)].sum() < 1


def test_unknown_classes_are_errors_at_the_floor():
    found = scores.of_classes(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, -1]))
    assert found["accuracy"] == 0.5
    assert found["nlpd"] == pytest.approx(-(np.log(0.9) + np.log(scores.FLOOR)) / 2)


def test_a_race_adds_lines_and_a_page_compares_by_split(tmp_path, monkeypatch, capsys):
    def split(table, seed, options):
        return Split(np.zeros((3, 1)), np.arange(3.0), np.zeros((2, 1)), np.array([0.0, 1.0 + seed]))

    def constant(value):
        return lambda X, y, seed: lambda Z: Normal(np.full(len(Z), value), np.ones(len(Z)))

    models = {"a": Model("numpy", constant(0.0)), "b": Model("numpy", constant(1.0)), "c": Model("no_package", None)}
    models["slow"] = Model("numpy", constant(0.0))
    made = Race("made", ("t",), split, models, splits=2)

    def here(module, limit, *arguments, **environment):
        if arguments[3] == "slow":
            return apart("timeit", 0.05, "import time; time.sleep(60)")
        return made.case(arguments[1], int(arguments[2]), arguments[3], None)

    apart = race.apart
    monkeypatch.setattr(race, "apart", here)
    out = tmp_path / "lines.jsonl"
    monkeypatch.setattr("sys.argv", ["made", "--out", str(out)])
    made.main()
    made.main()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    expected = [(0, "a"), (0, "b"), (0, "slow"), (1, "a"), (1, "b")]  # what was ended has no second split
    assert [(row["seed"], row["racer"]) for row in rows] == expected
    assert rows[0]["rmse"] == pytest.approx(0.5**0.5)
    assert "c is left out: no_package is not installed" in capsys.readouterr().out
    text = race.page(rows, "a")
    assert "| a | 2 | 0 ± 0 |" in text
