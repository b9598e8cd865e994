"""Processor and wall seconds of fits and predictions on one thread and on two.

Protocol. A table of 4 standard normal columns (1 for lattices) is drawn at seed 0, with a smooth target and noise of
deviation 0.1. Each run has a process of its own, whose environment sets the number of threads of torch and BLAS. It
first does the same on 150 rows, so that imports and the compilation of loops do not count. Figures are the processor
and wall seconds of the fit, and those of five predictions at the rows and one conditioning.

    python -m benchmarks.races.threads [--rows N,...] [--kinds K,...] [--threads N,...]
"""

import argparse
import itertools
import os
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np

KINDS, ROWS = "dense,low-rank,lattices,neighbors,default", "100,1000,10000"
MAX_DENSE = 3000
"""The maximum number of rows of exact kernels."""


def model(kind: str) -> Any:
    """Return a model.

    Args:
        kind: Its name among `KINDS`.
    """
    import rfgp
    from rfgp import kernels as k

    if kind == "default":
        return rfgp.GP(seed=0)
    if kind == "neighbors":
        return rfgp.GP(k.Matern(nu=1.5), approximation=rfgp.Vecchia(20), seed=0)
    used = {"dense": rfgp.Exact(), "low-rank": rfgp.RandomFeatures(128), "lattices": rfgp.EquispacedFourier()}
    return rfgp.GP(k.RBF(), approximation=used[kind], seed=0)


def measure(kind: str, rows: int) -> str:
    """Return the figures of one run as text.

    Args:
        kind: The name of the model.
        rows: The number of rows.
    """
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 1 if kind == "lattices" else 4))
    y = np.sin(2 * X[:, 0]) + 0.3 * X[:, -1] + 0.1 * rng.normal(size=rows)
    times = []
    for count in (min(150, rows), rows):
        times = [(time.process_time(), time.monotonic())]
        gp = model(kind).fit(X[:count], y[:count])
        times.append((time.process_time(), time.monotonic()))
        for _ in range(5):
            _ = gp.predict(X[:count]).std
        gp.condition(X[:count], y[:count]).predict(X[:10])
        times.append((time.process_time(), time.monotonic()))
    seconds = [b - a for before, after in itertools.pairwise(times) for a, b in zip(before, after, strict=True)]
    return " ".join(f"{value:9.3f}" for value in seconds)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--kinds", default=KINDS)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--alone", action="store_true", help="measure in this process")
    chosen = parser.parse_args()
    if chosen.alone:
        print(measure(chosen.kinds, int(chosen.rows)))
        return
    print("kind        rows threads  fit: processor, wall  predict: processor, wall", flush=True)
    for kind in chosen.kinds.split(","):
        for rows in map(int, chosen.rows.split(",")):
            if kind == "dense" and rows > MAX_DENSE:
                continue
            for threads in chosen.threads.split(","):
                names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
                command = [sys.executable, "-m", "benchmarks.races.threads", "--alone", "--kinds", kind]
                command += ["--rows", str(rows)]
                environment = {**os.environ, **dict.fromkeys(names, threads)}
                run = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
                print(f"{kind:10s} {rows:6d} {threads:>4s}  {run.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main()
