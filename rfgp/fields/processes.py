"""Processes on fields: what each calls the observations and the nodes of a field, and what it says there."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import graphs
from rfgp.fields.field import Field
from rfgp.models.fields import MeshGP, RoadGP
from rfgp.models.process import Process


class NodeLaw(NamedTuple):
    """What a model says at every node of a graph."""

    mean: NDArray[np.float64]  # (N,)
    deviation: NDArray[np.float64]  # (N,) of the latent field
    num_observed: int


def whittle_matern(
    field: Field, alpha: int, *, boundary: str = "neumann", within: float | None = None, seed: int | None = None
) -> MeshGP | RoadGP:
    """Return the Whittle-Matern process on a field's surface, or along its roads.

    Args:
        field: The field.
        alpha: As for `rfgp.RoadGP` and `graphs.MeshField`.
        boundary: Of roads, as for `rfgp.RoadGP`.
        within: Of meshes, as for `rfgp.MeshGP`.
        seed: As for `rfgp.RoadGP`.

    Raises:
        InvalidArgumentError: another alpha or boundary.
    """
    if field.roads is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", graphs.DuplicateRoadsWarning)  # reading the field has warned
            network = graphs.RoadNetwork.from_roads(field.roads)
        return RoadGP(network, alpha, boundary=boundary, seed=seed)
    return MeshGP(graphs.MeshField(field.mesh, alpha), within=within, seed=seed)


def observed_inputs(model: Process[Any], field: Field) -> NDArray[Any]:
    """Return the inputs of a field's observations: labels (n,), or places (n, d) for a process between nodes."""
    return field.places if _is_between(model) else field.nodes


def node_inputs(model: Process[Any], field: Field) -> Any:
    """Return the inputs of all N nodes of a field: labels (N,), or places (N, d) for a process between nodes."""
    return field.node_places if _is_between(model) else field.labels


def law_at_nodes(model: Process[Any], field: Field) -> NodeLaw:
    """Return a fitted model's mean (N,) and standard deviation (N,) at every node of a field."""
    law = model.predict(node_inputs(model, field))
    return NodeLaw(law.mean, np.sqrt(law.variance), model.num_observations)


def _is_between(model: Process[Any]) -> bool:
    return isinstance(model, RoadGP | MeshGP)
