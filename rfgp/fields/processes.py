"""Processes on fields: their inputs at observations and nodes, and their predictions at nodes."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import graphs
from rfgp.fields.field import Field, check_field
from rfgp.models.fields import MeshGP, RoadGP
from rfgp.models.process import Process

FIGURES = ("mean", "sd", "observed_sd", "low", "high")
"""The names in files of five figures: mean and standard deviation of the field, and standard deviation and ends of the
95 % interval of an observation."""


class NodePosterior(NamedTuple):
    """The predictions of a model at all N nodes of a graph.

    Attributes:
        mean: The mean (N,) of the latent field.
        std: The standard deviation (N,) of the latent field.
        num_observed: The number of observations.
        observed_std: The standard deviation (N,) of an observation.
        low: The lower end (N,) of the central 95 % interval of an observation.
        high: The upper end (N,) of the interval.

    Examples:
        >>> import tempfile
        >>> from rfgp import datasets, fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     field = fields.read_road_field(datasets.write_all(folder)[2])
        >>> gp = fields.whittle_matern(field, alpha=1).condition(field.observed_positions, field.values)
        >>> fields.posterior_at_nodes(gp, field).figures.shape
        (5, 241)
    """

    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    num_observed: int
    observed_std: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @property
    def figures(self) -> NDArray[np.float64]:  # (5, N)
        """The figures of each node in the order of `FIGURES`."""
        return np.stack([self.mean, self.std, self.observed_std, self.low, self.high])


def whittle_matern(
    field: Field, alpha: int, *, boundary: str = "neumann", within: float | None = None, seed: int | None = None
) -> MeshGP | RoadGP:
    """Return the Whittle-Matern process on the surface or the roads of a field.

    Args:
        field: The field.
        alpha: The order of the process, as for `rfgp.RoadGP` and `graphs.MeshField`.
        boundary: The boundary condition of roads, as for `rfgp.RoadGP`.
        within: The largest distance from a mesh, as for `rfgp.MeshGP`.
        seed: The seed, as for `rfgp.RoadGP`.

    Returns:
        The model, before a fit.

    Raises:
        InvalidArgumentError: If alpha or the boundary is invalid.

    Examples:
        >>> import tempfile
        >>> from rfgp import datasets, fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     field = fields.read_road_field(datasets.write_all(folder)[2])
        >>> gp = fields.whittle_matern(field, alpha=1).condition(field.observed_positions, field.values)
        >>> gp.predict(field.observed_positions[:3]).mean.shape
        (3,)
    """
    field = check_field(field)
    if field.roads is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", graphs.DuplicateRoadsWarning)  # the reader of the field has warned
            network = graphs.RoadNetwork.from_roads(field.roads)
        return RoadGP(network, alpha, boundary=boundary, seed=seed)
    return MeshGP(graphs.MeshField(field.mesh, alpha), within=within, seed=seed)


def observed_inputs(model: Process[Any], field: Field) -> NDArray[Any]:
    """Return the inputs of the observations of a field for a model.

    Args:
        model: The model.
        field: The field, with n observations.

    Returns:
        Labels (n,), or positions (n, d) for a process that is defined between nodes.

    Examples:
        >>> import tempfile
        >>> from rfgp import datasets, fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     field = fields.read_road_field(datasets.write_all(folder)[2])
        >>> gp = fields.whittle_matern(field, alpha=1)
        >>> fields.observed_inputs(gp, field).shape  # road and fraction
        (120, 2)
    """
    field = check_field(field)
    return field.observed_positions if _is_between(model) else field.nodes


def node_inputs(model: Process[Any], field: Field) -> Any:
    """Return the inputs of all nodes of a field for a model.

    Args:
        model: The model.
        field: The field, with N nodes.

    Returns:
        Labels (N,), or positions (N, d) for a process that is defined between nodes.

    Examples:
        >>> import tempfile
        >>> from rfgp import datasets, fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     field = fields.read_road_field(datasets.write_all(folder)[2])
        >>> fields.node_inputs(fields.whittle_matern(field, alpha=1), field).shape  # road and fraction
        (241, 2)
    """
    field = check_field(field)
    return field.node_positions if _is_between(model) else field.labels


def posterior_at_nodes(model: Process[Any], field: Field) -> NodePosterior:
    """Return the predictions of a fitted model at all nodes of a field.

    Args:
        model: The model, fitted to the field.
        field: The field.

    Returns:
        The moments and intervals at the N nodes.

    Examples:
        >>> import tempfile
        >>> import trimesh
        >>> import rfgp
        >>> from rfgp import fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = trimesh.creation.icosphere(1).export(f"{folder}/sphere.ply")
        ...     field = fields.read_mesh_field(f"{folder}/sphere.ply")
        >>> gp = rfgp.GraphGP(field.graph, features="exact").condition(list(field.nodes), field.values)
        >>> fields.posterior_at_nodes(gp, field).mean.shape
        (80,)
    """
    latent: Any = model.predict(node_inputs(model, field))
    observed = latent.observed()
    deviations = latent.std, np.sqrt(observed.variance)
    return NodePosterior(
        latent.mean, deviations[0], model.num_observations, deviations[1], *observed.quantile([0.025, 0.975])
    )


def _is_between(model: Process[Any]) -> bool:
    return isinstance(model, RoadGP | MeshGP)
