"""Passes over blocks of rows in memory, in parts and on other machines, also in single precision."""

import weakref
from dataclasses import replace

import pytest
import torch
from priors import ROWS, Problem
from solver_cases import PRIORS, low_rank, solved
from solver_checks import check_leave_one_out, check_likelihood, check_predictions, gradients, same
from terms import F64, TERMS, normal, table

from rfgp.blocks import Prior, WeightBlock
from rfgp.rows import Block, DistributedRows, JoinedRows
from rfgp.solvers.dense import DenseSolver
from rfgp.solvers.lowrank import LinearModel, LowRankSolver, block_rows, update_gram

NEW = table(5, seed=9)


@pytest.fixture
def small_blocks(monkeypatch):
    """Use blocks of few rows, not a divisor of 24, and tiles of fewer columns than features."""
    monkeypatch.setattr("rfgp.solvers.lowrank.model.MIN_ROWS", 1)
    monkeypatch.setattr("rfgp.solvers.lowrank.model.ENTRIES", 110)
    monkeypatch.setattr("rfgp.solvers.lowrank.statistics.TILE", 4)


class Elsewhere(Block):
    """Rows on another machine, which are never streamed."""

    def total(self, function, combine):
        return function(Block(self.inputs, self.targets, self.fixed_noise, self.weight, self.given_output_weights))

    def blocks(self, size):
        raise AssertionError("rows of another machine are streamed")


def parts_of(rows, first=Block):
    """Return the same rows in two parts, the first without weights and noise of its own."""
    one, two = rows.take(slice(0, 10)), rows.take(slice(10, 24))
    plain = first(one.inputs, one.targets)
    ones, zeros = torch.ones(10, dtype=F64), torch.zeros(10, dtype=F64)
    every = (None, None) if rows.is_homoscedastic else (zeros, ones)
    noise, weight = (
        own if own is None else torch.cat([start, own[10:]])
        for own, start in zip((rows.fixed_noise, rows.weight), every, strict=True)
    )
    return JoinedRows([plain, two]), replace(rows, fixed_noise=noise, weight=weight)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("terms", PRIORS["low-rank"])
def test_blocks_of_rows_match_dense_algebra(terms):
    assert 1 < block_rows(Problem(terms).prior.num_features) < 24
    for kind in ROWS:
        found, problem = solved("low-rank", terms, kind)
        check_likelihood(found, problem)
        check_leave_one_out(found, problem)
        check_predictions(found, problem, NEW)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("first", [Block, Elsewhere])
@pytest.mark.parametrize("terms", [("smooth", "linear"), ("fitc", "vfe")])
def test_joined_rows_match_dense_algebra(terms, first):
    for kind in ("plain", "uneven", "outputs"):
        problem = Problem(terms, kind)
        joined, problem.rows = parts_of(problem.rows, first)
        assert isinstance(joined.parts[0], DistributedRows) == (first is Elsewhere)
        found = LowRankSolver(LinearModel(problem.prior.dense, joined, problem.mean, problem.noise))
        check_likelihood(found, problem)
        if first is Block:
            check_leave_one_out(found, problem)
        check_predictions(found, problem, NEW)


@pytest.mark.parametrize("terms", [("smooth", "linear"), ("fitc", "vfe")])
def test_single_gradients_match_all_gradients(terms):
    """Each hyperparameter by itself skips the work of the others."""
    for kind in ("plain", "signs"):
        found, problem = solved("low-rank", terms, kind)
        expected = gradients(found.log_marginal_likelihood(), problem.theta)
        for name, slope in zip(problem.theta, expected, strict=True):
            alone = Problem(terms, kind)
            for other, value in alone.theta.items():
                value.requires_grad_(other == name)
            (one,) = torch.autograd.grad(low_rank(alone).log_marginal_likelihood(), alone.theta[name])
            same(one, slope, 1e-12)


@pytest.mark.usefixtures("small_blocks")
def test_at_most_two_blocks_of_features_are_alive():
    """Each block of features is freed before the second next is computed."""
    alive, most, problem = weakref.WeakSet(), [0], Problem(["smooth"])
    block = TERMS["smooth"].block(**problem.of("smooth"))

    def counted(*arguments):
        phi = block.features(*arguments)
        alive.add(phi)
        most[0] = max(most[0], len(alive))
        return phi

    weights = Prior(weights=(replace(block, features=counted),)).dense
    LowRankSolver(LinearModel(weights, problem.rows, problem.mean, problem.noise)).log_marginal_likelihood().backward()
    assert most[0] == 2


@pytest.mark.parametrize(("terms", "kind"), [(("smooth", "linear"), "outputs"), (("fitc",), "uneven")])
def test_updates_match_all_rows(terms, kind):
    problem = Problem(terms, kind)
    first, last = (
        LinearModel(problem.prior.dense, problem.rows.take(part), problem.mean, problem.noise).detached()
        for part in (slice(0, 15), slice(15, 24))
    )
    with torch.no_grad():
        grown, new = update_gram(last, LowRankSolver(first).posterior())
        whole = LowRankSolver(LinearModel(problem.prior.dense, problem.rows, problem.mean, problem.noise)).posterior()
    same(grown.weights, whole.weights)
    same(grown.factor, whole.factor)
    assert (float(new.rows), float(new.observations)) == (9, last.rows.count)


def single(problem):
    """Set the lengthscales of a problem to single precision, like those of float32 inputs."""
    for name, value in problem.theta.items():
        if name.endswith("lengthscale"):
            problem.theta[name] = value.detach().float().requires_grad_()
    return problem


@pytest.mark.parametrize("noise", [3e-3, 0.5])
def test_float32_features_are_close_to_float64(noise):
    """The likelihood agrees to 1e-5 and gradients to 2e-3."""
    x, found = normal(5000, 2, seed=0), []
    y = torch.sin(2 * x[:, :1]) + 0.1 * normal(5000, 1, seed=1)
    for dtype in (F64, torch.float32):
        problem = Problem(["smooth", "rough"])
        problem = problem if dtype == F64 else single(problem)
        problem.theta["noise"] = torch.tensor(noise, dtype=F64, requires_grad=True)
        rows = Block(x.to(dtype), y)
        model = LinearModel(problem.prior.dense, rows, problem.mean, problem.noise)
        assert model.phi(rows).dtype == dtype
        value = LowRankSolver(model).log_marginal_likelihood()
        found.append((value, *gradients(value, problem.theta)))
    for i, (one, other) in enumerate(zip(*found, strict=True)):
        assert (one - other).abs().max() <= (2e-3 if i else 1e-5) * one.abs().max()
    assert found[0][0].item() != found[1][0].item()


def test_float32_features_are_cast_if_rounding_is_large():
    problem = single(Problem(["smooth", "rough"]))
    rows = Block(problem.rows.inputs.float(), problem.rows.targets)
    for noise, dtype in ((8e-6, torch.float32), (5e-6, F64)):  # 24 x 6e-8 x (0.7 + 0.7) / 0.3 = 6.7e-6
        model = LinearModel(problem.prior.dense, rows, problem.mean, torch.tensor(noise, dtype=F64))
        assert model.phi(rows).dtype == dtype


def test_small_noise_does_not_cancel():
    """With targets in the span of the features, the quadratic form is a small difference of large numbers."""
    phi, new, weights = normal(60, 5, seed=0), normal(4, 5, seed=1), torch.ones(5, 1, dtype=F64)
    prior = Prior(weights=(WeightBlock(lambda x: x, 5),))
    rows, mean, noise = Block(phi, phi @ weights), torch.zeros(1, dtype=F64), torch.tensor(1e-10, dtype=F64)
    found, dense = LowRankSolver(LinearModel(prior.dense, rows, mean, noise)), DenseSolver(prior, rows, mean, noise)
    posterior = found.posterior()
    same(posterior.mean(posterior.project(new)), new @ weights)
    assert float(found.log_marginal_likelihood()) == pytest.approx(float(dense.log_marginal_likelihood()), rel=1e-4)
