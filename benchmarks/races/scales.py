"""The noise that the default chooses, against Gaussian noise of one variance, after the same fit.

Protocol, fixed before the results were seen. Tables are the twenty of `benchmarks.races.defaults`, with its splits at
seeds 0 to 2, and five on which nothing was tuned: diabetes (of scikit-learn), abalone (rings), banknote (the entropy
from the other measurements), wifi (the first signal from the others), and bike-without-counts. Each fit is
`rfgp.GP(seed=seed)` on one thread. "default" is the model; "gaussian" is the same model without scales of residuals and
weights of rows, which is that of likelihood="gaussian" (a test compares them).

Figures of held-out rows, standardized: NLPD, also by the resolution of the targets (`resolution_of`: probabilities of
intervals), CRPS, RMSE, coverage of 95 % intervals; processor seconds of the fit, and the elapsed seconds of the choice.
Made tables have 60, 150, 300 and 3,000 rows and 2,000 test rows at seeds 0 to 2: even noise, noise by input and by
mean, Student's t with 2.5 degrees of freedom, 5 % of outliers, counts, zeros.

Scores with Gaussian noise have the prefix "gaussian" in the same line of results.

    python -m benchmarks.races.scales --folder UCI --out FILE [--tables T,...] [--splits N]
"""

import argparse
from typing import Any

import numpy as np

import rfgp
from benchmarks import models, scores
from benchmarks.race import Array, Model, Race, Split, standardized, tenth
from benchmarks.races import defaults

FRESH = ("diabetes", "abalone", "banknote", "wifi", "bike-without-counts")
KINDS = ("even", "input", "mean", "tails", "outliers", "counts", "zeros")
MADE = tuple(f"{kind}-{n}" for n in (60, 150, 300, 3000) for kind in KINDS if n < 3000 or kind in KINDS[:4])


def made(kind: str, n: int, seed: int) -> Split:
    """Return n training and 2,000 test rows of three columns, one without effect."""
    rng = np.random.default_rng(1000 + seed)
    X = rng.uniform(-2, 2, (n + 2000, 3))
    f, e = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1], rng.standard_normal(n + 2000)
    targets = {
        "even": lambda: f + 0.4 * e,
        "input": lambda: f + np.exp(-1.2 + 0.8 * X[:, 2]) * e,
        "mean": lambda: f + np.exp(-1.2 + 0.8 * f) * e,
        "tails": lambda: f + 0.25 * rng.standard_t(2.5, len(f)),
        "outliers": lambda: f + np.where(rng.random(len(f)) < 0.05, 3.0, 0.25) * e,
        "counts": lambda: rng.poisson(np.exp(0.8 * f)).astype(float),
        "zeros": lambda: np.where(rng.random(len(f)) < 1 / (1 + np.exp(2 * f)), 0.0, np.exp(f + 0.3 * e)),
    }
    return standardized(X, targets[kind](), np.arange(n), np.arange(n, n + 2000))


def fresh(name: str, seed: int) -> Split:
    """Return a split of a table on which nothing was tuned."""
    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        X, y = load_diabetes(return_X_y=True)
    elif name in ("banknote", "wifi"):
        X = np.asarray(rfgp.datasets.load(name).X, dtype=np.float64)
        column = 3 if name == "banknote" else 0
        X, y = np.delete(X, column, axis=1), X[:, column]
    else:
        data = rfgp.datasets.load(name)
        X, y = _numbers(data.X), np.asarray(data.y, dtype=np.float64)
    return standardized(X, y, *tenth(len(y), seed, 2000))


def _numbers(X: Any) -> Array:
    """Return the columns of a table, with indicators of the levels of texts."""
    import pandas as pd

    return np.asarray(pd.get_dummies(pd.DataFrame(X)), dtype=np.float64)


def split(name: str, seed: int, options: argparse.Namespace) -> Split:
    """Return a split of a table."""
    if name in MADE:
        return made(name.split("-")[0], int(name.split("-")[1]), seed)
    return fresh(name, seed) if name in FRESH else defaults.split(name, seed, options)


def fitted(X: Array, y: Array, seed: int = 0) -> models.Predict:
    """Fit the default, and predict with its noise and with Gaussian noise of one variance."""
    import torch

    from rfgp.selection.noise import resolution_of

    gp = rfgp.GP(seed=seed).fit(X, y)
    noise = gp.selection.noise
    plain = type(gp).of(gp.state.replace(scale_model=None))
    about = {
        "choice": None if noise is None else noise.chosen.name,
        "weighted": "weighted" in gp.selection.reason,
        "choosing": 0.0 if noise is None else noise.seconds,
        "resolution": resolution_of(torch.from_numpy(y)),
    }
    return models.Predictor(lambda Z: (gp.predict(Z), plain.predict(Z), about["resolution"]), **about)


def figures(p: Any, w: Array, resolution: float) -> dict[str, float]:
    """Return the scores of predictions at targets, also by probabilities of steps of the targets."""
    observed = p.observed()
    resolved = observed.log_prob(w)
    if resolution:
        mass = observed.cdf(w + resolution / 2) - observed.cdf(w - resolution / 2)
        resolved = np.log(np.maximum(mass / resolution, 1e-300))
    more = {"resolved": float(-np.mean(resolved)), "crps": float(rfgp.metrics.crps(w, p))}
    return scores.of_targets(observed, w) | {"rmse": float(np.sqrt(np.mean((w - p.mean) ** 2)))} | more


def score(found: Any, rows: Split) -> dict[str, float]:
    """Return the scores of the default, and those of Gaussian noise with "gaussian " before their names."""
    chosen, plain, resolution = found
    own, other = (figures(p, rows.w, resolution) for p in (chosen, plain))
    return own | {f"gaussian {name}": value for name, value in other.items()}


RACE = Race(
    "benchmarks.races.scales", (*defaults.TABLES, *FRESH, *MADE), split, {"default": Model("rfgp.gp", fitted)}, score
)


def main() -> None:
    """Run the race."""
    RACE.main(__doc__)


if __name__ == "__main__":
    main()
