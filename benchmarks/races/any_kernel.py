"""Nearest neighbors of any kernel: a value of the log marginal likelihood with its gradient.

The first kernel has compiled loops, and is computed by batches of small matrices as well; the others have batches only.
Each is timed after a first evaluation, three times, in one thread. The least is printed in seconds.

    python -m benchmarks.races.any_kernel --rows 10000 --neighbors 30
"""

import argparse
import time

import numpy as np
import torch

import rfgp
from rfgp import kernels as k
from rfgp.approximations import inducing_points as neighbors

SMOOTH = k.RBF(("t", "p", "q"), lengthscale=(3.0, 1.0, 1.0), name="near")
SEASON = k.Periodic("t", 6.28, lengthscale=1.0)
KERNELS = {
    "loops, RBF of 3 columns": SMOOTH,
    "batches, RBF of 3 columns": SMOOTH,
    "Periodic * RBF of 1 column": (SEASON * k.RBF("t", lengthscale=20.0)).named("near"),
    "Periodic * RBF of 3 columns": (SEASON * k.RBF(("t", "p", "q"), lengthscale=(20.0, 1.0, 1.0))).named("near"),
    "RBF of 2 columns + Matern of 1": k.RBF(("t", "p"), lengthscale=(3.0, 1.0), name="a") + k.Matern("q", name="b"),
}


def table(count, seed=0):
    """Return rows and targets."""
    rng = np.random.default_rng(seed)
    rows = {"t": rng.uniform(0, 100, count), "p": rng.normal(size=count), "q": rng.normal(size=count)}
    return rows, np.sin(rows["t"]) + 0.1 * rng.normal(size=count)


def timed(kernel, rows, y, count, condition_on):
    """Return the seconds of a value with its gradient, the least of three after a first one."""
    near = rfgp.Vecchia(count, condition_on=condition_on)
    gp, found = rfgp.GP(kernel, approximation=near, start={"noise": 0.01}, seed=0).condition(rows, y), []
    for _ in range(4):
        with torch.no_grad():
            for raw in gp.hyperparameters.raw.values():
                raw += 1e-6
        begin = time.perf_counter()
        gp.log_marginal_likelihood().backward()
        found.append(time.perf_counter() - begin)
    return min(found[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--neighbors", type=int, default=30)
    parser.add_argument("--condition-on", default="responses")
    given = parser.parse_args()
    torch.set_num_threads(1)
    (rows, y), loops = table(given.rows), neighbors.loops_of
    for name, kernel in KERNELS.items():
        neighbors.loops_of = (lambda term: None) if name.startswith("batches") else loops
        print(f"{name}: {timed(kernel, rows, y, given.neighbors, given.condition_on):.2f} s", flush=True)


if __name__ == "__main__":
    main()
