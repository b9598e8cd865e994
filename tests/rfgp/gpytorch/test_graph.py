"""The kernels of graphs against dense matrices of features, and the exact kernel."""

import copy

import numpy as np
import pytest
import torch
from refusals import refused

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.gpytorch import GraphFeatureKernel, SparseRootLinearOperator, kernel_of

GRAPH = graphs.Graph.from_grid((5, 5))
WALKS = graphs.sample_walks(GRAPH, seed=0)
KERNEL = graphs.kernels.Diffusion(2.0)
ROWS, NEW = [3, 8, 3], [0, 24]


def column(positions):
    return torch.tensor(positions)[:, None]


def assert_entries(kernel, matrix, index=()):
    """Compare an element of a batch with the rows and columns of a matrix of all nodes."""
    with torch.no_grad():
        found = kernel(column(ROWS)).to_dense(), kernel(column(ROWS), column(NEW)).to_dense()
        diagonals = kernel(column(ROWS), diag=True), kernel(column(ROWS), column([*NEW, 7]), diag=True)
    expected = matrix[ROWS][:, ROWS], matrix[ROWS][:, NEW], matrix[ROWS, ROWS], matrix[ROWS, [*NEW, 7]]
    for one, other in zip((*found, *diagonals), expected, strict=True):
        np.testing.assert_allclose(one[index], other, atol=1e-12)


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
    phi = draw().features(KERNEL).toarray()
    assert_entries(in_double(GraphFeatureKernel(draw(), KERNEL)), phi @ phi.T)


def exact(**options):
    """Return the exact kernel of the nodes, a term without approximation."""
    kernel = kernel_of(k.Nodes(GRAPH, KERNEL), rfgp.Exact(), X=column(range(25)).double(), **options)
    kernel.hyperparameters["outputscale"] = 1.0
    kernel.hyperparameters["lengthscale"] = 2.0
    return kernel


def test_the_exact_kernel_is_exact():
    assert_entries(exact(), KERNEL.exact(GRAPH))
    several = exact(batch_shape=torch.Size([2]))
    several.hyperparameters["lengthscale"] = torch.tensor([1.0, 2.0])
    assert_entries(several, KERNEL.exact(GRAPH), 1)


def test_each_element_of_a_batch_has_its_own_lengthscale_and_rows():
    scales = torch.linspace(0.5, 2, 6, dtype=torch.float64).reshape(3, 2)
    kernel = in_double(GraphFeatureKernel(WALKS, KERNEL, batch_shape=torch.Size([3, 2])), scales)
    rows = torch.arange(24).reshape(3, 2, 4, 1)
    with torch.no_grad():
        found, diagonal = kernel(rows, rows + 1).to_dense(), kernel(rows, rows + 1, diag=True)
    for index in np.ndindex(3, 2):
        phi = WALKS.features(graphs.kernels.Diffusion(float(scales[index]))).toarray()
        assert_entries(kernel, phi @ phi.T, index)
        own = rows[index][:, 0]
        expected = phi[own] @ phi[own + 1].T
        np.testing.assert_allclose(found[index], expected, atol=1e-12)
        np.testing.assert_allclose(diagonal[index], expected.diagonal(), atol=1e-12)


def test_kernels_without_parameters_have_batches():
    walk = graphs.kernels.RandomWalk(2, 3.0)
    kernel, phi = GraphFeatureKernel(WALKS, walk, batch_shape=torch.Size([2])).double(), WALKS.features(walk).toarray()
    for place in range(2):
        assert_entries(kernel, phi @ phi.T, place)
    assert kernel(column(ROWS).expand(2, 3, 1)).shape == (2, 3, 3)


ENTRIES = {
    "matrix": lambda kernel: kernel(column(ROWS)).to_dense(),
    "batch": lambda kernel: kernel(torch.stack([column(ROWS), column(ROWS) + 1]).double()).to_dense(),
    "product": lambda kernel: kernel(column(ROWS), column(NEW)) @ torch.ones(2, 1, dtype=torch.float64),
    "diagonal": lambda kernel: kernel(column(ROWS), diag=True),
}
MAKERS = {name: lambda draw=draw: GraphFeatureKernel(draw(), KERNEL) for name, draw in DRAWS.items()}


@pytest.mark.parametrize(
    ("make", "entries"),
    [*(("walks", entries) for entries in ENTRIES), *((make, "matrix") for make in ("chebyshev", "spectrum"))],
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
    refused(lambda: torch.autograd.grad(first, kernel.raw_lengthscale), rfgp.NotDifferentiableError, "once")


def test_features_of_walks_stay_sparse():
    matrix = GraphFeatureKernel(WALKS, KERNEL)(column(range(25))).evaluate_kernel()
    assert isinstance(matrix, SparseRootLinearOperator)
    assert [values.shape for values in matrix.representation()] == [(len(WALKS.pattern.indices),)]


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
    refused(lambda: kernel(column([5])).to_dense(), rfgp.InvalidArgumentError, "position 5")


FEW = graphs.sample_walks(GRAPH, [0, 1], seed=0)


@pytest.mark.parametrize(
    ("kernel", "inputs", "word"),
    [
        (GraphFeatureKernel(FEW, KERNEL), [[99]], "position 99"),
        (GraphFeatureKernel(FEW, KERNEL), [[-1]], "position -1"),
        (GraphFeatureKernel(FEW, KERNEL), [[1.5]], "whole numbers"),
        (GraphFeatureKernel(FEW, KERNEL), [[[0.0]], [[1.5]]], "whole numbers"),
    ],
)
def test_bad_positions_are_named(kernel, inputs, word):
    refused(lambda: kernel(torch.tensor(inputs)).to_dense(), rfgp.InvalidArgumentError, word)


def test_bad_positions_of_the_exact_kernel_are_named():
    refused(lambda: exact()(torch.tensor([[25.0]])).to_dense(), rfgp.DataError, "25")
