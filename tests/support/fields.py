"""Fields by other means: Matern kernels, dense precisions, and finite elements on roads and on meshes."""

import itertools
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from scipy.special import gamma, kv

import graphs


def network(edges, seed=0):
    """Return a road network of (vertex, vertex, length), each road a bent line of its own."""
    rng = np.random.default_rng(seed)
    ends = np.array([edge[:2] for edge in edges])
    places = rng.normal(size=(ends.max() + 1, 2))
    bends = rng.normal(size=(len(ends), 2, 2))  # two of them, so that a loop does not come back as it went
    lines = [np.stack([places[a], *bends[i], places[b]]) for i, (a, b) in enumerate(ends)]
    roads = graphs.RoadNetwork.from_lines(lines, metric="euclidean")
    return replace(roads, lengths=np.array([edge[2] for edge in edges], dtype=np.float64))


def covariance(field, lengthscale):
    """Return the dense covariance (N, N) of a field's latent values."""
    indptr, indices = field.pattern
    size = len(indptr) - 1
    Q = sp.csr_array((field.entries(np.array([lengthscale])), indices, indptr), shape=(size, size)).toarray()
    np.testing.assert_array_equal(Q, Q.T)
    half = np.linalg.inv(np.linalg.cholesky(Q))
    return half.T @ half


def law(roads, positions, alpha, lengthscale, boundary="neumann"):
    """Return the covariance (n, n) of u at positions."""
    field, index = graphs.RoadField(roads, alpha, boundary).refine(positions)
    return covariance(field, lengthscale)[np.ix_(index, index)]


def by_elements(roads, positions, alpha, lengthscale, steps=120):
    """Return the covariance (n, n) by linear elements, u' = 0 at free ends, extrapolated from two meshes.

    Positions are at multiples of 2 / steps of the length of their roads.
    """
    coarse, fine = (_elements(roads, positions, alpha, lengthscale, n) for n in (steps // 2, steps))
    return (4 * fine - coarse) / 3


def _elements(roads, positions, alpha, lengthscale, steps):
    """With C the mass matrix and G the stiffness of hat functions: (kappa^2 C + G) tau u = noise of covariance C."""
    kappa = 1 / lengthscale if alpha == 1 else np.sqrt(3) / lengthscale
    chains = []
    size = roads.num_vertices
    for a, b in zip(roads.starts, roads.ends, strict=True):
        chains.append([a, *range(size, size + steps - 1), b])
        size += steps - 1
    C, G = np.zeros((size, size)), np.zeros((size, size))
    for chain, length in zip(chains, roads.lengths, strict=True):
        h = length / steps
        for i, j in itertools.pairwise(chain):
            for p, q in ((i, i), (j, j), (i, j), (j, i)):
                C[p, q] += h / 3 if p == q else h / 6
                G[p, q] += 1 / h if p == q else -1 / h
    at = [chains[int(road)][round(fraction * steps)] for road, fraction in positions]
    if alpha == 1:
        return 2 * kappa * np.linalg.inv(kappa**2 * C + G)[np.ix_(at, at)]
    X = np.linalg.inv(kappa**2 * C + G)[:, at]
    return 4 * kappa**3 * X.T @ C @ X


def matern(nu, distance, lengthscale):
    z = np.sqrt(2 * nu) * np.maximum(np.abs(distance), 1e-9 * lengthscale) / lengthscale
    if nu in (0.5, 1.5, 2.5):
        return {0.5: 1.0, 1.5: 1 + z, 2.5: 1 + z + z**2 / 3}[nu] * np.exp(-z)
    return z**nu * kv(nu, z) * 2 ** (1 - nu) / gamma(nu)


def elements(vertices, faces):
    """Return C and G: gradients solve linear systems, and integrals are means over the middles of sides (exact)."""
    size = len(vertices)
    mass, stiffness = np.zeros((size, size)), np.zeros((size, size))
    places = np.zeros((size, 3))
    places[:, : np.shape(vertices)[1]] = vertices
    middles = np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]])
    for face in np.asarray(faces):
        p, q, r = places[face]
        normal = np.cross(q - p, r - p)
        area = np.sqrt(normal @ normal) / 2
        gradients = np.linalg.solve(np.array([q - p, r - p, normal]), np.array([[-1.0, 1, 0], [-1, 0, 1], [0, 0, 0]]))
        stiffness[np.ix_(face, face)] += area * gradients.T @ gradients
        mass[np.ix_(face, face)] += area * (middles.T @ middles) / 3
    return mass.sum(axis=1), stiffness


def mesh_precision(mesh, alpha, lengthscale):
    """Return tau^2 Q_alpha by Q_1 = K, Q_2 = K C^-1 K, Q_a = K C^-1 Q_(a - 2) C^-1 K."""
    C, G = elements(*mesh)
    nu = alpha - 1
    kappa = np.sqrt(2 * nu) / lengthscale if nu else 1 / lengthscale
    K = kappa**2 * np.diag(C) + G
    Q = K if alpha % 2 else (K / C) @ K
    for _ in range((alpha - 1) // 2):
        Q = (K / C) @ Q @ (K / C).T
    return Q / (4 * np.pi * nu * kappa ** (2 * nu)) if nu else Q


def matrix(field, *values):
    return sp.csr_array((field.entries(np.array(values)), field.pattern.indices, field.pattern.indptr)).toarray()


def squares(count, side):
    """Return count x count squares, cut along diagonals that alternate, and the numbers (i, j) of their vertices."""
    at = np.arange((count + 1) ** 2).reshape(count + 1, count + 1)
    corners = np.stack([at[:-1, :-1], at[1:, :-1], at[1:, 1:], at[:-1, 1:]], axis=-1)
    odd = np.indices((count, count)).sum(axis=0) % 2 == 1
    corners[odd] = np.roll(corners[odd], 1, axis=-1)
    faces = corners[..., [[0, 1, 2], [0, 2, 3]]].reshape(-1, 3)
    return side / count * np.indices(at.shape).reshape(2, -1).T, faces, at
