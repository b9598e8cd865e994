"""When is the latent variance of a fit too small? Against the share of its weights that the data determine."""

import warnings

import numpy as np

import rfgp
from benchmarks.record import Entries, Figure, Scale, Value, figure
from rfgp import datasets, tables

CASES = (("airfoil", 1300), ("concrete", 800), ("power-plant", 2500), ("waves", 2500))
SIZES = (8, 16, 32, 64, 128, 256, 512)
HELD, FAR = 200, 3
EXHAUSTED, HALF = 0.9, 0.5
"""The shares of effective degrees of freedom: the threshold of `rfgp.models.diagnostics`, and half."""


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name != "waves":
        table = tables.read_table(datasets.fetch(name))
        return table.X, table.y
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 8))
    omega, a = rng.standard_normal((300, 8)) * rng.uniform(0.2, 1.2, (300, 1)), rng.standard_normal(300) / np.sqrt(300)
    return X, 1.4 * (np.sin(X @ omega.T + rng.uniform(0, 6, 300)) @ a) + 0.1 * rng.standard_normal(20_000)


def judged(name: str, n: int, m: int) -> tuple[float, float, float]:
    """Return the fraction of weights used, and the median variance relative to the exact process, near and far out."""
    X, y = load(name)
    order = np.random.default_rng(0).permutation(len(y))
    n = min(n, len(y) - HELD)
    train, test = order[:n], order[n : n + HELD]
    gp = rfgp.SparseSpectrumGP(num_frequencies=m, seed=0).fit(X[train], y[train])
    exact, used = gp.exact(), gp.fit_report.effective_dof_fraction
    near, far = (float(np.median(gp.predict(Z).variance / exact.predict(Z).variance)) for Z in (X[test], FAR * X[test]))
    return float("nan") if used is None else used, near, far


@figure("the latent variance of fits with few features, over that of the exact process")
def starvation(scale: Scale) -> Entries:
    """Return the variances of fits, and the least and largest of those that use many and few of their weights.

    Fixed frequencies, m = 8 to 512, on three tables and a drawn one (300 waves in 8 columns), seed 0; the exact process
    has the same hyperparameters and data. Medians over {HELD} held-out rows, and over the same {FAR} times as far out.
    The share is that of the weights which the data determine (`fit_report.effective_dof_fraction`).
    """
    values, found = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, n in CASES[:1] if scale.quick else CASES:
            for m in SIZES:
                share, near, far = judged(name, n, m)
                found.append((share, near, far))
                said = "no share" if np.isnan(share) else f"share {share:.3f}"
                values += [
                    Value(f"{name}, m = {m}, {said}: variance over the exact one", near),
                    Value(f"{name}, m = {m}, {said}: variance over the exact one, far out", far),
                ]
    shares, near, far = np.array(found).T
    for words, chosen in (("above 0.9", shares > EXHAUSTED), ("below 0.5", shares < HALF)):
        for what, column in (("near", near), ("far out", far)):
            if chosen.any():
                values += [
                    Value(f"share {words}, {what}: least", column[chosen].min()),
                    Value(f"share {words}, {what}: largest", column[chosen].max()),
                ]
        values.append(Value(f"fits with a share {words}", int(chosen.sum())))
    return values


FIGURES: dict[str, Figure] = {"starvation": starvation}
