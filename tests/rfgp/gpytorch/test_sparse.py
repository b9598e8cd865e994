"""Sparse operators: linear_operator's own contract, and the dense matrix beside each."""

import copy
import pickle
import unittest

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from linear_operator import settings
from linear_operator.test.linear_operator_test_case import (
    LinearOperatorTestCase,
    RectangularLinearOperatorTestCase,
)

import rfgp
from rfgp.gpytorch.sparse import (
    SparseLinearOperator,
    SparseProductLinearOperator,
    SparseRootLinearOperator,
    SparsityPattern,
)


def pattern_of(rows, columns, density=0.5, seed=0):
    matrix = sp.csr_array(np.random.default_rng(seed).random((rows, columns)) < density)
    return SparsityPattern(matrix.indptr, matrix.indices, matrix.shape)


def values_on(pattern, *batch, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*batch, len(pattern.indices), generator=generator, dtype=torch.float64).to(dtype)


def dense(values, pattern):
    """The matrices written out entry by entry."""
    out = torch.zeros(*values.shape[:-1], *pattern.shape, dtype=values.dtype)
    for row in range(pattern.shape[0]):
        for entry in range(pattern.indptr[row], pattern.indptr[row + 1]):
            out[..., row, pattern.indices[entry]] = values[..., entry]
    return out


@pytest.fixture(autouse=True)
def own_settings():
    """linear_operator's settings as it comes: importing BoTorch changes the defaults of the whole process."""
    with settings.fast_computations(), settings.max_cholesky_size(800), settings.cholesky_max_tries(3):
        yield


RECTANGLE, TALL = pattern_of(6, 4), pattern_of(5, 12, 0.8)


class _Rectangle(RectangularLinearOperatorTestCase):
    batch: tuple[int, ...] = ()

    def create_linear_op(self):
        values = values_on(RECTANGLE, *self.batch, dtype=torch.float32)
        return SparseLinearOperator(values.requires_grad_(), RECTANGLE)

    def evaluate_linear_op(self, linear_op):
        return dense(linear_op.values, RECTANGLE)


class TestRectangle(_Rectangle, unittest.TestCase):
    seed = 0


class TestRectangleBatch(_Rectangle, unittest.TestCase):
    seed, batch = 0, (3,)


class TestRectangleMultiBatch(_Rectangle, unittest.TestCase):
    seed, batch = 0, (2, 3)


class _Root(LinearOperatorTestCase):
    should_test_sample = True
    batch: tuple[int, ...] = ()

    def create_linear_op(self):
        values = values_on(TALL, *self.batch, dtype=torch.float32)
        return SparseRootLinearOperator(SparseLinearOperator(values.requires_grad_(), TALL))

    def evaluate_linear_op(self, linear_op):
        phi = dense(linear_op.root.values, TALL)
        return phi @ phi.mT


class TestRoot(_Root, unittest.TestCase):
    seed, should_call_lanczos = 0, False  # the root is known


class TestRootBatch(_Root, unittest.TestCase):
    seed, batch, should_call_lanczos = 0, (3,), False


class TestRootMultiBatch(_Root, unittest.TestCase):
    seed, batch, should_call_lanczos, skip_slq_tests = 0, (2, 3), False, True


class _Product(RectangularLinearOperatorTestCase):
    batch: tuple[int, ...] = ()

    def create_linear_op(self):
        left, right = (values_on(p, *self.batch, dtype=torch.float32).requires_grad_() for p in (TALL, WIDE))
        return SparseProductLinearOperator(SparseLinearOperator(left, TALL), SparseLinearOperator(right, WIDE).mT)

    def evaluate_linear_op(self, linear_op):
        right = linear_op.right_linear_op.mT
        return dense(linear_op.left_linear_op.values, TALL) @ dense(right.values, WIDE).mT


WIDE = pattern_of(4, 12, 0.5, seed=1)


class TestProduct(_Product, unittest.TestCase):
    seed = 0


class TestProductBatch(_Product, unittest.TestCase):
    seed, batch = 0, (2,)


class TestPattern:
    def test_only_values_are_represented(self):
        operator = SparseRootLinearOperator(SparseLinearOperator(values_on(TALL), TALL))
        (only,) = operator.representation()
        assert torch.equal(only, values_on(TALL))
        again = operator.representation_tree()(only)
        torch.testing.assert_close(again.to_dense(), operator.to_dense())
        assert again.root.pattern is TALL

    def test_copies_share_it(self):
        operator = SparseLinearOperator(values_on(TALL), TALL)
        assert copy.deepcopy(operator).pattern is TALL
        restored = pickle.loads(pickle.dumps(operator))
        torch.testing.assert_close(restored.to_dense(), operator.to_dense())

    @pytest.mark.parametrize(
        ("indptr", "indices", "shape"),
        [
            ([0, 2], [1, 1], (1, 3)),  # twice the same column
            ([0, 2], [2, 1], (1, 3)),  # decreasing
            ([0, 1], [3], (1, 3)),  # outside
            ([0, 1], [-1], (1, 3)),
            ([0, 1], [0], (2, 3)),  # a row too few
            ([0, 2], [0], (1, 3)),  # an entry too few
            ([0, 2, 1], [0], (2, 3)),  # falling
            ([1, 1], [0], (1, 3)),  # not from 0
        ],
    )
    def test_invalid_arguments_are_refused(self, indptr, indices, shape):
        with pytest.raises(rfgp.InvalidArgumentError):
            SparsityPattern(np.array(indptr), np.array(indices), shape)

    @pytest.mark.parametrize("rows", [[], [4], [3, 0, 3], [0, 1, 2, 3, 4]])
    def test_rows_are_taken(self, rows):
        operator = SparseLinearOperator(values_on(TALL, 2), TALL)
        taken = operator.take(torch.tensor(rows, dtype=torch.long))
        torch.testing.assert_close(taken.to_dense(), dense(values_on(TALL, 2), TALL)[:, rows])

    def test_no_entries_at_all(self):
        empty = SparsityPattern(np.zeros(4, int), np.zeros(0, int), (3, 5))
        operator = SparseLinearOperator(torch.zeros(0), empty)
        assert torch.equal(operator.to_dense(), torch.zeros(3, 5))
        assert torch.equal(operator @ torch.ones(5, 2), torch.zeros(3, 2))
        assert torch.equal(operator[torch.tensor([0, 1]), torch.tensor([2, 2])], torch.zeros(2))
        assert torch.equal(SparseRootLinearOperator(operator).to_dense(), torch.zeros(3, 3))


class TestGradients:
    @pytest.mark.parametrize("batch", [(), (2,)])
    @pytest.mark.parametrize("columns", [(), (3,), (2, 12, 3)])
    def test_products_twice(self, batch, columns):
        values = values_on(TALL, *batch).requires_grad_()
        shape = columns if len(columns) == 3 else (12, *columns)
        if batch and len(shape) < 2:
            return
        right = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()

        def product(v, b):
            return SparseLinearOperator(v, TALL) @ b

        torch.testing.assert_close(product(values, right), dense(values, TALL) @ right)
        assert torch.autograd.gradcheck(product, (values, right))
        assert torch.autograd.gradgradcheck(product, (values, right))

    @pytest.mark.parametrize("what", ["to_dense", "diagonal", "indices"])
    def test_of_the_root(self, what):
        def evaluate(v):
            operator = SparseRootLinearOperator(SparseLinearOperator(v, TALL))
            if what == "indices":
                return operator[torch.tensor([0, 1, 1]), torch.tensor([2, 1, 4])]
            return operator.to_dense() if what == "to_dense" else operator.diagonal()

        assert torch.autograd.gradcheck(evaluate, (values_on(TALL).requires_grad_(),))
