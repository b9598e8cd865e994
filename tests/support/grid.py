"""Observations on the nodes of a grid, and a process through the features of walks on them."""

from functools import cache
from typing import NamedTuple

import networkx as nx
import numpy as np

import graphs
from rfgp import GraphGP


class Observations(NamedTuple):
    """Of 253 nodes, two of them observed more than once."""

    nodes: np.ndarray
    y: np.ndarray
    noise: np.ndarray
    weight: np.ndarray


@cache
def grid():
    """Return a grid of 30 x 30 nodes."""
    return graphs.Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(30, 30)))


def field(nodes):
    """Return a smooth function on the grid."""
    return np.sin(nodes // 30 / 4) + np.cos(nodes % 30 / 5)


def observations(seed=0):
    rng = np.random.default_rng(seed)
    nodes = np.concatenate([rng.permutation(900)[:250], [7, 7, 8]])
    y = field(nodes) + 0.2 * rng.standard_normal(253)
    return Observations(nodes, y, rng.uniform(0, 0.1, 253), rng.integers(1, 4, 253).astype(float))


CASES = ("plain", "noise", "weights")


def per_row(case, data):
    """Return the arguments of `condition` for a case."""
    options = {"noise": {"noise": data.noise}, "weights": {"sample_weight": data.weight, "noise": data.noise}}
    return options.get(case, {})


def model(data, case="plain", *, lengthscale=2.0, y=None, **options):
    """Return a process on the observations, at its starting values."""
    kernel = graphs.kernels.Diffusion(lengthscale)
    gp = GraphGP(grid(), kernel, features="walks", num_walkers=16, seed=0, **options)
    return gp.condition(data.nodes, data.y if y is None else y, **per_row(case, data))
