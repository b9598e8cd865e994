"""Kriging of a real map, by this package, PyKrige and GSTools.

Protocol, fixed before the first run. The map is `data/jacksboro.nc`, heights in meters at 344 x 403 cells, with
coordinates in kilometers. The generator 0 orders the cells: the last 5,000 are held out, and the first n are observed,
n = 1,000, 10,000 and 100,000. All racers have an exponential covariance, one range in all directions, a nugget and an
unknown mean, and predict means and deviations of held-out heights (the variance of a mean plus the nugget).

- ours: `rfgp.GP(k.Matern(("x", "y"), nu=0.5, ard=False), standardize=False)`, with the default approximation for n.
- rotated: `rfgp.GP(k.Matern(("x", "y"), nu=0.5, rotation="learn"))`: two ranges and the angle are learned as well.
- pykrige: `OrdinaryKriging(x, y, z, variogram_model="exponential")`, then `execute("points", ...)` with the backend
  "vectorized", which solves one system of all rows.
- pykrige-near: the same with the backend "C" and the 30 nearest rows of each point (`n_closest_points=30`).
- gstools: `vario_estimate` of at most 2,000 rows (`sampling_size`), `Exponential(dim=2).fit_variogram`, and
  `krige.Ordinary(..., exact=False, pseudo_inv=False)`, whose system has all rows. Its fit may take 10,000 evaluations.
  (It finds no variogram of 310 rows, by any of its starts, so that the warm-up has 1,000.)

Figures: RMSE and NLPD (nats) of held-out heights; processor seconds of the fit and of the prediction, without
imports, on one thread; peak memory of the process. Each run is alone in a process of its own with at most 10 GiB of
address space, and is ended after `--limit` seconds (600). A run that ends without memory, or is ended, is an outcome.
What compiles at first use (numba) is compiled before the clock starts, by a run on the first 1,000 rows.

Rivals run in the environment of `--rivals`, a Python with PyKrige and GSTools; ours in that of this process.

    OMP_NUM_THREADS=1 python -m benchmarks.races.kriging --rivals PYTHON [--rows N,...] [--racers R,...] [--out FILE]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import netcdf_file

Array = NDArray[np.float64]
MAP = Path(__file__).parents[2] / "data" / "jacksboro.nc"
ROWS, HELD_OUT, WARM_UP, NEAR, SAMPLED = (1_000, 10_000, 100_000), 5_000, 1_000, 30, 2_000
MEMORY = 10 * 2**30
Result = tuple[Array, Array, float, float]  # means, deviations, seconds of the fit and of the prediction


def rows_of(count: int) -> tuple[Array, Array, Array, Array]:
    """Return places (n, 2) and heights (n,) that are observed, and those that are held out."""
    with netcdf_file(MAP, mmap=False) as file:
        x, y, height = (file.variables[name][:].astype(float) for name in ("x", "y", "height"))
    places = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    order = np.random.default_rng(0).permutation(len(places))
    seen, new = order[:count], order[-HELD_OUT:]
    return places[seen], height.reshape(-1)[seen], places[new], height.reshape(-1)[new]


def _ours(X: Array, y: Array, new: Array, **options: Any) -> Result:
    import rfgp
    from rfgp import kernels as k

    rotation = options.pop("rotation", None)
    kernel = k.Matern(("x", "y"), nu=0.5, ard=rotation is not None, rotation=rotation)
    began = time.process_time()
    gp = rfgp.GP(kernel, seed=0, **options).fit({"x": X[:, 0], "y": X[:, 1]}, y)
    fitted = time.process_time()
    p = gp.predict({"x": new[:, 0], "y": new[:, 1]}).observed()
    found = p.mean, p.std
    return *found, fitted - began, time.process_time() - fitted


def ours(X: Array, y: Array, new: Array) -> Result:
    """Fit one range by the likelihood."""
    return _ours(X, y, new, standardize=False)


def rotated(X: Array, y: Array, new: Array) -> Result:
    """Fit two ranges and their angle by the likelihood."""
    return _ours(X, y, new, rotation="learn")


def pykrige(X: Array, y: Array, new: Array, **how: Any) -> Result:
    """Fit a variogram by least squares, and solve one system, or one at each point."""
    from pykrige.ok import OrdinaryKriging

    began = time.process_time()
    model = OrdinaryKriging(X[:, 0], X[:, 1], y, variogram_model="exponential")
    fitted = time.process_time()
    mean, variance = model.execute("points", new[:, 0], new[:, 1], **(how or {"backend": "vectorized"}))
    nugget = model.variogram_model_parameters[2]
    return np.asarray(mean), np.sqrt(np.maximum(variance, 0) + nugget), fitted - began, time.process_time() - fitted


def pykrige_near(X: Array, y: Array, new: Array) -> Result:
    """Predict from the nearest rows."""
    return pykrige(X, y, new, backend="C", n_closest_points=NEAR)


def gstools(X: Array, y: Array, new: Array) -> Result:
    """Fit a variogram of some rows by least squares, and solve one system."""
    import gstools as gs

    began = time.process_time()
    bins, gamma = gs.vario_estimate(X.T, y, sampling_size=min(SAMPLED, len(y)), sampling_seed=0)
    model = gs.Exponential(dim=2)
    model.fit_variogram(bins, gamma, max_eval=10_000)
    kriged = gs.krige.Ordinary(model, X.T, y, exact=False, pseudo_inv=False)
    fitted = time.process_time()
    mean, variance = kriged(new.T)
    sd = np.sqrt(np.maximum(variance, 0) + model.nugget)
    return np.asarray(mean), sd, fitted - began, time.process_time() - fitted


RACERS: dict[str, Callable[[Array, Array, Array], Result]] = {
    "ours": ours,
    "rotated": rotated,
    "pykrige": pykrige,
    "pykrige-near": pykrige_near,
    "gstools": gstools,
}
OF_RIVALS = ("pykrige", "pykrige-near", "gstools")


def run(name: str, count: int) -> dict[str, Any]:
    """Return the figures of one run, in this process."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    X, y, new, truth = rows_of(count)
    RACERS[name](X[:WARM_UP], y[:WARM_UP], new[:10])
    mean, sd, fit, prediction = RACERS[name](X, y, new)
    z = (truth - mean) / sd
    return {
        "rmse": round(float(np.sqrt(np.mean((truth - mean) ** 2))), 3),
        "nlpd": round(float(np.mean(0.5 * z**2 + np.log(sd) + 0.5 * np.log(2 * np.pi))), 4),
        "fit_seconds": round(fit, 2),
        "predict_seconds": round(prediction, 2),
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


def main() -> None:
    """Run the racers, each in a process, and add lines to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rivals", default=sys.executable)
    parser.add_argument("--rows", default=",".join(map(str, ROWS)))
    parser.add_argument("--racers", default=",".join(RACERS))
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("RACER", "ROWS"))
    given = parser.parse_args()
    if given.one:
        print(json.dumps(run(given.one[0], int(given.one[1]))))
        return
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    for count in map(int, given.rows.split(",")):
        for name in given.racers.split(","):
            python = given.rivals if name in OF_RIVALS else sys.executable
            command = [python, "-m", "benchmarks.races.kriging", "--one", name, str(count)]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=given.limit, env={**os.environ, **single}
                )
                lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or ["killed"]
                found = json.loads(lines[-1]) if done.returncode == 0 else {"outcome": lines[-1][:100]}
            except subprocess.TimeoutExpired:
                found = {"outcome": f"ended after {given.limit:g} s"}
            line = json.dumps({"rows": count, "racer": name, **found})
            print(line, flush=True)
            if given.out:
                with given.out.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
