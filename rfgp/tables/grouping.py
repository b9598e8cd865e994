"""Groups of rows that share the value of a column."""

from pathlib import Path
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from rfgp.tables.options import PARQUET_SUFFIXES, ReadOptions, TableOptions
from rfgp.tables.parquet import read_parquet_frame
from rfgp.tables.text import read_text


def read_groups(
    path: str | Path,
    column: str | int,
    *,
    rows: NDArray[np.int64] | None = None,  # (n,)
    **options: Unpack[TableOptions],
) -> NDArray[np.int64]:
    r"""Return the group number of each row (n,), by the value of a column.

    Args:
        path: The file.
        column: The name or position of a column of numbers, dates or texts.
        rows: The rows of interest (n,), such as `Table.rows`. The column may have missing cells in other rows. If None,
            all N rows.
        **options: Options of `read_table`. Only those about the format of the file have an effect.

    Returns:
        Group numbers (n,), from 0.

    Raises:
        DataError: If the file cannot be read, or the column has missing cells.
        InvalidArgumentError: If there is no such column.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder) / "table.csv"
        ...     _ = file.write_text("station,level\nnorth,1\nsouth,2\nnorth,3\n")
        ...     read_groups(file, "station").tolist()
        [0, 1, 0]
    """
    file, request = Path(path), ReadOptions(**options)
    is_parquet = file.suffix.lower() in PARQUET_SUFFIXES
    frame = (
        read_parquet_frame(file, request.format) if is_parquet else read_text(file, request.format, names=request.names)
    )
    texts = frame.column(frame.find(column)).as_text()
    chosen = np.arange(len(texts.cells)) if rows is None else rows
    missing = np.asarray(texts.missing)[chosen]
    if missing.any():
        row = int(chosen[missing][0])
        raise texts.error(f"has no value in row {row}, so that its group is unknown. Give each row a value.")
    values = np.array([str(value) for value in texts.cells.to_pylist()])
    return np.unique(values[chosen], return_inverse=True)[1].reshape(-1)
