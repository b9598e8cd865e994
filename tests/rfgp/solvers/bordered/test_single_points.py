"""Single points on roads against the field refined by all of them."""

from dataclasses import replace

import fields
import numpy as np
import pytest
import torch
from terms import F64, normal

from graphs import RoadField
from rfgp.blocks import PrecisionBlock, Prior, WeightBlock
from rfgp.blocks.precision import products
from rfgp.rows import Block
from rfgp.solvers.bordered import BorderedSolver

ROADS = [(0, 1, 1.0), (1, 2, 2.0), (2, 3, 1.5), (3, 1, 1.2), (3, 3, 2.5), (2, 4, 1.0)]
"""Roads as (vertex, vertex, length): a triangle, a loop and two free ends."""
ROWS = torch.tensor([(road, at) for road in range(6) for at in (0.0, 0.2, 0.7)], dtype=F64)
NEW = torch.tensor([(road, at) for road in range(6) for at in (0.1, 0.4, 0.55, 0.7, 1.0)], dtype=F64)
"""On each road: two points between the same rows, one in each of two pieces or at a vertex, and one at a row."""


def read(field, values, x):
    return field.conditional(np.asarray(values), x.numpy())


def road_term(alpha, boundary, name):
    """Return a block on the roads with projections to single points."""
    whole = RoadField(fields.network(ROADS), alpha, boundary)

    def refine(inputs):
        field, _ = whole.refine(inputs.numpy())
        return field, lambda x: read(field, [1.0], x)[0]

    values, variance = torch.tensor([0.8], dtype=F64), torch.tensor(1.3, dtype=F64)
    return PrecisionBlock(whole, values, variance, lambda x: refine(x)[1](x), refine, name, between=read)


def posterior(blocks):
    """Return the posterior of some precisions and a feature."""
    feature = WeightBlock(lambda x: x[:, 1:], 1, (), torch.tensor(0.5, dtype=F64), name="feature")
    prior = Prior(weights=(feature,), precisions=tuple(blocks))
    rows = Block(ROWS, normal(len(ROWS), 2, seed=0))
    return BorderedSolver(prior, rows, torch.zeros(2, dtype=F64), torch.tensor(0.1, dtype=F64)).posterior()


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("boundary", ["neumann", "stationary"])
@pytest.mark.parametrize("alpha", [1, 2])
def test_single_points_match_the_refined_field(alpha, boundary):
    blocks = [road_term(alpha, boundary, "first"), road_term(3 - alpha, "neumann", "second")]
    single, joint = posterior(blocks), posterior([replace(block, between=None) for block in blocks])
    for names in (["first", "second", "feature"], ["first"], ["second", "feature"], ["feature"]):
        one, other = single.of(names), joint.of(names)
        reads, refined = one.project(NEW), other.project(NEW)
        assert reads.sparse.shape[1] < refined.sparse.shape[1]
        same(one.mean(reads), other.mean(refined))
        same(one.variance(NEW, reads), other.variance(NEW, refined))
        same(one.covariance(NEW, reads), other.covariance(NEW, refined))
        same(one.covariance(NEW, reads).diagonal(), one.variance(NEW, reads))
    same(single.cross_covariance(NEW, ["first"], ["second"]), joint.cross_covariance(NEW, ["first"], ["second"]))


def test_points_of_one_piece_have_the_joint_covariance():
    """Given the ends of their piece two points are correlated, unlike single points."""
    one = posterior([road_term(1, "neumann", "first")]).of(["first"])
    near = torch.tensor([(1, 0.4), (1, 0.45)], dtype=F64)
    reads = one.project(near)
    known = torch.from_numpy(products(reads.system.elimination.factor, reads.sparse, reads.sparse))
    together = one.covariance(near, reads)
    distance = torch.tensor(0.1 / 0.8, dtype=F64)
    assert together[0, 1] - known[0, 1] > 0.1
    assert torch.linalg.eigvalsh(together).min() > 0
    alike = together[0, 0] + together[1, 1] - 2 * together[0, 1]  # the variance of their difference
    assert 0 < alike < 2 * 1.3 * (1 - torch.exp(-distance))


def test_residuals_add_to_the_variances_of_single_points():
    block = road_term(2, "neumann", "first")
    refined = replace(block.refined(ROWS), residual=lambda x: 2 + x[:, 0])
    reads, left = refined.marginal_projection(NEW)
    plain, variances = read(refined.field, refined.values, NEW)
    assert (reads != plain).nnz == 0
    same(left, 1.3 * torch.from_numpy(variances) + 2 + NEW[:, 0])
    alone, none = replace(refined, between=None, residual=None).marginal_projection(ROWS)
    assert (alone != refined.projector(ROWS)).nnz == 0
    assert not none.any()
