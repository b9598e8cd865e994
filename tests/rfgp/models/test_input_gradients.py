"""Gradients of predictions in their inputs: the central difference, or a named error, for every approximation."""

import numpy as np
import pytest
import torch
import trimesh

import graphs
import rfgp
from rfgp import kernels as k

LATENT, RESPONSES = (rfgp.Vecchia(8, condition_on=what) for what in ("latent", "responses"))
RESIDUAL = rfgp.InducingPoints(12, residual=rfgp.Vecchia(8))
TWO = k.RBF(0, name="a") + k.RBF(1, name="b")
POINTS = np.array([[0.2, 0.3, 1.0], [-0.41, 0.57, 2.0]])
SPHERE = trimesh.creation.icosphere(subdivisions=1)


def table():
    """Return rows of two columns of numbers and one of codes, and targets."""
    rng = np.random.default_rng(0)
    X = np.c_[rng.uniform(-1, 1, (120, 2)), rng.integers(0, 3, 120)]
    return X, np.sin(4 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * X[:, 2] + 0.2 * rng.normal(size=120)


def surface():
    """Return the vertices of a sphere with a further column, and targets."""
    rng = np.random.default_rng(1)
    vertices = np.asarray(SPHERE.vertices)
    X = np.c_[vertices, rng.uniform(size=len(vertices))]
    return X, X[:, 2] + 2 * X[:, 3] + 0.1 * rng.normal(size=len(X))


def gradients(gp, points, read):
    """Return the gradient of a number of each point in the inputs of this point, and central differences."""
    inputs = torch.tensor(points, requires_grad=True)
    (found,) = torch.autograd.grad(read(gp.predict(inputs)).sum(), inputs)
    expected, step = np.zeros(points.shape), 1e-3
    for column in range(points.shape[1]):
        up, down = points.copy(), points.copy()
        up[:, column] += step
        down[:, column] -= step
        expected[:, column] = (read(gp.predict(up)) - read(gp.predict(down))) / (2 * step)
    return found.numpy(), expected


TABLES = {
    "latent": (k.RBF((0, 1)), LATENT),
    "responses": (k.RBF((0, 1)), RESPONSES),
    "residual": (k.RBF((0, 1)), RESIDUAL),
    "latent with weights": (TWO, {"a": rfgp.RandomFeatures(16), "b": LATENT}),
    "responses with weights": (TWO, {"a": rfgp.RandomFeatures(16), "b": RESPONSES}),
    "latent with a slope": (k.Linear(0) + k.RBF((0, 1), name="b"), {"b": LATENT}),
    "two latent terms": (TWO, LATENT),
    "two terms of responses": (TWO, RESPONSES),
    "latent with a chain": (k.Matern(0, nu=1.5, name="a") + k.RBF(1, name="b"), {"b": LATENT}),
    "product of responses": (k.Linear(1) * k.RBF(0) + k.RBF(1), RESPONSES),
}


@pytest.mark.parametrize("read", [lambda p: p.mean, lambda p: p.variance], ids=["mean", "variance"])
@pytest.mark.parametrize("case", TABLES)
def test_gradients_through_neighbors_match_differences(case, read):
    kernel, approximation = TABLES[case]
    gp = rfgp.GP(kernel, approximation=approximation, start={"noise": 0.05}, seed=0).condition(*table())
    found, expected = gradients(gp, POINTS, read)
    np.testing.assert_allclose(found, expected, atol=2e-4 * max(1, np.abs(expected).max()))
    assert np.abs(found[:, :2]).max() > 1e-4


def test_gradients_of_terms_and_of_labels_match_differences():
    X, y = table()
    gp = rfgp.GP(TWO, "bernoulli", approximation=LATENT, seed=0).condition(X, y > 0)
    for read in (lambda p: p.terms["b"].mean, lambda p: p.observed().mean):
        found, expected = gradients(gp, POINTS, read)
        np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("alpha", [1, 3])
@pytest.mark.parametrize("factor", [None, k.Matern(3, nu=1.5), k.Linear(3)], ids=["alone", "matern", "linear"])
def test_gradients_within_faces_match_differences(alpha, factor):
    field = k.Mesh(SPHERE, alpha, columns=(0, 1, 2))
    kernel = (field if factor is None else (field * factor).named("field")) + k.Linear(3)
    gp = rfgp.GP(kernel, approximation=rfgp.SparsePrecision(), start={"noise": 0.05}, seed=0).condition(*surface())
    inside = np.array([0.5, 0.3, 0.2]) @ np.asarray(SPHERE.vertices)[SPHERE.faces[5]]
    for read in (lambda p: p.mean, lambda p: p.variance):
        found, expected = gradients(gp, np.array([[*inside, 0.3], [*inside, 2.5]]), read)  # beyond the rows too
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_gradients_on_a_mesh_of_the_plane_match_differences():
    square = (np.array([(0.0, 0.0), (1, 0), (1, 1), (0, 1)]), np.array([(0, 1, 2), (0, 2, 3)]))
    gp = rfgp.GP(k.Mesh(square), start={"noise": 0.05}, seed=0).condition(square[0], np.array([0.0, 1.0, 3.0, 1.0]))
    np.testing.assert_allclose(*gradients(gp, np.array([[0.6, 0.2], [0.1, 0.8]]), lambda p: p.mean), atol=1e-6)


ROADS = graphs.RoadNetwork.from_lines([[(0.0, 0.0), (1.0, 0.0)], [(1.0, 0.0), (1.0, 1.0)]])
WITHOUT = {
    "an edge of a mesh": (k.Mesh(SPHERE, columns=(0, 1, 2)) + k.Linear(3), "auto"),
    "roads": (k.Roads(ROADS, columns=(0, 1)) + k.Linear(2), "auto"),
    "an exact field": (k.Mesh(SPHERE, columns=(0, 1, 2)) * k.RBF(3), rfgp.Exact()),
    "responses with a chain": (
        k.Matern(0, nu=1.5, name="a") + k.RBF(1, name="b"),
        {"a": rfgp.SparsePrecision(), "b": RESPONSES},
    ),
}


@pytest.mark.parametrize("case", WITHOUT)
def test_missing_gradients_are_a_named_error(case):
    kernel, approximation = WITHOUT[case]
    X, y = surface()
    if case == "roads":
        X = np.c_[np.arange(len(X)) % 2, np.linspace(0.1, 0.9, len(X)), X[:, 3]]
    gp = rfgp.GP(kernel, approximation=approximation, start={"noise": 0.05}, seed=0).condition(X, y)
    inputs = torch.tensor(X[:1], requires_grad=True)
    with pytest.raises(rfgp.NotDifferentiableError, match="detach"):
        gp.predict(inputs).mean.sum().backward()
    assert gp.predict(inputs.detach()).mean.shape == (1,)


@pytest.mark.parametrize("approximation", [LATENT, RESPONSES], ids=["latent", "responses"])
def test_joint_distributions_of_neighbors_are_not_differentiable(approximation):
    gp = rfgp.GP(k.RBF((0, 1)), approximation=approximation, seed=0).condition(*table())
    prediction = gp.predict(torch.tensor(POINTS, requires_grad=True))
    with pytest.raises(rfgp.NotDifferentiableError, match="detach"):
        prediction.covariance.sum().backward()
