"""How the hybrid paper's Table 3 is compared: trials by products of features, and ranks."""

import numpy as np
import pytest
import torch

from benchmarks.papers.hybrid import clusters, ranges
from rfgp import couplings, random
from rfgp.features import softmax


def small(seed=0):
    data = clusters.made("s1", seed)
    rows = np.r_[0:80, 1000:1080]
    return clusters.Clusters(data.x[rows], data.y[rows])


def test_clusters_have_the_s_that_is_stated():
    """Eq. 21 at the real diagonals of the centers, which are estimated from a thousand points each."""
    x, y = clusters.made("s2", 1).x, clusters.made("s2", 1).y
    centers = [[side[:1000].mean(0), side[1000:].mean(0)] for side in (x, y)]
    a = [[np.sqrt(np.abs(s / r)) for s in centers[1]] for r in centers[0]]
    left = [((a[i][j] * centers[0][i] + centers[1][j] / a[i][j]) ** 2).sum() for i in (0, 1) for j in (0, 1)]
    np.testing.assert_allclose(left, clusters.DATA["s2"][1], atol=0.01)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), clusters.LENGTHS[0], rtol=1e-12)


def test_trials_are_mean_squared_errors_over_all_pairs():
    data, omega = small(), torch.randn(200, clusters.D, generator=random.generator(0))
    judge = clusters.Judge(data)
    found = judge.errors(omega)
    assert [len(found["hybrid"][m]) for m in clusters.SIZES] == [10, 4, 2, 2, 1, 1, 1]
    x, y, w = torch.as_tensor(data.x), torch.as_tensor(data.y), omega.double()
    exact = softmax.exact(x, y)
    for m, at in ((20, 3), (200, 0)):
        some = w[at * m : at * m + m]
        centers = [
            torch.stack([z[label == i].mean(0) for i in (0, 1)]) for z, label in ((x, judge.left), (y, judge.right))
        ]
        pairs = {
            "trigonometric": softmax.Trigonometric(some),
            "FAVOR+, one sign": softmax.Positive(some),
            "FAVOR+": softmax.Positive(couplings.Frequencies(torch.cat([some, -some]))),
            "hybrid": softmax.between_centers(some, *centers, real=True, floor=clusters.FLOOR),
        }
        for name, pair in pairs.items():
            wanted = float((pair(x, y) - exact).square().mean())
            assert found[name][m][at] == pytest.approx(wanted, rel=0.02, abs=1e-5), name


@pytest.mark.parametrize("which", clusters.ENDS)
def test_ranks_of_one_distribution_are_standard_normal(which):
    rng = random.numpy_generator(0)
    errors = np.exp(rng.standard_normal(400))
    pick = np.min if which == "least" else np.max
    ranks = [clusters.rank([errors], pick(np.exp(rng.standard_normal(20))), which, 1e-9) for _ in range(100)]
    assert abs(np.mean(ranks)) < 0.4
    assert 0.75 < np.std(ranks) < 1.3
    twice = clusters.rank([errors], float(pick(np.exp(rng.standard_normal(20)) * 4)), which, 1e-9)
    assert twice > 1


def test_smoothing_leaves_mean_and_variance_of_logarithms():
    errors = np.exp(random.numpy_generator(0).standard_normal(80))
    centers, width = ranges.smoothed(errors)
    assert centers.mean() == pytest.approx(np.log(errors).mean())
    assert centers.var() + width**2 == pytest.approx(np.log(errors).var())


@pytest.mark.parametrize(("factor", "spread"), [(1.0, 1.0), (7.0, 1.0), (1.0, 1.5)])
def test_ranges_tell_spreads_and_not_levels(factor, spread):
    """Whatever the level, ranges of the same law have standard normal scores; wider ones lie above."""
    rng = random.numpy_generator(1)
    cells = {m: [np.exp(rng.standard_normal(200)) for _ in range(3)] for m in range(10)}
    drawn = factor * np.exp(spread * rng.standard_normal((2, 10, 20)))
    printed = {("a", str(k)): np.stack([rows.min(1), rows.max(1)], axis=1) for k, rows in enumerate(drawn)}
    joint = ranges.Joint(dict.fromkeys(printed, cells), printed, 20, 1e-9)
    mean, error = joint.whole()
    assert error == pytest.approx(1 / np.sqrt(20), rel=0.25)
    if spread == 1:
        assert abs(mean / error) < 3
        assert all(abs(joint.z(key)) < 3 for key in printed)
        assert joint.share_as_uneven() > 0.01
    else:
        assert mean / error > 3
        assert joint.share_as_uneven() < 0.01
