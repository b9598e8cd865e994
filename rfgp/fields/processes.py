"""Processes on fields: their inputs at observations and nodes, and their predictions at nodes."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import graphs
from graphs.builders.roads import RoadSegment
from rfgp.fields.field import Field, check_field
from rfgp.gp import GP
from rfgp.graph_gp import GraphGP, MeshGP, RoadGP

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
        segment_figures: The figures (5, S) of the road segments, if inputs differ between roads that meet. If None,
            they are averages of their ends.

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
    segment_figures: NDArray[np.float64] | None = None

    @property
    def figures(self) -> NDArray[np.float64]:  # (5, N)
        """The figures of each node in the order of `FIGURES`."""
        return np.stack([self.mean, self.std, self.observed_std, self.low, self.high])

    def along(self, segments: Sequence[RoadSegment]) -> NDArray[np.float64]:  # (5, S)
        """Return the figures of the road segments of the field, in the order of `FIGURES`.

        Args:
            segments: All S segments.
        """
        if self.segment_figures is not None:
            return self.segment_figures
        ends = np.array([(segment.source, segment.target) for segment in segments]).reshape(-1, 2)
        return np.asarray(self.figures[:, ends].mean(axis=2))


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


def observed_inputs(model: GP, field: Field) -> Any:
    """Return the inputs of the observations of a field for a model.

    Args:
        model: The model.
        field: The field, with n observations.

    Returns:
        Labels (n,) for a process on the graph, positions (n, d) for a field alone, or a dataframe with the positions
        and the further inputs of the field.

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
    if isinstance(model, GraphGP):
        return field.nodes
    positions = field.observed_positions
    return positions if _is_field_alone(model) else field.frame(positions, field.graph.index(field.nodes))


def node_inputs(model: GP, field: Field) -> Any:
    """Return the inputs of all nodes of a field for a model.

    Args:
        model: The model.
        field: The field, with N nodes.

    Returns:
        Labels (N,), positions (N, d) or a dataframe, as for `observed_inputs`.

    Examples:
        >>> import tempfile
        >>> from rfgp import datasets, fields
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     field = fields.read_road_field(datasets.write_all(folder)[2])
        >>> fields.node_inputs(fields.whittle_matern(field, alpha=1), field).shape  # road and fraction
        (241, 2)
    """
    field = check_field(field)
    if isinstance(model, GraphGP):
        return field.labels
    positions = field.node_positions
    return positions if _is_field_alone(model) else field.frame(positions, np.arange(field.graph.num_nodes))


def posterior_at_nodes(model: GP, field: Field) -> NodePosterior:
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
    mean, std, *observed = _figures(model, node_inputs(model, field))
    return NodePosterior(mean, std, model.num_observations, *observed)._replace(
        segment_figures=_along_roads(model, field)
    )


def _figures(model: GP, inputs: Any) -> NDArray[np.float64]:  # (5, n)
    """Return the figures of predictions at inputs, in the order of `FIGURES`."""
    latent: Any = model.predict(inputs)
    observed = latent.observed()
    return np.stack([latent.mean, latent.std, np.sqrt(observed.variance), *observed.quantile([0.025, 0.975])])


def _along_roads(model: GP, field: Field) -> NDArray[np.float64] | None:
    """Return the figures (5, S) of segments with the further inputs of their own roads, or None without any."""
    if field.roads is None or not field.columns:
        return None
    ends = [(piece.road, fraction) for piece in field.segments() for fraction in (piece.start, piece.end)]
    return np.asarray(_figures(model, field.frame(np.array(ends))).reshape(len(FIGURES), -1, 2).mean(axis=2))


def _is_field_alone(model: GP) -> bool:
    return isinstance(model, RoadGP | MeshGP)
