"""Replicates of one field on roads: hyperparameters of all of them at once, or of each alone.

MetricGraph's `pems_repl`: speeds of 26 occasions at 319 sensors. Five folds over sensors, fold f the sensors f, f + 5,
... of one permutation (seed 0), all occasions of a sensor together. Fields of alpha 1 and 2, Neumann's condition: one
fit of y (n, 26), whose occasions share the kernel and, standardized, the noise; and a fit for each occasion. RMSE and
negative log density over all held-out values, standard errors over sensors; seconds of a fold.

    python -m benchmarks.races.road_replicates pems_repl.rda
"""

import sys
import time
import warnings
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import graphs
import rfgp
from benchmarks.races.road_fields import scores

FOLDS = 5


def main() -> None:
    warnings.simplefilter("ignore")
    roads = graphs.read_roads(sys.argv[1])
    edges, fractions, _ = roads.sensor_positions()
    X = np.stack([edges, fractions], axis=1)
    y = roads.values.reshape(-1, len(X)).T
    network = graphs.RoadNetwork.from_roads(roads)
    order = np.random.default_rng(0).permutation(len(X))
    table = Table(title=f"{y.shape[1]} replicates at {len(X)} sensors, {FOLDS} folds")
    for column in ("field", "hyperparameters", "RMSE", "NLPD", "seconds a fold"):
        table.add_column(column)
    for alpha in (1, 2):
        for together in (True, False):
            squares, losses, begin = [], [], time.perf_counter()
            for fold in range(FOLDS):
                test = order[fold::FOLDS]
                train = np.setdiff1d(order, test)

                def law(targets: Any, alpha: int = alpha, train: Any = train, test: Any = test) -> Any:
                    gp = rfgp.RoadGP(network, alpha, seed=0)
                    return gp.fit(X[train], targets[train]).predict(X[test]).observed()

                laws = [law(y)] if together else [law(column[:, None]) for column in y.T]
                mean, variance = (
                    np.concatenate([getattr(one, name) for one in laws], axis=1) for name in ("mean", "variance")
                )
                square, *_, loss = scores(y[test], mean, variance)
                squares.append(square.mean(axis=1))
                losses.append(loss.mean(axis=1))
            seconds = (time.perf_counter() - begin) / FOLDS
            square, loss = np.concatenate(squares), np.concatenate(losses)
            root = np.sqrt(square.mean())
            error = square.std(ddof=1) / len(square) ** 0.5 / (2 * root)
            table.add_row(
                f"alpha {alpha}",
                "of all at once" if together else "of each alone",
                f"{root:.3f} ± {error:.3f}",
                f"{loss.mean():.3f} ± {loss.std(ddof=1) / len(loss) ** 0.5:.3f}",
                f"{seconds:.1f}",
            )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
