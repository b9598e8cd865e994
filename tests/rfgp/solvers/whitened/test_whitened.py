"""Neighbours that are responses, where they are few, many rows, or the residual of inducing points.

With all predecessors as neighbours they are in `test_solvers`.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from dense_twin import DenseTwin, PlainTerm
from planting import planted
from priors import Problem, rows
from solver_checks import check_leave_one_out, check_likelihood, check_predictions, check_rows, gradients, same
from terms import F64, gaussian, nystrom, nystrom_kernel, table

import rfgp.rows.blocks
from rfgp.blocks import Prior, VecchiaBlock, WeightBlock
from rfgp.local.neighbors import used
from rfgp.solvers.bordered import BorderedSystem, system
from rfgp.solvers.lowrank import LinearModel, LowRankSolver
from rfgp.solvers.whitened import BlockedInference, WhitenedSolver, blocked, is_large, posterior, solver, whitening
from rfgp.solvers.whitened import whitened as inference_of
from rfgp.sparse import SparsityPattern


class Residual:
    """A problem of one kernel: inducing points, and neighbours that take up what these leave.

    Args:
        kind: One of `priors.ROWS`.
        neighbors: How many.
        count: The number of rows.
    """

    names, digits = ("whole",), 1e-8

    def __init__(self, kind="uneven", neighbors=1000, count=24):
        data = rows(kind, count)
        self.rows, self.neighbors = replace(data, inputs=data.inputs[:, :2].contiguous()), neighbors
        start = {"lengthscale": [1.3, 0.9], "variance": 0.6, "noise": 0.15, "mean": [0.3, -0.2][: data.num_outputs]}
        self.theta = {name: torch.tensor(value, dtype=F64, requires_grad=True) for name, value in start.items()}
        self.mean, self.noise = self.theta["mean"], self.theta["noise"]

    @property
    def kernel(self):
        return {name: self.theta[name] for name in ("lengthscale", "variance")}

    @property
    def prior(self):
        lengthscale, variance = self.kernel.values()
        weights = WeightBlock(nystrom, 6, (lengthscale,), variance, name="inducing")
        return Prior(
            (weights,), neighbors=VecchiaBlock("gaussian", lengthscale, variance, self.neighbors, 0, "auto", True)
        )

    @property
    def others(self):
        """The kernel of all but the neighbours."""
        return lambda a, b: nystrom_kernel(a, b, **self.kernel)

    @property
    def near(self):
        """The kernel of the neighbours."""
        lengthscale, variance = self.kernel.values()
        return lambda a, b: variance * gaussian(a, b, lengthscale) - self.others(a, b)

    @property
    def twin(self):
        whole = PlainTerm(lambda a, b: self.near(a, b) + self.others(a, b))
        return DenseTwin({"whole": whole}, self.rows, self.mean, self.noise)


class Few(Problem):
    """A problem with so many neighbours."""

    def __init__(self, names, kind="uneven", neighbors=1000, count=24):
        super().__init__(("neighbors", *names), kind, count)
        self.neighbors = neighbors

    @property
    def prior(self):
        prior = super().prior
        return replace(prior, neighbors=replace(prior.neighbors, num_neighbors=self.neighbors))

    @property
    def near(self):
        return lambda a, b: self.twin.kernel(a, b, ["neighbors"])

    @property
    def others(self):
        return lambda a, b: self.twin.kernel(a, b, self.names[1:]) if self.names[1:] else torch.zeros(len(a), len(b))


PROBLEMS = {
    "alone": lambda **options: Few((), **options),
    "weights": lambda **options: Few(("smooth", "linear"), **options),
    "groups": lambda **options: Few(("smooth", "field", "groups"), **options),
    "residual": Residual,
}


def solved(problem):
    return WhitenedSolver.of(problem.prior, problem.rows, problem.mean, problem.noise)


def detached(problem):
    """Return the solver's arguments without gradients."""
    return problem.prior.detached(), problem.rows, problem.mean.detach(), problem.noise.detach()


def in_order(problem):
    """Return rows in order and their neighbours."""
    block = problem.prior.neighbors
    ordered = problem.rows.take(block.order(len(problem.rows)))
    return ordered, block.predecessors(ordered.inputs)


@pytest.mark.parametrize("kind", ["plain", "signs"])
def test_residual_of_inducing_points_matches_dense(kind):
    problem, new = Residual(kind), table(7, seed=9)[:, :2]
    new[2], new[3] = new[1], problem.rows.inputs[0]
    found = solved(problem)
    check_likelihood(found, problem)
    check_rows(found, problem)
    check_leave_one_out(found, problem)
    check_predictions(found, problem, new)


def by_definition(problem, ordered, pattern):
    """Return the log density of rows in order, each given its neighbours, by dense algebra."""
    x, count = ordered.inputs, len(ordered)
    G, noise = problem.near(x, x), ordered.noise_diag(problem.noise).expand(count)
    lines = []
    for i in range(count):
        near, line = pattern.indices[pattern.indptr[i] : pattern.indptr[i + 1] - 1], torch.zeros(count, dtype=F64)
        b = torch.linalg.solve(G[near][:, near] + noise[near].diag(), G[near, i])
        scale = (G[i, i] + noise[i] - G[i, near] @ b).rsqrt()
        lines.append(line.index_put((torch.as_tensor([*near, i]),), torch.cat([-scale * b, scale[None]])))
    V = torch.stack(lines)
    covariance = torch.linalg.inv(V.mT @ V) + problem.others(x, x)
    law = torch.distributions.MultivariateNormal(torch.zeros(count, dtype=F64), covariance)
    return law.log_prob((ordered.targets - problem.mean).mT) @ ordered.each + ordered.repetitions(problem.noise)


@pytest.mark.parametrize("count", [0, 4])
@pytest.mark.parametrize("make", PROBLEMS.values(), ids=PROBLEMS)
def test_few_neighbors_follow_their_definition(make, count):
    problem = make(neighbors=max(count, 1), kind="uneven", count=40)
    ordered, pattern = in_order(problem)
    if count == 0:
        pattern = SparsityPattern(np.arange(41), np.arange(40), (40, 40))
    found = WhitenedSolver(problem.prior, ordered, problem.mean, problem.noise, pattern).log_marginal_likelihood()
    expected = by_definition(problem, ordered, pattern)
    same(found, expected)
    for a, b in zip(*(gradients(value, problem.theta) for value in (found, expected)), strict=True):
        same(a, b, 1e-7)


def test_residual_without_neighbors_is_fitc():
    problem = Residual("plain")
    none = SparsityPattern(np.arange(25), np.arange(24), (24, 24))
    found = WhitenedSolver(problem.prior, problem.rows, problem.mean, problem.noise, none).log_marginal_likelihood()
    missing = rfgp.blocks.Residual(True, lambda *given: None)
    weights = replace(problem.prior, neighbors=None, weights=(replace(problem.prior.weights[0], residual=missing),))
    fitc = LowRankSolver(LinearModel(weights.dense, problem.rows, problem.mean, problem.noise))
    same(found, fitc.log_marginal_likelihood())


@pytest.mark.parametrize("make", PROBLEMS.values(), ids=PROBLEMS)
def test_more_neighbors_come_closer(make):
    new = table(60, seed=9)
    new, errors = new[:, :2] if make is Residual else new, []
    with torch.no_grad():
        for count in (2, 8, 30):
            problem = make(neighbors=count, kind="plain", count=200)
            found = solved(problem).posterior()
            read, twin = found.project(new), problem.twin
            errors.append(float((found.mean(read) - twin.predicted_mean(new)).square().mean().sqrt()))
            covariance = found.covariance(new, read)
            assert float(torch.linalg.eigvalsh(covariance)[0]) > -1e-12
            assert torch.allclose(covariance.diagonal(), found.variance(new, read), rtol=1e-10)
    assert errors[0] > errors[1] > errors[2], errors


def test_copies_of_rows_and_points_match_dense():
    problem, new = Few(("smooth", "groups")), table(7, seed=9)
    problem.rows.inputs[7], new[2] = problem.rows.inputs[3], new[1]
    new[3] = problem.rows.inputs[0]
    found = solved(problem)
    check_likelihood(found, problem)
    check_predictions(found, problem, new)


def test_parts_of_rows_add_up():
    """Rows given their neighbours, half of them each time."""
    problem = Few((), "uneven", neighbors=6, count=60)
    prior, (ordered, pattern) = problem.prior, in_order(problem)
    whole = WhitenedSolver(prior, ordered, problem.mean, problem.noise, pattern).log_marginal_likelihood()
    total = 0
    for some in (torch.arange(0, 60, 2), torch.arange(1, 60, 2)):
        part, columns = used(prior.neighbors.predecessors(ordered.inputs, some))
        near = ordered.take(torch.from_numpy(columns))
        total = total + WhitenedSolver(prior, near, problem.mean, problem.noise, part).log_marginal_likelihood()
    same(total, whole)


@pytest.mark.parametrize("make", [PROBLEMS["weights"], PROBLEMS["residual"], lambda **of: Few(("fitc",), **of)])
def test_blocks_of_rows_match_one_block(make, monkeypatch):
    monkeypatch.setattr(blocked, "MOST_FEATURES", 0)
    monkeypatch.setattr(blocked, "BLOCK_FEATURES", 200)
    problem = make(neighbors=7, kind="signs", count=300)
    new = table(5, seed=9)[:, : problem.rows.inputs.shape[1]]
    one, many = (of(*detached(problem)) for of in (WhitenedSolver.of, inference_of))
    assert isinstance(many, BlockedInference)
    same(many.log_marginal_likelihood(), one.log_marginal_likelihood())
    for a, b in zip(many.leave_one_out(), one.leave_one_out(), strict=True):
        assert torch.equal(a, b)
    ours, other = many.posterior(), one.posterior()
    for a, b in zip(ours.moments(new, ours.project(new)), other.moments(new, other.project(new)), strict=True):
        same(a, b, 1e-10)


def test_features_are_kept_if_they_are_few_or_needed(monkeypatch):
    monkeypatch.setattr(blocked, "MOST_FEATURES", 0)
    assert is_large(PROBLEMS["weights"]().prior.detached(), 10)
    assert not is_large(PROBLEMS["alone"]().prior.detached(), 10**9)
    assert not is_large(PROBLEMS["groups"]().prior.detached(), 10**9)
    assert not is_large(PROBLEMS["weights"]().prior, 10**9)


@pytest.mark.parametrize("other", ["vfe", "walks"])
def test_sums_without_gradient_are_refused(other):
    with pytest.raises(rfgp.InvalidArgumentError, match="cannot be added"):
        solved(Few((other,)))


def test_whitened_rows_read_pairs_that_have_no_entry():
    """Rows that share neighbours read pairs of levels, for which the precision of a group has no entries."""
    found = solved(Few(("groups",))).system
    narrow = BorderedSystem(found.latents, found.reads, found.border, found.noise, found.residual)
    assert len(found.pattern.csr.indices) > len(narrow.pattern.csr.indices)


FAULTS = {
    "whitener transposed": (whitening, "whitened(self.entries, dense, self.pattern)", "self.back(dense)", "weights"),
    "sign of log|V|": (
        solver,
        "* self._whitener.log_determinant + self",
        "* -self._whitener.log_determinant + self",
        "alone",
    ),
    "share of repeated rows": (rfgp.rows.blocks, "each / self.weight", "each", "weights"),
    "gradient in reads": (solver, "system.in_reads() if", "0 * system.in_reads() if", "groups"),
    "sign in reads": (system, "- k * covered) / self.noise[rows]", "+ k * covered) / self.noise[rows]", "groups"),
    "features of neighbours": (posterior, "dense - of_near[0]", "dense - 0.9999 * of_near[0]", "weights"),
    "values of neighbours": (posterior, "sparse - of_near[1]", "sparse - 0.9999 * of_near[1]", "groups"),
    "border's coupling": (
        whitening,
        "dense - torch.from_numpy(np.asarray(sparse",
        "dense + torch.from_numpy(np.asarray(sparse",
        "groups",
    ),
}


@pytest.mark.parametrize(("module", "right", "wrong", "name"), FAULTS.values(), ids=FAULTS)
def test_planted_errors_are_seen(module, right, wrong, name):
    def check():
        problem, new = PROBLEMS[name](kind="uneven"), table(7, seed=9)
        found = solved(problem)
        check_likelihood(found, problem)
        check_predictions(found, problem, new)

    check()
    with planted(module, right, wrong), pytest.raises(AssertionError):
        check()


@pytest.mark.parametrize("share", ["weights", "left"])
def test_planted_errors_in_conditionals_are_seen(share, monkeypatch):
    own = VecchiaBlock.conditionals

    def wrong(*given):
        weights, left = own(*given)
        return (1.0001 * weights, left) if share == "weights" else (weights, 1.0001 * left)

    monkeypatch.setattr(VecchiaBlock, "conditionals", wrong)
    problem = Few(())
    with pytest.raises(AssertionError):
        check_predictions(solved(problem), problem, table(7, seed=9))


@pytest.mark.parametrize("scale", [0.0, 0.9999])
def test_planted_errors_in_residual_features_are_seen(scale, monkeypatch):
    own = VecchiaBlock.inverse_factor
    monkeypatch.setattr(
        VecchiaBlock, "inverse_factor", lambda self, x, d, near, phi: own(self, x, d, near, scale * phi)
    )
    problem = Residual()
    found, twin = solved(problem).log_marginal_likelihood(), problem.twin.log_marginal_likelihood()
    assert not math.isclose(found.item(), twin.item(), abs_tol=1e-6)
