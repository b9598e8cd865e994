"""Options that several commands have, under the same words."""

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
Metric = Annotated[str, typer.Option(help="Of roads: haversine (degrees) or euclidean (a plane, in metres).")]
Weights = Annotated[str, typer.Option(help="Of a mesh's edges: unit, edge-length, or cotangent (between vertices).")]
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
