"""Every option of the command line, once. Checks are those of the library, and run before large packages are loaded."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, get_args, get_origin

import typer

from rfgp import names
from rfgp.errors import InvalidArgumentError
from rfgp.messages import check_choice, check_count, check_share, quoted, read_bytes, read_seconds

FIELD = "whittle-matern"
"""The process on a surface or on roads, instead of a kernel of the graph."""

Check = Callable[[str, Any], object]


def option(text: str, *details: Any) -> Any:
    """Return an option, whose value is checked before large packages are loaded.

    Args:
        text: The help.
        *details: Flags, if they do not follow from the name of the parameter, and checks: functions of the name and the
            value, or of each of several values, that raise an error.
    """
    flags = [each for each in details if isinstance(each, str)]
    checks = [each for each in details if callable(each)]

    def checked(parameter: typer.CallbackParam, value: Any) -> Any:
        for each in value if isinstance(value, list | tuple) else (value,):
            for check in checks if each is not None else ():
                check(str(parameter.name), each)
        return value

    return typer.Option(*flags, help=text, callback=checked if checks else None)


def among(*known: str) -> Check:
    """Return the check that a value is one of some names."""
    return partial(check_choice, known=known)


def at_least(least: int) -> Check:
    """Return the check that an integer is not below a limit."""
    return partial(check_count, least=least)


def above_zero(name: str, value: float) -> None:
    """Check that a number is positive, possibly infinite."""
    if not value > 0:
        raise InvalidArgumentError(f"{name} must be positive, got {value}.")


def up_to_one(name: str, value: float) -> None:
    """Check that a fraction is in (0, 1]."""
    if not 0 < value <= 1:
        raise InvalidArgumentError(f"{name} must be a share in (0, 1], got {value}.")


def command(thing: Any) -> Callable[..., None]:
    """Return a command for typer from a function, or from a dataclass whose fields are options and which has a `run`.

    The docstring is the help. The help of an option is its entry in the docstring, unless its annotation is an option
    of several commands. Further entries of an annotation are flags and checks, as those of `option`.

    Args:
        thing: The function or the dataclass.

    Examples:
        >>> @dataclass(frozen=True)
        ... class Show(Spelling):
        ...     def run(self) -> None:
        ...         print(self.decimal)
        >>> command(Show)(decimal=",", thousands=None, comment=None, encoding=None, missing_mark=None)
        ,
    """
    documented = _documented(thing)
    parameters = [_for_typer(each, documented.get(each.name)) for each in inspect.signature(thing).parameters.values()]

    def run(**options: Any) -> None:
        made = thing(**options)
        if inspect.isclass(thing):
            made.run()

    run.__name__, run.__doc__ = thing.__name__.lower(), _SECTION.split(inspect.cleandoc(thing.__doc__))[0]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


_SECTION = re.compile(r"\n+(?:Args|Attributes):\n")


def _documented(thing: Any) -> dict[str, str]:
    """Return the entries of the docstring of a command, or of a dataclass and its bases, by name."""
    found: dict[str, str] = {}
    for each in reversed(inspect.getmro(thing)) if inspect.isclass(thing) else (thing,):
        section = _SECTION.split(inspect.cleandoc(each.__doc__ or ""))[-1].split("\n\n")[0]
        found |= {
            name: " ".join(text.split()) for name, text in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.M)
        }
    return found


def _for_typer(parameter: inspect.Parameter, text: str | None) -> inspect.Parameter:
    """Return a parameter with its help, flags and checks as typer reads them."""
    kind, *details = (
        get_args(parameter.annotation) if get_origin(parameter.annotation) is Annotated else [parameter.annotation]
    )
    has_flags = any(isinstance(each, str) for each in details)
    if text is not None and parameter.default is parameter.empty and not has_flags:
        details = [typer.Argument(help=text)]
    elif text is not None:
        alone = [f"--{parameter.name.replace('_', '-')}"] if kind is bool and not has_flags else []
        details = [option(text, *alone, *details)]
    return parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=Annotated[kind, *details] if details else kind)


# --- Options of several commands -------------------------------------------------------------------------------------

AsJson = Annotated[bool, option("Print the results as JSON.", "--json")]
Seed = Annotated[int, option("The seed of everything random.", at_least(0))]
Drop = Annotated[list[str] | None, option("A column of a table to leave out. Repeatable.")]
Missing = Annotated[
    str,
    option(
        "Policy for missing values of a table: error, drop (leave out the rows) or mean. mean fills numbers and dates "
        "with the mean of their column, makes missing texts a level, and drops rows without a target."
    ),
]
Metric = Annotated[
    str | None,
    option(
        "Metric of roads: haversine (degrees) or euclidean (a plane). [default: by the file's crs, else haversine]",
        among(*names.METRICS),
    ),
]
Halt = Annotated[
    float,
    option(
        "For a kernel of a graph with walks: the probability that a walker halts at a step.",
        check_share,
    ),
]
TestShare = Annotated[float, option("The share of the observations held out to score the fit.", check_share)]
Holdout = Annotated[
    str,
    option(
        "Which observations to hold out: random ones, or the last in the order of the file, as for time series.",
        among(*names.HOLDOUTS),
    ),
]
HoldoutBy = Annotated[
    str | None,
    option(
        "A column whose values, as stations or patients, are held out whole: rows of one value stay together. It is "
        "left out of the inputs, for a held-out value is one that the model has never seen."
    ),
]
WithData = Annotated[bool, option("Save the data too, even if predictions do not need them.", "--with-data")]


@dataclass(frozen=True)
class Spelling:
    """The format of a text table. What is not given is that of the fit, or the default of `rfgp.tables.read_table`.

    Attributes:
        decimal: The decimal mark of a text table, . or , [default: as in the fit, else .]
        thousands: The separator of thousands in a text table, as , in 1,200.
        comment: Lines of a text table that start with this mark are skipped.
        encoding: The encoding of a text table. [default: as in the fit, else utf-8]
        missing_mark: A text that marks a missing value, in addition to the defaults. Repeatable.
    """

    decimal: str | None = None
    thousands: str | None = None
    comment: str | None = None
    encoding: str | None = None
    missing_mark: list[str] | None = None

    def form(self) -> dict[str, Any]:
        """Return the given options of `rfgp.tables.read_table` about the format, without the marks."""
        given = {name: getattr(self, name) for name in ("decimal", "thousands", "comment", "encoding")}
        return {name: value for name, value in given.items() if value is not None}

    def options(self) -> dict[str, Any]:
        """Return the given options of `rfgp.tables.read_table`."""
        from rfgp.tables.options import MISSING_MARKS

        marks = {"missing_marks": (*MISSING_MARKS, *self.missing_mark)} if self.missing_mark else {}
        return {**self.form(), **marks}


@dataclass(frozen=True)
class Reading(Spelling):
    """How a table is read.

    Attributes:
        as_category: A column to read as text, even if it holds numbers. Repeatable.
        numbers: A column of numbers as text with a unit or marks of its own, with an example: "price=1.234,50 EUR" or
            "share=12 %". Repeatable.

    Examples:
        >>> Reading(missing="drop", drop=["id"], numbers=["price=$3.50"]).options()
        {'missing': 'drop', 'drop': ('id',), 'as_categories': (), 'numbers': {'price': '$3.50'}}
    """

    missing: Missing = "error"
    drop: Drop = None
    as_category: list[str] | None = None
    numbers: list[str] | None = None

    def options(self) -> dict[str, Any]:
        """Return the given options of `rfgp.tables.read_table`.

        Raises:
            InvalidArgumentError: If a column of numbers has no example.
        """
        pairs = [entry.rpartition("=") for entry in self.numbers or ()]
        for column, _, example in pairs:
            if not column:
                raise InvalidArgumentError(
                    f"numbers must be a column and an example, got {quoted(example)}. Write one such as 'price=$3.50'."
                )
        columns = {"drop": tuple(self.drop or ()), "as_categories": tuple(self.as_category or ())}
        numbers = {column: example for column, _, example in pairs}
        return {"missing": self.missing, **columns, "numbers": numbers, **super().options()}


@dataclass(frozen=True)
class ModelRequest:
    """The model of a table, as `rfgp.GP` takes it. What is not given is its default.

    Attributes:
        kernel: A sum of terms over named columns, as "RBF(t) + Periodic(t, period=7) + Group(store)"; or auto, which
            selects a kernel by held-out scores.
        approximation: How terms are computed: one value for all, as "RandomFeatures(256)" or Exact; values by term, as
            "trend=Vecchia(30), local=RandomFeatures(128)"; or auto.
        likelihood: The distribution of an observation: auto (Gaussian or Student-t, with one variance or scales that
            depend on the inputs), gaussian, bernoulli (two classes), categorical (several classes), poisson,
            negative-binomial, gamma, student-t or heteroscedastic (the noise is a function of the inputs too).
            [default: auto, with --kernel gaussian]
        inference: The inference if the likelihood is not gaussian: laplace or variational. [default: as usual for it]
        hyperparameter_posterior: How certain hyperparameters are: point (one value of each), integrated (an average
            over their posterior) or auto (integrated for few rows).
        time_limit: The most time of a fit: 30s, 5min, 2h. [default: without --kernel it grows with the rows]
        validate: The rows that a selection predicts: forward for the last ones by date, or a column whose values stay
            together. [default: random rows]
        memory: The most memory of a fit: 500MB, 4GB. [default: 8GB in a selection, else most of the machine's]
    """

    kernel: str = "auto"
    approximation: str = "auto"
    likelihood: Annotated[str | None, among("auto", *names.LIKELIHOODS)] = None
    inference: Annotated[str | None, among(*names.INFERENCES)] = None
    hyperparameter_posterior: Annotated[str, among(*names.POSTERIORS)] = "point"
    time_limit: Annotated[str | None, read_seconds] = None
    validate: str | None = None
    memory: Annotated[str | None, read_bytes] = None
    seed: Seed = 0
