"""Latent blocks and their sums against kernels of the same terms."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from checks import assert_mean
from priors import Problem
from solver_checks import gradients, same
from terms import ADDABLE, NODES, TERMS, normal, table

from rfgp.blocks import Prior, Residual, VecchiaBlock, WeightBlock

A, B = table(9, seed=3), table(6, seed=4)


@pytest.mark.parametrize("name", [*ADDABLE, "near"])
def test_block_matches_plain_kernel(name):
    problem = Problem([name])
    (block,), plain = problem.prior.blocks, TERMS[name].plain.at(problem.of(name))
    is_vfe = plain.whole is not None and not plain.is_noise
    same(block.kernel(A, B), (plain.whole if is_vfe else plain.kernel)(A, B), problem.digits)
    own = plain.kernel(A, A) + plain.missing(A)
    same(block.kernel(A, A), own, problem.digits)
    same(block.diagonal(A), own.diagonal(), problem.digits)
    same(problem.prior.kernel(A, B), block.kernel(A, B))
    same(problem.prior.diagonal(A), block.diagonal(A))
    check_gradients(Problem([name]), name)


def check_gradients(problem, name):
    prior, own = problem.prior, problem.of(name)
    assert all(bool((slope == 1).all()) for slope in gradients(sum(p.sum() for p in prior.parameters), own))
    assert prior.wants_gradients
    with torch.no_grad():
        assert not prior.wants_gradients
    if not prior.precisions:
        (block,), weights, plain = prior.blocks, normal(9, 9, seed=5), TERMS[name].plain.at(own)
        found = (block.kernel(A, A) * weights).sum() + block.diagonal(A) @ weights[0]
        kernel = plain.kernel(A, A) + plain.missing(A)
        expected = (kernel * weights).sum() + kernel.diagonal() @ weights[0]
        for one, other in zip(gradients(found, own), gradients(expected, own), strict=True):
            same(one, other)
    still = prior.detached()
    assert not any(parameter.requires_grad for parameter in still.parameters)
    assert not still.wants_gradients
    assert torch.equal(still.diagonal(A), prior.diagonal(A))
    assert still.blocks[0].name == name


def test_sums_are_divided_by_term_names():
    prior = Problem(ADDABLE).prior
    kinds = (prior.weights, prior.kernels, prior.graph_features, prior.precisions, (prior.neighbors,))
    assert prior.blocks == sum(kinds, start=())
    assert {block.name for block in prior.blocks} == set(ADDABLE)
    part = prior.of(["neighbors", "linear", "groups", "walks", "exact"])
    assert [block.name for block in part.blocks] == ["linear", "exact", "walks", "groups", "neighbors"]
    same(sum(prior.of([name]).kernel(A, B) for name in ADDABLE), prior.kernel(A, B))
    same(sum(prior.of([name]).diagonal(A) for name in ADDABLE), prior.diagonal(A))
    assert prior.num_features == sum(block.num_features for block in prior.weights)
    assert prior.of(["linear", "smooth"]).has_weights_only
    assert not any(prior.of(["linear", name]).has_weights_only for name in ("exact", "walks", "field", "neighbors"))


def test_kernel_of_residual_neighbors_includes_weights():
    """The covariance of the sum of s^2 k - Phi Phi^T and Phi Phi^T is s^2 k."""
    problem = Problem(["inducing", "groups", "residual"])
    same(problem.prior.kernel(A, B), problem.twin.kernel(A, B))
    same(problem.prior.diagonal(A), problem.twin.kernel(A, A).diagonal())


def test_only_single_blocks_have_functions():
    walks = Problem(["walks"]).prior
    assert walks.functions is walks.graph_features[0]
    for terms in (["walks", "linear"], ["linear"], ["exact"], ["field"]):
        assert Problem(terms).prior.functions is None


class TestWalks:
    """Functions drawn from sparse features, row by row or of all positions at once."""

    def block(self, *, at_once):
        problem = Problem(["walks"])
        (block,) = problem.prior.detached().graph_features
        every = torch.zeros(NODES, 5, dtype=torch.float64)
        every[:, 2] = torch.arange(NODES)
        matrix = block.features(every, keep=False).matrix()

        def at(positions, keep, *parameters):
            return block.at(every[positions], keep, *parameters)

        return problem, replace(block, at=at, times=(lambda v: matrix @ v) if at_once else None)

    @pytest.mark.parametrize("at_once", [False, True])
    def test_draws_have_prior_covariance(self, at_once):
        problem, block = self.block(at_once=at_once)
        values = block.draw(3000, torch.Generator().manual_seed(0))(torch.arange(4)).mT
        expected = problem.twin.kernel(*[torch.arange(4)[:, None] * torch.eye(5)[2:3].double()] * 2)
        assert_mean(values, 0)
        assert_mean(values[:, :, None] * values[:, None], expected.detach().numpy())

    @pytest.mark.parametrize("at_once", [False, True])
    def test_combinations_of_rows_match_kernel(self, at_once):
        _, block = self.block(at_once=at_once)
        rows, coefficients = torch.tensor([3, 0, 3, 7]), normal(4, 2, seed=6)
        points = torch.arange(NODES)
        found = block.kernel_expansion(rows, coefficients)(points)
        same(found, block.kernel(points, rows) @ coefficients)
        assert block.kernel_expansion(rows, coefficients)(points[:0]).shape == (0, 2)


class TestWeights:
    """Concatenated blocks of dense weights."""

    def test_values_by_weight_and_by_block(self):
        weights = Problem(["smooth", "linear", "rough"]).prior.dense
        assert weights.sizes == [8, 2, 6]
        assert weights.by_weight(torch.tensor([1, 2, 3])).tolist() == [1] * 8 + [2] * 2 + [3] * 6
        assert weights.by_block(torch.arange(16)).tolist() == [28, 17, 75]
        assert weights.of(["linear"]).tolist() == [False] * 8 + [True] * 2 + [False] * 6
        assert Prior().dense.of(["linear"]).tolist() == []
        assert Prior().dense.scaled(A).shape == (9, 0)

    def test_features_take_parameters_of_all_blocks(self):
        weights = Problem(["smooth", "linear", "rough"]).prior.dense
        other = tuple(2 * parameter for parameter in weights.parameters)
        same(weights.features(A), weights.features(A, *weights.parameters), 0.0)
        same(weights.features(A, *other)[:, 10:], weights.blocks[2].features(A, other[1]), 0.0)
        same(weights.scaled(A), weights.scale * weights.features(A))

    def test_residuals_of_some_blocks(self):
        weights = Problem(["fitc", "vfe", "linear"]).prior.dense
        phi = weights.scaled(A).double()
        parts = [weights.blocks[i].residual_variance(A, phi[:, 6 * i : 6 * i + 6]) for i in range(2)]
        same(weights.residual_variance(A, phi), parts[0] + parts[1])
        same(weights.with_residuals_of(["fitc"]).residual_variance(A, phi), parts[0])
        same(weights.with_residuals_of(["vfe"]).residual_variance(A, phi), parts[1])
        assert not weights.with_residuals_of(["linear"]).residual_variance(A, phi).any()
        unscaled = weights.unscaled_residual_variances(weights.features(A), A)
        same(weights.variances @ unscaled, parts[0] + parts[1])
        assert (weights.has_residual, weights.adds_noise) == (True, True)
        assert (weights.with_residuals_of(["vfe"]).adds_noise, Prior().dense.has_residual) == (False, False)

    def test_variances_of_residuals_with_their_own_diagonal(self):
        """The kernel u v + 1 of the first column has other variances than 1."""
        residual = Residual(False, lambda a, b: a[:, :1] @ b[:, :1].mT + 1, lambda a: a[:, 0].square() + 1)
        block = WeightBlock(lambda x: x[:, :1], 1, (), torch.tensor(0.3).double(), residual)
        same(block.residual_variance(A, block.scaled(A)), torch.full((9,), 0.3).double())
        same(block.diagonal(A), block.kernel(A, A).diagonal())


def test_exact_kernels_become_weights_at_rows():
    problem = Problem(["exact"])
    (block,) = problem.prior.kernels
    weights = block.as_weights(A)
    phi = weights.scaled(A)
    same(phi @ phi.mT, block.kernel(A, A))
    same(weights.scaled(B) @ phi.mT, block.kernel(B, A))
    same(weights.kernel(B, B), block.kernel(B, B))
    same(weights.residual_variance(A, phi), torch.zeros(9).double())
    assert (weights.num_features, weights.name) == (9, "exact")


@pytest.mark.parametrize("name", ["field", "refined field", "groups"])
def test_refined_precisions_have_the_same_covariance(name):
    problem = Problem([name])
    (block,) = problem.prior.precisions
    other = block.refined(A, B)
    assert (other is block) == (name != "refined field")
    assert other.refined(A) is other
    same(other.kernel(A, B), block.kernel(A, B))
    assert block.size == other.size == len(problem.twin.kernel(A, A)) + (3 if name != "groups" else -6)


def test_seed_determines_order_and_neighbors():
    (block,) = Problem(["neighbors"]).prior.detached().blocks
    near = replace(block, num_neighbors=3)
    assert isinstance(near, VecchiaBlock)
    assert torch.equal(near.order(20), near.order(20))
    assert not torch.equal(near.order(20), replace(near, seed=1).order(20))
    assert sorted(near.order(20).tolist()) == list(range(20))
    x = table(20, seed=3)
    pattern = near.predecessors(x)
    distances = torch.cdist(x / near.lengthscale, x / near.lengthscale)
    for i in range(20):
        expected = distances[i, :i].argsort()[:3].tolist()
        own = pattern.indices[pattern.indptr[i] : pattern.indptr[i + 1]]
        np.testing.assert_array_equal(own, [*sorted(expected), i])
