"""Helpers of all commands: consoles, progress, messages, and inputs by path or name."""

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from rfgp.cli import choices
from rfgp.cli.speech import as_options, printable
from rfgp.errors import InvalidArgumentError
from rfgp.files import check_folder, check_target
from rfgp.progress import Bar, Report

console = Console()
error_console = Console(stderr=True)
_STANDARD_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def progress(visible: bool = True) -> Bar:
    """Return a progress bar for the error stream, as a context manager.

    If the stream is not a terminal, lines are printed now and then.

    Args:
        visible: Whether anything is printed.

    Examples:
        >>> with progress(visible=False) as report:
        ...     report("fitting", 1, 2)
    """
    return Bar(visible)


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
    if entry is not None and entry.kind == "graph" and command != "advise":
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


def is_field(file: Path, *others: str) -> bool:
    """Return whether a file or public data set is a mesh, roads or a graph.

    Args:
        file: The path of a file, or the name of a data set.
        others: Further endings of names that count as fields.

    Examples:
        >>> is_field(Path("mesh.ply")), is_field(Path("table.csv"))
        (True, False)
    """
    from rfgp.datasets import CATALOG

    entry = None if check_input(file).exists() else CATALOG.get(str(file))
    if entry is not None:
        return entry.kind in ("mesh", "roads", "graph")
    return file.suffix.lower() in (*choices.MESH_SUFFIXES, *choices.ROAD_SUFFIXES, *others)


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
        "mesh": ("a mesh", choices.MESH_SUFFIXES),
        "traffic": ("roads", choices.ROAD_SUFFIXES),
    }
    suffix = file.suffix.lower()
    kind = next((key for key, (_, endings) in kinds.items() if suffix in endings), None)
    if kind == command or (kind is not None and command not in kinds) or (suffix, command) == (".gml", "advise"):
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


def open_table(
    name: Path,
    target: str | None,
    options: Mapping[str, Any],
    report: Report | None = None,
    finished: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
) -> Any:
    """Return the table of a file or of a public data set.

    Args:
        name: The file, or the name of the data set.
        target: The target column. If None, the last.
        options: Options of `read_table`, in addition to those of a data set.
        report: A function that is called with the progress of a download. If None, there is no report.
        finished: A function from all options to those that are used.
    """
    from rfgp.tables import read_table

    return read_table(resolve(name, "fit", report), target, **finished(table_options(name, options)))


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
