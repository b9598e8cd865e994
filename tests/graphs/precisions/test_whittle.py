"""Precisions of all orders against the recursion, in dense matrices; derivatives, determinants, lost digits."""

import numpy as np
import pytest
import scipy.sparse as sp
import trimesh
from scipy.spatial import Delaunay

import graphs
from graphs import MeshField
from graphs.precisions import elements, whittle

ORDERS = range(1, 7)


def scattered(seed, n=40):
    """Random points of a square with their Delaunay triangles."""
    points = np.random.default_rng(seed).uniform(0, 3, (n, 2))
    return points, Delaunay(points).simplices


def dense(field, lengthscale):
    indptr, indices = field.pattern
    return sp.csr_array((field.entries([lengthscale]), indices, indptr)).toarray()


def kappa_of(alpha, lengthscale):
    return np.sqrt(2 * (alpha - 1)) / lengthscale if alpha > 1 else 1 / lengthscale


def recursion(mesh, alpha, lengthscale):
    """Return tau^2 Q_alpha and K by Q_1 = K, Q_2 = K C^-1 K, Q_a = K C^-1 Q_(a - 2) C^-1 K."""
    masses, stiffness, unit = elements.read_mesh(mesh).elements
    kappa, C = kappa_of(alpha, lengthscale), masses * unit**2
    K = kappa**2 * np.diag(C) + stiffness.toarray()
    Q = K if alpha % 2 else (K / C) @ K
    for _ in range((alpha - 1) // 2):
        Q = (K / C) @ Q @ (K / C).T
    nu = alpha - 1
    return (Q / (4 * np.pi * nu * kappa ** (2 * nu)) if nu else Q), K


@pytest.mark.parametrize("alpha", ORDERS)
@pytest.mark.parametrize("lengthscale", [0.1, 1.0, 4.0])
def test_entries_match_the_recursion(alpha, lengthscale):
    mesh = scattered(0)
    field = MeshField(mesh, alpha)
    expected, K = recursion(mesh, alpha, lengthscale)
    Q = dense(field, lengthscale)
    np.testing.assert_allclose(Q, expected, atol=1e-13 * np.abs(expected).max())
    np.testing.assert_allclose(dense(field.root, lengthscale), K, atol=1e-13 * np.abs(K).max())
    np.testing.assert_array_equal(Q, Q.T)


@pytest.mark.parametrize("alpha", ORDERS)
def test_pattern_has_alpha_hops_despite_cancellation(alpha):
    """A grid of squares: the cotangents of diagonals are 0, and stay on the pattern."""
    at = np.arange(25).reshape(5, 5)
    a, b, c, d = at[:-1, :-1].ravel(), at[1:, :-1].ravel(), at[1:, 1:].ravel(), at[:-1, 1:].ravel()
    places = np.stack(np.meshgrid(range(5), range(5), indexing="ij"), axis=-1).reshape(-1, 2)
    field = MeshField((places, np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])), alpha)
    hop = np.eye(25, dtype=int)
    for face in field.faces:
        hop[np.ix_(face, face)] = 1
    expected = np.linalg.matrix_power(hop, alpha) > 0
    indptr, indices = field.pattern
    assert (indptr.dtype, indices.dtype) == (np.int64, np.int32)
    found = sp.csr_array((np.ones(len(indices)), indices, indptr), shape=(25, 25))
    assert found.has_canonical_format
    np.testing.assert_array_equal(found.toarray(), expected)


@pytest.mark.parametrize("alpha", ORDERS)
def test_pull_back_matches_differences(alpha):
    field = MeshField(scattered(1), alpha)
    for part in (field, field.root):
        weights = np.random.default_rng(2).normal(size=len(part.pattern.indices))
        for lengthscale in (0.3, 1.7):
            step = 1e-5 * lengthscale
            ends = part.entries([lengthscale + step]), part.entries([lengthscale - step])
            expected = weights @ (ends[0] - ends[1]) / (2 * step)
            size = np.abs(weights) @ np.abs(part.entries([lengthscale])) / lengthscale
            found = part.pull_back([lengthscale], weights)
            assert found.shape == (1,)
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9 * size)


def of_root(field, lengthscale):
    """Return log |K| and its derivative, by a dense inverse on the pattern."""
    K, (indptr, indices) = dense(field.root, lengthscale), field.root.pattern
    rows = np.repeat(np.arange(len(K)), np.diff(indptr))
    inverse = np.linalg.inv(K)[rows, indices]
    return np.linalg.slogdet(K)[1], field.root.pull_back([lengthscale], inverse)


@pytest.mark.parametrize("alpha", ORDERS)
def test_determinants_match_the_root(alpha):
    mesh = scattered(3)
    field, lengthscale = MeshField(mesh, alpha), 0.2
    value, slope = field.log_determinant_from([lengthscale], of_root(field, lengthscale))
    logs = [np.linalg.slogdet(recursion(mesh, alpha, lengthscale + step)[0])[1] for step in (-2e-5, 0, 2e-5)]
    np.testing.assert_allclose(value, logs[1], atol=1e-9)
    np.testing.assert_allclose(slope, [(logs[2] - logs[0]) / 4e-5], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("alpha", ORDERS)
def test_condition_is_a_tight_bound(alpha):
    field = MeshField(scattered(4), alpha)
    for lengthscale in (0.05, 0.5):
        roots = np.sqrt(field.areas)
        actual = np.linalg.cond(dense(field, lengthscale) / roots / roots[:, None])
        assert 0.999 * actual <= field.condition([lengthscale]) <= 4**alpha * actual


def constant_error(field, lengthscale):
    """Return the relative error of 1^T Q 1 = tau^2 kappa^(2 alpha) area."""
    kappa, nu = kappa_of(field.alpha, lengthscale), max(field.alpha - 1, 1)
    expected = kappa**2 * field.areas.sum() / (4 * np.pi * nu if field.alpha > 1 else 1)
    return abs(dense(field, lengthscale).sum() / expected - 1)


@pytest.mark.parametrize("alpha", ORDERS)
def test_constant_loses_digits_as_documented(alpha):
    field = MeshField(trimesh.creation.icosphere(2), alpha)
    lengthscales = np.geomspace(0.1, 300, 12)
    errors = np.array([constant_error(field, lengthscale) for lengthscale in lengthscales])
    allowed = np.array([field.condition([lengthscale]) for lengthscale in lengthscales]) * np.finfo(float).eps
    assert (errors <= 2 * allowed + 1e-14).all()
    assert errors[0] < 1e-12
    if alpha > 1:
        assert errors[-1] > 1e-8  # the loss is there


def test_determinant_keeps_its_digits():
    """By eigenvalues x_i >= 0: log |Q| = sum_i log(kappa^2 C_ii / (4 pi nu)) + a log(1 + x_i / kappa^2)."""
    field, lengthscale = MeshField(trimesh.creation.icosphere(2), 6), 300.0
    kappa2, roots = 10 / lengthscale**2, np.sqrt(field.areas)
    G = dense(field.root, lengthscale) - kappa2 * np.diag(field.areas)
    eigenvalues = np.linalg.eigvalsh(G / roots / roots[:, None])
    eigenvalues[0] = 0
    expected = np.log(kappa2 * field.areas / (20 * np.pi)).sum() + 6 * np.log1p(eigenvalues / kappa2).sum()
    assert field.condition([lengthscale]) > 1e30
    found, _ = field.log_determinant_from([lengthscale], of_root(field, lengthscale))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_planted_wrong_coefficient_is_found(monkeypatch):
    monkeypatch.setattr(whittle, "comb", lambda a, j: 1)
    with pytest.raises(AssertionError):
        test_entries_match_the_recursion(2, 1.0)


def test_planted_wrong_norm_is_found(monkeypatch):
    monkeypatch.setattr(whittle, "pi", 3.0)
    with pytest.raises(AssertionError):
        test_determinants_match_the_root(2)


VALUES = {
    "zero": [0.0],
    "negative": [-1.0],
    "not a number": [np.nan],
    "infinite": [np.inf],
    "two": [1.0, 2.0],
    "none": [],
    "a text": ["1"],
    "truth": [True],
    "tiny": [1e-300],
    "huge": [1e300],
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("alpha", [1, 2, 6])
def test_bad_lengthscales_are_refused(name, alpha):
    field, values = MeshField(scattered(7), alpha), VALUES[name]
    nnz = len(field.pattern.indices)
    ways = (
        lambda: field.entries(values),
        lambda: field.pull_back(values, np.ones(nnz)),
        lambda: field.log_determinant_from(values, (0.0, np.zeros(1))),
        lambda: field.condition(values),
        lambda: field.root.entries(values),
    )
    for way in ways:
        with pytest.raises(graphs.InvalidArgumentError, match="lengthscale"):
            way()


@pytest.mark.parametrize("alpha", [0, 7, 2.0, "2", True, None])
def test_bad_orders_are_refused(alpha):
    with pytest.raises(graphs.InvalidArgumentError, match="alpha must be an integer from 1 to 6"):
        MeshField(scattered(6), alpha)


def test_extreme_lengthscales_have_finite_entries():
    field = MeshField(scattered(7), 6)
    with np.errstate(all="raise"):
        for lengthscale in np.geomspace(1e-12, 1e12, 25):
            assert np.isfinite(field.entries([lengthscale])).all()
            assert field.condition([lengthscale]) >= 1
