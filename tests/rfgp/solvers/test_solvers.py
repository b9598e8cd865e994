"""Each solver on its sums of terms and kinds of rows against dense algebra."""

import importlib
import pkgutil

import pytest
from priors import ROWS
from solver_cases import ESTIMATING, PRIORS, STREAMING, WITHOUT_GRADIENTS, solved
from solver_checks import (
    check_leave_one_out,
    check_likelihood,
    check_other_targets,
    check_predictions,
    check_restored,
    check_rows,
    check_terms,
    check_value,
)
from terms import table

import rfgp.blocks
import rfgp.solvers
from rfgp.blocks import LatentBlock
from rfgp.solvers import Inference, Posterior, Solver
from rfgp.solvers.onepass import OnePassSolver, SeriesPosterior

NEW = table(7, seed=9)


SUMS = [(name, terms) for name in PRIORS for terms in PRIORS[name]]
parametrized = pytest.mark.parametrize(
    ("name", "terms", "kind"),
    [
        pytest.param(
            name, terms, kind, id=f"{name}: {' + '.join(terms)}, {kind}", marks=[pytest.mark.slow] * (slow > 0)
        )
        for i, (name, terms) in enumerate(SUMS)
        for j, kind in enumerate(ROWS)
        for slow in [(i + j) % len(ROWS)]
        if slow in (0, 2) or len(PRIORS[name]) == 1
    ],
)
"""All solvers, their sums of terms, each with two kinds of rows, in turn. Each sum is fast with one kind."""


@pytest.mark.thinned(3)
@parametrized
def test_solver_matches_dense_algebra(name, terms, kind):
    found, problem = solved(name, terms, kind)
    (check_value if name in WITHOUT_GRADIENTS else check_likelihood)(found, problem)
    check_leave_one_out(found, problem)
    if name not in STREAMING:
        check_rows(found, problem)
        check_other_targets(*solved(name, terms, kind))
    check_predictions(found, problem, NEW)
    check_restored(found, problem, NEW)
    check_terms(found, problem, NEW)


def test_two_rows_match_dense_algebra():
    for name, (first, *_) in PRIORS.items():
        found, problem = solved(name, first, "outputs", count=2)
        (check_value if name in WITHOUT_GRADIENTS else check_likelihood)(found, problem)
        check_leave_one_out(found, problem)
        check_predictions(found, problem, NEW)


def implementations(role):
    """Return the classes of the package's solvers and blocks that implement a role."""
    for package in (rfgp.blocks, rfgp.solvers):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found, left = set(), [role]
    while left:
        left += (cls := left.pop()).__subclasses__()
        found |= set() if cls.__abstractmethods__ else {cls}
    return {cls for cls in found if cls.__module__.startswith(("rfgp.blocks", "rfgp.solvers"))}


def test_all_implementations_are_tested():
    """The cases above make all classes of rows, posteriors and blocks.

    Lattices are in approximations/test_equispaced.py, solvers/test_row_noise.py and inference/sites/test_lattices.py.
    """
    made = {name: [solved(name, terms) for terms in PRIORS[name]] for name in PRIORS}
    every = [found for cases in made.values() for found, _ in cases]
    blocks = [block for cases in made.values() for _, problem in cases for block in problem.prior.blocks]
    assert implementations(Inference) == {type(found) for found in every} | {OnePassSolver}
    assert implementations(Posterior) == {type(found.posterior()) for found in every} | {SeriesPosterior}
    assert implementations(LatentBlock) == {type(block) for block in blocks}
    assert {name for name in made if not isinstance(made[name][0][0], Solver)} == set(STREAMING)
    assert {name for name in made if made[name][0][0].likelihood_error > 1e-6} == set(ESTIMATING)
