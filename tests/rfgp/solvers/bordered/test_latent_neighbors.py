"""Nearest neighbors as latent values with a sparse precision, for the bordered solver."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from priors import Problem
from solver_checks import check_leave_one_out, check_likelihood, check_predictions, check_terms, gradients, same
from terms import table

import rfgp
from graphs import cholesky
from graphs.errors import MemoryBudgetError
from rfgp.blocks import Prior, VecchiaBlock
from rfgp.rows import Block
from rfgp.solvers import restore, solver_for
from rfgp.solvers.bordered import BorderedSolver, planning
from rfgp.solvers.bordered.latent_neighbors import NeighborsField, latent_precision
from rfgp.solvers.iterative import LatentSolver
from rfgp.solvers.whitened import WhitenedSolver

DIGITS = 1e-7
"""The tolerance for the jitter of 1e-11 and the rounding of a precision of neighbors."""


class Latent(Problem):
    """A problem with few neighbors, or all other rows."""

    digits = DIGITS

    def __init__(self, names=(), kind="plain", neighbors=1000, count=24, copies=False):
        super().__init__(("neighbors", *names), kind, count, num_neighbors=neighbors, condition_on="latent")
        if copies:
            self.rows.inputs[7] = self.rows.inputs[3]

    @property
    def near(self):
        return self.prior.neighbors


def solved(problem):
    return BorderedSolver(*problem.given)


def test_copies_of_rows_and_points_match_dense():
    """Equal rows share a place, and equal points a value."""
    problem, new = Latent(("smooth", "groups"), "signs", copies=True), table(7, seed=9)
    new[2], new[3] = new[1], problem.rows.inputs[0]
    found = solved(problem)
    check_likelihood(found, problem)
    check_leave_one_out(found, problem)
    check_predictions(found, problem, new)
    check_terms(found, problem, new)


def definition(problem):
    """Return the covariance (n, n) of rows given the values of their neighbors, by dense conditionals."""
    x, block = problem.rows.inputs, problem.near
    order = block.order(len(x))
    pattern, kernel = block.predecessors(x[order]), problem.twin.kernel(x[order], x[order], ["neighbors"])
    factor = []
    for i in range(len(x)):
        near = pattern.indices[pattern.indptr[i] : pattern.indptr[i + 1] - 1]
        weights = torch.linalg.solve(kernel[near][:, near], kernel[near, i])
        row = torch.zeros(len(x)).double().index_put((torch.as_tensor(near),), -weights)
        row = row + torch.nn.functional.one_hot(torch.tensor(i), len(x))
        factor.append(row / (kernel[i, i] - kernel[near, i] @ weights).sqrt())
    inverse = torch.linalg.inv(torch.stack(factor))
    covariance = inverse @ inverse.mT
    back = torch.argsort(order)
    return covariance[back][:, back] + problem.twin.kernel(x, x, problem.names[1:])


@pytest.mark.parametrize("kind", ["uneven", "signs"])
def test_value_and_gradient_of_few_neighbors_match_dense(kind):
    problem = Latent(("smooth", "groups"), kind, neighbors=4, count=40)
    found, n = solved(problem), len(problem.rows)
    noise, residual = problem.rows.noise_diag(problem.noise), problem.rows.targets - problem.mean
    covariance = definition(problem) + noise.expand(n).diag()
    density = torch.distributions.MultivariateNormal(torch.zeros(n).double(), covariance)
    expected = density.log_prob(residual.mT) @ problem.rows.output_weights + problem.rows.replicate_log_prob(
        problem.noise
    )
    value = found.log_marginal_likelihood()
    assert value.item() == pytest.approx(expected.item(), rel=1e-8)
    pairs = zip(gradients(value, problem.theta), gradients(expected, problem.theta), strict=True)
    for slope, other in pairs:
        same(slope, other, 1e-8)
    precision = torch.linalg.inv(covariance)
    mean, variance = found.leave_one_out()
    same(variance, 1 / precision.diagonal(), 1e-8)
    same(mean, problem.rows.targets - (precision @ residual) / precision.diagonal()[:, None], 1e-8)


def test_few_neighbors_match_conjugate_gradients():
    problem, new = Latent(("smooth", "groups"), neighbors=5, count=120), table(60, seed=9)
    iterative = LatentSolver(*problem.given)
    with torch.no_grad():
        found, other = solved(problem), iterative
        error = found.log_marginal_likelihood().item() - other.log_marginal_likelihood().item()
        assert abs(error) < 6.6 * other.likelihood_error
        ours, theirs = found.posterior(), other.posterior()
        reads = ours.project(new), theirs.project(new)
        same(ours.mean(reads[0]), theirs.mean(reads[1]), DIGITS)
        same(ours.variance(new, reads[0]), theirs.variance(new, reads[1]), DIGITS)
        same(ours.covariance(new, reads[0]), theirs.covariance(new, reads[1]), DIGITS)
        for terms in (["neighbors"], ["smooth", "groups"]), (["neighbors"], ["neighbors", "smooth"]):
            same(ours.cross_covariance(new, *terms), theirs.cross_covariance(new, *terms), DIGITS)


def test_joint_distribution_is_limited_by_memory(limits):
    found = solved(Latent(neighbors=5, count=40)).posterior()
    limits(max_joint_numbers=40 * 300)
    for count, most in ((301, 300), (2001, 300)):
        new = table(count)
        with pytest.raises(rfgp.InvalidArgumentError, match=f"at most {most}"):
            found.covariance(new, found.project(new))


def test_factor_is_used_if_it_is_small(monkeypatch, limits):
    problem = Latent(("smooth",), neighbors=5, count=120)
    assert isinstance(solver_for(*problem.given), BorderedSolver)
    with rfgp.testing.limits(max_elimination_flops=1e3):
        assert isinstance(solver_for(*problem.given), LatentSolver)
    for name, value in {"MAX_BYTES": 1e3, "MAX_ROUNDING_ERROR": 1e-16}.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(planning, name, value)
            assert isinstance(solver_for(*problem.given), LatentSolver), name
    limits(pattern_rows=60)
    limits(max_elimination_flops=2.5 * field_of(problem, 60).analysis.flops)
    monkeypatch.setattr(BorderedSolver, "__init__", None)  # it is not used
    assert isinstance(solver_for(*problem.given), LatentSolver)


@pytest.mark.parametrize("noise", [1e-4, 1.0, 1e3])
def test_rounding_errors_are_below_their_bound(noise):
    """Pairs of close rows of a smooth process have entries of 1e11 in the precision."""
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(100, 2, generator=generator, dtype=torch.float64)
    x = torch.cat([x, x + 1e-3 * torch.randn(100, 2, generator=generator, dtype=torch.float64)])
    half, one, noise = torch.tensor([0.5, 1.0, noise], dtype=torch.float64)
    prior, rows = (
        Prior(neighbors=VecchiaBlock("gaussian", half, one, 20, 0, "latent")),
        Block(x, torch.sin(6 * x[:, :1])),
    )
    given = prior, rows, one.new_zeros(1), noise
    found, eye = BorderedSolver(*given), torch.eye(200, dtype=torch.float64)
    known = found.system.elimination.prior
    inverse = torch.from_numpy(known.latents[0].field.inverse_root(known.latents[0].values).toarray())
    root = torch.from_numpy(known.matrix.toarray()) @ torch.linalg.solve_triangular(inverse, eye, upper=False)
    variance = ((root @ torch.linalg.inv(eye + root.mT @ root / noise)) * root).sum(1)
    largest = np.abs(known.entries[0]).max()
    assert largest > 1e10
    bound = np.finfo(np.float64).eps * largest * noise
    assert (found.latent_variances / variance - 1).abs().max() <= max(bound, 1e-10)
    assert (planning.bordered_latent(*given) is not None) is bool(bound <= planning.MAX_ROUNDING_ERROR)


def test_factor_is_not_used_beyond_memory(monkeypatch):
    def refused(*arguments):
        raise MemoryBudgetError("too large")

    monkeypatch.setattr(cholesky.analysis, "check_fits", refused)
    assert isinstance(solver_for(*Latent(neighbors=6, count=90).given), LatentSolver)


def test_saved_tensors_identify_the_solver():
    problem, new = Latent(("smooth",), neighbors=5), table(9, seed=9)
    near = replace(problem.near, condition_on="auto").detached()
    prior = replace(problem.prior.detached(), neighbors=near)
    for solver in (solved(problem), LatentSolver(*problem.given), WhitenedSolver.of(*problem.given)):
        with torch.no_grad():
            posterior = solver.posterior()
            again = restore(prior, posterior.tensors())
            assert type(again) is type(posterior)
            same(again.mean(again.project(new)), posterior.mean(posterior.project(new)), 1e-12)


def field_of(problem, count):
    """Return the field of some ordered rows."""
    block, x = problem.near.detached(), problem.rows.inputs
    return latent_precision(block, x[block.order(len(x))[:count]]).field


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


def test_projection_of_rows_is_their_own_value():
    problem = Latent(neighbors=5, count=40, copies=True)
    block = latent_precision(problem.near, problem.rows.inputs)
    reads = block.projector(problem.rows.inputs)
    assert block.size == 39
    assert (np.diff(reads.indptr) == 1).all()
    assert set(reads.data) == {1.0}
    assert reads.indices[3] == reads.indices[7]
    assert not block.residual_variance(problem.rows.inputs).any()
    places = block.field.positions[torch.from_numpy(reads.indices.astype(np.int64))]
    assert torch.equal(places, problem.rows.inputs)
    single = latent_precision(problem.near, problem.rows.inputs.float())
    assert (np.diff(single.projector(problem.rows.inputs.float()).indptr) == 1).all()


def test_fields_keep_their_neighbors():
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


def test_residual_of_nothing_is_the_process():
    problem = Latent()
    plain, residual = problem.near, replace(problem.near, residual_of="nothing")
    first, second = (latent_precision(block, problem.rows.inputs) for block in (plain, residual))
    same(first.kernel(problem.rows.inputs, table(6)), second.kernel(problem.rows.inputs, table(6)), DIGITS)
