"""Speeds on the San Jose highways (pems), every model with hyperparameters of its own.

Fig. 11 of Reid et al. (2024), which freezes them, is in `benchmarks.papers.couplings.walks_processes`.

Protocol, fixed before the results were seen. 1,016 nodes, edges weigh (mean length) / (length); 250 random sensors to
train, 75 to test, ten splits (seeds 0 to 9). Each model fits all its hyperparameters by its own marginal likelihood and
predicts through its own features. There are 4, 8 and 16 walkers, halt 0.1: i.i.d., antithetic, sigma with the
permutation matched on the graph to the starting kernel, and stratified. Stratified walkers also follow exact hops
within four non-zeros per row for each walker, and the Chebyshev series has as many non-zeros. All of these have the
diffusion kernel. They are compared with the exact diffusion process, and with the exact graph Matern process, its nu of
0.5, 1.5, 2.5, 3.5 by the marginal likelihood. The last is an exact process with a free modulation (eight factors on the
diffusion kernel). Figures: RMSE in mph and mean negative log predictive density of the observations at the test
sensors. They are means and standard errors over splits, also of the difference from the exact diffusion process on the
same split.

    python -m benchmarks.races.road_models
"""

import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import graphs
import rfgp
from rfgp.compare.protocol import WALKS
from rfgp.datasets import fetch
from rfgp.fields import Field, read_road_field

SPLITS, TRAIN = 10, 250
WALKERS = (4, 8, 16)
METHODS = ("iid", "antithetic", "sigma", "stratified", "exact-hops")


def exact_models(field: Field) -> Iterator[tuple[str, list[Any]]]:
    def make(kernel: Any) -> rfgp.GraphGP:
        return rfgp.GraphGP(field.graph, kernel, features="exact")

    yield "exact diffusion", [make("diffusion")]
    yield "exact Matern", [make(graphs.kernels.Matern(nu, kappa)) for nu in (0.5, 1.5, 2.5, 3.5) for kappa in (1, 4)]
    yield "exact, free modulation", [make(graphs.kernels.FreeModulation())]


def feature_models(field: Field, seed: int) -> Iterator[tuple[str, list[Any]]]:
    for m in WALKERS:
        for name in METHODS:
            options = {**WALKS[name], "num_walkers": m, "p_halt": 0.1, "seed": seed}
            yield f"{name}, {m}", [rfgp.GraphGP(field.graph, features="walks", **options)]
        yield f"chebyshev, {4 * m} non-zeros", [rfgp.GraphGP(field.graph, features="chebyshev", num_walkers=m)]


def main() -> None:
    warnings.simplefilter("ignore")
    field = read_road_field(fetch("pems"))
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for seed in range(SPLITS):
        order = np.random.default_rng(seed).permutation(len(field.values))
        train, test = order[:TRAIN], order[TRAIN:]
        y = field.values[test]
        for name, candidates in (*exact_models(field), *feature_models(field, seed)):
            fits = [gp.fit(field.nodes[train], field.values[train]) for gp in candidates]
            best = max(fits, key=lambda gp: gp.fit_report.log_marginal_likelihood)
            law = best.predict(field.nodes[test])
            found[name].append((rfgp.metrics.rmse(y, law), rfgp.metrics.nlpd(y, law)))
    table = Table(title=f"pems, {TRAIN} sensors to train, {len(test)} to test, {SPLITS} splits")
    for column in ("model", "RMSE, mph", "less exact diffusion", "NLPD"):
        table.add_column(column)
    base = np.array(found["exact diffusion"])[:, 0]
    for name, figures in found.items():
        rmse, nlpd = np.array(figures).T
        columns = (rmse, rmse - base, nlpd)
        table.add_row(name, *(f"{c.mean():.3f} ± {c.std(ddof=1) / np.sqrt(SPLITS):.3f}" for c in columns))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
