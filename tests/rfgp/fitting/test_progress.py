"""Progress reports of a fit while it runs."""

import numpy as np
import pytest
from problems import exhausted, table

import rfgp
from rfgp.fitting import Progress

pytestmark = [  # most have few features, to be fast
    pytest.mark.filterwarnings("ignore::rfgp.VarianceStarvationWarning"),
    pytest.mark.filterwarnings("ignore::rfgp.UnderfittingWarning"),
]


def test_progress_has_stage_likelihood_and_time():
    X, y = table(3000)
    told, called = [], []
    gp = rfgp.SparseSpectrumGP(num_frequencies=8, seed=0)
    gp.fit(X, y, progress=told.append, callback=lambda i, v: called.append((i, v)))
    assert all(isinstance(p, Progress) for p in told)
    passes, told = ([p for p in told if (p.unit == "blocks") == blocks] for blocks in (True, False))
    assert [p.stage for p in passes] == ["a pass over all rows"]
    assert str(passes[0]).startswith("a pass over all rows, 3,000 rows: 1 of 1 block")
    assert len(told) == len(called) >= gp.fit_report.iterations > 0  # some told of are given up again
    assert [i for i, _ in called] == list(range(1, len(told) + 1))
    assert told[-1].log_marginal_likelihood == called[-1][1]
    assert all(p.seconds_left >= 0 for p in told)
    assert [p.seconds for p in told] == sorted(p.seconds for p in told)
    assert str(told[0]).startswith(f"{told[0].stage}, {told[0].rows:,} rows: 1 of at most 500 iterations, log density")


@pytest.mark.filterwarnings("ignore::rfgp.OverfittingWarning")
def test_learning_reports_its_time():
    X, y = exhausted(400)
    told = []
    gp = rfgp.SparseSpectrumGP(num_frequencies=12, seed=0, learn_frequencies=True)
    gp.fit(X, y, progress=told.append, max_iterations=30)
    steps = [p for p in told if p.stage == "learning frequencies"]
    assert [p.iteration for p in steps] == list(range(1, 31))
    assert steps[-1].seconds_left == 0


def test_progress_is_written_to_standard_error(capsys):
    X, y = table(200)
    rfgp.SparseSpectrumGP(num_frequencies=8, seed=0).fit(X, y, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("all rows, 200 rows: 1 of at most 500 iterations")


def test_error_of_a_callback_leaves_the_model_unchanged():
    X, y = table(200)
    gp = rfgp.SparseSpectrumGP(num_frequencies=8, seed=0).fit(X, y)
    before = gp.predict(X).mean

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gp.fit(X, -y, progress=stop)
    np.testing.assert_array_equal(gp.predict(X).mean, before)
