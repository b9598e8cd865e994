"""A field: a graph in space with values at some of its nodes."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import graphs
from graphs.builders.roads import Piece
from rfgp.errors import InvalidArgumentError
from rfgp.models.process import Process


@dataclass(frozen=True, eq=False)
class Field:
    """Values at some nodes of a graph that lies in space.

    Attributes:
        graph: The graph, with coordinates.
        nodes: Labels (n,) of the observed nodes; a node may occur more than once.
        values: The values there (n,).
        quantity: What the values are, in words.
        train_share: The usual share of them to train on.
        mesh: The `trimesh.Trimesh`, for a field on a mesh.
        on_faces: Whether the nodes are the mesh's faces (else its vertices).
        roads: The roads, for a field on roads.
    """

    graph: graphs.Graph
    nodes: NDArray[Any]
    values: NDArray[np.float64]
    quantity: str
    train_share: float = 0.95
    mesh: Any = None
    on_faces: bool = True
    roads: graphs.Roads | None = None

    @property
    def labels(self) -> list[Any]:
        """The labels of all N nodes."""
        labels = self.graph.labels
        return list(range(self.graph.num_nodes)) if labels is None else list(labels)

    @property
    def coordinates(self) -> NDArray[np.float64]:
        """Where the nodes are, (N, 2) in degrees or (N, 3) in the mesh's units."""
        assert self.graph.coordinates is not None
        return self.graph.coordinates

    def pieces(self) -> list[Piece]:
        """Return the pieces of road between neighbouring nodes, which are positions in the graph.

        Raises:
            InvalidArgumentError: the field is not on roads.
        """
        if self.roads is None:
            raise InvalidArgumentError("This field is not on roads.")
        edges, fractions, _ = self.roads.places()
        return graphs.cut_roads(self.roads.lines, edges, fractions, self.roads.metric)[2]


class NodeLaw(NamedTuple):
    """What a model says at every node of a graph."""

    mean: NDArray[np.float64]  # (N,)
    deviation: NDArray[np.float64]  # (N,) of the latent field
    num_observed: int


def law_at_nodes(model: Process[Any], field: Field) -> NodeLaw:
    """Return a fitted model's mean (N,) and standard deviation (N,) at every node of a field."""
    law = model.predict(field.labels)
    return NodeLaw(law.mean, np.sqrt(law.variance), model.num_observations)
