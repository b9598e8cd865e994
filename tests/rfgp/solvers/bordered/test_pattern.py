"""Joint patterns of several fields, and solvers at other targets."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from priors import Problem, rows
from solver_checks import same
from terms import F64, grid, normal, table

import rfgp
from graphs.precisions import IndependentField, resolvent_field
from rfgp.blocks import Prior
from rfgp.rows import Block
from rfgp.solvers.bordered import BorderedSolver, JointPattern
from rfgp.solvers.bordered.projections import joint_projector
from rfgp.sparse import quadratic_forms


def solver(terms, kind="plain"):
    problem = Problem(terms, kind)
    return BorderedSolver(*problem.given)


def reads(terms):
    return joint_projector(Problem(terms).prior.precisions, table(24))


def test_pattern_of_several_fields_is_kept():
    fields = [resolvent_field(grid(), 1), IndependentField(3)]
    A = reads(["field", "groups"])
    pattern = JointPattern.of(fields, A)
    assert JointPattern.of(fields, A) is pattern
    assert JointPattern.of([fields[0], IndependentField(3)], A) is not pattern
    assert JointPattern.of(fields, A[:-1]) is not pattern
    assert quadratic_forms(A, pattern.csr, np.ones(len(pattern.csr.indices)))[1].all()


@pytest.mark.parametrize("terms", [["field"], ["field", "groups"], ["smooth field", "groups", "stiff field"]])
def test_entries_are_those_of_the_dense_matrix(terms):
    blocks, A = Problem(terms).prior.precisions, reads(terms)
    pattern = JointPattern.of([block.field for block in blocks], A)
    parts = [block.field.entries(block.values.detach().numpy()) for block in blocks]
    weights = np.linspace(1, 2, 24)
    entries = pattern.add_gram(pattern.total(parts), A, weights)
    found = sp.csr_array((entries, pattern.csr.indices, pattern.csr.indptr)).toarray()
    patterns = [block.field.pattern for block in blocks]
    own = sp.block_diag([sp.csr_array((e, p.indices, p.indptr)) for e, p in zip(parts, patterns, strict=True)])
    np.testing.assert_allclose(found, own.toarray() + (A.T * weights) @ A, rtol=1e-12, atol=1e-12)
    for number, part in enumerate(parts):
        np.testing.assert_array_equal(pattern.block(number, pattern.total(parts)), part)


def test_missing_pairs_of_a_pattern_are_named():
    """The joint precision of two groups of one row has an entry that the field's lacks."""
    problem = Problem(["groups"])
    block = replace(problem.prior.precisions[0], projector=lambda x: sp.csr_array(np.ones((len(x), 3))))
    found = BorderedSolver(Prior(precisions=(block,)), problem.rows, problem.mean, problem.noise)
    with pytest.raises(rfgp.InvalidArgumentError, match="must have an entry"):
        found.log_marginal_likelihood()


@pytest.mark.parametrize("terms", [["field", "groups"], ["smooth", "field"]])
def test_same_noise_keeps_the_factor(terms, monkeypatch):
    found, factored = solver(terms), []
    factor = JointPattern.factor
    monkeypatch.setattr(JointPattern, "factor", lambda self, entries: factored.append(1) or factor(self, entries))
    mean, noise = torch.zeros(2, dtype=F64), torch.tensor(0.15, dtype=F64)
    first = rows("plain")
    assert found.coefficients.shape == (24, 1)
    moved = found.with_data(Block(first.inputs, normal(24, 2, seed=8)), mean, noise)
    assert moved.coefficients.shape == (24, 2)
    assert len(factored) == 1
    assert found.with_data(first, mean[:1], 2 * noise).coefficients.shape == (24, 1)
    assert len(factored) == 2


def test_variances_at_pairs_without_rows():
    """Points combine a node and a group without a common row. These entries are computed by solves."""
    found, problem = solver(["field", "groups"], "uneven"), Problem(["field", "groups"], "uneven")
    new = table(40, seed=9)
    csr = found.system.elimination.prior.pattern.csr
    _, covered = quadratic_forms(joint_projector(problem.prior.precisions, new), csr, np.ones(len(csr.indices)))
    assert 0 < covered.sum() < 40
    posterior = found.posterior()
    same(posterior.variance(new, posterior.project(new)), problem.twin.predicted_covariance(new).diagonal())


def test_blocks_of_columns_do_not_change_results(monkeypatch):
    """The columns of the border are solved in blocks, of which the last is narrower."""

    def found():
        problem = Problem(["smooth", "field", "groups"])
        one = BorderedSolver(*problem.given)
        value = one.log_marginal_likelihood()
        slopes = torch.autograd.grad(value, list(problem.theta.values()))
        return [value, *slopes, one.system.in_projector(), one.system.elimination.coupling]

    whole = found()
    assert whole[-1].shape[1] > 5
    monkeypatch.setattr("rfgp.solvers.bordered.elimination.COLUMNS", 5)
    for one, other in zip(found(), whole, strict=True):
        same(one, other, 1e-10)
