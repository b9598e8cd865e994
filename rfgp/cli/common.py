"""Helpers of all commands: messages, files and public data sets to read, and checks before torch is loaded."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from rfgp import names
from rfgp.cli.speech import as_options, printable
from rfgp.errors import InvalidArgumentError, ModelFileError
from rfgp.files import check_folder, check_target
from rfgp.progress import Report

console = Console()
error_console = Console(stderr=True)
_MODEL_HEAD = 8
"""Bytes before the JSON with which a saved model begins."""
_STANDARD_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def fail(message: str) -> NoReturn:
    """Print a message on the error stream, and exit with code 1.

    Args:
        message: The message.
    """
    error_console.print(
        f"Error: {as_options(printable(message))}", style="red", markup=False, soft_wrap=True, highlight=False
    )
    sys.exit(1)


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


class Input:
    """A file that a command reads, or a public data set by its name.

    Args:
        name: The path of the file, or the name of the data set.

    Attributes:
        name: The path or the name.
        kind: "table", "mesh", "roads" or "graph" by the ending of the file, or None.

    Raises:
        InvalidArgumentError: If the path is a pipe, a device or "-".

    Examples:
        >>> Input(Path("mesh.ply")).kind, Input(Path("airfoil")).kind
        ('mesh', 'table')
        >>> Input(Path("bikes")).name.name  # a file of the package
        'bikes.csv'
    """

    def __init__(self, name: Path) -> None:
        from rfgp.datasets import CATALOG

        self.name = check_input(name)
        self._entry = None if name.exists() else CATALOG.get(str(name))
        packaged = self._entry.packaged if self._entry is not None and self._entry.kind == "frame" else None
        if packaged is not None:
            self.name, self._entry, name = packaged, None, packaged
        self._file = name if self._entry is None else Path(self._entry.file)
        suffix = self._file.suffix.lower()
        self.kind = next((kind for kind, (_, _, endings) in _kinds().items() if suffix in endings), None)

    @property
    def stem(self) -> str:
        """The name without its endings.

        Examples:
            >>> Input(Path("data/table.csv.gz")).stem
            'table'
        """
        return Path(self.name.name.removesuffix(".gz")).stem

    def check(self, command: str, *kinds: str) -> "Input":
        """Return the input, after a check that it exists and is of one of some kinds.

        Args:
            command: The command that reads it.
            *kinds: The kinds that the command reads.

        Raises:
            InvalidArgumentError: If there is neither a file nor a data set, or it is for another command.
        """
        from rfgp.datasets import describe

        name, known = self.name, _kinds()
        is_missing = self._entry is None and not name.exists()
        if is_missing and not name.suffix:
            try:
                describe(str(name))
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"There is no file {name}. {error}") from None
        what = " or ".join(", ".join(known[kind][1] for kind in kinds).rsplit(", ", 1))
        if self.kind == "graph" and "graph" not in kinds:
            raise InvalidArgumentError(
                f"{name} is a graph without values, and `rfgp {command}` needs {what}. `rfgp fit {name} --dry-run` "
                "selects features of its nodes."
            )
        if self.kind is not None and self.kind not in kinds:
            reader, noun, _ = known[self.kind]
            raise InvalidArgumentError(
                f"{name} is {noun} by its ending ({self._file.suffix}): `rfgp {reader}` reads that, `rfgp {command}` "
                f"needs {what}."
            )
        if is_missing:
            raise InvalidArgumentError(f"There is no file {name}.")
        if self.kind is None and not name.is_dir():
            endings = ", ".join(ending for kind in kinds for ending in known[kind][2])
            raise InvalidArgumentError(
                f"{name} must be {what}, got the ending {self._file.suffix!r}. Known endings are {endings}."
            )
        return self

    def path(self, report: Report | None = None) -> Path:
        """Return the path of the file, after a download if it is a data set that is not here yet.

        Args:
            report: A function that is called with the progress of a download. If None, there is no report.
        """
        from rfgp.datasets import fetch

        return self.name if self._entry is None else fetch(str(self.name), progress=report)

    def table_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of `read_table`, including those of a public data set.

        Args:
            given: The options of the user.

        Examples:
            >>> Input(Path("table.csv")).table_options({"drop": ("id",)})
            {'drop': ('id',)}
        """
        if self._entry is None:
            return dict(given)
        needed = self._entry.table_options
        both = {name: (*needed[name], *given.get(name, ())) for name in ("drop", "as_categories")}
        return {**needed, **given, **both}

    def columns(
        self, target: str | None, reading: Mapping[str, Any], others: Iterable[str | None] = ()
    ) -> tuple[str, ...] | None:
        """Return the names of the columns of a table, or None if the file must be read to find them.

        The options and the names of columns are checked. Only the first lines of a text file or the footer of a Parquet
        file are read. Public data sets are not opened.

        Args:
            target: The target column. If None, the last.
            reading: Options of `read_table`.
            others: The names of further columns, or None.

        Raises:
            InvalidArgumentError: If an option is invalid, or a column does not exist.
            DataError: If the file is empty or something else.
        """
        from rfgp.tables.options import PARQUET_SUFFIXES, TEXT_SUFFIXES, ReadOptions
        from rfgp.tables.text import find_column, opened, peek_names

        request, columns, suffix = ReadOptions(target, **reading), None, self.name.suffix.lower()
        if self._entry is None and suffix in TEXT_SUFFIXES:
            columns = peek_names(self.name, request)
        elif self._entry is None and suffix in PARQUET_SUFFIXES:
            with opened(self.name) as parquet:
                columns = tuple(name.strip() for name in parquet.schema_arrow.names)
        for wanted in (target, *others, *request.drop, *request.as_categories):
            if columns is not None and wanted is not None:
                find_column(columns, wanted)
        return columns


def _kinds() -> dict[str, tuple[str, str, Sequence[str]]]:
    """Return the command that reads a kind of file, its noun with an article, and its endings, by kind."""
    from rfgp.tables.options import TABLE_SUFFIXES

    return {
        "table": ("fit", "a table", TABLE_SUFFIXES),
        "mesh": ("mesh", "a mesh", names.MESH_SUFFIXES),
        "roads": ("traffic", "roads", names.ROAD_SUFFIXES),
        "graph": ("fit --dry-run", "a graph", (".gml",)),
    }


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
