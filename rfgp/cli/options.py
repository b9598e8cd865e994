"""Options that several commands have, under the same words."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

Categories = Annotated[str, typer.Option(help="Text columns of a table: error, one-hot or drop.")]
Dates = Annotated[str, typer.Option(help="Date columns (ISO) of a table: error, days (since 1970) or drop.")]
Missing = Annotated[str, typer.Option(help="Missing values of a table: error, drop (the rows) or mean.")]
Drop = Annotated[list[str] | None, typer.Option(help="A column of a table to leave out; repeatable.")]
AsCategory = Annotated[
    list[str] | None, typer.Option(help="A column of categories, even if it holds numbers; repeatable.")
]
Decimal = Annotated[str, typer.Option(help="The decimal mark of a text table, . or ,")]
Thousands = Annotated[str | None, typer.Option(help="What separates thousands in a text table, as , in 1,200.")]
Comment = Annotated[str | None, typer.Option(help="Lines of a text table that start with this are skipped.")]
Encoding = Annotated[str, typer.Option(help="Of a text table.")]
MissingMark = Annotated[
    list[str] | None, typer.Option(help="A text that stands for a missing value, besides the usual; repeatable.")
]
Metric = Annotated[
    str | None,
    typer.Option(
        help="Of roads: haversine (degrees) or euclidean (a plane). [default: as the file's crs says, else haversine]"
    ),
]
Weights = Annotated[str, typer.Option(help="Of a mesh's edges: unit, edge-length, or cotangent (between vertices).")]
TableFeatures = Annotated[
    str, typer.Option(help="fourier, laplace, nystrom (inducing points), exact, none (a local process alone), or auto.")
]
Spectrum = Annotated[str, typer.Option(help="The kernel: gaussian, matern12, matern32, matern52, ..., or auto.")]
NumFrequencies = Annotated[int | None, typer.Option(help="Of fourier and laplace; features are twice as many.")]
Coupling = Annotated[str | None, typer.Option(help="Of frequencies: energy, pairwise, orthogonal, iid, sobol, ...")]
Frequencies = Annotated[str, typer.Option(help="fixed, learned, or auto.")]
NumInducing = Annotated[int | None, typer.Option(help="Of nystrom: its points.")]
Diagonal = Annotated[str, typer.Option(help="Of nystrom: fitc, vfe, none, or auto.")]
Local = Annotated[
    str, typer.Option(help="A local process too: matern12, ..., gaussian; with nystrom residual; none, or auto.")
]
NumNeighbors = Annotated[int | None, typer.Option(help="Of a local process: those that a row is conditioned on.")]
TimeLimit = Annotated[
    str | None, typer.Option(help="The most that selection and fit may take: 30s, 5min, 2h. [default: by rows]")
]
Memory = Annotated[str | None, typer.Option(help="What the fit may take, as predicted: 500MB, 4GB. [default: 8GB]")]
Log = Annotated[
    bool, typer.Option("--log", help="Fit the logarithm of a positive target; predictions are in its own units.")
]
Holdout = Annotated[
    str,
    typer.Option(
        help="Which observations to hold out: random ones, or the last in the order of the file, as for time series."
    ),
]
HoldoutBy = Annotated[
    str | None,
    typer.Option(
        help="A column whose values, as stations or patients, are held out whole: rows of one value stay together. It "
        "is left out of the inputs, for a held-out value is one that the model has never seen."
    ),
]
Seed = Annotated[int, typer.Option(help="Everything random follows from it.")]


def spelling(
    decimal: str | None,
    thousands: str | None,
    comment: str | None,
    encoding: str | None,
    missing_mark: list[str] | None,
) -> dict[str, Any]:
    """Return the options of `read_table` about the spelling of texts that were given."""
    from rfgp.tables import MISSING_MARKS

    marks = (*MISSING_MARKS, *missing_mark) if missing_mark else None
    given = {
        "decimal": decimal,
        "thousands": thousands,
        "comment": comment,
        "encoding": encoding,
        "missing_marks": marks,
    }
    return {name: value for name, value in given.items() if value is not None}


def table_options(named: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what to give `rfgp.TableGP`: names, "none" for None, without those left "auto"; and what was given."""
    chosen = {name: None if value == "none" else value for name, value in named.items() if value != "auto"}
    return {**chosen, **{name: value for name, value in given.items() if value is not None}}


Inference = Annotated[
    str | None,
    typer.Option(
        help='Under another likelihood than the normal one, "laplace" or "variational". [default: by the rows]'
    ),
]
Likelihood = Annotated[
    str,
    typer.Option(
        help="normal, bernoulli (two classes), poisson, negative-binomial, gamma, student-t or heteroscedastic."
    ),
]
