import gpytorch
import networkx as nx
import numpy as np
import pytest
import torch

import graphs
import rfgp
from rfgp.gpytorch import GraphFeatureKernel, RandomFeatureKernel

X = torch.randn(20, 3, generator=rfgp.random.generator(0))
Z = torch.randn(6, 3, generator=rfgp.random.generator(1))


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, kernel):
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize("m", [4, 64])  # fewer and more features than points
@pytest.mark.parametrize("ard", [None, 3])
def test_matrices_are_those_of_the_features(m, ard):
    kernel = RandomFeatureKernel(m, seed=0, ard_num_dims=ard)
    kernel.lengthscale = 1.7
    phi_x, phi_z = (kernel.feature_map(a / 1.7) if kernel.feature_map else kernel.features(a) for a in (X, Z))
    torch.testing.assert_close(kernel(X).to_dense(), phi_x @ phi_x.T)
    torch.testing.assert_close(kernel(X, Z).to_dense(), phi_x @ phi_z.T)
    torch.testing.assert_close(kernel(X, diag=True), phi_x.square().sum(1))
    assert kernel.lengthscale.shape == (1, ard or 1)


def test_it_approximates_the_rbf_kernel():
    exact = gpytorch.kernels.RBFKernel()
    ours = RandomFeatureKernel(4000, coupling="orthogonal", seed=0)
    for kernel in (exact, ours):
        kernel.lengthscale = 2.0
    torch.testing.assert_close(ours(X, Z).to_dense(), exact(X, Z).to_dense(), rtol=0, atol=0.05)


def test_batches_and_active_dims():
    batch = torch.stack([X, X + 1])
    kernel = RandomFeatureKernel(8, seed=0, batch_shape=torch.Size([2]))
    kernel.lengthscale = torch.tensor([1.0, 2.0]).reshape(2, 1, 1)
    matrix = kernel(batch).to_dense()
    assert matrix.shape == (2, 20, 20)
    torch.testing.assert_close(matrix[1], kernel[1](batch[1]).to_dense())
    first = RandomFeatureKernel(8, seed=0, active_dims=(0, 2))
    torch.testing.assert_close(first(X).to_dense(), RandomFeatureKernel(8, seed=0)(X[:, [0, 2]]).to_dense())


def test_the_draw_is_a_sub_module_and_repeats():
    kernel = RandomFeatureKernel(8, num_dims=3, seed=5, coupling="orthogonal")
    assert isinstance(kernel.feature_map, rfgp.features.Fourier)
    other = RandomFeatureKernel(8, seed=5, coupling="orthogonal")
    torch.testing.assert_close(kernel(X).to_dense(), other(X).to_dense())
    with pytest.raises(rfgp.InvalidArgumentError, match="no coupling"):
        RandomFeatureKernel(8, coupling="sorf")


def test_a_state_dict_repeats_the_draw():
    one, other = RandomFeatureKernel(8, seed=0), RandomFeatureKernel(8, num_dims=3, seed=1)
    expected = one(X).to_dense()
    other.load_state_dict(one.state_dict())
    torch.testing.assert_close(other(X).to_dense(), expected)
    with pytest.raises(rfgp.InvalidArgumentError, match="8 frequencies, not 9"):
        RandomFeatureKernel(9).load_state_dict(one.state_dict())


def test_an_exact_gp_trains_and_predicts():
    x = torch.linspace(0, 1, 60).unsqueeze(1)
    y = torch.sin(8 * x[:, 0])
    model = Model(x, y, RandomFeatureKernel(50, seed=0))
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = -objective(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.5
    model.eval()
    with torch.no_grad():
        assert (model(x).mean - y).square().mean().sqrt() < 0.1


GRAPH = graphs.Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(5, 5)))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_graph_features_in_gpytorch(dtype):
    walks = graphs.sample_walks(GRAPH, seed=0)
    kernel = GraphFeatureKernel(walks, graphs.kernels.Diffusion(1.5))
    positions = torch.tensor([[3], [3], [24], [0]], dtype=dtype)
    phi = walks.features(graphs.kernels.Diffusion(1.5)).toarray()[[3, 3, 24, 0]]
    np.testing.assert_allclose(kernel(positions).to_dense().detach(), phi @ phi.T, rtol=1e-6)
    np.testing.assert_allclose(kernel(positions, diag=True).detach(), (phi**2).sum(1), rtol=1e-6)
    assert kernel.lengthscale.item() == pytest.approx(1.5)
    kernel(positions).to_dense().sum().backward()
    assert kernel.raw_lengthscale.grad.abs() > 0


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
    model = Model(nodes, y, kernel).double()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    first = None
    for _ in range(20):
        optimizer.zero_grad()
        loss = -objective(model(nodes), y)
        first = first or loss.item()
        loss.backward()
        optimizer.step()
    assert loss.item() < first


@pytest.mark.parametrize("position", [7, 99, -1])
def test_nodes_without_walks_are_named(position):
    kernel = GraphFeatureKernel(graphs.sample_walks(GRAPH, [0, 1], seed=0), graphs.kernels.Diffusion(1.0))
    with pytest.raises(rfgp.InvalidArgumentError, match=f"do not start at position {position}"):
        kernel(torch.tensor([[position]])).to_dense()
