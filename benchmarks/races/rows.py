"""Ten million rows from a Parquet file: time and memory of a fit, and the time of a row in one pass.

Protocol, fixed before the results were seen. There are d = 10 standard normal columns. The target has three waves and a
product, with noise of half its deviation. Data are float32, in row groups of 2^17. Models have 512 frequencies, so 1024
features. At the largest size, `fit` runs with its defaults in its own process. Its memory is the peak of the process
minus that of the interpreter with rfgp, pyarrow and torch after a small fit. One pass (`update` of a model with a known
posterior, which reads each row once) at 10^5, 10^6 and 10^7 rows.

    python -m benchmarks.races.rows [--rows N] [--folder FOLDER]
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.race import apart, status

COLUMNS, FREQUENCIES, GROUP = 10, 512, 2**17


def waves(X: np.ndarray) -> np.ndarray:
    return np.sin(X[:, 0]) + np.sin(X[:, 1] + X[:, 2]) + np.cos(2 * X[:, 3]) + 0.5 * X[:, 4] * X[:, 5]


def block(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.standard_normal((n, COLUMNS), dtype=np.float32)
    return X, waves(X) + 0.5 * rng.standard_normal(n, dtype=np.float32)


def write(file: Path, rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, writer = np.random.default_rng(0), None
    for first in range(0, rows, GROUP):
        X, y = block(rng, min(GROUP, rows - first))
        table = pa.table({**{f"x{i}": X[:, i] for i in range(COLUMNS)}, "y": y})
        writer = writer or pq.ParquetWriter(file, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def small() -> tuple[np.ndarray, np.ndarray]:
    return block(np.random.default_rng(1), 4000)


def fit(file: Path) -> list[object]:
    import rfgp

    rfgp.SparseSpectrumGP(num_frequencies=32, seed=0).fit(*small(), max_iterations=3)
    before = status("VmRSS")
    begin = time.perf_counter()
    gp = rfgp.SparseSpectrumGP(num_frequencies=FREQUENCIES, seed=0).fit(rfgp.tables.Parquet(file, target="y"))
    seconds = time.perf_counter() - begin
    report = gp.fit_report
    return [
        seconds,
        status("VmHWM") - before,
        report.message,
        report.mean_squared_zscore,
        gp.hyperparameters.noise.item(),
    ]


def one_pass(file: Path) -> list[object]:
    import rfgp

    gp = rfgp.SparseSpectrumGP(num_frequencies=FREQUENCIES, seed=0).condition(*small())
    gp.predict(small()[0][:2]).variance.sum()
    begin = time.perf_counter()
    gp.update(rfgp.tables.Parquet(file, target="y"))
    return [time.perf_counter() - begin, gp.num_observations]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--one", choices=("fit", "pass"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps({"fit": fit, "pass": one_pass}[options.one](options.folder)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for rows in (options.rows // 100, options.rows // 10, options.rows):
            file = Path(folder) / f"{rows}.parquet"
            write(file, rows)
            steps = ["pass", "fit"] if rows == options.rows else ["pass"]
            for step in steps:
                found = apart("benchmarks.races.rows", None, "--one", step, "--folder", file)
                if step == "pass":
                    print(
                        f"one pass over {rows:,} rows: {found[0]:.1f} s, {1e6 * found[0] / rows:.1f} us a row",
                        flush=True,
                    )
                else:
                    seconds, memory, message, calibration, noise = found
                    print(f"fit of {rows:,} rows: {seconds:.0f} s, {memory / 2**30:.2f} GiB above the interpreter")
                    print(f"{message}; calibration {calibration:.3f}, noise {noise:.4f} (drawn with 0.25)")


if __name__ == "__main__":
    main()
