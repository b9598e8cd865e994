"""Products of fields against dense Kronecker products."""

import numpy as np
import pytest
import scipy.sparse as sp
from sparse_graphs import GRAPHS

import graphs
from graphs.precisions import ChainField, KroneckerField, resolvent_field


def dense(field, values):
    return sp.csr_array((field.entries(values), field.pattern.indices, field.pattern.indptr)).toarray()


def test_precisions_are_kronecker_products():
    first, second = resolvent_field(GRAPHS["grid"](), 1), ChainField([0.0, 0.5, 2.0], 3)
    field = KroneckerField(first, second)
    found = dense(field, np.array([0.3, 1.2]))
    np.testing.assert_array_equal(found, np.kron(dense(first, np.array([0.3])), dense(second, np.array([1.2]))))
    assert field.sizes == (110, 9)


def test_patterns_too_large_for_memory_are_refused(monkeypatch):
    monkeypatch.setattr("graphs.checks.machine_memory", lambda: 2.0**20)
    field = KroneckerField(ChainField(np.arange(500.0)), ChainField(np.arange(400.0)))
    with pytest.raises(graphs.MemoryBudgetError, match="500 x 400"):
        field.entries(np.ones(2))
