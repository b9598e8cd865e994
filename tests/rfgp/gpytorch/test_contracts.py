"""GPyTorch's own contract of a kernel, and linear_operator's own contract of an operator."""

import unittest
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase
from linear_operator import settings
from linear_operator.test.linear_operator_test_case import LinearOperatorTestCase, RectangularLinearOperatorTestCase

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.gpytorch import (
    GraphFeatureKernel,
    RandomFeatureKernel,
    SparseLinearOperator,
    SparseRootLinearOperator,
    SparsityPattern,
    SpectrumKernel,
    kernel_of,
)


def normals(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


class _Drawn(BaseKernelTestCase):
    make = staticmethod(partial(RandomFeatureKernel, 8, seed=0, spectrum="matern", coupling="orthogonal"))

    def create_kernel_no_ard(self, **kwargs):
        return self.make(**kwargs)

    def create_kernel_ard(self, num_dims, **kwargs):
        return self.make(ard_num_dims=num_dims, **kwargs)


class TestFourier(_Drawn, unittest.TestCase):
    pass


class TestExact(_Drawn, unittest.TestCase):
    make = staticmethod(partial(SpectrumKernel, "product-cauchy"))


WALKS = graphs.sample_walks(graphs.Graph.from_grid((5, 5)), seed=0)


class TestGraph(BaseKernelTestCase, unittest.TestCase):
    """Positions of nodes have one column; the case's several columns become this one."""

    def create_kernel_no_ard(self, **kwargs):
        kernel = GraphFeatureKernel(WALKS, graphs.kernels.Diffusion(1.5), **kwargs)
        if kernel.batch_shape:
            kernel.lengthscale = torch.rand(kernel.batch_shape) + 0.5
        return kernel

    @staticmethod
    def positions(*shape):
        return torch.randint(0, 25, shape, generator=torch.Generator().manual_seed(0)).float()

    def create_data_no_batch(self):
        return self.positions(50, 1)

    def create_data_single_batch(self):
        return self.positions(2, 3, 1)

    def create_data_double_batch(self):
        return self.positions(3, 2, 50, 1)

    def test_active_dims_list(self):
        x = torch.cat([normals(9, 1), self.positions(9, 1), normals(9, 1)], dim=1)
        found = self.create_kernel_no_ard(active_dims=[1])(x).to_dense()
        torch.testing.assert_close(found, self.create_kernel_no_ard()(x[:, [1]]).to_dense())

    test_active_dims_range = test_active_dims_list


class _Terms(BaseKernelTestCase):
    def create_kernel_no_ard(self, batch_shape=None):
        terms = k.RBF(ard=False) + k.Linear(0)
        return kernel_of(terms, self.approximation, X=normals(30, 2), seed=0, batch_shape=batch_shape)

    def create_data_no_batch(self):
        return normals(50, 2)

    @unittest.skip("The columns of terms take the place of active_dims.")
    def test_active_dims_list(self):
        pass

    test_active_dims_range = test_active_dims_list


class TestExactTerms(_Terms, unittest.TestCase):
    approximation = rfgp.Exact()


class TestFeaturesOfTerms(_Terms, unittest.TestCase):
    approximation = rfgp.RandomFeatures(8)


class TestPointsOfTerms(_Terms, unittest.TestCase):
    approximation = rfgp.InducingPoints(8, method="sor")


# --- operators -----------------------------------------------------------------------------------


def pattern_of(rows, columns, density):
    matrix = sp.csr_array(np.random.default_rng(0).random((rows, columns)) < density)
    return SparsityPattern(matrix.indptr, matrix.indices, matrix.shape)


RECTANGLE, TALL = pattern_of(6, 4, 0.5), pattern_of(5, 12, 0.8)


def values_on(pattern, *batch, dtype=torch.float64):
    return normals(*batch, len(pattern.indices)).to(dtype)


def dense(values, pattern):
    """Return the matrices written out entry by entry."""
    out = torch.zeros(*values.shape[:-1], *pattern.shape, dtype=values.dtype)
    for row in range(pattern.shape[0]):
        for entry in range(pattern.indptr[row], pattern.indptr[row + 1]):
            out[..., row, pattern.indices[entry]] = values[..., entry]
    return out


@pytest.fixture(autouse=True)
def own_settings():
    """Use the first settings of linear_operator: the import of BoTorch changes those of the whole process."""
    with settings.fast_computations(), settings.max_cholesky_size(800), settings.cholesky_max_tries(3):
        yield


class TestRectangle(RectangularLinearOperatorTestCase, unittest.TestCase):
    seed = 0

    def create_linear_op(self):
        return SparseLinearOperator(values_on(RECTANGLE, 2, 3, dtype=torch.float32).requires_grad_(), RECTANGLE)

    def evaluate_linear_op(self, linear_op):
        return dense(linear_op.values, RECTANGLE)


class TestRoot(LinearOperatorTestCase, unittest.TestCase):
    seed, batch, should_test_sample, should_call_lanczos = 0, (), True, False  # the root is known

    def create_linear_op(self):
        values = values_on(TALL, *self.batch, dtype=torch.float32)
        return SparseRootLinearOperator(SparseLinearOperator(values.requires_grad_(), TALL))

    def evaluate_linear_op(self, linear_op):
        phi = dense(linear_op.root.values, TALL)
        return phi @ phi.mT


class TestRootBatch(TestRoot):
    batch = (3,)


def test_a_matrix_without_entries_is_zero():
    operator = SparseLinearOperator(torch.zeros(0), SparsityPattern(np.zeros(4, int), np.zeros(0, int), (3, 5)))
    assert torch.equal(operator.to_dense(), torch.zeros(3, 5))
    assert torch.equal(operator @ torch.ones(5, 2), torch.zeros(3, 2))
    assert torch.equal(operator[torch.tensor([0, 1]), torch.tensor([2, 2])], torch.zeros(2))
    assert torch.equal(SparseRootLinearOperator(operator).to_dense(), torch.zeros(3, 3))


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "shape"), [((), (12,)), ((2,), (12, 2)), ((2,), (2, 12, 2))])
def test_products_have_two_derivatives(batch, shape):
    right = normals(*shape).double().requires_grad_()
    values = values_on(TALL, *batch).requires_grad_()

    def product(v, b):
        return SparseLinearOperator(v, TALL) @ b

    torch.testing.assert_close(product(values, right), dense(values, TALL) @ right)
    assert torch.autograd.gradcheck(product, (values, right))
    assert torch.autograd.gradgradcheck(product, (values, right))


def test_gradients_of_a_root_match_differences():
    def evaluate(values):
        root = SparseRootLinearOperator(SparseLinearOperator(values, TALL))
        return root.to_dense(), root.diagonal(), root[torch.tensor([0, 1, 1]), torch.tensor([2, 1, 4])]

    assert torch.autograd.gradcheck(evaluate, (values_on(TALL).requires_grad_(),))


@pytest.mark.parametrize(
    ("indptr", "indices", "shape"),
    [
        ([0, 2], [1, 1], (1, 3)),  # twice the same column
        ([0, 1], [-1], (1, 3)),  # outside
        ([0, 1], [0], (2, 3)),  # a row too few
        ([0, 2], [0], (1, 3)),  # an entry too few
        ([0, 2, 1], [0], (2, 3)),  # falling
    ],
)
def test_bad_patterns_are_refused(indptr, indices, shape):
    with pytest.raises(rfgp.InvalidArgumentError):
        SparsityPattern(np.array(indptr), np.array(indices), shape)
