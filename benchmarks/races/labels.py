"""A million rows of two classes in memory: time, memory, and the density of new rows compared with that of the truth.

Protocol. Eight standard normal columns, float32; a logit 2 sin a + b c - 1; 128 fixed frequencies, everything else as
it comes (Laplace's approximation at this size). Density: the mean over 20,000 new rows of the expected log probability
under the true one. The peak is that of the whole process, the table in it included.

    python -m benchmarks.races.labels [--rows N]
"""

import argparse
import time

import numpy as np

from benchmarks.race import status

COLUMNS, FREQUENCIES, NEW = 8, 128, 20_000


def shares(X: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(1 - 2 * np.sin(X[:, 0]) - X[:, 1] * X[:, 2]))


def main() -> None:
    import rfgp

    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows, rng = parser.parse_args().rows, np.random.default_rng(0)
    X = rng.standard_normal((rows, COLUMNS), dtype=np.float32)
    y = (rng.uniform(size=rows) < shares(X)).astype(np.float32)
    begin = time.perf_counter()
    gp = rfgp.GP(rfgp.kernels.RBF(), "bernoulli", rfgp.RandomFeatures(FREQUENCIES), seed=0).fit(X, y)
    seconds, new = time.perf_counter() - begin, rng.standard_normal((NEW, COLUMNS), dtype=np.float32)
    p, q = (np.asarray(share, dtype=np.float64) for share in (gp.predict(new).observed().mean, shares(new)))
    found, best = ((q * np.log(share) + (1 - q) * np.log(1 - share)).mean() for share in (p, q))
    print(f"{gp.state.approximation}: {seconds:.0f} s, {status('VmHWM') / 1e9:.2f} GB at the peak")
    print(f"density of new rows {found:.5f}, of the truth {best:.5f}")


if __name__ == "__main__":
    main()
