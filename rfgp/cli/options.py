"""Options that several commands share."""

from typing import Annotated, Any

import typer

from rfgp.errors import InvalidArgumentError
from rfgp.messages import quoted

TableTarget = Annotated[str | None, typer.Option(help="The target column, by name or position. [default: the last]")]
Missing = Annotated[
    str,
    typer.Option(
        help="Policy for missing values of a table: error, drop (leave out the rows) or mean. mean fills numbers and "
        "dates with the mean of their column, makes missing texts a level, and drops rows without a target."
    ),
]
Drop = Annotated[list[str] | None, typer.Option(help="A column of a table to leave out. Repeatable.")]
AsCategory = Annotated[
    list[str] | None, typer.Option(help="A column to read as text, even if it holds numbers. Repeatable.")
]
Numbers = Annotated[
    list[str] | None,
    typer.Option(
        help='A column of numbers as text with a unit or marks of its own, with an example: "price=1.234,50 EUR" or '
        '"share=12 %". Repeatable.'
    ),
]
Decimal = Annotated[str, typer.Option(help="The decimal mark of a text table, . or ,")]
Thousands = Annotated[str | None, typer.Option(help="The separator of thousands in a text table, as , in 1,200.")]
Comment = Annotated[str | None, typer.Option(help="Lines of a text table that start with this mark are skipped.")]
Encoding = Annotated[str, typer.Option(help="The encoding of a text table.")]
MissingMark = Annotated[
    list[str] | None, typer.Option(help="A text that marks a missing value, in addition to the defaults. Repeatable.")
]
Approximation = Annotated[
    str,
    typer.Option(
        help='How terms are computed: one value for all, as "RandomFeatures(256)" or Exact; values by term, as '
        '"trend=Vecchia(30), local=RandomFeatures(128)"; or auto.'
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        help="Metric of roads: haversine (degrees) or euclidean (a plane). [default: by the file's crs, else haversine]"
    ),
]
Weights = Annotated[
    str, typer.Option(help="Weights of a mesh's edges: unit, edge-length, or cotangent (between vertices).")
]
TimeLimit = Annotated[
    str | None,
    typer.Option(help="The most time of a fit: 30s, 5min, 2h. [default: without --kernel it grows with the rows]"),
]
Validate = Annotated[
    str | None,
    typer.Option(
        help="The rows that a selection predicts: forward for the last ones by date, or a column whose values stay "
        "together. [default: random rows]"
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        help="The most memory of a fit: 500MB, 4GB. [default: 8GB in a selection, else most of the machine's]"
    ),
]
Log = Annotated[
    bool, typer.Option("--log", help="Fit the logarithm of a positive target. Predictions are in its own units.")
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
Exposure = Annotated[
    str | None,
    typer.Option(
        help="A column of exposures, such as hours or populations, by which the mean of a count is multiplied."
    ),
]
PredictedExposure = Annotated[
    str | None,
    typer.Option(
        help="A column of exposures, or one number such as 1 for rates. [default: the column of the fit, if any]"
    ),
]
NoiseColumn = Annotated[
    str | None, typer.Option(help="A column of known noise variances, in squared units of the target, to be added.")
]
WeightColumn = Annotated[
    str | None,
    typer.Option(
        help="A column of weights: a row of weight w counts as w repeated observations. Precisions "
        "belong into --noise-column, as variances."
    ),
]
Seed = Annotated[int, typer.Option(help="The seed of everything random.")]


def reading(
    missing: str, drop: list[str] | None, as_category: list[str] | None, numbers: list[str] | None
) -> dict[str, Any]:
    """Return the options of `read_table` about columns and missing values.

    Args:
        missing: The policy for missing cells.
        drop: The columns to leave out, or None.
        as_category: The columns to encode one-hot, or None.
        numbers: Columns of numbers as text, each with an example after an equals sign, or None.

    Raises:
        InvalidArgumentError: If a column has no example.

    Examples:
        >>> reading("drop", ["id"], None, ["price=$3.50"])
        {'missing': 'drop', 'drop': ('id',), 'as_categories': (), 'numbers': {'price': '$3.50'}}
    """
    pairs = [entry.rpartition("=") for entry in numbers or ()]
    for column, _, example in pairs:
        if not column:
            raise InvalidArgumentError(
                f"numbers must be a column and an example, got {quoted(example)}. Write one such as 'price=$3.50'."
            )
    given = {"missing": missing, "drop": tuple(drop or ()), "as_categories": tuple(as_category or ())}
    return {**given, "numbers": {column: example for column, _, example in pairs}}


def spelling(
    decimal: str | None,
    thousands: str | None,
    comment: str | None,
    encoding: str | None,
    missing_mark: list[str] | None,
) -> dict[str, Any]:
    """Return the given options of `read_table` about the format of a text file.

    Args:
        decimal: The decimal mark, or None.
        thousands: The separator of thousands, or None.
        comment: The mark of lines to skip, or None.
        encoding: The encoding, or None.
        missing_mark: Further marks of missing cells, or None.

    Examples:
        >>> spelling(",", None, None, "utf-8", None)
        {'decimal': ',', 'encoding': 'utf-8'}
    """
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


Inference = Annotated[
    str | None,
    typer.Option(
        help="The inference if the likelihood is not gaussian: laplace or variational. [default: as usual for it]"
    ),
]
Likelihood = Annotated[
    str | None,
    typer.Option(
        help="The distribution of an observation: auto (Gaussian or Student-t, with one variance or scales that depend "
        "on the inputs), gaussian, bernoulli (two classes), categorical (several classes), "
        "poisson, negative-binomial, gamma, student-t or heteroscedastic (the noise is a function of the inputs too). "
        "[default: auto, with --kernel gaussian]"
    ),
]
