"""Every solver on sums of terms and kinds of rows that it serves, against dense algebra."""

import importlib
import pkgutil

import pytest
from priors import KINDS, ROWS, TERMS, Problem, table
from solver_cases import APART, PRIORS, STREAMING, solved
from solver_checks import (
    check_leave_one_out,
    check_likelihood,
    check_other_targets,
    check_predictions,
    check_restored,
    check_rows,
    check_terms,
)

import rfgp.blocks
import rfgp.solvers
from rfgp.blocks import LatentBlock
from rfgp.solvers import Inference, Posterior

NEW = table(7, seed=9)


def parametrized(*left_out):
    """Give a test all solvers, their terms and kinds of rows; each sum of terms is fast with one kind of rows."""
    sums = [(name, terms) for name in PRIORS if name not in left_out for terms in PRIORS[name]]
    cases = [
        pytest.param(name, terms, kind, id=f"{name}: {' + '.join(terms)}, {kind}", marks=[pytest.mark.slow] * slow)
        for i, (name, terms) in enumerate(sums)
        for j, kind in enumerate(ROWS)
        for slow in [(i + j) % len(ROWS) > 0]
    ]
    return pytest.mark.parametrize(("name", "terms", "kind"), cases)


@parametrized()
def test_likelihood_and_gradient(name, terms, kind):
    check_likelihood(*solved(name, terms, kind))


@parametrized()
def test_leave_one_out(name, terms, kind):
    check_leave_one_out(*solved(name, terms, kind))


@parametrized(*STREAMING)
def test_rows(name, terms, kind):
    check_rows(*solved(name, terms, kind))


@parametrized()
def test_predictions(name, terms, kind):
    check_predictions(*solved(name, terms, kind), NEW)
    check_restored(*solved(name, terms, kind), NEW)


@parametrized()
def test_terms(name, terms, kind):
    check_terms(*solved(name, terms, kind), NEW)


@parametrized(*STREAMING)
def test_other_targets(name, terms, kind):
    check_other_targets(*solved(name, terms, kind))


def implementations(role):
    """Return the classes of the package's solvers and blocks that fill a role."""
    for package in (rfgp.blocks, rfgp.solvers):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found, left = set(), [role]
    while left:
        left += (cls := left.pop()).__subclasses__()
        found |= set() if cls.__abstractmethods__ else {cls}
    return {cls for cls in found if cls.__module__.startswith(("rfgp.blocks", "rfgp.solvers"))}


def test_no_implementation_is_forgotten():
    """Classes of rows, posteriors and blocks are those that the cases above make."""
    made = [solved(name, terms)[0] for name in PRIORS for terms in PRIORS[name]]
    assert implementations(Inference) == {type(each) for each in made} | APART
    assert implementations(Posterior) == {type(each.posterior()) for each in made}
    blocks = {type(block) for name in TERMS for block in Problem([name]).prior.blocks}
    assert implementations(LatentBlock) == blocks >= KINDS.keys()
