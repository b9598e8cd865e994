"""The choice of the default for one and for ten million rows, with its time and its scores.

Protocol, fixed before the results were seen. Rows as in `benchmarks.races.rows`: ten standard normal columns, three
waves and a product with noise of variance 0.25, float32. `GP()` with its default limits, from arrays, or with
`--parquet` from a file that is read in blocks; in this process, one thread. The log density of 2,000 new rows compared
with that of the truth.

    python -m benchmarks.races.many_rows [--rows N] [--parquet] [--time-limit "10min"]
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rfgp
from benchmarks.races.rows import block, waves, write

NEW, NOISE = 2000, 0.25


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--parquet", action="store_true")
    parser.add_argument("--time-limit")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        data: tuple[Any, ...] = block(np.random.default_rng(0), options.rows)
        if options.parquet:
            file = Path(folder) / "rows.parquet"
            write(file, options.rows)
            data = (rfgp.tables.Parquet(file, target="y"),)
        begin = time.perf_counter()
        gp = rfgp.GP(seed=0, time_limit=options.time_limit).fit(*data)
        seconds = time.perf_counter() - begin
    X, y = block(np.random.default_rng(1), NEW)
    density = np.asarray(gp.predict(X).observed().log_prob(y))
    best = -0.5 * (np.log(2 * np.pi * NOISE) + (y - waves(X)) ** 2 / NOISE)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(gp.selection)
    print(f"{options.rows:,} rows: {seconds:.0f} s, of these {gp.selection.seconds:.0f} of measuring; {memory:.2f} GiB")
    print(f"log density of new rows {density.mean():.4f}, by the truth {best.mean():.4f}")


if __name__ == "__main__":
    main()
