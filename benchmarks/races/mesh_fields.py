"""Values on meshes: fields on the surface compared with kernels on the graph of faces, each with its own likelihood.

Protocol, fixed before the results were seen. The meshes are those of Reid et al. (2024) and data/mesh.ply. There are
two quantities at every face. One is the z component of its normal, as in the paper. The other is cos(6 x) + sin(6 y + 3
z) at its centroid with noise of deviation 0.1. Coordinates are in units of the longest side of the bounding box. A
random tenth of the faces is known, three seeds; each model fits all its hyperparameters by its own marginal likelihood,
and predicts the other faces. Models are fields of alpha 1, 2 and 3, at the centroids, and the diffusion kernel on the
graph of faces with the default features of `rfgp.GraphGP`. The graph has unit weights, or weights from lengths. RMSE
and negative log density, means and standard errors over seeds.

    python -m benchmarks.races.mesh_fields
"""

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import graphs
import rfgp
from benchmarks.races.road_fields import scores
from rfgp.datasets import fetch

MESHES = ("unit_sphere", "idler_riser", "fuze", "busted", "teapot", "torus", "data/mesh.ply")
SEEDS = 3
Array = NDArray[Any]
Make = Callable[[int], Any]


def quantities(mesh: Any) -> Iterator[tuple[str, Array]]:
    """Yield the names and values (F,) of the two quantities."""
    yield "normals", np.array(mesh.face_normals[:, 2])
    places = (mesh.triangles_center - mesh.vertices.min(axis=0)) / np.ptp(mesh.vertices, axis=0).max()
    noise = np.random.default_rng(0).standard_normal(len(places))
    yield "waves", np.cos(6 * places[:, 0]) + np.sin(6 * places[:, 1] + 3 * places[:, 2]) + 0.1 * noise


def models(mesh: Any) -> dict[str, tuple[Make, Array]]:
    """Return by name how a model is made of a seed, and its inputs at all faces."""
    found: dict[str, tuple[Make, Array]] = {}
    for alpha in (1, 2, 3):
        field = graphs.MeshField(mesh, alpha)
        found[f"field, alpha {alpha}"] = (lambda seed, f=field: rfgp.MeshGP(f, seed=seed), mesh.triangles_center)
    for weights in ("unit", "edge-length"):
        graph = graphs.Graph.from_mesh(mesh, weights=weights)
        found[f"graph, {weights}"] = (lambda seed, g=graph: rfgp.GraphGP(g, seed=seed), np.arange(len(mesh.faces)))
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    for name in MESHES:
        mesh = graphs.load_mesh(name if "/" in name else fetch(name))
        table = Table(title=f"{name}: {len(mesh.faces):,} faces, a tenth known, {SEEDS} seeds")
        for column in ("quantity", "model", "RMSE", "NLPD", "seconds"):
            table.add_column(column)
        for quantity, y in quantities(mesh):
            for label, (make, inputs) in models(mesh).items():
                rows, begin = [], time.perf_counter()
                for seed in range(SEEDS):
                    order = np.random.default_rng(seed).permutation(len(y))
                    known, hidden = np.split(order, [len(order) // 10])
                    law = make(seed).fit(inputs[known], y[known]).predict(inputs[hidden]).observed()
                    squares, *_, losses = scores(y[hidden], law.mean, law.variance)
                    rows.append((np.sqrt(squares.mean()), losses.mean()))
                mean, error = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / SEEDS**0.5
                cells = [f"{m:.4f} ± {e:.4f}" for m, e in zip(mean, error, strict=True)]
                table.add_row(quantity, label, *cells, f"{(time.perf_counter() - begin) / SEEDS:.1f}")
        Console(width=110).print(table)


if __name__ == "__main__":
    main()
