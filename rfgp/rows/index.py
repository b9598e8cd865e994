"""Columns that are the index of a dataframe, which pandas writes to files without a name and reads as a column."""

import re
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.errors import IndexColumnWarning

_NAMES = re.compile(r"(?:Unnamed: \d+(?:\.\d+)*|__index_level_\d+__)?")


def is_index_name(name: str) -> bool:
    """Return whether a column has no name of its own but one that pandas or Parquet give an index."""
    return _NAMES.fullmatch(name.strip()) is not None


def counts_rows(
    values: NDArray[Any],  # (n,)
) -> bool:
    """Return whether a column counts its rows, from 0 as pandas does or from 1 as R does."""
    if values.dtype.kind not in "fiu" or len(values) < 2 or values[0] not in (0, 1):
        return False
    return bool(np.array_equal(values, values[0] + np.arange(len(values))))


def warn_of_index(where: str, name: str, is_left_out: bool, drop: str, stacklevel: int) -> None:
    """Warn of a column that is an index by its name.

    Args:
        where: The file, or what else has the column.
        name: The column's name.
        is_left_out: Whether it counts the rows and is left out, rather than being an input.
        drop: What leaves it out.
        stacklevel: As for `warnings.warn`.
    """
    said = f"{where}: column {name!r} is an input, though it has no name and may be an index. Leave it out with {drop}"
    if is_left_out:
        said = (
            f"{where}: column {name!r} is left out: it has no name and counts the rows, as an index does. Write files"
        )
        said += " with DataFrame.to_csv(index=False)"
    warnings.warn(IndexColumnWarning(f"{said}, or give it a name to use it."), stacklevel=stacklevel)
