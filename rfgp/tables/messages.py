"""Helpers that quote files and cells in messages."""

from collections.abc import Sequence
from pathlib import Path

from rfgp.errors import DataError
from rfgp.messages import counted as counted
from rfgp.messages import did_you_mean as did_you_mean
from rfgp.messages import listed as listed
from rfgp.messages import one_line as one_line
from rfgp.messages import printable as printable
from rfgp.messages import quoted as quoted
from rfgp.messages import unquoted as unquoted


def title(file: Path | str) -> str:
    """Return the path of a file, or the name of a dataframe, as text for messages.

    Args:
        file: The file, or the name.

    Examples:
        >>> title("table.csv")
        'table.csv'
    """
    return printable(str(file))


def check_unique(file: Path, names: Sequence[str]) -> None:
    """Check that the columns of a file have different names.

    Args:
        file: The file.
        names: The names of its columns.

    Raises:
        DataError: If two columns have the same name.

    Examples:
        >>> check_unique(Path("table.csv"), ["size", "price"])  # no error
    """
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{title(file)} has two columns named {quoted(twice)}. Rename one.")


def unreadable(file: Path, why: str) -> DataError:
    """Return the error for a file that is not a table.

    Args:
        file: The file.
        why: The reason, which ends the message.

    Examples:
        >>> str(unreadable(Path("table.csv"), "it is a picture."))
        'table.csv is not a table that can be read: it is a picture.'
    """
    return DataError(f"{title(file)} is not a table that can be read: {why}")
