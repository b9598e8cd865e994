"""The graph-feature kernel: GPyTorch's own contract, and the dense matrices beside it."""

import copy
import unittest

import gpytorch
import networkx as nx
import numpy as np
import pytest
import torch
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase
from gpytorch_models import Model
from training import descend

import graphs
import rfgp
from rfgp.gpytorch import GraphExactKernel, GraphFeatureKernel, SparseRootLinearOperator

GRAPH = graphs.Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(5, 5)))


def test_graph_parameters_can_be_set():
    kernel = GraphFeatureKernel(graphs.sample_walks(GRAPH, seed=0), graphs.kernels.RegularizedLaplacian())
    kernel.sigma = 0.5
    assert kernel.sigma.item() == pytest.approx(0.5)
    kernel.initialize(sigma=0.7)
    assert kernel.sigma.item() == pytest.approx(0.7)
    diffusion = GraphFeatureKernel(graphs.sample_walks(GRAPH, seed=0), graphs.kernels.Diffusion(1.0))
    diffusion.lengthscale = 2.0
    assert diffusion.lengthscale.item() == pytest.approx(2.0)


def test_graph_kernels_train():
    nodes = torch.arange(25, dtype=torch.float64).unsqueeze(1)
    y = torch.as_tensor(np.sin(np.arange(25) // 5), dtype=torch.float64)
    kernel = GraphFeatureKernel(graphs.sample_walks(GRAPH, seed=0), graphs.kernels.Diffusion(1.0))
    model = Model(nodes, y, gpytorch.kernels.ScaleKernel(kernel)).double()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    losses = descend(lambda: -objective(model(nodes), y), model.parameters(), 20)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("position", [7, 99, -1])
def test_nodes_without_walks_are_named(position):
    kernel = GraphFeatureKernel(graphs.sample_walks(GRAPH, [0, 1], seed=0), graphs.kernels.Diffusion(1.0))
    with pytest.raises(rfgp.InvalidArgumentError, match=f"do not start at position {position}"):
        kernel(torch.tensor([[position]])).to_dense()


WALKS = graphs.sample_walks(GRAPH, seed=0)


class TestContract(BaseKernelTestCase, unittest.TestCase):
    """Positions have one column, so what the case does with several columns is done with that one."""

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
        x = torch.cat([torch.rand(9, 1), self.positions(9, 1), torch.rand(9, 1)], dim=1)
        found = self.create_kernel_no_ard(active_dims=[1])(x).to_dense()
        torch.testing.assert_close(found, self.create_kernel_no_ard()(x[:, [1]]).to_dense())

    def test_active_dims_range(self):
        x = torch.cat([torch.rand(9, 2), self.positions(9, 1)], dim=1)
        found = self.create_kernel_no_ard(active_dims=list(range(2, 3)))(x).to_dense()
        torch.testing.assert_close(found, self.create_kernel_no_ard()(x[:, [2]]).to_dense())


@pytest.mark.parametrize("batch", [(), (2,), (3, 2)])
def test_every_element_of_a_batch_is_a_kernel_of_its_own(batch):
    kernel = GraphFeatureKernel(WALKS, graphs.kernels.Diffusion(1.0), batch_shape=torch.Size(batch)).double()
    scales = torch.linspace(0.5, 2, max(1, int(np.prod(batch))), dtype=torch.float64).reshape(batch)
    kernel.lengthscale = scales
    x, z = torch.tensor([[3], [8], [3]]), torch.tensor([[0], [24]])
    found, cross, diagonal = kernel(x).to_dense(), kernel(x, z).to_dense(), kernel(x, diag=True)
    for index in np.ndindex(*batch):
        phi = WALKS.features(graphs.kernels.Diffusion(float(scales[index]))).toarray()
        np.testing.assert_allclose(found[index].detach(), phi[[3, 8, 3]] @ phi[[3, 8, 3]].T)
        np.testing.assert_allclose(cross[index].detach(), phi[[3, 8, 3]] @ phi[[0, 24]].T)
        np.testing.assert_allclose(diagonal[index].detach(), (phi[[3, 8, 3]] ** 2).sum(1))


@pytest.mark.parametrize("batch", [(2,), (3, 2)])
def test_kernels_without_parameters_have_batches(batch):
    kernel = GraphFeatureKernel(WALKS, graphs.kernels.RandomWalk(2, 3.0), batch_shape=torch.Size(batch))
    phi = torch.as_tensor(WALKS.features(graphs.kernels.RandomWalk(2, 3.0)).toarray(), dtype=torch.float32)
    x, several = torch.tensor([[3], [8], [3]]), torch.tensor([[1], [2]]).expand(*batch, 2, 1)
    one, other = (phi[i] @ phi[i].T for i in ([3, 8, 3], [1, 2]))
    torch.testing.assert_close(kernel(x).to_dense(), one.expand(*batch, 3, 3))
    torch.testing.assert_close(kernel(x, diag=True), one.diagonal().expand(*batch, 3))
    torch.testing.assert_close(kernel(several).to_dense(), other.expand(*batch, 2, 2))


@pytest.mark.parametrize("what", ["matrix", "diagonal", "product"])
def test_second_derivatives_are_refused(what):
    """They would need those of the kernel's modulation; half of them would be silently wrong."""
    kernel = GraphFeatureKernel(WALKS, graphs.kernels.Diffusion(1.0)).double()
    x = torch.arange(5)[:, None]
    ways = {
        "matrix": lambda: kernel(x).to_dense(),
        "diagonal": lambda: kernel(x, diag=True),
        "product": lambda: kernel(x) @ torch.ones(5, 1, dtype=torch.float64),
    }
    (first,) = torch.autograd.grad(ways[what]().square().sum(), kernel.raw_lengthscale, create_graph=True)
    with pytest.raises(rfgp.NotDifferentiableError, match="differentiated only once"):
        torch.autograd.grad(first, kernel.raw_lengthscale)


def test_the_features_stay_sparse():
    kernel = GraphFeatureKernel(WALKS, graphs.kernels.Diffusion(1.0))
    matrix = kernel(torch.arange(25)[:, None]).evaluate_kernel()
    assert isinstance(matrix, SparseRootLinearOperator)
    assert len(matrix.representation()) == 1
    assert matrix.representation()[0].shape == (len(WALKS.pattern.indices),)


def test_gradients_through_all_ways():
    x, z = torch.tensor([[3], [8], [3]]), torch.tensor([[0], [24]])

    def evaluate(raw, what):
        kernel = GraphFeatureKernel(WALKS, graphs.kernels.Diffusion(1.0)).double()
        del kernel.raw_lengthscale
        object.__setattr__(kernel, "raw_lengthscale", raw)
        if what == "batch":
            return kernel(torch.stack([x, x + 1]).double()).to_dense()
        if what == "product":
            return kernel(x, z) @ torch.ones(2, 1, dtype=torch.float64)
        return kernel(x).to_dense() if what == "matrix" else kernel(x, diag=True)

    for what in ("matrix", "batch", "product", "diagonal"):
        raw = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda r, what=what: evaluate(r, what), (raw,)), what


def test_predictions_are_those_of_the_dense_formulas():
    x, new = torch.tensor([[1.0], [5], [7], [7], [20]]).double(), torch.tensor([[0.0], [24], [7]]).double()
    y = torch.tensor([0.3, -1.0, 2.0, 1.9, 0.0]).double()
    kernel = GraphFeatureKernel(WALKS, graphs.kernels.Diffusion(1.5))
    model = Model(x, y, gpytorch.kernels.ScaleKernel(kernel)).double()
    phi = torch.as_tensor(WALKS.features(graphs.kernels.Diffusion(1.5)).toarray())
    scale, noise = model.covar_module.outputscale, model.likelihood.noise
    seen, other = phi[x[:, 0].long()], phi[new[:, 0].long()]
    solved = torch.linalg.solve(scale * seen @ seen.T + noise * torch.eye(5).double(), y)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(model(new).mean, scale * other @ seen.T @ solved, rtol=0, atol=1e-6)


def test_copies_share_the_draw():
    kernel = GraphFeatureKernel(WALKS, graphs.kernels.Diffusion(1.0))
    copied = copy.deepcopy(kernel)
    assert copied.feature_map.walks is WALKS
    copied.lengthscale = 2.0
    assert kernel.lengthscale.item() == pytest.approx(1.0)


def test_positions_are_whole_numbers():
    kernel = GraphFeatureKernel(WALKS, graphs.kernels.Diffusion(1.0))
    for inputs in (torch.tensor([[1.5]]), torch.tensor([[[0.0]], [[1.5]]])):  # and in batches
        with pytest.raises(rfgp.InvalidArgumentError, match=r"whole numbers, got 1\.5"):
            kernel(inputs).to_dense()


# --- kernels that are exact, or through features without randomness ---------------------------------

RING = graphs.Graph.from_networkx(nx.cycle_graph(12))
KERNEL = graphs.kernels.Diffusion(2.0)


def in_double(kernel):
    kernel = kernel.double()
    kernel.lengthscale = 2.0  # the start was one of single precision
    return kernel


@pytest.mark.parametrize("make", [graphs.chebyshev_features, graphs.taylor_features, graphs.spectral_features])
def test_features_without_randomness_make_kernels(make):
    draw = make(RING, None, 5)
    kernel = in_double(GraphFeatureKernel(draw, KERNEL))
    x, z = torch.tensor([[3], [3], [11]]), torch.tensor([[0], [5]])
    phi = draw.features(KERNEL).toarray()
    np.testing.assert_allclose(kernel(x).to_dense().detach(), phi[[3, 3, 11]] @ phi[[3, 3, 11]].T, atol=1e-12)
    np.testing.assert_allclose(kernel(x, z).to_dense().detach(), phi[[3, 3, 11]] @ phi[[0, 5]].T, atol=1e-12)


def value_at(kernel, raw, x, diag):
    del kernel.raw_lengthscale
    object.__setattr__(kernel, "raw_lengthscale", raw)
    return kernel(x, diag=True) if diag else kernel(x).to_dense()


@pytest.mark.parametrize("diag", [True, False])
@pytest.mark.parametrize("features", ["exact", "chebyshev", "spectrum"])
def test_gradients(features, diag):
    makers = {
        "exact": lambda: GraphExactKernel(RING, KERNEL),
        "chebyshev": lambda: GraphFeatureKernel(graphs.chebyshev_features(RING, None, 4), KERNEL),
        "spectrum": lambda: GraphFeatureKernel(graphs.spectral_features(RING, None, 7), KERNEL),
    }
    raw, x = torch.tensor(0.7, dtype=torch.float64, requires_grad=True), torch.tensor([[3], [8], [3]])
    assert torch.autograd.gradcheck(lambda r: value_at(makers[features]().double(), r, x, diag), (raw,))


def test_the_exact_kernel_is_exact():
    K = KERNEL.exact(RING)
    kernel = in_double(GraphExactKernel(RING, KERNEL))
    x, z = torch.tensor([[3.0], [3], [11]]).double(), torch.tensor([[0.0], [5]]).double()
    np.testing.assert_allclose(kernel(x, z).to_dense().detach(), K[[3, 3, 11]][:, [0, 5]], atol=1e-12)
    np.testing.assert_allclose(kernel(x, diag=True).detach(), K[[3, 3, 11], [3, 3, 11]], atol=1e-12)
    several = GraphExactKernel(RING, KERNEL, batch_shape=torch.Size([2])).double()
    several.lengthscale = torch.tensor([1.0, 2.0])
    np.testing.assert_allclose(several(x, z).to_dense()[1].detach(), K[[3, 3, 11]][:, [0, 5]], atol=1e-12)
    for bad in (12, -1):
        with pytest.raises(rfgp.InvalidArgumentError, match=f"got {bad}"):
            kernel(torch.tensor([[bad]])).to_dense()


def test_a_kernel_at_other_nodes_shares_only_parameters():
    kernel = GraphFeatureKernel(graphs.sample_walks(RING, [0, 1], seed=0), KERNEL)
    other = kernel.at([5])
    other.lengthscale = 1.25
    assert kernel.lengthscale.item() == pytest.approx(1.25)
    kernel(torch.tensor([[0], [1]])).to_dense()
    with pytest.raises(rfgp.InvalidArgumentError, match="do not start at position 5"):
        kernel(torch.tensor([[5]])).to_dense()


def test_planted_a_copy_that_shares_its_features_is_found(monkeypatch):
    def at(self, nodes):
        other = copy.copy(self)
        vars(other).update(vars(plain(self, nodes)))
        return other

    plain = GraphFeatureKernel.at
    monkeypatch.setattr(GraphFeatureKernel, "at", at)
    with pytest.raises((AssertionError, pytest.fail.Exception, graphs.GraphError, rfgp.RfgpError)):
        test_a_kernel_at_other_nodes_shares_only_parameters()
