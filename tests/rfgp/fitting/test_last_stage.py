"""The last stage of a fit and its report."""

import math

import numpy as np
import pytest
import torch

import rfgp
from rfgp.fitting import Plan, open_checkpoint_log
from rfgp.fitting.context import TermFit
from rfgp.fitting.last_stage import neighbor_correlation, solve_scales_and_condition


def begun(**plan):
    """Return a fit in single precision of a target without noise. It starts at a noise of a tenth."""
    X = np.random.default_rng(0).random((1000, 1)).astype(np.float32)
    gp = rfgp.SparseSpectrumGP(num_frequencies=8, coupling="iid", seed=0).condition(X, np.sin(2 * X[:, 0]))
    return TermFit.of(gp.state, Plan(**plan))


def test_small_noise_repeats_sums_in_double_precision():
    fit = begun()
    assert not fit.linear(fit.values, fit.rows).needs_float64
    state, report = solve_scales_and_condition(fit, [], "", False)
    assert fit.linear(state.hyperparameters, fit.rows).needs_float64
    jacobian = state.scaling.targets.log_jacobian(1000)
    anew = float(state.infer(fit.rows).log_marginal_likelihood()) + jacobian
    assert report.log_marginal_likelihood == pytest.approx(anew, rel=1e-9)


def test_checkpoint_without_a_sum_raises(tmp_path):
    with open_checkpoint_log(tmp_path / "c", lambda: "x") as checkpoint_log:
        checkpoint_log.memoize("a pass over all rows", lambda: {"gram": torch.ones(1)})
    with open_checkpoint_log(tmp_path / "c", lambda: "x") as checkpoint_log:
        fit = begun(checkpoint_log=checkpoint_log)
        with pytest.raises(rfgp.CheckpointError, match="c has a record without 'target'"):
            solve_scales_and_condition(fit, [], "", False)


def test_neighbor_correlation():
    generator = torch.Generator().manual_seed(0)
    points, errors = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((200, 3), (200, 2)))
    near = (torch.cdist(points, points) + torch.diag(torch.full((200,), math.inf))).argmin(1)
    centered = errors - errors.mean(0)
    expected = (centered * centered[near]).sum() / centered.square().sum()
    assert neighbor_correlation(points, errors + 3) == pytest.approx(expected.item(), rel=1e-12)
    assert math.isnan(neighbor_correlation(points[:19], errors[:19]))
    twins, opposite = torch.cat([points, points]), torch.cat([errors, -errors])  # each the nearest of the other
    assert neighbor_correlation(twins, opposite) == pytest.approx(-1, rel=1e-12)
