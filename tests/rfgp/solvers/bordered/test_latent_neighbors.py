"""Nearest neighbours as latent values with a sparse precision, for the bordered solver."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from priors import Problem
from solver_checks import check_leave_one_out, check_likelihood, same
from terms import table

import rfgp
from rfgp.solvers.bordered import BorderedSolver
from rfgp.solvers.bordered.latent_neighbors import NeighborsField, latent_precision
from rfgp.solvers.iterative import LatentSolver

DIGITS = 1e-7
"""The jitter of 1e-11 in the variance, and the digits that a precision of neighbours loses."""


class Latent(Problem):
    """A problem whose neighbours are a block with a precision."""

    digits = DIGITS

    def __init__(self, names=(), kind="plain", neighbors=1000, count=24, copies=False):
        super().__init__(("neighbors", *names), kind, count)
        self.neighbors = neighbors
        if copies:
            self.rows.inputs[7] = self.rows.inputs[3]

    @property
    def near(self):
        return replace(super().prior.neighbors, num_neighbors=self.neighbors, condition_on="latent")

    @property
    def prior(self):
        prior = super().prior
        block = latent_precision(self.near, self.rows.inputs)
        return replace(prior, neighbors=None, precisions=(*prior.precisions, block))


def solved(problem):
    return BorderedSolver(problem.prior, problem.rows, problem.mean, problem.noise)


def test_copies_of_rows_and_points_match_dense():
    """Each point by itself, as in `test_solvers`; equal rows are one place."""
    problem, new = Latent(("smooth", "groups"), "signs", copies=True), table(7, seed=9)
    new[2], new[3] = new[1], problem.rows.inputs[0]
    found = solved(problem)
    check_likelihood(found, problem)
    check_leave_one_out(found, problem)
    posterior, twin = found.posterior(), problem.twin
    for names in (None, *([name] for name in problem.names)):
        one = posterior if names is None else posterior.of(names)
        read = one.project(new)
        same(one.mean(read), twin.predicted_mean(new, names), DIGITS)
        same(one.variance(new, read), twin.predicted_covariance(new, names, names).diagonal(), DIGITS)


def test_few_neighbors_match_conjugate_gradients():
    problem, new = Latent(("smooth",), neighbors=5, count=120), table(60, seed=9)
    prior = replace(problem.prior, precisions=(), neighbors=problem.near)
    iterative = LatentSolver(prior, problem.rows, problem.mean, problem.noise)
    with torch.no_grad():
        found, other = solved(problem), iterative
        error = found.log_marginal_likelihood().item() - other.log_marginal_likelihood().item()
        assert abs(error) < 6.6 * other.likelihood_error
        ours, theirs = found.posterior(), other.posterior()
        reads = ours.project(new), theirs.project(new)
        same(ours.mean(reads[0]), theirs.mean(reads[1]), DIGITS)
        same(ours.variance(new, reads[0]), theirs.variance(new, reads[1]), DIGITS)


def field_and_values(neighbors=4):
    problem = Latent(neighbors=neighbors, count=40)
    block = latent_precision(problem.near.detached(), problem.rows.inputs)
    return block.field, block.values.numpy()


def as_matrix(field, entries):
    return sp.csr_array((entries, field.pattern.indices, field.pattern.indptr)).toarray()


def test_derivatives_match_differences():
    field, values = field_and_values()
    weights = np.random.default_rng(0).standard_normal(as_matrix(field, field.entries(values)).shape)
    symmetric = (weights + weights.T)[np.repeat(np.arange(40), np.diff(field.pattern.indptr)), field.pattern.indices]
    value, slopes = field.log_determinant(values)
    assert value == pytest.approx(np.linalg.slogdet(as_matrix(field, field.entries(values)))[1], rel=1e-9)
    for i in range(len(values)):
        step = 1e-5 * (np.arange(len(values)) == i)
        up, down = (field.entries(values + sign * step) for sign in (1, -1))
        assert field.pull_back(values, symmetric)[i] == pytest.approx(symmetric @ (up - down) / 2e-5, rel=1e-5)
        ends = [field.log_determinant(values + sign * step)[0] for sign in (1, -1)]
        assert slopes[i] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-6)


def test_rows_read_their_own_value():
    problem = Latent(neighbors=5, count=40, copies=True)
    block = latent_precision(problem.near, problem.rows.inputs)
    reads = block.projector(problem.rows.inputs)
    assert block.size == 39
    assert (np.diff(reads.indptr) == 1).all()
    assert set(reads.data) == {1.0}
    assert reads.indices[3] == reads.indices[7]
    assert not block.residual_variance(problem.rows.inputs).any()
    places = block.field.places[torch.from_numpy(reads.indices.astype(np.int64))]
    assert torch.equal(places, problem.rows.inputs)
    single = latent_precision(problem.near, problem.rows.inputs.float())
    assert (np.diff(single.projector(problem.rows.inputs.float()).indptr) == 1).all()


def test_neighbors_are_kept_with_the_field():
    problem = Latent(neighbors=5, count=40)
    first = latent_precision(problem.near, problem.rows.inputs)
    longer = replace(problem.near, lengthscale=2 * problem.near.lengthscale)
    again = latent_precision(longer, problem.rows.inputs, first.field)
    assert again.field is first.field
    assert isinstance(again.field, NeighborsField)
    assert torch.equal(again.values, 2 * first.values)


def test_prior_is_that_of_the_kernel():
    problem, new = Latent(), table(6, seed=9)
    block, twin = latent_precision(problem.near, problem.rows.inputs), problem.twin
    rows = problem.rows.inputs
    same(block.kernel(rows, rows), twin.kernel(rows, rows), DIGITS)
    same(block.kernel(rows, new), twin.kernel(rows, new), DIGITS)
    same(block.diagonal(new), twin.kernel(new, new).diagonal(), DIGITS)


def test_residuals_and_functions_are_refused():
    problem = Latent()
    with pytest.raises(rfgp.InvalidArgumentError, match="residual"):
        latent_precision(replace(problem.near, is_residual=True), problem.rows.inputs)
    posterior = solved(problem).posterior()
    with pytest.raises(rfgp.InvalidArgumentError, match="no functions to draw"):
        posterior.sample_functions(2, torch.Generator())
    assert posterior.operator(table(3)) is None
