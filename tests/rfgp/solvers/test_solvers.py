"""Every solver on the priors and rows that it serves, against dense algebra."""

import pytest
import torch
from priors import ROWS, Problem, table
from solver_checks import (
    check_leave_one_out,
    check_likelihood,
    check_other_targets,
    check_predictions,
    check_rows,
    check_terms,
)

from rfgp.solvers.bordered import BorderedSolver
from rfgp.solvers.dense import DenseSolver
from rfgp.solvers.lowrank import LinearModel, LowRankSolver


def dense(p):
    return DenseSolver(p.prior, p.rows, p.mean, p.noise)


def low_rank(p):
    return LowRankSolver(LinearModel(p.prior.dense, p.rows, p.mean, p.noise))


def bordered(p):
    return BorderedSolver(p.prior, p.rows, p.mean, p.noise)


PRIORS = {
    dense: [
        ["exact"],
        ["wide"],
        ["walks"],
        ["wide", "linear"],
        ["smooth", "linear", "exact", "walks"],
    ],
    low_rank: [
        ["smooth"],
        ["fitc"],
        ["vfe"],
        ["smooth", "rough", "linear"],
        ["smooth", "fitc", "vfe"],
    ],
    bordered: [
        ["field"],
        ["smooth field"],
        ["stiff field"],
        ["groups"],
        ["smooth"],
        ["field", "groups"],
        ["refined field", "smooth"],
        ["smooth", "linear", "exact", "field", "groups"],
        ["smooth", "linear", "smooth field", "groups"],
    ],
}
CASES = [
    pytest.param(make, names, id=f"{make.__name__}: {' + '.join(names)}")
    for make, priors in PRIORS.items()
    for names in priors
]
NEW = table(7, seed=9)
for_every_case = pytest.mark.parametrize(("make", "names"), CASES)


@for_every_case
@pytest.mark.parametrize("kind", ROWS)
def test_likelihood_and_gradient(make, names, kind):
    problem = Problem(names, kind)
    check_likelihood(make(problem), problem)


@for_every_case
@pytest.mark.parametrize("kind", ROWS)
def test_rows(make, names, kind):
    problem = Problem(names, kind)
    check_leave_one_out(make(problem), problem)
    if make is not low_rank:
        check_rows(make(problem), problem)


@for_every_case
@pytest.mark.parametrize("kind", ROWS)
def test_predictions(make, names, kind):
    problem = Problem(names, kind)
    check_predictions(make(problem), problem, NEW)


@for_every_case
@pytest.mark.parametrize("kind", ROWS)
def test_terms(make, names, kind):
    problem = Problem(names, kind)
    check_terms(make(problem), problem, NEW)


@for_every_case
def test_other_targets(make, names):
    if make is not low_rank:
        problem = Problem(names)
        check_other_targets(make(problem), problem)
