"""Speeds on roads: fields on the metric graph and kernels on the graph of pieces, each by its own likelihood.

Protocol, fixed before the results were seen. The data are pems (San Jose highways) and data/roads.geojson (drawn by
this project). There are five folds; fold f has the rows f, f + 5, ... of one permutation (seed 0). Each model fits all
its hyperparameters on four folds by its own marginal likelihood, the first with several starts, and predicts the
observations of the fifth. Models are fields of alpha 1 and 2 at exact positions, with Neumann's and with the stationary
condition at free ends. Others are exact processes on the graph whose edges weigh (mean length) / (length): diffusion,
and Matern of nu = 1 and 2 by sparse precisions. The last is the diffusion kernel by 64 walkers. RMSE, MAE, CRPS,
negative log density, pooled over the folds, with standard errors over rows; and the same of leave-one-out predictions
at hyperparameters fitted to all rows.

    python -m benchmarks.races.road_fields
"""

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import graphs
import rfgp
from benchmarks.scores import Normal
from rfgp.datasets import fetch

FOLDS = 5
Array = NDArray[Any]
Make = Callable[[], Any]


def data(name: str) -> tuple[graphs.Roads, Array]:
    """Return roads with sensors that measured something, and their positions (n, 2)."""
    roads = graphs.read_roads(fetch("pems")) if name == "pems" else graphs.read_roads(Path(name))
    seen = ~np.isnan(roads.values)
    roads = roads._replace(
        sensor_edges=roads.sensor_edges[seen], sensor_fractions=roads.sensor_fractions[seen], values=roads.values[seen]
    )
    return roads, np.stack([roads.sensor_edges, roads.sensor_fractions], axis=1)


def models(roads: graphs.Roads, positions: Array) -> dict[str, tuple[Make, Any]]:
    """Return by name how a model is made, and its inputs."""
    network = graphs.RoadNetwork.from_roads(roads)
    edges, fractions, place = roads.sensor_positions()
    graph = graphs.Graph.from_roads(roads.lines, edges, fractions, metric=roads.metric)
    nodes = np.array([f"sensor-{i}" for i in place])

    def on_roads(alpha: int, boundary: str) -> Make:
        return lambda: rfgp.RoadGP(network, alpha, boundary=boundary, seed=0)

    def on_graph(kernel: Any, features: str) -> Make:
        return lambda: rfgp.GraphGP(graph, kernel, features=features, seed=0)

    found: dict[str, tuple[Make, Any]] = {
        f"field, alpha {alpha}, {boundary}": (on_roads(alpha, boundary), positions)
        for alpha in (1, 2)
        for boundary in ("neumann", "stationary")
    }
    for nu in (1, 2):
        kernel = graphs.kernels.Matern(nu, 10.0)
        found[f"graph, Matern nu {nu}, exact"] = (on_graph(kernel, "precision"), nodes)
    found["graph, diffusion, exact"] = (on_graph("diffusion", "exact"), nodes)
    found["graph, diffusion, 64 walkers"] = (on_graph("diffusion", "walks"), nodes)
    return found


def scores(y: Array, mean: Array, variance: Array) -> list[Array]:
    """Return squared and absolute errors, CRPS and negative log densities of rows, (n,) each."""
    law = Normal(mean, variance)
    return [(y - mean) ** 2, np.abs(y - mean), law.crps(y), -law.log_prob(y)]


def main() -> None:
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or ["pems", "data/roads.geojson"]:
        roads, positions = data(name)
        y = roads.values
        order = np.random.default_rng(0).permutation(len(y))
        table = Table(title=f"{name}: {len(y)} observations, {FOLDS} folds, and leave-one-out")
        for column in ("model", "RMSE", "MAE", "CRPS", "NLPD", "loo RMSE", "loo NLPD", "seconds a fit"):
            table.add_column(column)
        for label, (make, inputs) in models(roads, positions).items():
            rows: list[list[Array]] = []
            begin = time.perf_counter()
            for fold in range(FOLDS):
                test = order[fold::FOLDS]
                train = np.setdiff1d(order, test)
                law = make().fit(inputs[train], y[train]).predict(inputs[test]).observed()
                rows.append(scores(y[test], law.mean, law.variance))
            seconds = (time.perf_counter() - begin) / FOLDS
            pooled = [np.concatenate(parts) for parts in zip(*rows, strict=True)]
            left = make().fit(inputs, y).leave_one_out()
            loo = scores(y, left.mean, left.variance)
            shown = [root(pooled[0]), *(spread(part) for part in pooled[1:]), root(loo[0]), spread(loo[3])]
            table.add_row(label, *shown, f"{seconds:.1f}")
        Console(width=130).print(table)


def root(squares: Array) -> str:
    """Return the root mean of squares, with its standard error."""
    mean = squares.mean()
    return f"{np.sqrt(mean):.3f} ± {squares.std(ddof=1) / np.sqrt(len(squares)) / (2 * np.sqrt(mean)):.3f}"


def spread(values: Array) -> str:
    """Return a mean with its standard error."""
    return f"{values.mean():.3f} ± {values.std(ddof=1) / np.sqrt(len(values)):.3f}"


if __name__ == "__main__":
    main()
