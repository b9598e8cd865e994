"""A kernel of fractional order through sums of fields, polynomials and walks, against a sum of six fields.

A grid has 316 by 316 nodes, 10,000 of them observed. The kernel is Matern with nu = 1.5 and kappa = 10, the prior
variance is about that of the observed waves, and the noise is 0.1. Figures: KL(six fields || others) of the joint
observed distribution of all nodes, in nats per node, by four probes. Also the seconds of conditioning with means at all
nodes, and of the deviations there after that.

    python -m benchmarks.races.fractional
"""

import time
import warnings
from typing import Any

import numpy as np

import graphs
import rfgp

SIDE, SEEN = 316, 10_000
KERNEL = graphs.kernels.Matern(1.5, 10.0)
OTHERS: tuple[dict[str, Any], ...] = (
    *({"features": "rational", "degree": terms} for terms in (2, 3, 4)),
    *({"features": "chebyshev", "degree": degree} for degree in (5, 10)),
    {"features": "walks", "num_walkers": 64},
)


def main() -> None:
    warnings.simplefilter("ignore")
    graph, rng = graphs.Graph.from_grid((SIDE, SIDE)), np.random.default_rng(0)
    nodes = np.arange(graph.num_nodes)
    seen = rng.permutation(nodes)[:SEEN]
    y = np.sin(seen % SIDE / 30) + np.cos(seen // SIDE / 47) + 0.1**0.5 * rng.standard_normal(SEEN)
    outputscale = KERNEL.resolvent().shift ** KERNEL.nu

    def law(options: dict[str, Any]) -> Any:
        made = rfgp.GraphGP(graph, KERNEL, outputscale=outputscale, noise=0.1, seed=0, **options)
        begin = time.perf_counter()
        gp = made.condition(seen, y)
        found = gp.predict(nodes)
        found.mean  # noqa: B018
        middle = time.perf_counter()
        found.std  # noqa: B018
        error = gp.diagnose().spectral_error
        bound = "" if error is None else f", spectrum to {error:.1g}"
        print(f"{options}{bound}: {middle - begin:.1f} s, {time.perf_counter() - middle:.1f} s", end="", flush=True)
        return found

    reference = law({"features": "rational", "degree": 6})
    print()
    for options in OTHERS:
        found = law(options)
        value, error = rfgp.metrics.estimate_kl(reference, found, num_probes=4, per_point=True)
        print(f", KL {value:.3g} ± {error:.1g} a node", flush=True)


if __name__ == "__main__":
    main()
