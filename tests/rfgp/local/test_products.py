"""Products with the inverse factor, run by run, against dense ones."""

import pytest
import torch
from local_rows import as_dense, rows, slopes_agree

from rfgp import local
from rfgp.local import factor, products

F64 = torch.float64


def is_right(size, columns):
    """Return whether V B, V^T C and the gradients of V B are those of dense matrices."""
    x, _ = rows(90)
    pattern, make = local.block_predecessors(x.numpy(), 9, size), torch.Generator().manual_seed(size)
    entries = torch.randn(len(pattern.indices), dtype=F64, generator=make, requires_grad=True)
    dense, other = torch.randn(2, 90, columns, dtype=F64, generator=make)
    dense.requires_grad_()
    matrix, close = as_dense(entries, pattern), {"rtol": 1e-11, "atol": 1e-12}
    found, expected = local.whitened(entries, dense, pattern), matrix @ dense
    pairs = [(found, expected), (local.whitened_transpose(entries.detach(), other, pattern), matrix.mT @ other)]
    are_close = all(torch.allclose(one, another, **close) for one, another in pairs)
    return are_close and slopes_agree(found, expected, [entries, dense], other, **close)


@pytest.mark.parametrize("columns", [1, 2, 7, 33])
@pytest.mark.parametrize("size", [1, 2, 5, 16, 90])
def test_products_with_runs_match_dense_matrices(size, columns):
    assert is_right(size, columns)


@pytest.mark.parametrize("columns", [1, 7])
def test_threads_divide_rows_and_columns(columns, monkeypatch):
    for name in ("IN_THREADS", "IN_THREADS_OF_PRODUCTS"):
        monkeypatch.setattr(factor, name, 1)
    monkeypatch.setattr(factor, "num_threads", lambda: 3)
    assert is_right(5, columns)


@pytest.mark.parametrize("name", ["multiply_rows", "multiply_transposed", "outer_rows"])
def test_planted_errors_in_products_are_seen(name, monkeypatch):
    right = getattr(products, name)

    def wrong(first, last, *rest):
        right(first, last, *rest)
        rest[-1].reshape(-1)[17] *= 1.001

    monkeypatch.setattr(products, name, wrong)
    assert not is_right(5, 7)
