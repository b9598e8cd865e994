"""Terms of a Gaussian process over one table, each as a latent block and as a plain kernel that shares no code with it.

The table has the columns u, v (numbers), node and fraction (a place between a node of a grid and a neighbor of it),
and group. Every term reads some of them, so that any terms can be added up.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import networkx as nx
import numpy as np
import scipy.sparse as sp
import torch
from dense_twin import PlainTerm

import graphs
from graphs.precisions import IndependentField, resolvent_field
from rfgp.blocks import (
    KernelBlock,
    KernelVecchiaBlock,
    MaternColumn,
    PrecisionBlock,
    Residual,
    SparseProductBlock,
    SparseWeightBlock,
    VecchiaBlock,
    WeightBlock,
)
from rfgp.kernels.chains import ColumnField
from rfgp.sparse import SparseValues, SparsityPattern

F64 = torch.float64
GRID = (3, 4)
NODES, GROUPS = 12, 3
STIFF = 1e-4
"""The shift of the stiff field, whose precision has the condition number (1 + 2 / shift)^2 = 4e8."""


def normal(*shape, seed):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def table(n, seed=0):
    """Return inputs (n, 5)."""
    rng = np.random.default_rng(seed)
    node, fraction, group = rng.integers(0, NODES, n), rng.uniform(0, 1, n), rng.integers(0, GROUPS, n)
    return torch.from_numpy(np.column_stack([rng.standard_normal((n, 2)), node, fraction, group]))


# --- features, as functions of the table and of hyperparameters -------------------------------------------------------


def frequencies(count, seed):
    return normal(count, 2, seed=seed)


def fourier(omega):
    def features(x, lengthscale):
        angles = (x[:, :2] / lengthscale) @ omega.mT.to(x)
        return torch.cat([angles.cos(), angles.sin()], 1) / len(omega) ** 0.5

    return features


def fourier_kernel(omega):
    def kernel(a, b, lengthscale, variance):
        return variance * ((a[:, None, :2] - b[None, :, :2]) / lengthscale @ omega.mT).cos().mean(-1)

    return kernel


def square_distances(a, b, lengthscale):
    return ((a[:, None] - b[None]) / lengthscale).square().sum(-1)


def gaussian(a, b, lengthscale):
    return torch.exp(-0.5 * square_distances(a[:, :2], b[:, :2], lengthscale))


def inducing(count=6, jitter=1e-9):
    return normal(count, 2, seed=5), jitter * torch.eye(count, dtype=F64)


def nystrom(x, lengthscale):
    points, jitter = inducing()
    factor = torch.linalg.cholesky(gaussian(points, points, lengthscale) + jitter)
    return torch.linalg.solve_triangular(factor, gaussian(points, x, lengthscale), upper=False).mT


def nystrom_kernel(a, b, lengthscale, variance):
    points, jitter = inducing()
    inner = torch.linalg.inv(gaussian(points, points, lengthscale) + jitter)
    return variance * gaussian(a, points, lengthscale) @ inner @ gaussian(points, b, lengthscale)


# --- what points read of latent values --------------------------------------------------------------------------------


@cache
def grid():
    return graphs.Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(*GRID)))


@cache
def spectrum():
    """Return the eigenvalues and eigenvectors of the grid's normalised Laplacian."""
    plain = nx.convert_node_labels_to_integers(nx.grid_2d_graph(*GRID))
    return [torch.from_numpy(each) for each in np.linalg.eigh(nx.normalized_laplacian_matrix(plain).toarray())]


def neighbor(node):
    """Return the node on the right of one, or on the left of one in the last column."""
    return node + 1 if node % GRID[1] < GRID[1] - 1 else node - 1


def on_grid(x):
    """Return the sparse matrix (n, N) by which places between nodes read the values at both."""
    node, t = x[:, 2].detach().numpy().astype(int), x[:, 3].detach().numpy()
    columns = np.column_stack([node, [neighbor(i) for i in node]]).ravel()
    lines, values = np.repeat(np.arange(len(x)), 2), np.column_stack([1 - t, t]).ravel()
    return sp.csr_array((values, (lines, columns)), shape=(len(x), NODES))


def in_groups(x):
    group = x[:, 4].detach().numpy().astype(int)
    return sp.csr_array((np.ones(len(x)), group, np.arange(len(x) + 1)), shape=(len(x), GROUPS))


def by_refining(field):
    """Return what gives a field with values at the nodes of points alone, in another order than the field's own."""
    order = np.arange(NODES)[::-1].copy()
    permuted = PermutedField(field, order)
    return lambda inputs: (permuted, lambda x: sp.csr_array(on_grid(x)[:, order]))


class PermutedField:
    """A field whose values are in another order."""

    def __init__(self, field, order):
        matrix = self._matrix(field.pattern, np.arange(len(field.pattern.indices)) + 1)[order][:, order]
        matrix.sort_indices()
        self._field, self._places = field, matrix.data - 1
        self.pattern, self.coordinates = type(field.pattern)(matrix.indptr.astype(np.int64), matrix.indices), None
        self.analysis = graphs.cholesky.analyze(*self.pattern)
        self.log_determinant = field.log_determinant

    @staticmethod
    def _matrix(pattern, data):
        return sp.csr_array((data, pattern.indices, pattern.indptr))

    def entries(self, values):
        return self._field.entries(values)[self._places]

    def pull_back(self, values, weights):
        original = np.empty_like(weights)
        original[self._places] = weights
        return self._field.pull_back(values, original)

    def factor(self, data):
        return graphs.cholesky.Factor.of(self.analysis, data)

    def factor_at(self, values):
        return self.factor(self.entries(values))


def grid_kernel(order):
    def kernel(a, b, shift, variance):
        values, vectors = spectrum()
        left, right = (torch.from_numpy(on_grid(x).toarray()) @ vectors for x in (a, b))
        return variance * (left / (values + shift) ** order) @ right.mT

    return kernel


@cache
def road():
    """Return the field with the correlation exp(-d / lengthscale) on a road of length 5, with values at its ends."""
    return graphs.RoadField(graphs.RoadNetwork.from_lines([[(0, 0), (5, 0)]], metric="euclidean"), 1, "stationary")


def along_road(x):
    """Return the fraction (n,) of the road at which rows of a table are."""
    return torch.sigmoid(x[:, 0])


def on_road(field, values, x):
    """Return A (n, N) of rows of a table, and variances (n,) given the field's values: 0 for rows among its cuts."""
    fraction = along_road(x).detach().numpy()
    return field.conditional(values, np.column_stack([np.zeros(len(x)), fraction]))


def read_road(field, x):
    """Return A (n, N) of rows of a table that are among a field's cuts."""
    return on_road(field, (1.0,), x)[0]


def with_cuts(inputs):
    """Return the field on the road with values at rows of a table, and what reads these."""
    fraction = along_road(inputs).detach().numpy()
    field, _ = road().refine(np.column_stack([np.zeros(len(inputs)), fraction]))
    return field, partial(read_road, field)


def road_block(lengthscale, variance):
    read = partial(read_road, road())
    return PrecisionBlock(road(), lengthscale.reshape(1), variance, read, with_cuts, between=on_road)


def chain_block(lengthscale, variance):
    """Return the Matern process with nu = 3/2 of the first column."""
    latent = ColumnField(2).at({"lengthscale": lengthscale})

    def refine(inputs):
        field, projector = latent.refine(inputs[:, :1])
        return field, lambda x: projector(x[:, :1])

    def between(field, values, x):
        return latent.between(field, values, x[:, :1])

    given = latent.field, lengthscale.reshape(1), variance, latent.projector, refine
    return PrecisionBlock(*given, between=between, column=MaternColumn(0, 2))


def chain_kernel(a, b, lengthscale, variance):
    return matern32(a[:, :1], b[:, :1], lengthscale, variance)


def road_kernel(a, b, lengthscale, variance):
    return variance * torch.exp(-5 * (along_road(a)[:, None] - along_road(b)[None]).abs() / lengthscale)


def same_group(a, b, variance):
    return variance * (a[:, None, 4] == b[None, :, 4]).to(F64)


# --- random walks -----------------------------------------------------------------------------------------------------


@cache
def visits():
    """Return for each node three nodes, how often they are visited, and after how many steps."""
    rng = np.random.default_rng(7)
    nodes = np.stack([np.sort(rng.permutation(NODES)[:3]) for _ in range(NODES)])
    return nodes, torch.from_numpy(rng.standard_normal((NODES, 3))), torch.from_numpy(rng.integers(0, 3, (NODES, 3)))


def walk_features(x, keep, decay):
    node = x[:, 2].detach().numpy().astype(int)
    nodes, counts, steps = visits()
    values = (counts * decay**steps)[node].reshape(-1)
    pattern = SparsityPattern(3 * np.arange(len(node) + 1), nodes[node].ravel(), (len(node), NODES))
    return SparseValues(values, pattern)


def walk_kernel(a, b, decay, variance):
    nodes, counts, steps = visits()
    phi = torch.zeros(NODES, NODES, dtype=F64).scatter_add(1, torch.from_numpy(nodes), counts * decay**steps)
    left, right = phi[a[:, 2].long()], phi[b[:, 2].long()]
    return variance * left @ right.mT


def product_block(decay, period, variance):
    """The features of walks times a cosine and a sine of the first column."""
    nodes = SparseWeightBlock(walk_features, variance, NODES, 0, (decay,), position=lambda x: x[:, 2].long())
    return SparseProductBlock(nodes, circle, 2, (period,))


def circle(x, period):
    return torch.stack([torch.cos(x[:, 0] / period), torch.sin(x[:, 0] / period)], dim=1)


def product_kernel(a, b, decay, period, variance):
    return walk_kernel(a, b, decay, variance) * torch.cos((a[:, None, 0] - b[None, :, 0]) / period)


def matern32(a, b, lengthscale, variance):
    square = square_distances(a, b, lengthscale)
    r = torch.where(square > 0, square, 1.0).sqrt() * (square > 0)
    return variance * (1 + 3**0.5 * r) * torch.exp(-(3**0.5) * r)


# --- the terms --------------------------------------------------------------------------------------------------------


class Term(NamedTuple):
    """A term by two independent ways.

    Attributes:
        start: Its hyperparameters.
        block: Maps them, by name, to a latent block.
        plain: Its kernel and what approximations of it miss, as functions of inputs and hyperparameters by name.
    """

    start: dict
    block: Callable
    plain: PlainTerm


def weights_term(omega):
    def block(lengthscale, variance):
        return WeightBlock(fourier(omega), 2 * len(omega), (lengthscale,), variance)

    return Term({"lengthscale": [0.8, 1.4], "variance": 0.7}, block, PlainTerm(fourier_kernel(omega)))


def inducing_term(is_noise):
    def whole(a, b, lengthscale, variance):
        return variance * gaussian(a, b, lengthscale)

    def block(lengthscale, variance):
        return WeightBlock(nystrom, 6, (lengthscale,), variance, Residual(is_noise, gaussian))

    plain = PlainTerm(nystrom_kernel, whole, is_noise)
    return Term({"lengthscale": [1.3, 0.9], "variance": 0.6}, block, plain)


def field_term(order, shift=0.5, refined=False):
    def block(shift, variance):
        field = resolvent_field(grid(), order)
        refine = by_refining(field) if refined else None
        return PrecisionBlock(field, shift.reshape(1), variance, on_grid, refine)

    return Term({"shift": shift, "variance": 0.9 * min(shift, 1) ** order}, block, PlainTerm(grid_kernel(order)))


def groups_block(variance):
    return PrecisionBlock(IndependentField(GROUPS), torch.zeros(0, dtype=F64), variance, in_groups)


def neighbors_block(lengthscale, variance, residual_of=None):
    options = {"residual_of": residual_of}
    return VecchiaBlock("matern32", lengthscale, variance, 1000, 0, **options)


def near_block(lengthscale, variance):
    kernel = replace(exact_block(lengthscale, variance), name="near")
    return KernelVecchiaBlock((kernel,), (lambda x, scale, v: v.sqrt() * x[:, :2] / scale,), 1000, 0, name="near")


def wide_nystrom(x, lengthscale):
    """Return features of the unit Matern kernel at some rows of a table."""
    points = table(5, seed=8)
    factor = torch.linalg.cholesky(matern32(points, points, lengthscale, 1.0))
    return torch.linalg.solve_triangular(factor, matern32(points, x, lengthscale, 1.0), upper=False).mT


def wide_nystrom_kernel(a, b, lengthscale, variance):
    points = table(5, seed=8)
    inner = torch.linalg.inv(matern32(points, points, lengthscale, 1.0))
    return variance * matern32(a, points, lengthscale, 1.0) @ inner @ matern32(points, b, lengthscale, 1.0)


def residual_kernel(a, b, lengthscale, variance):
    return matern32(a, b, lengthscale, variance) - wide_nystrom_kernel(a, b, lengthscale, variance)


def exact_block(lengthscale, variance):
    def kernel(a, b, lengthscale, variance):
        return variance * gaussian(a, b, lengthscale)

    return KernelBlock(kernel, lambda a, _, variance: variance.expand(len(a)), (lengthscale, variance))


def near_kernel(a, b, lengthscale, variance):
    return variance * gaussian(a, b, lengthscale)


MATERN = {"lengthscale": [1.0, 1.5, 4.0, 2.0, 2.0], "variance": 0.8}
TERMS = {
    "smooth": weights_term(frequencies(4, seed=1)),
    "rough": weights_term(2 * frequencies(3, seed=2)),
    "wide": weights_term(frequencies(20, seed=3)),
    "linear": Term(
        {"variance": 0.5},
        lambda variance: WeightBlock(lambda x: x[:, :2], 2, (), variance),
        PlainTerm(lambda a, b, variance: variance * a[:, :2] @ b[:, :2].mT),
    ),
    "fitc": inducing_term(True),
    "vfe": inducing_term(False),
    "field": field_term(1),
    "smooth field": field_term(2),
    "stiff field": field_term(2, STIFF),
    "refined field": field_term(2, refined=True),
    "road field": Term({"lengthscale": 1.2, "variance": 0.7}, road_block, PlainTerm(road_kernel)),
    "chain": Term({"lengthscale": 0.7, "variance": 0.9}, chain_block, PlainTerm(chain_kernel)),
    "groups": Term({"variance": 0.4}, groups_block, PlainTerm(same_group)),
    "exact": Term(
        {"lengthscale": [0.7, 1.1], "variance": 0.6},
        exact_block,
        PlainTerm(lambda a, b, lengthscale, variance: variance * gaussian(a, b, lengthscale)),
    ),
    "walks": Term(
        {"decay": 0.6, "variance": 0.3},
        lambda decay, variance: SparseWeightBlock(walk_features, variance, NODES, 0, (decay,)),
        PlainTerm(walk_kernel),
    ),
    "walks in time": Term({"decay": 0.5, "period": 1.4, "variance": 0.3}, product_block, PlainTerm(product_kernel)),
    "neighbors": Term(MATERN, neighbors_block, PlainTerm(matern32)),
    "near": Term({"lengthscale": [0.9, 1.2], "variance": 0.5}, near_block, PlainTerm(near_kernel)),
    "inducing": Term(
        MATERN,
        lambda lengthscale, variance: WeightBlock(wide_nystrom, 5, (lengthscale,), variance),
        PlainTerm(wide_nystrom_kernel),
    ),
    "residual": Term(MATERN, partial(neighbors_block, residual_of="inducing"), PlainTerm(residual_kernel)),
}
SHARED = {"residual": "inducing"}
"""Terms that have the hyperparameters of another, beside which they stand."""
ADDABLE = [name for name in TERMS if name not in ("residual", "near", "chain")]
"""Terms of which any may be added up, each at most once, to the last digits."""
