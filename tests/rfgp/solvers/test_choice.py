"""The choice of a solver by the prior, and sums of any two terms."""

import pytest
import torch
from priors import Problem
from solver_checks import check_likelihood, check_predictions
from terms import ADDABLE, table

import rfgp
from rfgp.rows import JoinedRows
from rfgp.solvers import solver_for, solver_in_memory, uses_cg
from rfgp.solvers.bordered import BorderedSolver
from rfgp.solvers.dense import DenseSolver
from rfgp.solvers.iterative import IterativeSolver
from rfgp.solvers.lowrank import LowRankSolver
from rfgp.solvers.whitened import WhitenedSolver


def chosen(choice, terms, **options):
    problem = Problem(terms, **options)
    return choice(*problem.given)


def test_prior_determines_the_solver():
    for terms, count, streaming, in_memory in (
        (("smooth", "linear"), 10, LowRankSolver, BorderedSolver),  # 10 weights
        (("smooth", "linear"), 9, DenseSolver, DenseSolver),
        (("fitc",), 3, LowRankSolver, BorderedSolver),
        (("exact", "smooth"), 24, DenseSolver, DenseSolver),
        (("walks",), 24, DenseSolver, DenseSolver),
        (("smooth", "field"), 24, BorderedSolver, BorderedSolver),
        (("fitc", "exact"), 24, BorderedSolver, BorderedSolver),
        (("walks", "smooth", "field"), 24, IterativeSolver, IterativeSolver),
        (("neighbors", "smooth", "field"), 24, WhitenedSolver, BorderedSolver),
        (("inducing", "residual"), 24, WhitenedSolver, BorderedSolver),
    ):
        assert type(chosen(solver_for, terms, count=count)) is streaming, terms
        assert type(chosen(solver_in_memory, terms, count=count)) is in_memory, terms


def test_rows_in_parts_are_gathered():
    problem = Problem(["exact", "smooth"], "uneven")
    parts = JoinedRows([problem.rows.take(slice(0, 10)), problem.rows.take(slice(10, 24))])
    check_likelihood(solver_for(problem.prior, parts, problem.mean, problem.noise), problem)


def test_many_walks_use_conjugate_gradients():
    assert not uses_cg(Problem(["walks"]).prior, range(4000))
    assert uses_cg(Problem(["walks"]).prior, range(4001))
    assert uses_cg(Problem(["walks", "groups"]).prior, range(1))
    assert not uses_cg(Problem(["smooth"]).prior, range(4001))


REFUSED = [
    ("refined field", "walks"),
    ("road field", "walks"),
    ("exact", "field", "walks"),
    ("vfe", "neighbors"),
    ("walks", "neighbors"),
    ("refined field", "walks in time"),
    ("road field", "walks in time"),
    ("walks in time", "neighbors"),
]
"""Sums of terms without a solver."""


def test_sums_without_solver_are_refused():
    for terms in REFUSED:
        with pytest.raises(rfgp.InvalidArgumentError, match="cannot be added"):
            chosen(solver_for, terms)
    with pytest.raises(rfgp.InvalidArgumentError, match="cannot be added"):
        chosen(solver_in_memory, ("walks", "neighbors"))


@pytest.mark.slow
@pytest.mark.parametrize("first", ADDABLE)
def test_any_two_terms_add_up(first):
    new = table(5, seed=9)
    for second in ADDABLE[ADDABLE.index(first) + 1 :]:
        if (first, second) not in REFUSED:
            problem = Problem([first, second], "uneven")
            found = solver_for(*problem.given)
            problem.digits = max(problem.digits, 1e-4 if isinstance(found, IterativeSolver) else 0.0)
            check_likelihood(found, problem)
            check_predictions(found, problem, new)


def test_float32_numbers_are_read_as_float64():
    problem = Problem(["smooth"])
    found = solver_for(problem.prior, problem.rows, problem.mean.float(), problem.noise.float())
    assert found.model.noise.dtype == found.model.mean.dtype == torch.float64
