"""How far walks and polynomials are from the exact process on 10^5 nodes, at equal hyperparameters.

A grid of 316 by 316 nodes, 10,000 of them observed at random: a draw of the kernel's own process, noise a tenth of its
variance. The hyperparameters are those of the draw. The exact process uses the sparse precision. KL(exact || features)
is that of the joint observed distributions, in nats per node. It is computed at 500 hidden nodes in neighborhoods of
ten, and estimated at all nodes with eight probes (`rfgp.metrics.estimate_kl`). Seconds of conditioning, of means and
deviations at all nodes, and of that estimate. Three seeds of walks; the errors are over these, and of one estimate.

    python -m benchmarks.races.walks_and_precision
"""

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import graphs
import rfgp

SIDE, SEEN, SEEDS = 316, 10_000, (1, 2, 3)
KERNEL = graphs.kernels.RegularizedLaplacian(2, 3.0)


def approximations() -> Iterator[tuple[str, list[rfgp.approximations.Approximation]]]:
    for walkers in (16, 64):
        yield f"{walkers} walkers", [rfgp.RandomWalks(walkers, seed=s) for s in SEEDS]
    for degree in (5, 10):
        yield f"Chebyshev, degree {degree}", [rfgp.Chebyshev(degree)]


def spread(values: Any) -> str:
    """Return a mean, with its standard error where there are several."""
    error = f" ± {np.std(values, ddof=1) / np.sqrt(len(values)):.2g}" if len(values) > 1 else ""
    return f"{np.mean(values):.3g}{error}"


def main() -> None:
    warnings.simplefilter("ignore")
    graph, rng = graphs.Graph.from_grid((SIDE, SIDE)), np.random.default_rng(0)
    count = graph.num_nodes
    field = KERNEL.precision(graph).sample(seed=0)[0]
    scale = field.std()
    seen = rng.permutation(count)[:SEEN]
    y = field[seen] / scale + np.sqrt(0.1) * rng.standard_normal(SEEN)
    starts = rng.permutation(np.setdiff1d(np.arange(count - 10), seen))[:50]
    hidden = np.unique(starts[:, None] + np.arange(10))
    made = rfgp.GraphGP(graph, KERNEL, features="precision", outputscale=scale**-2, noise=0.1, seed=0)
    table = Table(title=f"{count:,} nodes, {SEEN:,} observed; KL at {len(hidden)} nodes")
    for column in (
        "features",
        "KL, hidden",
        "KL, all nodes",
        "of one estimate",
        "condition",
        "all nodes",
        "estimate, s",
    ):
        table.add_column(column)

    def timed(gp: Any) -> tuple[float, float]:
        begin = time.perf_counter()
        gp.predict([0]).mean  # noqa: B018
        middle = time.perf_counter()
        law = gp.predict(np.arange(count))
        law.mean, law.std  # noqa: B018
        return middle - begin, time.perf_counter() - middle

    exact = made.condition(seen, y)
    table.add_row("precision", "0", "0", "", *(f"{s:.1f}" for s in timed(exact)), "")
    truth, everywhere = exact.predict(hidden), exact.predict(np.arange(count))
    for name, chosen in approximations():
        models = [exact.with_approximation(each) for each in chosen]
        seconds = np.array([timed(model) for model in models]).mean(axis=0)
        found = [rfgp.metrics.kl_divergence(truth, model.predict(hidden), per_point=True) for model in models]
        begin = time.perf_counter()
        laws = [model.predict(np.arange(count)) for model in models]
        estimates = [rfgp.metrics.estimate_kl(everywhere, law, per_point=True) for law in laws]
        estimating = (time.perf_counter() - begin) / len(models)
        values, errors = np.array(estimates).T
        numbers = (*(f"{s:.1f}" for s in seconds), f"{estimating:.1f}")
        table.add_row(name, spread(found), spread(values), f"{errors.max():.1g}", *numbers)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
