"""Values on meshes: fields on the surface compared with kernels on the graph of faces, each with its own likelihood.

Protocol, fixed before the results were seen. The meshes are those of Reid et al. (2024) and data/mesh.ply. There are
two quantities at every face. One is the z component of its normal, as in the paper. The other is cos(6 x) + sin(6 y + 3
z) at its centroid with noise of deviation 0.1. Coordinates are in units of the longest side of the bounding box. A
random tenth of the faces is known, three seeds; each model fits all its hyperparameters by its own marginal likelihood,
and predicts the other faces. Models are fields of alpha 1, 2 and 3, at the centroids, and the diffusion kernel on the
graph of faces with the default features of `rfgp.GraphGP`. The graph has unit weights, or weights from lengths.

    python -m benchmarks.races.mesh_fields [--tables T,...] [--racers R,...] [--out FILE]
"""

import argparse
from functools import cache
from typing import Any

import numpy as np

import graphs
import rfgp
from benchmarks import models
from benchmarks.race import Array, Model, Race, Split
from rfgp.datasets import fetch

MESHES = ("unit_sphere", "idler_riser", "fuze", "busted", "teapot", "torus", "data/mesh.ply")


@cache
def mesh_of(table: str) -> Any:
    """Return the mesh of a table."""
    name = table.rpartition("-")[0]
    return graphs.load_mesh(name if "/" in name else fetch(name))


def split(table: str, seed: int, options: argparse.Namespace) -> Split:
    """Return the numbers of the known and of the hidden faces, and the quantity there."""
    mesh = mesh_of(table)
    places = (mesh.triangles_center - mesh.vertices.min(axis=0)) / np.ptp(mesh.vertices, axis=0).max()
    noise = np.random.default_rng(0).standard_normal(len(places))
    y = np.cos(6 * places[:, 0]) + np.sin(6 * places[:, 1] + 3 * places[:, 2]) + 0.1 * noise
    y = np.array(mesh.face_normals[:, 2]) if table.endswith("normals") else y
    order = np.random.default_rng(seed).permutation(len(y))
    known, hidden = np.split(order, [len(order) // 10])
    return Split(known, y[known], hidden, y[hidden])


def models_of(table: str) -> dict[str, Model]:
    """Return the models by name."""

    def field(alpha: int) -> models.Fit:
        def fit(known: Array, y: Array, seed: int = 0) -> models.Predict:
            mesh = mesh_of(table)
            places = mesh.triangles_center
            predict = models.gp(lambda _: rfgp.MeshGP(graphs.MeshField(mesh, alpha), seed=seed))(places[known], y)
            return lambda hidden: predict(places[hidden])

        return fit

    def on_faces(weights: str) -> models.Fit:
        def make(seed: int) -> Any:
            return rfgp.GraphGP(graphs.Graph.from_mesh(mesh_of(table), weights=weights), seed=seed)

        return models.gp(make)

    fields = {f"alpha {alpha}": Model("rfgp.gp", field(alpha)) for alpha in (1, 2, 3)}
    return fields | {f"graph, {weights}": Model("rfgp.gp", on_faces(weights)) for weights in ("unit", "edge-length")}


TABLES = tuple(f"{mesh}-{quantity}" for mesh in MESHES for quantity in ("normals", "waves"))
RACE = Race("benchmarks.races.mesh_fields", TABLES, split, models_of)


def main() -> None:
    """Run the race."""
    RACE.main(__doc__)


if __name__ == "__main__":
    main()
