"""Up to which distance pairwise norms are optimal, by an assignment of norms of scipy."""

import numpy as np
import pytest
from scipy import optimize, special, stats

from benchmarks.papers.own import norms
from benchmarks.record import Scale


@pytest.mark.slow
def test_opposite_norms_are_the_best_assignment_up_to_the_threshold():
    found = {value.name: value.ours for value in norms.norms(Scale(quick=True)).values}
    for d in (2, 5):
        q = stats.chi(d).ppf((np.arange(16) + 0.5) / 16)
        z = found[f"d = {d}, pairwise norms are optimal up to z"]
        for factor, is_optimal in ((0.99, True), (1.02, False)):
            costs = special.hyp0f1(d / 2, -((factor * z * np.hypot(q[:, None], q)) ** 2) / 4)
            least = costs[optimize.linear_sum_assignment(costs)].sum()
            assert bool(np.fliplr(costs).diagonal().sum() < least + 1e-8 * np.ptp(costs)) is is_optimal
        crossing = found[f"d = {d}, pairwise norms are worse than independent ones from z"]
        assert norms.ratio(crossing - 0.1, d) < 1 < norms.ratio(crossing + 0.1, d)
