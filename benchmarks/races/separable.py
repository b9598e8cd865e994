"""Products of a field on roads and a Matern kernel of one column, by a separable precision.

Sensors on a random road network are read at equally spaced times, and a share of the cells is missing. Printed are the
number of latent values, and the peak memory per latent value. Seconds are of the first value (with the analysis of the
pattern), of a later value with its gradient, and of predictions at new positions and times.

    OMP_NUM_THREADS=1 python -m benchmarks.races.separable --nu 0.5 1.5
"""

import argparse
import resource
import time

import numpy as np
import torch
from scipy.spatial import Delaunay

import graphs
import rfgp
from rfgp import kernels as k

MISSING = 0.3
"""The share of the cells that are missing."""


def network(rng, vertices=400, kept=0.6):
    """Return a share of the edges of a triangulation of random points as roads, and their number."""
    points = rng.uniform(0, 10, (vertices, 2))
    triangles = np.sort(Delaunay(points).simplices, axis=1)
    edges = np.unique(np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]]), axis=0)
    lines = [points[edge].tolist() for edge in edges[rng.random(len(edges)) < kept]]
    return graphs.RoadNetwork.from_lines(lines, metric="euclidean"), len(lines)


def readings(rng, num_roads, sensors, times):
    """Return rows of sensors at times and their targets."""
    road, fraction = rng.integers(0, num_roads, sensors), rng.uniform(0, 1, sensors)
    sensor, day = np.divmod(np.flatnonzero(rng.random(sensors * times) > MISSING), times)
    y = np.sin(road[sensor] % 7 + day / 10) + 0.1 * rng.standard_normal(len(day))
    return {"road": road[sensor], "fraction": fraction[sensor], "day": day / 10}, y


def timed(call):
    """Return the seconds of a call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def peak():
    """Return the peak of the memory of the process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def race(nu, sensors, times, repeats=3):
    """Print the figures of one smoothness."""
    rng = np.random.default_rng(0)
    roads, num_roads = network(rng)
    rows, y = readings(rng, num_roads, sensors, times)
    before = peak()
    kernel = k.Roads(roads, lengthscale=1.0) * k.Matern("day", nu=nu, lengthscale=1.0)
    gp = rfgp.GP(kernel.named("field"), approximation=rfgp.SparsePrecision(), start={"noise": 0.05}, seed=0)
    first = timed(lambda: gp.condition(rows, y).log_marginal_likelihood())
    size = gp.terms["field"].cost.num_features
    each = []
    for _ in range(repeats):
        with torch.no_grad():
            for raw in gp.hyperparameters.raw.values():
                raw += 1e-3
        each.append(timed(lambda: gp.log_marginal_likelihood().backward()))
    new = {
        "road": rng.integers(0, num_roads, 1000),
        "fraction": rng.uniform(0, 1, 1000),
        "day": rng.uniform(0, 9, 1000),
    }
    posterior = timed(lambda: gp.predict({key: value[:1] for key, value in new.items()}).std)
    predictions = timed(lambda: gp.predict(new).std)
    print(
        f"nu {nu}: {len(y):,} rows, {size:,} latent values; first value {first:.1f} s, value with gradient "
        f"{min(each):.1f} s (best of {repeats}), posterior {posterior:.1f} s, 1,000 predictions {predictions:.2f} s, "
        f"{(peak() - before) / size:,.0f} bytes a latent value"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nu", type=float, nargs="+", default=[0.5])
    parser.add_argument("--sensors", type=int, default=900)
    parser.add_argument("--times", type=int, default=100)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for smoothness in given.nu:
        race(smoothness, given.sensors, given.times)


if __name__ == "__main__":
    main()
