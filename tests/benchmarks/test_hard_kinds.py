"""The race of hard kinds of tables: its tables, one quick run, and the goals of its summary."""

import math

import numpy as np
import pytest

from benchmarks.races import hard_kinds


def test_sets_share_no_table():
    every = {
        which: {(k, n, s) for k, t in kinds.items() for n, s in t.items()} for which, kinds in hard_kinds.TABLES.items()
    }
    assert not every["development"] & every["evidence"]
    assert set(hard_kinds.TABLES["development"]) == set(hard_kinds.TABLES["evidence"])


@pytest.mark.parametrize("which", hard_kinds.TABLES)
def test_tables_depend_on_the_seed_alone(which):
    for kind, tables in hard_kinds.TABLES[which].items():
        for name in tables:
            first, again, other = (hard_kinds.table(which, kind, name, seed) for seed in (0, 0, 1))
            assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
            assert not np.array_equal(first.y, other.y)
            assert np.isfinite(np.concatenate([first.y, first.f, first.observed])).all()
            assert first.X.shape[1] == first.new.shape[1]
            assert len(first.new) == len(first.f) == len(first.observed)


def test_a_run_has_finite_figures():
    found = hard_kinds.case("development", "line", "line", "exact", 0)
    assert all(math.isfinite(value) for key, value in found.items() if key != "warnings")
    assert found["rmse"] < 0.1


def test_summary_counts_runs_that_meet_a_goal(capsys):
    figures = {
        "r2": 0.9,
        "log_density": 0.0,
        "log_density_se": 0.1,
        "coverage": 0.95,
        "largest": 1.0,
        "processor_s": 1.0,
    }
    rows = [
        {"kind": "replicates", "table": "sines", "racer": racer, "seed": seed, "rmse": rmse} | figures
        for racer, errors in (("default", (0.105, 0.12)), ("exact", (0.1, 0.1)))
        for seed, rmse in enumerate(errors)
    ]
    rows[0] |= {"printed": 0.25, "printed_se": 0.1}
    rows[1] |= {"printed": 0.35, "printed_se": 0.1}
    hard_kinds.summary(rows)
    said = capsys.readouterr().out
    assert "replicates: RMSE within 10 % of exact: 1 of 2" in said
    assert "printed score within two standard errors: 1 of 2" in said
