"""`rfgp predict`: the predictions of a saved model for the rows of another table."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from rfgp.cli.common import Input, check_model_file, check_outputs, print_json, say
from rfgp.cli.options import Spelling
from rfgp.errors import InvalidArgumentError
from rfgp.messages import check_choice, counted
from rfgp.progress import Bar

_CHUNK, CHUNK_OF_TERMS = 8192, 1000
"""The numbers of rows that are predicted at once, and whose effects of terms are."""
_REFERENCE = 1000
"""The maximum number of rows over which effects of terms are centred."""
_OF_ROWS = ("exposure", "trials")
"""The arguments with numbers of rows on which predictions depend."""
_RESULTS = ("row", "mean", "sd", "observed_sd", "low", "high")
"""The columns of a file of predictions."""


@dataclass(frozen=True, kw_only=True)
class Predict(Spelling):
    """Predict the rows of a table: mean, standard deviations and the 95 % interval of an observation.

    Columns are found by their names. For several classes, the columns are the most probable one and the probability of
    each. If the likelihood is not Gaussian, sd is that of the latent function: of a logit or a logarithm.

    Attributes:
        model: A model that `rfgp fit` saved.
        file: A table with the same input columns.
        out: A .csv file for the predictions. Rows count from 0, after the header. [default: print them]
        terms: Add columns TERM_mean and TERM_sd: mean and standard deviation of the effect of each term. An effect is
            the value of the term minus its mean over at most 1,000 rows of the table, as in the report. With --log it
            is an effect on the logarithm.
        id: A column of the table to copy into the predictions. Repeatable.
        exposure: A column of exposures, or one number such as 1 for rates. [default: the column of the fit, if any]
        trials: A column of numbers of trials, or one number: 1 for probabilities. [default: the column of the fit]
        missing: Missing values: error, drop (the rows) or mean (of the fit, if it had that). [default: as in the fit]
        as_json: Print a summary as JSON; it needs --out.
    """

    model: Path
    file: Path
    out: Path | None = None
    terms: bool = False
    id: list[str] | None = None
    exposure: str | None = None
    trials: str | None = None
    missing: str | None = None
    as_json: Annotated[bool, "--json"] = False

    def run(self) -> None:
        """Print the predictions, or write them to a file."""
        if self.as_json and self.out is None:
            raise typer.BadParameter("--json needs a file of predictions. Name it with --out.")
        carried = tuple(dict.fromkeys(self.id or ()))
        if clashing := [name for name in carried if name in _RESULTS]:
            raise typer.BadParameter(f"--id {clashing[0]} must not be the name of a result. Rename the column.")
        outputs = () if self.out is None else (self.out,)
        check_outputs(outputs, (self.model, self.file), makes_folder=False)
        gp, inputs, schema = self._opened(carried)
        if self.terms:
            _check_terms(gp, len(inputs.rows))
        each = {name: _numbers(gp, inputs, (self.file, schema), name, getattr(self, name)) for name in _OF_ROWS}
        numbers = {name: values for name, values in each.items() if values is not None}
        with Bar(self.out is not None and not self.as_json) as report:
            header, columns = _predicted(gp, inputs, numbers, self.terms, report)
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow((_RESULTS[0], *inputs.passthrough, *header))
        cells = [column.tolist() for column in (inputs.rows, *columns)]
        writer.writerows(zip(cells[0], *inputs.passthrough.values(), *cells[1:], strict=True))
        if self.out is None:
            print(stream.getvalue(), end="")
            return
        from rfgp.files import write_atomically

        write_atomically(self.out, stream.getvalue().encode())
        scores = {} if inputs.y is None else _scores(gp, inputs.y, columns, schema.classes)
        left_out = inputs.num_rows - len(inputs.rows)
        if self.as_json:
            print_json({"rows": len(inputs.rows), "left_out": left_out, **scores, "out": str(self.out)})
            return
        say(f"Predicted {schema.target} in {counted(len(inputs.rows), 'row')}: {self.out}")
        if left_out:
            were, usual = "was" if left_out == 1 else "were", "" if self.missing else ", as in the fit"
            say(f"{counted(left_out, 'row')} with missing values {were} left out{usual}.")
        if scores:
            shown = ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
            say(f"The file holds the target as well: {shown}.")

    def _opened(self, carried: Sequence[str]) -> tuple[Any, Any, Any]:
        """Return the model, the inputs of a table, and the schema by which it was read."""
        from rfgp.tables.options import CHOICES, TextFormat

        given, marks = self.form(), self.missing_mark or ()
        check_model_file(self.model)
        if self.missing is not None:
            check_choice("missing", self.missing, CHOICES["missing"])
        TextFormat(**given)
        Input(self.file).check("predict", "table")
        import rfgp
        from rfgp.tables import Schema, read_inputs

        gp = rfgp.load(self.model)
        if not isinstance(gp, rfgp.GP) or "schema" not in gp.metadata:
            raise rfgp.ModelFileError(
                f"{self.model} was not saved by `rfgp fit`, so it does not say what its columns are. Load it in "
                "Python; the predictions of `rfgp mesh` and `rfgp traffic` are in their nodes.csv."
            )
        schema = Schema.from_dict(gp.metadata["schema"])
        schema = replace(schema, **given, missing_marks=(*schema.missing_marks, *marks))
        inputs = read_inputs(self.file, schema if self.missing is None else schema.with_missing(self.missing), carried)
        return gp, inputs, schema


def _numbers(gp: Any, inputs: Any, source: tuple[Path, Any], name: str, given: str | None) -> Any:
    """Return the exposures or trials (n,) of the rows, or None if neither the command nor the fit has any.

    `source` is the table with the schema by which it is read.
    """
    import numpy as np

    from rfgp.tables import read_number_column

    column = gp.metadata.get(name) if given is None else given
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


def _predicted(gp: Any, inputs: Any, numbers: Any, with_terms: bool, report: Any) -> tuple[list[str], list[Any]]:
    """Return the names and columns (n,) of results: predictions, or classes and probabilities, and effects."""
    import numpy as np

    rows, total, classes = _rows_of(gp, inputs), len(inputs.rows), gp.metadata.get("classes")
    names = tuple(gp.predict(rows[:1]).terms) if with_terms else ()
    header = list(_RESULTS[1:]) if classes is None else ["class", *(f"p_{name}" for name in classes)]
    header += [f"{name}_{part}" for name in names for part in ("mean", "sd")]
    size, parts = CHUNK_OF_TERMS if with_terms else _CHUNK, []
    for first in range(0, total, size):
        report("Predicting", first, total)
        chunk = slice(first, first + size)
        prediction = gp.predict(rows[chunk])
        if classes is None:
            own = {name: values[chunk] for name, values in numbers.items()}
            part = [*_columns(prediction, bool(gp.metadata.get("log")), own)]
        else:
            probabilities = np.asarray(prediction.observed().probabilities)
            part = [np.array(classes, dtype=object)[probabilities.argmax(axis=1)], *probabilities.T]
        parts.append([*part, *(_effects(gp, rows, range(total)[chunk], total, names) if with_terms else ())])
    return header, [np.concatenate(column) for column in zip(*parts, strict=True)]


def _scores(gp: Any, y: Any, columns: Sequence[Any], known: Sequence[str] | None) -> dict[str, float]:
    """Return the scores of predictions of targets (n,). `known` has the texts of classes, or None for numbers."""
    import numpy as np

    if "classes" in gp.metadata:
        texts = [known[int(value)] if known else f"{value:g}" for value in y]
        return {"accuracy": float(np.mean(columns[0] == np.array(texts, dtype=object)))}
    mean, _, _, low, high = columns[:5]
    inside = (low <= y) & (y <= high)
    return {"rmse": float(np.sqrt(np.mean((y - mean) ** 2))), "coverage_95": float(np.mean(inside))}


def _columns(prediction: Any, is_log: bool, numbers: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the mean, sd of the function, sd of an observation, and its 95 % interval, each (n,), in its units."""
    import numpy as np

    observed = prediction.observed(**numbers)
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
