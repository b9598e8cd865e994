"""The default of `rfgp.GP()` against its candidates, budgets of this package, and the defaults of other packages.

Protocol, fixed before the results were seen. A random tenth of the rows is held out, at most 2,000; columns and target
are standardized on the others, float64. Scores are of the standardized target: RMSE, NLPD and CRPS of the distribution
of an observation, normal or a mixture of normal ones, and the coverage of the central interval of 95 %.

- default: `GP()` with Gaussian noise of one variance. `benchmarks.races.scales` has the noise that the default chooses.
- features-M, neighbors-M: budgets of this package, a Matern 3/2 kernel with one lengthscale a column and M random
  frequencies or M neighbors, and no selection.
- sklearn: GaussianProcessRegressor, up to 2,000 rows. exact-gpytorch: GPyTorch's exact process, up to 2,000 rows.
- svgp: GPyTorch's variational process with 512 points, 60 epochs, at most 1,800 s.
- boosting, quantiles: HistGradientBoostingRegressor, with the variance of out-of-fold errors, or by quantiles.
- catboost: RMSEWithUncertainty, stopped early. This was added after its defaults had given far too small variances on
  small tables. ngboost: NGBRegressor with its defaults.
- gpboost: exact up to 2,000 rows, then Vecchia with its default of 20 neighbors.

A candidate of the default is a model too, by its name, such as "RBF" (`candidates`). It is fitted in full.

    python -m benchmarks.races.defaults --folder UCI --out FILE [--tables T,...] [--racers R,...] [--splits N]
    python -m benchmarks.races.defaults --out FILE --against default
"""

import argparse
from typing import Any

import rfgp
from benchmarks import models, protocol
from benchmarks.race import Model, Race, Split, standardized, tenth

TABLES = ("autos", "breastcancer", "machine", "autompg", "housing", "forest", "stock", "pendulum", "concrete", "solar")
TABLES += ("airfoil", "gas", "skillcraft", "power-plant", "elevators", "bike", "kin40k", "protein", "tamielectric")
TABLES += ("keggdirected",)
EXACT = 2000
SHAPES = ((1000, 4), (10, 10), (10**5, 1), (10**5, 10))
"""Rows and columns of tables that have all candidates between them."""


def candidates() -> dict[str, Any]:
    """Return the candidates of `rfgp.GP()` and their followups by their names, for few and many rows and columns."""
    space = rfgp.GP().spec.options.search_space
    found = [one for rows, columns in SHAPES for one in space.candidates(rows, range(columns))]
    return {each.name: each.model for one in found for each in (one, *one.followups)}


def split(name: str, seed: int, options: argparse.Namespace) -> Split:
    """Return rows of a table, a random tenth held out."""
    X, y = protocol.load(name, options.folder)
    train, test = tenth(len(y), seed, 2000)
    return standardized(X, y, train[: options.rows], test)


def ours(**options: Any) -> Model:
    """Return a model of this package with Gaussian noise."""
    return Model("rfgp.gp", models.gp(lambda seed: rfgp.GP(likelihood="gaussian", seed=seed, **options)))


class Models(dict[str, Model]):
    """Models, and the candidates of the default by their names."""

    def __missing__(self, name: str) -> Model:
        model = candidates()[name]
        return ours(kernel=model.kernel, approximation=model.approximations, priors=model.priors)


def budgets() -> dict[str, Model]:
    """Return budgets of this package by name."""
    makers = {"features": rfgp.RandomFeatures, "neighbors": rfgp.Vecchia}
    sizes = {"features": (64, 256, 1024), "neighbors": (10, 40)}
    return {
        f"{kind}-{size}": ours(kernel=rfgp.kernels.Matern(nu=1.5), approximation=make(size))
        for kind, make in makers.items()
        for size in sizes[kind]
    }


RACE = Race(
    "benchmarks.races.defaults",
    TABLES,
    split,
    Models(
        {
            "default": ours(),
            "sklearn": Model("sklearn.gaussian_process", models.sklearn_process, most=EXACT),
            "boosting": Model("sklearn.ensemble", models.boosting),
            "quantiles": Model("sklearn.ensemble", models.quantile_boosting()),
            "svgp": Model("gpytorch", models.svgp(1800.0)),
            "exact-gpytorch": Model("gpytorch", models.gpytorch_process(), most=EXACT),
            "gpboost": Model("gpboost", models.gpboost(exact=EXACT)),
            "catboost": Model("catboost", models.catboost()),
            "ngboost": Model("ngboost", models.ngboost),
            **budgets(),
        }
    ),
)


def main() -> None:
    """Run the race."""
    RACE.main(__doc__)


if __name__ == "__main__":
    main()
