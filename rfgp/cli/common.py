"""Helpers of all commands: consoles, progress, messages, and inputs by path or name."""

import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from rfgp import names
from rfgp.cli.speech import as_options, printable
from rfgp.errors import InvalidArgumentError, ModelFileError
from rfgp.files import check_folder, check_target
from rfgp.messages import check_choice
from rfgp.progress import Report

console = Console()
error_console = Console(stderr=True)
_MODEL_HEAD = 8
"""Bytes before the JSON with which a saved model begins."""
_STANDARD_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def fail(message: str, code: int = 1) -> NoReturn:
    """Print a message on the error stream and exit.

    Args:
        message: The message.
        code: The exit code.
    """
    error_console.print(
        f"Error: {as_options(printable(message))}", style="red", markup=False, soft_wrap=True, highlight=False
    )
    sys.exit(code)


def show_warning(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning as one line on the error stream.

    Args:
        message: The warning.
        category: The class of the warning.
    """
    text = f"{category.__name__}: {as_options(printable(str(message)))}"
    error_console.print(text, style="yellow", markup=False, soft_wrap=True, highlight=False)


def say(text: str, *, as_json: bool = False) -> None:
    """Print a line of text for users.

    If standard output is for programs, it is printed on the error stream.

    Args:
        text: The line.
        as_json: Whether standard output is for programs.

    Examples:
        >>> say("3 rows were dropped.")
        3 rows were dropped.
    """
    (error_console if as_json else console).print(printable(text), markup=False, highlight=False, soft_wrap=True)


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output.

    Args:
        content: The object.

    Examples:
        >>> print_json({"rows": 3})
        {
         "rows": 3
        }
    """
    print(json.dumps(content, indent=1, allow_nan=False, default=str))


def check_input(path: Path) -> Path:
    """Return the path of an input, after a check that it is not a pipe or a device.

    Args:
        path: The path.

    Raises:
        InvalidArgumentError: If the path is a pipe, a device or "-".

    Examples:
        >>> check_input(Path("table.csv")).name
        'table.csv'
    """
    is_standard = str(path) in _STANDARD_INPUT
    if is_standard or (path.exists() and not (path.is_file() or path.is_dir())):
        what = "Standard input" if is_standard else f"{path}, a pipe or a device,"
        raise InvalidArgumentError(f"{what} is not read. Save what it holds to a file, and name that file.")
    return path


def known_input(name: Path, command: str) -> bool:
    """Return whether a name is a file and not a public data set.

    Args:
        name: The path of a file, or the name of a data set.
        command: The command that reads it.

    Raises:
        InvalidArgumentError: If there is neither a file nor a data set, or it is for another command.
    """
    from rfgp.datasets import CATALOG, describe

    entry = None if check_input(name).exists() else CATALOG.get(str(name))
    if entry is not None and entry.kind == "graph":
        raise InvalidArgumentError(f"{name} is a graph without values, which no command reads.")
    if entry is None and not name.exists() and not name.suffix:
        try:
            describe(str(name))
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"There is no file {name}. {error}") from None
    _check_ending(Path(name if entry is None else entry.file), name, command)
    if entry is None and not name.exists():
        raise InvalidArgumentError(f"There is no file {name}.")
    return entry is None


def is_field(file: Path) -> bool:
    """Return whether a file or public data set is a mesh or roads.

    Args:
        file: The path of a file, or the name of a data set.

    Examples:
        >>> is_field(Path("mesh.ply")), is_field(Path("table.csv"))
        (True, False)
    """
    from rfgp.datasets import CATALOG

    entry = None if check_input(file).exists() else CATALOG.get(str(file))
    name = file if entry is None else Path(entry.file)
    return name.suffix.lower() in (*names.MESH_SUFFIXES, *names.ROAD_SUFFIXES)


def resolve(name: Path, command: str, report: Report | None = None) -> Path:
    """Return the path of a file or of a public data set, for a command.

    Args:
        name: The path of a file, or the name of a data set.
        command: The command that reads it.
        report: A function that is called with the progress of a download. If None, there is no report.

    Raises:
        InvalidArgumentError: If there is neither a file nor a data set, or it is for another command.
    """
    from rfgp.datasets import fetch

    return name if known_input(name, command) else fetch(str(name), progress=report)


def _check_ending(file: Path, name: Path, command: str) -> None:
    """Check that a file is not for another command, by its ending.

    Raises:
        InvalidArgumentError: If the file is for another command, which the message names, or its ending is unknown.
    """
    from rfgp.tables.options import TABLE_SUFFIXES

    kinds = {
        "fit": ("a table", TABLE_SUFFIXES),
        "mesh": ("a mesh", names.MESH_SUFFIXES),
        "traffic": ("roads", names.ROAD_SUFFIXES),
    }
    suffix = file.suffix.lower()
    kind = next((key for key, (_, endings) in kinds.items() if suffix in endings), None)
    if kind == command or (kind is not None and command not in kinds):
        return
    usual = ("a table, a mesh or roads", tuple(ending for _, endings in kinds.values() for ending in endings))
    what, endings = kinds.get(command, usual)
    if kind is not None:
        raise InvalidArgumentError(
            f"{name} is {kinds[kind][0]} by its ending ({file.suffix}): `rfgp {kind}` reads that, `rfgp {command}` "
            f"needs {what}."
        )
    if name.exists() and not name.is_dir():
        raise InvalidArgumentError(
            f"{name} must be {what}, got the ending {file.suffix!r}. Known endings are {', '.join(endings)}."
        )


def table_options(name: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `read_table`, including those of a public data set.

    Args:
        name: The path of a file, or the name of a data set.
        options: The options of the user.

    Examples:
        >>> table_options(Path("table.csv"), {"drop": ("id",)})
        {'drop': ('id',)}
    """
    from rfgp.datasets import CATALOG

    entry = None if name.exists() else CATALOG.get(str(name))
    if entry is None or entry.kind not in ("table", "classification"):
        return dict(options)
    needed = entry.table_options
    return {**needed, **options} | {name: (*needed[name], *options.get(name, ())) for name in ("drop", "as_categories")}


def check_outputs(outputs: Iterable[Path], inputs: Iterable[Path | None], *, makes_folder: bool = True) -> None:
    """Check that outputs are not inputs and can be written, before the computation.

    Args:
        outputs: The files to write.
        inputs: The files to read.
        makes_folder: Whether the missing folder of an output will be created.

    Raises:
        InvalidArgumentError: If an output is an input.
        FileWriteError: If an output cannot be written.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     check_outputs([Path(folder) / "report.html"], [None])  # no error
    """
    read = [path for path in inputs if path is not None and path.exists()]
    for path in outputs:
        for given in read:
            if path.exists() and path.samefile(given):
                raise InvalidArgumentError(
                    f"{path} would be written over {given}, which is read. Choose another --out."
                )
        if path.parent.is_dir() or not makes_folder:
            check_target(path)
        else:
            check_folder(path.parent)


def stem(file: Path) -> str:
    """Return the name of a file without its endings.

    Args:
        file: The file.

    Examples:
        >>> stem(Path("data/table.csv.gz"))
        'table'
    """
    return Path(file.name.removesuffix(".gz")).stem


def command_line() -> str:
    """Return the current command as a line for a shell.

    Examples:
        >>> command_line().startswith("rfgp")
        True
    """
    return " ".join(["rfgp", *map(_quoted, sys.argv[1:])])


def _quoted(word: str) -> str:
    """Return a word quoted for a shell."""
    is_simple = "'" in word and word.isprintable() and not set(word) & set('"$`\\!')
    return f'"{word}"' if is_simple else shlex.quote(word)


def print_study(study: Any, noun: str) -> None:
    """Print the main scores of a study.

    Args:
        study: The study.
        noun: The noun of an observation, such as "row".
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from rfgp.report.page import sentence
    from rfgp.report.sections import cards, repeats

    shown = Table(title=Text(printable(study.title)), box=box.SIMPLE, show_header=False, pad_edge=False)
    for name, figure, remark in cards(study, noun):
        shown.add_row(name, Text(figure, style="bold"), Text(remark, style="dim"))
    console.print(shown)
    say(" ".join(filter(None, (repeats(study), sentence("convergence", fit=study.model.fit_report)))))
    for note in study.notes:
        say(note)


# --- Files, looked into before torch is loaded ------------------------------------------------------------------------


def check_table(
    file: Path,
    target: str | None,
    reading: Mapping[str, Any],
    command: str = "fit",
    others: Iterable[str | None] = (),
) -> tuple[str, ...] | None:
    """Return the names of the columns of a table, or None if the file must be read to find them.

    The options, the file and the names of columns are checked. Only the first lines of a text file or the footer of a
    Parquet file are read. Public data sets are not opened.

    Args:
        file: The file, or the name of a public data set.
        target: The target column. If None, the last.
        reading: Options of `read_table`.
        command: The command, for messages.
        others: The names of further columns, or None.

    Raises:
        InvalidArgumentError: If an option is invalid, or the file or a column does not exist.
        DataError: If the file is missing, empty or something else.
    """
    from rfgp.tables.options import ReadOptions
    from rfgp.tables.text import find_column

    request = ReadOptions(target, **reading)
    if not known_input(file, command):
        return None
    columns = _names(file, request)
    for wanted in (target, *others, *request.drop, *request.as_categories):
        if columns is not None and wanted is not None:
            find_column(columns, wanted)
    return columns


def check_inputs(file: Path, missing: str | None, form: Mapping[str, Any]) -> None:
    """Check the file and the options of a table for predictions.

    Args:
        file: The file.
        missing: The policy for missing cells, or None.
        form: Options of `read_table` about the format of the file.

    Raises:
        InvalidArgumentError: If an option is invalid, or the ending of the name is not that of a table.
        DataError: If the file is missing, empty or something else.

    Examples:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _, _ = file.write("1,2"), file.flush()
        ...     check_inputs(Path(file.name), "drop", {})  # no error
    """
    from rfgp.messages import unquoted
    from rfgp.tables.options import CHOICES, TABLE_SUFFIXES, TextFormat
    from rfgp.tables.text import check_file

    if missing is not None:
        check_choice("missing", missing, CHOICES["missing"])
    TextFormat(**form)
    check_file(file)
    if file.suffix.lower() not in TABLE_SUFFIXES:
        endings = ", ".join(TABLE_SUFFIXES)
        raise InvalidArgumentError(f"The ending of the file must be one of {endings}, got {unquoted(file.name)}.")


def _names(file: Path, form: Any) -> tuple[str, ...] | None:
    """Return the names in the header of a table, or None if the file must be read to find them."""
    from rfgp.tables.options import PARQUET_SUFFIXES, TEXT_SUFFIXES
    from rfgp.tables.text import peek_names

    suffix = file.suffix.lower()
    if suffix in PARQUET_SUFFIXES:
        from rfgp.tables.text import opened

        with opened(file) as parquet:
            return tuple(name.strip() for name in parquet.schema_arrow.names)
    return peek_names(file, form) if suffix in TEXT_SUFFIXES else None


def check_model_file(path: Path) -> None:
    """Check that a file begins like a saved model.

    Args:
        path: The file.

    Raises:
        ModelFileError: If the file is missing, a folder, or not a model.

    Examples:
        >>> check_model_file(Path("absent.safetensors"))
        Traceback (most recent call last):
            ...
        rfgp.errors.ModelFileError: There is no file absent.safetensors.
    """
    check_input(path)
    if path.is_dir():
        raise ModelFileError(
            f"The model must be a file, got the folder {path}. Name a file, such as {path / 'model.safetensors'}."
        )
    if not path.exists():
        raise ModelFileError(f"There is no file {path}.")
    with path.open("rb") as stream:
        begin = stream.read(_MODEL_HEAD + 1)
    if begin[_MODEL_HEAD:] != b"{":
        raise ModelFileError(f"{path} is not a saved model. Name the model.safetensors that `rfgp fit` wrote.")


def typed_again(*dropped: str, **added: str | None) -> str:
    """Return the current command as a line for a shell, with other options.

    Args:
        *dropped: The flags to leave out, with their values.
        **added: The options to add, by name, instead of those of the command. If None, an option is left out.
    """
    gone, kept, skip = {*dropped, *(f"--{name}" for name in added)}, [], False
    for word in sys.argv[1:]:
        name = word.partition("=")[0]
        if not skip and name not in gone:
            kept.append(word)
        skip = not skip and name in gone and "=" not in word and name not in ("--dry-run", "--json")
    words = [word for name, value in added.items() if value is not None for word in (f"--{name}", value)]
    return shlex.join(["rfgp", *kept, *words])


def print_selection(selection: Any, command: str, as_json: bool) -> None:
    """Print a selection, and the command that fits the best candidate.

    Args:
        selection: The report on the selection.
        command: The command.
        as_json: Whether to print JSON.
    """
    if not as_json:
        if (baseline := selection.unbeaten_baseline) is not None:
            say(f"No candidate beat {baseline}. The inputs may not be informative.")
        for line in (selection.reason, *selection.table()):
            say(line)
        say("Seconds are those of a fit to all rows, as predicted for one core.")
        if selection.weights:
            say("The command selects again, since the best is an average.")
        say(f"Type: {command}")
        return
    trials = [
        {
            "name": trial.name,
            "options": dict(trial.options),
            selection.measure.replace(" ", "_"): None if trial.last is None else trial.last.value,
            "standard_error": None if trial.last is None else trial.last.error,
            "rows": None if trial.last is None else trial.last.rows,
            "seconds": trial.seconds,
            "bytes": trial.memory,
            "status": trial.status,
        }
        for trial in selection.trials
    ]
    content = {
        "best": selection.chosen.name,
        "weights": selection.parts,
        "reason": selection.reason,
        "candidates": trials,
        "baselines": {name: baseline.value for name, baseline in selection.baselines.items()},
    }
    print_json({**content, "command": command})
