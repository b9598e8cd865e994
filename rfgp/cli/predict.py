"""`rfgp predict`: the predictions of a saved model for the rows of another table."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from rfgp.cli.common import check_input, check_inputs, check_model_file, check_outputs, print_json, say
from rfgp.cli.options import Spelling, grouped
from rfgp.errors import InvalidArgumentError
from rfgp.progress import Bar

_CHUNK, CHUNK_OF_TERMS = 8192, 1000
"""The numbers of rows that are predicted at once, and whose effects of terms are."""
_REFERENCE = 1000
"""The maximum number of rows over which effects of terms are centred."""
_RESULTS = ("row", "mean", "sd", "observed_sd", "low", "high")
"""The columns of a file of predictions."""


@grouped
def predict(
    model: Path,
    file: Path,
    spelling: Spelling,
    out: Path | None = None,
    terms: bool = False,
    id: list[str] | None = None,
    exposure: str | None = None,
    missing: str | None = None,
    as_json: Annotated[bool, "--json"] = False,
) -> None:
    """Predict the rows of a table: mean, standard deviations and the 95 % interval of an observation.

    Columns are found by their names. For several classes, the columns are the most probable one and the probability of
    each. If the likelihood is not Gaussian, sd is that of the latent function: of a logit
    or a logarithm.

    Args:
        model: A model that `rfgp fit` saved.
        file: A table with the same input columns.
        out: A .csv file for the predictions. Rows count from 0, after the header. [default: print them]
        terms: Add columns TERM_mean and TERM_sd: mean and standard deviation of the effect of each term. An effect is
            the value of the term minus its mean over at most 1,000 rows of the table, as in the report. With --log it
            is an effect on the logarithm.
        id: A column of the table to copy into the predictions. Repeatable.
        exposure: A column of exposures, or one number such as 1 for rates. [default: the column of the fit, if any]
        missing: Missing values: error, drop (the rows) or mean (of the fit, if it had that). [default: as in the fit]
        as_json: Print a summary as JSON; it needs --out.
    """
    if as_json and out is None:
        raise typer.BadParameter("--json needs a file of predictions. Name it with --out.")
    carried = tuple(dict.fromkeys(id or ()))
    if clashing := [name for name in carried if name in _RESULTS]:
        raise typer.BadParameter(f"--id {clashing[0]} must not be the name of a result. Rename the column.")
    check_outputs(() if out is None else (out,), (check_input(model), check_input(file)), makes_folder=False)
    gp, inputs, schema = _opened(model, file, missing, spelling, carried)
    if terms:
        _check_terms(gp, len(inputs.rows))
    exposures = _exposures(gp, inputs, (file, schema), exposure)
    with Bar(out is not None and not as_json) as report:
        if "classes" in gp.metadata:
            table = _predicted_classes(gp, inputs, schema.classes, report)
        else:
            table = _predicted(gp, inputs, exposures, terms, report)
    if out is None:
        print(table.text(), end="")
    else:
        _write(table, out, inputs, schema.target, "" if missing else ", as in the fit", as_json)


@dataclass
class _Predictions:
    """Predictions of rows.

    Attributes:
        header: The names of the columns.
        rows: The cells of each row.
        figures: The scores, if the targets are known.
    """

    header: Sequence[str]
    rows: list[Sequence[Any]] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def text(self) -> str:
        """Return the predictions as CSV."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.header)
        writer.writerows(self.rows)
        return stream.getvalue()


def _write(table: _Predictions, out: Path, inputs: Any, target: str, as_usual: str, as_json: bool) -> None:
    """Write predictions to a file, and print a summary."""
    from rfgp.files import write_atomically
    from rfgp.messages import counted

    write_atomically(out, table.text().encode())
    left_out = inputs.num_rows - len(inputs.rows)
    if as_json:
        print_json({"rows": len(inputs.rows), "left_out": left_out, **table.figures, "out": str(out)})
        return
    say(f"Predicted {target} in {counted(len(inputs.rows), 'row')}: {out}")
    if left_out:
        say(f"{counted(left_out, 'row')} with missing values {'was' if left_out == 1 else 'were'} left out{as_usual}.")
    if table.figures:
        shown = ", ".join(f"{name} {value:.4g}" for name, value in table.figures.items())
        say(f"The file holds the target as well: {shown}.")


def _opened(
    model: Path, file: Path, missing: str | None, spelling: Spelling, carried: Sequence[str]
) -> tuple[Any, Any, Any]:
    """Return the model, the inputs of a table, and the schema by which it was read."""
    given, marks = spelling.form(), spelling.missing_mark or ()
    check_model_file(model)
    check_inputs(file, missing, given)
    from rfgp.tables import read_inputs

    gp, schema = _open_model(model)
    schema = replace(schema, **given, missing_marks=(*schema.missing_marks, *marks))
    inputs = read_inputs(file, schema if missing is None else schema.with_missing(missing), carried)
    return gp, inputs, schema


def _open_model(path: Path) -> tuple[Any, Any]:
    """Return a model of a table and its schema."""
    import rfgp
    from rfgp.tables import Schema

    gp = rfgp.load(path)
    if not isinstance(gp, rfgp.GP) or "schema" not in gp.metadata:
        raise rfgp.ModelFileError(
            f"{path} was not saved by `rfgp fit`, so it does not say what its columns are. Load it in Python; the "
            "predictions of `rfgp mesh` and `rfgp traffic` are in their nodes.csv."
        )
    return gp, Schema.from_dict(gp.metadata["schema"])


def _exposures(gp: Any, inputs: Any, source: tuple[Path, Any], given: str | None) -> Any:
    """Return the exposures (n,) of the rows, or None if neither the command nor the fit has any.

    `source` is the table with the schema by which it is read.
    """
    import numpy as np

    from rfgp.tables import read_number_column

    column = gp.metadata.get("exposure") if given is None else given
    if column is None:
        return None
    try:
        return np.full(len(inputs.rows), float(column))
    except ValueError:
        file, schema = source
        return read_number_column(file, column, rows=inputs.rows, **asdict(schema.format))


def _check_terms(gp: Any, num_rows: int) -> None:
    """Check that the model has terms, and that there are several rows.

    Raises:
        InvalidArgumentError: If the model is an average, or there is only one row.
    """
    if num_rows < 2:
        raise InvalidArgumentError(
            "--terms requires at least two rows, got 1. Effects are differences from their mean over the rows of the "
            "table, so add rows to compare with."
        )
    if "classes" in gp.metadata:
        raise InvalidArgumentError("--terms requires one function, got a model of several classes. Leave it out.")
    if gp.members:
        raise InvalidArgumentError(
            f"--terms requires one model, got an average of {len(gp.members)}. Fit one with --kernel."
        )


def _rows_of(gp: Any, inputs: Any) -> Any:
    """Return the inputs (n, d) with the columns of the model."""
    keys = [key for term in gp.kernel.terms() for factor in term.factors for key in factor.columns or ()]
    if all(isinstance(key, int) for key in keys):
        return inputs.X
    return inputs.frame().iloc


def _predicted(gp: Any, inputs: Any, exposures: Any, with_terms: bool, report: Any) -> _Predictions:
    """Return the predictions of all rows, with their scores if the targets are known."""
    import numpy as np

    names = tuple(gp.predict(_rows_of(gp, inputs)[:1]).terms) if with_terms else ()
    headers = [f"{name}_{part}" for name in names for part in ("mean", "sd")]
    table = _Predictions((_RESULTS[0], *inputs.passthrough, *_RESULTS[1:], *headers))
    rows, total, squares, inside = _rows_of(gp, inputs), len(inputs.rows), 0.0, 0
    size = CHUNK_OF_TERMS if with_terms else _CHUNK
    for first in range(0, total, size):
        report("Predicting", first, total)
        chunk = slice(first, first + size)
        prediction = gp.predict(rows[chunk])
        columns = _columns(prediction, bool(gp.metadata.get("log")), None if exposures is None else exposures[chunk])
        if inputs.y is not None:
            y, mean, low, high = inputs.y[chunk], columns[0], *columns[3:]
            squares, inside = squares + float(np.sum((y - mean) ** 2)), inside + int(np.sum((low <= y) & (y <= high)))
        texts = [column[chunk] for column in inputs.passthrough.values()]
        effects = _effects(gp, rows, range(total)[chunk], total, names) if with_terms else ()
        numbers = [column.tolist() for column in (*columns, *effects)]
        table.rows += zip(inputs.rows[chunk].tolist(), *texts, *numbers, strict=True)
    if inputs.y is not None:
        table.figures = {"rmse": (squares / total) ** 0.5, "coverage_95": inside / total}
    return table


def _predicted_classes(gp: Any, inputs: Any, known: Sequence[str] | None, report: Any) -> _Predictions:
    """Return the most probable class and all probabilities of each row, with the accuracy if the targets are known.

    `known` has the texts of the targets, or None for numbers.
    """
    import numpy as np

    names, total, right = gp.metadata["classes"], len(inputs.rows), 0
    table = _Predictions((_RESULTS[0], *inputs.passthrough, "class", *(f"p_{name}" for name in names)))
    rows = _rows_of(gp, inputs)
    for first in range(0, total, _CHUNK):
        report("Predicting", first, total)
        chunk = slice(first, first + _CHUNK)
        probabilities = np.asarray(gp.predict(rows[chunk]).observed().probabilities)
        labels = [names[i] for i in probabilities.argmax(axis=1)]
        if inputs.y is not None:
            given = [known[int(value)] if known else f"{value:g}" for value in inputs.y[chunk]]
            right += sum(label == value for label, value in zip(labels, given, strict=True))
        texts = [column[chunk] for column in inputs.passthrough.values()]
        table.rows += zip(inputs.rows[chunk].tolist(), *texts, labels, *probabilities.T.tolist(), strict=True)
    if inputs.y is not None:
        table.figures = {"accuracy": right / total}
    return table


def _columns(prediction: Any, is_log: bool, exposure: Any) -> tuple[Any, ...]:
    """Return the mean, sd of the function, sd of an observation, and its 95 % interval, each (n,), in its units."""
    import numpy as np

    observed = prediction.observed() if exposure is None else prediction.observed(exposure=exposure)
    if getattr(observed, "likelihood", None) is not None:
        ends = observed.quantile([0.025, 0.975])
        return observed.mean, np.sqrt(prediction.variance), np.sqrt(observed.variance), *ends
    low, high = observed.interval(0.95)
    if is_log:
        prediction, observed, low, high = prediction.exp(), observed.exp(), np.exp(low), np.exp(high)
    return observed.mean, np.sqrt(prediction.variance), np.sqrt(observed.variance), low, high


def _effects(gp: Any, rows: Any, chunk: Sequence[int], total: int, names: Sequence[str]) -> Iterator[Any]:
    """Yield mean and standard deviation (b,) of each centered term in a chunk."""
    import numpy as np

    reference = np.unique(np.linspace(0, total - 1, _REFERENCE).astype(np.int64))
    prediction = gp.predict(rows[np.concatenate([chunk, reference])])
    weights = np.hstack([np.eye(len(chunk)), np.full((len(chunk), len(reference)), -1 / len(reference))])
    for name in names:
        effect = prediction.terms[name].linear(weights)
        yield from (effect.mean, effect.std)
