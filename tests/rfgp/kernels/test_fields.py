"""Kernels of roads, surfaces and nodes against what they are defined by."""

import numpy as np
import pytest
import torch
import trimesh
from field_cases import ROWS, network, ring

import graphs
import rfgp
from rfgp import kernels as k

LONG = graphs.RoadNetwork.from_lines([[(0.0, 0.0), (1000.0, 0.0)]], metric="euclidean")


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [(1, lambda r: np.exp(-r)), (2, lambda r: (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r))],
)
def test_a_long_road_has_the_matern_kernel(alpha, expected):
    kernel = k.Roads(LONG, alpha, boundary="stationary", lengthscale=200.0)
    fraction = np.array([0.0, 0.13, 0.5, 0.77, 1.0])
    found = kernel.matrix({"road": np.zeros(5, int), "fraction": fraction})
    r = np.abs(fraction[:, None] - fraction) * 1000 / 200
    np.testing.assert_allclose(found, expected(r), atol=1e-8)


@pytest.mark.parametrize("name", ["diffusion", "matern", "regularized-laplacian"])
def test_nodes_have_the_kernel_of_the_graph(name):
    graph = ring(12)
    kernel = graphs.kernels.by_name(name)
    found = k.Nodes(graph, name).matrix({"node": ["n3", "n0", "n7"]})
    np.testing.assert_allclose(found, kernel.exact(graph)[np.ix_([3, 0, 7], [3, 0, 7])], atol=1e-12)


def test_labels_alone_are_nodes():
    graph = ring(12)
    by_column = k.Nodes(graph, "diffusion").matrix({"node": ["n3", "n0"]})
    np.testing.assert_array_equal(k.Nodes(graph, "diffusion").matrix(["n3", "n0"]), by_column)
    np.testing.assert_array_equal(k.Nodes(graph, column="place").matrix({"place": ["n3", "n0"]}), by_column)


@pytest.mark.parametrize("alpha", [1, 2])
def test_a_mesh_has_the_inverse_of_its_precision(alpha):
    ball = trimesh.creation.icosphere(1)
    field = graphs.MeshField(ball, alpha)
    found = k.Mesh(ball, alpha, lengthscale=0.7).matrix(ball.vertices)
    size = len(ball.vertices)
    precision = np.zeros((size, size))
    starts, columns = field.pattern
    precision[np.repeat(np.arange(size), np.diff(starts)), columns] = field.entries(np.array([0.7]))
    np.testing.assert_allclose(found, np.linalg.inv(precision), rtol=1e-8)
    middle = ball.vertices[ball.faces[0]].mean(0)[None]
    third = np.zeros(size)
    third[ball.faces[0]] = 1 / 3
    expected = third @ np.linalg.inv(precision)
    np.testing.assert_allclose(
        k.Mesh(ball, alpha, lengthscale=0.7).matrix(middle, ball.vertices)[0], expected, rtol=1e-8
    )


KERNELS = {
    "roads": k.Roads(network(), lengthscale=400.0),
    "smooth roads": k.Roads(network(), 2, lengthscale=400.0),
    "mesh": k.Mesh(trimesh.creation.icosphere(1), lengthscale=0.6),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_gradients_are_those_of_differences(kernel):
    some = {name: column[:6] for name, column in ROWS.items()}
    start = torch.tensor(float(kernel.lengthscale), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda value: kernel.matrix(some, values={"lengthscale": value}), start, eps=1e-4)


def test_gradients_of_nodes_are_those_of_differences():
    kernel = k.Nodes(ring(12), "diffusion")
    start = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: kernel.matrix(["n1", "n2"], values={"lengthscale": v}), start)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: k.Nodes("ring"), rfgp.InvalidArgumentError, "graph must be a graphs.Graph"),
        (lambda: k.Nodes(ring(), "rbf"), graphs.GraphError, "got 'rbf'"),
        (lambda: k.Mesh(ring()), rfgp.InvalidArgumentError, "Use k.Nodes for graphs"),
        (lambda: k.Roads(network(), 3).matrix(ROWS), graphs.GraphError, "alpha"),
        (lambda: k.Roads(network(), columns=("road",)), rfgp.InvalidArgumentError, "must have 2 columns"),
        (lambda: k.Roads(network(), lengthscale=0.0), rfgp.InvalidArgumentError, "lengthscale must be a positive"),
        (lambda: k.Mesh(trimesh.creation.icosphere(1), within=-1.0, columns="x"), rfgp.RfgpError, "within"),
        (lambda: k.Roads(network()).matrix({"road": [0]}), rfgp.InvalidArgumentError, "road, fraction.*Give columns"),
        (lambda: k.Mesh(trimesh.creation.icosphere(1)).matrix({"x": [0.0]}), rfgp.InvalidArgumentError, "x, y, z"),
        (lambda: k.Nodes(ring()).matrix({"x": ["n1"]}), rfgp.InvalidArgumentError, "column 'node'.*Give column="),
        (lambda: k.Nodes(ring()).matrix({"node": ["n99"]}), rfgp.DataError, "n99"),
        (lambda: k.Nodes(ring()).matrix({"node": [0.5]}), rfgp.DataError, "node"),
        (
            lambda: k.Roads(network(), lengthscale=1.0).matrix({"road": [7], "fraction": [0.5]}),
            rfgp.DataError,
            "road",
        ),
        (
            lambda: k.Mesh(trimesh.creation.icosphere(1), lengthscale=1.0, within=0.1).matrix([[3.0, 0.0, 0.0]]),
            rfgp.DataError,
            "within",
        ),
    ],
)
def test_impossible_options_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()
