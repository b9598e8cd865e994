"""Tables with local structure: features, a local process, both, and other packages; accuracy, time and memory.

Protocol, fixed before the results were seen. A random tenth of the rows is held out; columns and target are
standardized on the others. Scores are of the standardized target: RMSE, NLPD, CRPS, coverage of the interval of 95 %.
The made tables are terrains: heights over a plane, an isotropic field whose spectrum falls like a power, sampled at
random places with noise. Fits end after two hours.

- features, local, both: `rfgp.GP` with 128 learned frequencies; with a Matern 3/2 process of 30 neighbors alone; with
  both. both-fixed: the frequencies as they were drawn.
- nystrom, fitc, vfe, residual: `rfgp.GP` with 512 inducing points by k-means, Matern 3/2; alone, with each diagonal, or
  with 30 neighbors that take up the residual.
- sgpr: GPyTorch's InducingPointKernel with as many points, which it learns, 100 steps on all rows, at most 600 s.
- svgp, vnngp: GPyTorch's variational process with 512 points, and its nearest-neighbor process with 30, at most 600 s.
- gpboost, vif: GPBoost's Vecchia approximation with 30 neighbors, and with 512 inducing points too.
- boosting: HistGradientBoostingRegressor for the mean and the ends of the interval of 90 %.

Tables that `rfgp.datasets` does not have are NAME.csv.gz, as in github.com/treforevans/uci_datasets, in `--folder`.

    python -m benchmarks.races.local [--tables T,...] [--racers R,...] [--splits N] [--folder UCI] [--out FILE]
"""

import argparse
from typing import Any

import numpy as np

import rfgp
from benchmarks import models, protocol
from benchmarks.race import Array, Model, Race, Split, standardized, tenth

SIZES = {"terrain-5": 10**5, "terrain-6": 10**6}
TABLES = ("kin40k", "protein", "elevators", "bike", "keggdirected", "tamielectric", *SIZES)
NEAR, POINTS, LIMIT = 30, 512, 600.0


def terrain(rows: int) -> tuple[Array, Array]:
    """Return heights at random positions of a square, a sum of 2,000 waves.

    The power of the waves falls like the fourth power of their number.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (rows, 2))
    length = 2 * np.pi * np.exp(rng.uniform(0, np.log(300), 2000))
    angle, phase = rng.uniform(0, 2 * np.pi, (2, 2000))
    waves, size = np.stack([length * np.cos(angle), length * np.sin(angle)]), length**-1.0
    y = np.concatenate([np.cos(part @ waves + phase) @ size for part in np.array_split(X, -(-rows // 10_000))])
    return X, y / y.std() + 0.05 * rng.standard_normal(rows)


def split(name: str, seed: int, options: argparse.Namespace) -> Split:
    """Return rows of a table, a random tenth held out."""
    X, y = terrain(SIZES[name]) if name in SIZES else protocol.load(name, options.folder)
    return standardized(X, y, *tenth(len(y), seed))


def ours(kernel: Any, approximation: Any) -> Model:
    """Return a model of this package."""
    return Model("rfgp.gp", models.gp(lambda seed: rfgp.GP(kernel, approximation=approximation, seed=seed)))


def of_package() -> dict[str, Model]:
    """Return the models of this package by name."""
    smooth, rough, near = rfgp.kernels.RBF(name="smooth"), rfgp.kernels.Matern(nu=1.5), rfgp.Vecchia(NEAR)
    features, drawn = (rfgp.RandomFeatures(128, learn_frequencies=learned) for learned in (True, False))
    sum_of_both = smooth + rough.named("local")
    points = {"nystrom": "sor", "fitc": "fitc", "vfe": "vfe", "residual": "sor"}
    return {
        "features": ours(smooth, features),
        "local": ours(rough, near),
        "both": ours(sum_of_both, {"smooth": features, "local": near}),
        "both-fixed": ours(sum_of_both, {"smooth": drawn, "local": near}),
    } | {
        name: ours(rough, rfgp.InducingPoints(POINTS, method=method, residual=near if name == "residual" else None))
        for name, method in points.items()
    }


RACE = Race(
    "benchmarks.races.local",
    TABLES,
    split,
    of_package()
    | {
        "sgpr": Model("gpytorch", models.gpytorch_process(LIMIT, POINTS)),
        "svgp": Model("gpytorch", models.svgp(LIMIT)),
        "vnngp": Model("gpytorch", models.svgp(LIMIT, NEAR)),
        "gpboost": Model("gpboost", models.gpboost(num_neighbors=NEAR)),
        "vif": Model(
            "gpboost", models.gpboost(num_neighbors=NEAR, gp_approx="full_scale_vecchia", num_ind_points=POINTS)
        ),
        "boosting": Model("sklearn.ensemble", models.quantile_boosting()),
    },
    limit=7200.0,
)


def main() -> None:
    """Run the race."""
    RACE.main(__doc__)


if __name__ == "__main__":
    main()
