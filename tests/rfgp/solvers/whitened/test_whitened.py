"""Few neighbors conditioned on responses, and many rows.

Cases with all predecessors as neighbors are in `test_solvers`.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from priors import Problem
from solver_checks import check_likelihood, check_predictions, gradients, same
from terms import F64, table

import rfgp
from rfgp.blocks import Residual, predecessors_in_blocks
from rfgp.local.neighbors import used
from rfgp.solvers.bordered.latent import SparseLatents
from rfgp.solvers.lowrank import LinearModel, LowRankSolver
from rfgp.solvers.whitened import BlockedInference, WhitenedSolver, is_large
from rfgp.solvers.whitened import whitened as inference_of
from rfgp.sparse import SparsityPattern


class Few(Problem):
    """A problem with few neighbors of the last term, and rows in blocks."""

    def __init__(self, names, kind="uneven", neighbors=1000, count=24, block_size=1):
        options = {"block_size": block_size} if block_size > 1 else {}
        super().__init__(names, kind, count, num_neighbors=neighbors, **options)

    @property
    def in_order(self):
        """The ordered rows and their neighbors."""
        block = self.prior.neighbors
        ordered = self.rows.take(block.order(len(self.rows)))
        return ordered, predecessors_in_blocks(block, ordered.inputs)

    def by_definition(self, ordered, pattern):
        """Return the log density of ordered rows given their neighbors, by dense algebra."""
        x, count, kernel = ordered.inputs, len(ordered), self.twin.kernel
        G, noise, lines = kernel(x, x, self.names[-1:]), ordered.noise_diag(self.noise).expand(count), []
        for begin, end in itertools.pairwise(pattern.indptr):
            *near, i = pattern.indices[begin:end].tolist()
            line = torch.zeros(count, dtype=F64)
            b = torch.linalg.solve(G[near][:, near] + noise[near].diag(), G[near, i])
            scale = (G[i, i] + noise[i] - G[i, near] @ b).rsqrt()
            lines.append(line.index_put((torch.as_tensor([*near, i]),), torch.cat([-scale * b, scale[None]])))
        V = torch.stack(lines)
        covariance = torch.linalg.inv(V.mT @ V) + kernel(x, x, self.names[:-1])
        law = torch.distributions.MultivariateNormal(torch.zeros(count, dtype=F64), covariance)
        return law.log_prob((ordered.targets - self.mean).mT) @ ordered.output_weights + ordered.replicate_log_prob(
            self.noise
        )


SUMS = [
    ("neighbors",),
    ("smooth", "linear", "neighbors"),
    ("smooth", "field", "groups", "neighbors"),
    ("inducing", "residual"),
]


@pytest.mark.parametrize(("count", "block_size"), [(0, 1), (4, 1), (6, 4)])
@pytest.mark.parametrize("names", SUMS)
def test_few_neighbors_follow_their_definition(names, count, block_size):
    problem = Few(names, neighbors=max(count, 1), count=40, block_size=block_size)
    ordered, pattern = problem.in_order
    if count == 0:
        pattern = SparsityPattern(np.arange(41), np.arange(40), (40, 40))
    found = WhitenedSolver(problem.prior, ordered, problem.mean, problem.noise, pattern).log_marginal_likelihood()
    expected = problem.by_definition(ordered, pattern)
    same(found, expected)
    for a, b in zip(*(gradients(value, problem.theta) for value in (found, expected)), strict=True):
        same(a, b, 1e-7)


def test_residual_without_neighbors_is_fitc():
    problem = Few(("inducing", "residual"), "plain")
    none = SparsityPattern(np.arange(24 + 1), np.arange(24), (24, 24))
    found = WhitenedSolver(problem.prior, problem.rows, problem.mean, problem.noise, none).log_marginal_likelihood()
    weights = replace(problem.prior.weights[0], residual=Residual(True, lambda *given: None))
    fitc = LowRankSolver(LinearModel(rfgp.blocks.Weights((weights,)), problem.rows, problem.mean, problem.noise))
    same(found, fitc.log_marginal_likelihood())


@pytest.mark.parametrize("names", SUMS)
def test_more_neighbors_reduce_the_error(names):
    new, errors = table(60, seed=9), []
    with torch.no_grad():
        for count in (2, 8, 30):
            problem = Few(names, "plain", count, count=200)
            found = WhitenedSolver.of(*problem.given).posterior()
            read, twin = found.project(new), problem.twin
            errors.append(float((found.mean(read) - twin.predicted_mean(new)).square().mean().sqrt()))
            covariance = found.covariance(new, read)
            assert float(torch.linalg.eigvalsh(covariance)[0]) > -1e-12
            assert torch.allclose(covariance.diagonal(), found.variance(new, read), rtol=1e-10)
    assert errors[0] > errors[1] > errors[2], errors


def test_copies_of_rows_and_points_match_dense():
    problem, new = Few(("smooth", "groups", "neighbors")), table(7, seed=9)
    problem.rows.inputs[7], new[2] = problem.rows.inputs[3], new[1]
    new[3] = problem.rows.inputs[0]
    found = WhitenedSolver.of(*problem.given)
    check_likelihood(found, problem)
    check_predictions(found, problem, new)


def test_densities_of_parts_add_up():
    """Each part has half of the rows given their neighbors."""
    problem = Few(("neighbors",), neighbors=6, count=60)
    prior, (ordered, pattern) = problem.prior, problem.in_order
    whole = WhitenedSolver(prior, ordered, problem.mean, problem.noise, pattern).log_marginal_likelihood()
    total = 0
    for some in (torch.arange(0, 60, 2), torch.arange(1, 60, 2)):
        part, columns = used(prior.neighbors.predecessors(ordered.inputs, some))
        near = ordered.take(torch.from_numpy(columns))
        total = total + WhitenedSolver(prior, near, problem.mean, problem.noise, part).log_marginal_likelihood()
    same(total, whole)


@pytest.mark.parametrize("block_size", [1, 4])
@pytest.mark.parametrize("names", [("smooth", "neighbors"), ("inducing", "residual"), ("fitc", "neighbors")])
def test_blocks_of_rows_match_one_block(names, block_size, limits):
    limits(max_whitened=0, whitened_block=200)
    problem, new = Few(names, "signs", neighbors=7, count=300, block_size=block_size), table(5, seed=9)
    with torch.no_grad():
        prior, *rest = problem.given
        one, many = (of(prior.detached(), *rest) for of in (WhitenedSolver.of, inference_of))
        assert isinstance(many, BlockedInference)
        same(many.log_marginal_likelihood(), one.log_marginal_likelihood())
        for a, b in zip(many.leave_one_out(), one.leave_one_out(), strict=True):
            assert torch.equal(a, b)
        ours, other = many.posterior(), one.posterior()
        for a, b in zip(ours.moments(new, ours.project(new)), other.moments(new, other.project(new)), strict=True):
            same(a, b, 1e-10)


def test_features_are_stored_if_few_or_needed(limits):
    limits(max_whitened=0)
    assert is_large(Few(("smooth", "neighbors")).prior.detached(), 10)
    assert not is_large(Few(("neighbors",)).prior.detached(), 10**9)
    assert not is_large(Few(("smooth", "groups", "neighbors")).prior.detached(), 10**9)
    assert not is_large(Few(("smooth", "neighbors")).prior, 10**9)


@pytest.mark.parametrize("other", ["vfe", "walks"])
def test_blocks_that_cannot_be_added_are_refused(other):
    with pytest.raises(rfgp.InvalidArgumentError, match="cannot be added"):
        WhitenedSolver.of(*Few((other, "neighbors")).given)


def test_whitened_rows_combine_pairs_without_entry():
    """Rows with common neighbors combine pairs of levels without an entry in the precision of a group."""
    found = WhitenedSolver.of(*Few(("groups", "neighbors")).given).system
    wide = found.elimination.prior
    narrow = SparseLatents(wide.latents, wide.matrix)
    assert len(wide.pattern.csr.indices) > len(narrow.pattern.csr.indices)
