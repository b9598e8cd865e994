"""Helpers that quote files and cells in messages."""

from pathlib import Path

from rfgp.counts import counted as counted
from rfgp.errors import DataError
from rfgp.messages import brief as brief
from rfgp.messages import like as like
from rfgp.messages import listed as listed
from rfgp.messages import plain as plain
from rfgp.messages import printable as printable
from rfgp.messages import show as show


def title(file: Path | str) -> str:
    """Return a file's path, or the name of a dataframe, as a message shows it.

    Example:
        >>> title("table.csv")
        'table.csv'
    """
    return printable(str(file))


def unreadable(file: Path, why: str) -> DataError:
    """Return the error for a file that is not a table.

    Example:
        >>> str(unreadable(Path("table.csv"), "it is a picture."))
        'table.csv is not a table that can be read: it is a picture.'
    """
    return DataError(f"{title(file)} is not a table that can be read: {why}")
