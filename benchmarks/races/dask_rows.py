"""A fit of 10^7 rows on a Dask cluster of one, two and four workers.

Protocol: 100 Parquet files of 10^5 rows, ten columns and a target in float32, drawn from waves with noise of deviation
0.5; m = 256 (F = 512), fixed frequencies. Workers are processes of one thread each on this machine; with more of them
than cores they share those. The time is that of `rfgp.dask.fit`, including the reading of files: survey, search on the
sample (on the client) and both passes. The progress of the fit gives the three parts. Predictions at all rows, means
and variances, reduced to their averages on the workers. Each number of workers in turn, `--repeats` times.

    python -m benchmarks.races.dask_rows [--rows N] [--repeats K] [--workers 1,2,4] [--fit-only]
"""

import argparse
import tempfile
import time
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

import rfgp
import rfgp.dask

COLUMNS, FILES, NOISE = 10, 100, 0.5


def write(folder: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    waves = rng.standard_normal((20, COLUMNS)) * 0.5
    phases, heights = rng.uniform(0, 2 * np.pi, 20), rng.standard_normal(20) / np.sqrt(10)
    for number in range(FILES):
        X = rng.standard_normal((rows // FILES, COLUMNS))
        y = np.sin(X @ waves.T + phases) @ heights + NOISE * rng.standard_normal(len(X))
        table = {f"x{i}": X[:, i].astype(np.float32) for i in range(COLUMNS)} | {"y": y.astype(np.float32)}
        pq.write_table(pa.table(table), folder / f"{number:03d}.parquet")


def one(folder: Path, workers: int, fit_only: bool) -> tuple[dict[str, float], rfgp.SparseSpectrumGP]:
    times = {}
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.run(__import__, "rfgp.gp")  # so that no worker loads torch while it is timed
        frame = dd.read_parquet(folder)
        first = []
        begin = time.perf_counter()
        gp = rfgp.SparseSpectrumGP(num_frequencies=256, seed=0)
        rfgp.dask.fit(gp, frame, "y", progress=lambda p: first.append(time.perf_counter()))
        end = time.perf_counter()
        times = {"fit": end - begin, "survey": first[0] - begin, "sums": end - first[-1]}
        if fit_only:
            return times, gp
        begin = time.perf_counter()
        law = rfgp.dask.predict(gp, frame)
        found = client.gather(client.compute([law.mean.mean(), law.variance.mean()]))
        times["predict"] = time.perf_counter() - begin
        assert np.isfinite(found).all()
    return times, gp


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--fit-only", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options.rows)
        results = []
        for _ in range(options.repeats):
            for workers in map(int, options.workers.split(",")):
                times, gp = one(Path(folder), workers, options.fit_only)
                results.append(gp)
                told = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in times.items())
                print(f"{workers} workers: {told}; noise {gp.hyperparameters.noise.item():.5f}", flush=True)
        new = np.random.default_rng(1).standard_normal((100, COLUMNS)).astype(np.float32)
        means = [gp.predict(new).mean for gp in results]
        print(f"largest difference of means between the runs: {max(np.abs(m - means[0]).max() for m in means):.1e}")


if __name__ == "__main__":
    main()
