"""The kernels of graphs against dense matrices of features, and the exact kernel."""

import copy

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch_models import Model

import graphs
import rfgp
from rfgp.gpytorch import GraphExactKernel, GraphFeatureKernel, SparseRootLinearOperator

GRAPH = graphs.Graph.from_grid((5, 5))
WALKS = graphs.sample_walks(GRAPH, seed=0)
KERNEL = graphs.kernels.Diffusion(2.0)
ROWS, NEW = [3, 8, 3], [0, 24]


def column(positions):
    return torch.tensor(positions)[:, None]


def in_double(kernel, lengthscale=2.0):
    kernel = kernel.double()
    kernel.lengthscale = lengthscale  # the start has single precision
    return kernel


DRAWS = {
    "walks": lambda: WALKS,
    "chebyshev": lambda: graphs.chebyshev_features(GRAPH, None, 5),
    "taylor": lambda: graphs.taylor_features(GRAPH, None, 5),
    "spectrum": lambda: graphs.spectral_features(GRAPH, None, 7),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_matrices_are_products_of_the_features(draw):
    kernel = in_double(GraphFeatureKernel(draw(), KERNEL))
    phi = draw().features(KERNEL).toarray()
    with torch.no_grad():
        np.testing.assert_allclose(kernel(column(ROWS)).to_dense(), phi[ROWS] @ phi[ROWS].T, atol=1e-12)
        np.testing.assert_allclose(kernel(column(ROWS), column(NEW)).to_dense(), phi[ROWS] @ phi[NEW].T, atol=1e-12)
        np.testing.assert_allclose(kernel(column(ROWS), diag=True), (phi[ROWS] ** 2).sum(1), atol=1e-12)


def test_the_exact_kernel_is_exact():
    K = KERNEL.exact(GRAPH)
    kernel = in_double(GraphExactKernel(GRAPH, KERNEL))
    several = in_double(GraphExactKernel(GRAPH, KERNEL, batch_shape=torch.Size([2])), torch.tensor([1.0, 2.0]))
    with torch.no_grad():
        for found in (kernel(column(ROWS), column(NEW)).to_dense(), several(column(ROWS), column(NEW)).to_dense()[1]):
            np.testing.assert_allclose(found, K[ROWS][:, NEW], atol=1e-12)
        np.testing.assert_allclose(kernel(column(ROWS), diag=True), K[ROWS, ROWS], atol=1e-12)


def test_each_element_of_a_batch_has_its_own_lengthscale():
    scales = torch.linspace(0.5, 2, 6, dtype=torch.float64).reshape(3, 2)
    kernel = in_double(GraphFeatureKernel(WALKS, KERNEL, batch_shape=torch.Size([3, 2])), scales)
    found, diagonal = kernel(column(ROWS)).to_dense(), kernel(column(ROWS), diag=True)
    cross = kernel(column(ROWS), column(NEW)).to_dense()
    for index in np.ndindex(3, 2):
        phi = WALKS.features(graphs.kernels.Diffusion(float(scales[index]))).toarray()
        np.testing.assert_allclose(found[index].detach(), phi[ROWS] @ phi[ROWS].T)
        np.testing.assert_allclose(cross[index].detach(), phi[ROWS] @ phi[NEW].T)
        np.testing.assert_allclose(diagonal[index].detach(), (phi[ROWS] ** 2).sum(1))


def test_kernels_without_parameters_have_batches():
    kernel = GraphFeatureKernel(WALKS, graphs.kernels.RandomWalk(2, 3.0), batch_shape=torch.Size([2]))
    phi = torch.as_tensor(WALKS.features(graphs.kernels.RandomWalk(2, 3.0)).toarray(), dtype=torch.float32)
    gram = phi[ROWS] @ phi[ROWS].T
    torch.testing.assert_close(kernel(column(ROWS)).to_dense(), gram.expand(2, 3, 3))
    torch.testing.assert_close(kernel(column(ROWS), diag=True), gram.diagonal().expand(2, 3))
    torch.testing.assert_close(kernel(column(ROWS).expand(2, 3, 1)).to_dense(), gram.expand(2, 3, 3))


def test_parameters_can_be_set():
    kernel = GraphFeatureKernel(WALKS, graphs.kernels.RegularizedLaplacian())
    kernel.sigma = 0.5
    assert kernel.sigma.item() == pytest.approx(0.5)
    kernel.initialize(sigma=0.7)
    assert kernel.sigma.item() == pytest.approx(0.7)


ENTRIES = {
    "matrix": lambda kernel: kernel(column(ROWS)).to_dense(),
    "batch": lambda kernel: kernel(torch.stack([column(ROWS), column(ROWS) + 1]).double()).to_dense(),
    "product": lambda kernel: kernel(column(ROWS), column(NEW)) @ torch.ones(2, 1, dtype=torch.float64),
    "diagonal": lambda kernel: kernel(column(ROWS), diag=True),
}
MAKERS = {name: lambda draw=draw: GraphFeatureKernel(draw(), KERNEL) for name, draw in DRAWS.items()}
MAKERS["exact"] = lambda: GraphExactKernel(GRAPH, KERNEL)


@pytest.mark.parametrize(
    ("make", "entries"),
    [*(("walks", entries) for entries in ENTRIES), *((make, "matrix") for make in ("chebyshev", "spectrum", "exact"))],
)
def test_gradients_match_differences(make, entries):
    kernel = MAKERS[make]().double()

    class Entries(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = kernel

        def forward(self):
            return ENTRIES[entries](self.kernel)

    def evaluate(raw):
        return torch.func.functional_call(Entries(), {"kernel.raw_lengthscale": raw})

    raw = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(evaluate, (raw,))


@pytest.mark.parametrize("entries", ["matrix", "product", "diagonal"])
def test_second_derivatives_are_refused(entries):
    """They would need those of the kernel's modulation; half of them would be silently wrong."""
    kernel = in_double(GraphFeatureKernel(WALKS, KERNEL))
    value = ENTRIES[entries](kernel).square().sum()
    (first,) = torch.autograd.grad(value, kernel.raw_lengthscale, create_graph=True)
    with pytest.raises(rfgp.NotDifferentiableError, match="once"):
        torch.autograd.grad(first, kernel.raw_lengthscale)


def test_features_of_walks_stay_sparse():
    matrix = GraphFeatureKernel(WALKS, KERNEL)(column(range(25))).evaluate_kernel()
    assert isinstance(matrix, SparseRootLinearOperator)
    assert [values.shape for values in matrix.representation()] == [(len(WALKS.pattern.indices),)]


def test_predictions_match_the_dense_formulas():
    x, new = column([1, 5, 7, 7, 20]).double(), column([0, 24, 7]).double()
    y = torch.tensor([0.3, -1.0, 2.0, 1.9, 0.0]).double()
    model = Model(x, y, gpytorch.kernels.ScaleKernel(GraphFeatureKernel(WALKS, KERNEL))).double()
    phi = torch.as_tensor(WALKS.features(KERNEL).toarray())
    scale, noise = model.covar_module.outputscale, model.likelihood.noise
    seen, other = phi[x[:, 0].long()], phi[new[:, 0].long()]
    solved = torch.linalg.solve(scale * seen @ seen.T + noise * torch.eye(5).double(), y)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(model(new).mean, scale * other @ seen.T @ solved, rtol=0, atol=1e-6)


def test_copies_share_the_draw_and_no_parameters():
    kernel = GraphFeatureKernel(WALKS, graphs.kernels.Diffusion(1.0))
    copied = copy.deepcopy(kernel)
    assert copied.feature_map.walks is WALKS
    copied.lengthscale = 2.0
    assert kernel.lengthscale.item() == pytest.approx(1.0)


def test_a_kernel_at_other_nodes_shares_only_parameters():
    kernel = GraphFeatureKernel(graphs.sample_walks(GRAPH, [0, 1], seed=0), KERNEL)
    kernel.at([5]).lengthscale = 1.25
    assert kernel.lengthscale.item() == pytest.approx(1.25)
    kernel(column([0, 1])).to_dense()
    with pytest.raises(rfgp.InvalidArgumentError, match="position 5"):
        kernel(column([5])).to_dense()


FEW = graphs.sample_walks(GRAPH, [0, 1], seed=0)


@pytest.mark.parametrize(
    ("kernel", "inputs", "word"),
    [
        (GraphFeatureKernel(FEW, KERNEL), [[7]], "position 7"),
        (GraphFeatureKernel(FEW, KERNEL), [[99]], "position 99"),
        (GraphFeatureKernel(FEW, KERNEL), [[-1]], "position -1"),
        (GraphFeatureKernel(FEW, KERNEL), [[1.5]], "whole numbers"),
        (GraphFeatureKernel(FEW, KERNEL), [[[0.0]], [[1.5]]], "whole numbers"),
        (GraphExactKernel(GRAPH, KERNEL), [[25]], "25"),
        (GraphExactKernel(GRAPH, KERNEL), [[-1]], "-1"),
    ],
)
def test_bad_positions_are_named(kernel, inputs, word):
    with pytest.raises(rfgp.InvalidArgumentError, match=word):
        kernel(torch.tensor(inputs)).to_dense()
