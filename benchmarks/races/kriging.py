"""Kriging of a real map, by this package, PyKrige and GSTools.

Protocol, fixed before the first run. The map is `data/jacksboro.nc`, heights in meters at 344 x 403 cells, with
coordinates in kilometers. The generator 0 orders the cells: the last 5,000 are held out, and the first n are observed,
n = 1,000, 10,000 and 100,000. All models have an exponential covariance, one range in all directions, a nugget and an
unknown mean, and predict means and deviations of held-out heights (the variance of a mean plus the nugget).

- ours: `rfgp.GP(k.Matern(("x", "y"), nu=0.5, ard=False), standardize=False)`, with the default approximation for n.
- rotated: `rfgp.GP(k.Matern(("x", "y"), nu=0.5, rotation="learn"))`: two ranges and the angle are learned as well.
- pykrige: `OrdinaryKriging(x, y, z, variogram_model="exponential")`, then `execute("points", ...)` with the backend
  "vectorized", which solves one system of all rows.
- pykrige-near: the same with the backend "C" and the 30 nearest rows of each point (`n_closest_points=30`).
- gstools: `vario_estimate` of at most 2,000 rows (`sampling_size`), `Exponential(dim=2).fit_variogram`, and
  `krige.Ordinary(..., exact=False, pseudo_inv=False)`, whose system has all rows. Its fit may take 10,000 evaluations.
  (It finds no variogram of 310 rows, by any of its starts, so that the warm-up has 1,000.)

Scores: RMSE, NLPD (nats) and coverage of held-out heights; seconds are of the processor (`processor`,
`predict_processor`). A process has at most 10 GiB of address space. What compiles at first use (numba) is compiled
before the clock starts, by a run on the first 1,000 rows. A table is a number of rows.

    python -m benchmarks.races.kriging [--tables N,...] [--racers R,...] [--limit 600] [--out FILE]
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import netcdf_file

import rfgp
from benchmarks import models
from benchmarks.race import Array, Model, Race, Split
from benchmarks.scores import Normal

MAP = Path(__file__).parents[2] / "data" / "jacksboro.nc"
HELD_OUT, NEAR, SAMPLED = 5_000, 30, 2_000


def split(name: str, seed: int, options: argparse.Namespace) -> Split:
    """Return places (n, 2) and heights (n,) that are observed, and those that are held out."""
    with netcdf_file(MAP, mmap=False) as file:
        x, y, height = (file.variables[name][:].astype(float) for name in ("x", "y", "height"))
    places = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    order = np.random.default_rng(seed).permutation(len(places))
    seen, new = order[: int(name)], order[-HELD_OUT:]
    return Split(places[seen], height.reshape(-1)[seen], places[new], height.reshape(-1)[new])


def ours(rotation: str | None = None, **options: Any) -> models.Fit:
    """Return the fit of one range, or of two ranges and their angle."""

    def fit(X: Array, y: Array, seed: int = 0) -> models.Predict:
        kernel = rfgp.kernels.Matern(("x", "y"), nu=0.5, ard=rotation is not None, rotation=rotation)
        gp = rfgp.GP(kernel, seed=0, **options).fit({"x": X[:, 0], "y": X[:, 1]}, y)

        def predict(Z: Array) -> Normal:
            p = gp.predict({"x": Z[:, 0], "y": Z[:, 1]}).observed()
            return Normal(p.mean, p.std**2)

        return predict

    return fit


def pykrige(**how: Any) -> models.Fit:
    """Return the fit of a variogram by least squares, which solves one system, or one at each point."""

    def fit(X: Array, y: Array, seed: int = 0) -> models.Predict:
        from pykrige.ok import OrdinaryKriging

        model = OrdinaryKriging(X[:, 0], X[:, 1], y, variogram_model="exponential")

        def predict(Z: Array) -> Normal:
            mean, variance = model.execute("points", Z[:, 0], Z[:, 1], **how)
            return Normal(np.asarray(mean), np.maximum(variance, 0) + model.variogram_model_parameters[2])

        return predict

    return fit


def gstools(X: Array, y: Array, seed: int = 0) -> models.Predict:
    """Fit a variogram of some rows by least squares, and solve one system."""
    import gstools as gs

    bins, gamma = gs.vario_estimate(X.T, y, sampling_size=min(SAMPLED, len(y)), sampling_seed=0)
    model = gs.Exponential(dim=2)
    model.fit_variogram(bins, gamma, max_eval=10_000)
    kriged = gs.krige.Ordinary(model, X.T, y, exact=False, pseudo_inv=False)

    def predict(Z: Array) -> Normal:
        mean, variance = kriged(Z.T)
        return Normal(np.asarray(mean), np.maximum(variance, 0) + model.nugget)

    return predict


RACE = Race(
    "benchmarks.races.kriging",
    ("1000", "10000", "100000"),
    split,
    {
        "ours": Model("rfgp.gp", ours(standardize=False)),
        "rotated": Model("rfgp.gp", ours("learn")),
        "pykrige": Model("pykrige.ok", pykrige(backend="vectorized")),
        "pykrige-near": Model("pykrige.ok", pykrige(backend="C", n_closest_points=NEAR)),
        "gstools": Model("gstools", gstools),
    },
    splits=1,
    limit=600.0,
    warm_up=1000,
    memory=10 * 2**30,
)


def main() -> None:
    """Run the race."""
    RACE.main(__doc__)


if __name__ == "__main__":
    main()
