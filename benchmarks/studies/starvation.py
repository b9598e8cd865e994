"""When is the latent variance of a fit too small? Its ratio to the exact process's against the share of weights used.

Fixed frequencies, m = 8 to 512, on three tables and a drawn one (300 waves in 8 columns), seed 0; the exact process has
the same hyperparameters and data. Medians over 200 held-out rows, and over the same three times as far out.

    python -m benchmarks.studies.starvation
"""

import warnings

import numpy as np

import rfgp
from rfgp import datasets, tables

CASES = (("airfoil", 1300), ("concrete", 800), ("power-plant", 2500), ("waves", 2500))


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name != "waves":
        table = tables.read_table(datasets.fetch(name))
        return table.X, table.y
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 8))
    omega, a = rng.standard_normal((300, 8)) * rng.uniform(0.2, 1.2, (300, 1)), rng.standard_normal(300) / np.sqrt(300)
    return X, 1.4 * (np.sin(X @ omega.T + rng.uniform(0, 6, 300)) @ a) + 0.1 * rng.standard_normal(20_000)


def main() -> None:
    warnings.simplefilter("ignore")
    for name, n in CASES:
        X, y = load(name)
        order = np.random.default_rng(0).permutation(len(y))
        n = min(n, len(y) - 200)
        train, test = order[:n], order[n : n + 200]
        for m in (8, 16, 32, 64, 128, 256, 512):
            gp = rfgp.SparseSpectrumGP(num_frequencies=m, seed=0).fit(X[train], y[train])
            exact, used = gp.exact(), gp.fit_report.weights_used
            near, far = (np.median(gp.predict(Z).variance / exact.predict(Z).variance) for Z in (X[test], 3 * X[test]))
            share = "none" if used is None else f"{used:.3f}"
            print(f"{name:11s} n {n} m {m:3d}: share {share}, variance {near:.3f}, far out {far:.3f}", flush=True)


if __name__ == "__main__":
    main()
