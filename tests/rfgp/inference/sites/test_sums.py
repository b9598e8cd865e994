"""A sum of terms under several classes, term by term, against dense algebra."""

import pytest
import torch
from dense_twin import DenseTwin
from observed import Observed, by_rows
from reference import ReferenceSolver
from solver_checks import gradients, same
from terms import TERMS, table

from rfgp.inference.conditioned import ConditionedGP
from rfgp.inference.sites import variational
from rfgp.rows import Block

NAMES = ("smooth", "field", "groups")
NEW = table(6, seed=9)


@pytest.fixture(autouse=True)
def _converged(monkeypatch):
    """Search until there is no gain."""
    monkeypatch.setattr(variational, "CLASS_TOLERANCE", 1e-16)


def twins(problem, sites):
    """Return the dense regression on the sites of each function. Predictions omit its mean."""
    terms = {name: TERMS[name].plain.at(problem.of(name)) for name in problem.names}
    for precision, linear in zip(sites.precision.mT, sites.linear.mT, strict=True):
        rows = Block(problem.rows.inputs, (linear / precision)[:, None], fixed_noise=1 / precision)
        yield DenseTwin(terms, rows, torch.zeros(1).double(), torch.zeros(()).double())


@pytest.fixture
def case():
    problem = Observed(NAMES, "categorical")
    return problem, problem.by(by_rows, "variational")


def test_bound_and_gradient_of_classes_match_dense_algebra(case):
    problem, found = case
    other = problem.by(ReferenceSolver, "variational")
    values = [one.log_marginal_likelihood() for one in (found, other)]
    same(values[0], values[1])
    for slope, twin in zip(*(gradients(value, problem.theta) for value in values), strict=True):
        same(slope, twin, 1e-6)  # the sites are found to so many digits


def test_terms_of_classes_match_dense_algebra(case):
    problem, found = case
    gp, each = ConditionedGP(found.posterior()), list(twins(problem, found.approximation.sites))
    assert len(each) == 3
    for names in (NAMES, *([name] for name in NAMES)):
        distribution = gp.of(*names).at(NEW)
        covariance = torch.stack([twin.predicted_covariance(NEW, names, names) for twin in each], dim=2)
        same(distribution.mean(), torch.cat([twin.predicted_mean(NEW, names) for twin in each], dim=1))
        same(distribution.covariance(), covariance)
        same(distribution.variance(), covariance.diagonal().mT)
    for first in NAMES:
        for second in NAMES:
            cross = [twin.predicted_covariance(NEW, [first], [second]) for twin in each]
            same(gp.cross_covariance(NEW, first, second), torch.stack(cross, dim=2))
