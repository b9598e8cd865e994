"""Parquet files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rfgp.errors import DataError, requires_extra
from rfgp.limits import limits
from rfgp.messages import counted
from rfgp.tables.columns import Frame, is_readable
from rfgp.tables.content import check_file
from rfgp.tables.messages import check_unique, one_line, title, unreadable
from rfgp.tables.options import TextFormat

_MAGIC = b"PAR1"
"""The first bytes of a Parquet file."""


@contextmanager
def opened(file: Path, **options: Any) -> Iterator[Any]:
    """Open a Parquet file, and convert errors inside the context.

    Args:
        file: The file.
        options: Options of `pyarrow.parquet.ParquetFile`.

    Yields:
        The open `pyarrow.parquet.ParquetFile`.

    Raises:
        DataError: If the file is missing, not Parquet, damaged, or has two columns of the same name.

    Examples:
        >>> import tempfile
        >>> import pyarrow as pa
        >>> import pyarrow.parquet
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "t.parquet"
        ...     pa.parquet.write_table(pa.table({"a": [1, 2]}), file)
        ...     with opened(file) as parquet:
        ...         parquet.metadata.num_rows
        2
    """
    with requires_extra("tables"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    check_file(file)
    try:
        with file.open("rb") as stream:
            if stream.read(len(_MAGIC)) != _MAGIC:
                raise unreadable(file, "its name says Parquet, and it does not begin as such a file.")
        with pq.ParquetFile(file, **options) as parquet:
            check_unique(file, [name.strip() for name in parquet.schema_arrow.names])
            yield parquet
    except PermissionError as error:
        raise unreadable(file, "permission denied.") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        raise unreadable(
            file, f"the Parquet data are damaged or end too early ({one_line(error)}); fetch it again."
        ) from error


def read_parquet_frame(file: Path, text_format: TextFormat) -> Frame:
    """Return the columns of a Parquet file.

    Args:
        file: The file.
        text_format: The format of text cells.

    Raises:
        DataError: If the file is missing, not Parquet, damaged, without rows or columns, or too large.

    Examples:
        >>> import tempfile
        >>> import pandas as pd
        >>> with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        ...     pd.DataFrame({"size": [1, 2]}).to_parquet(file.name)
        ...     read_parquet_frame(Path(file.name), TextFormat()).names
        ('size',)
    """
    with requires_extra("tables"):
        import pyarrow as pa

    with opened(file) as parquet:
        fields, num_rows = list(parquet.schema_arrow), parquet.metadata.num_rows
    if not fields:
        raise DataError(f"{title(file)} has no columns.")
    if num_rows == 0:
        raise DataError(f"{title(file)} has columns and no rows.")
    if not 0 < num_rows * len(fields) * 8 <= limits().max_file_bytes:
        claim = f"its footer claims {counted(num_rows, 'row')} and {counted(len(fields), 'column')}"
        raise unreadable(file, f"{claim}, which is more than {limits().max_file_bytes:,} bytes.")
    texts = [field.name for field in fields if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]
    wanted = [field.name for field in fields if is_readable(field.type)]
    with opened(file, read_dictionary=texts) as parquet:  # a long text that is repeated is short there
        table = parquet.read(columns=wanted, use_pandas_metadata=False)
        table.validate(full=True)
    sources = dict(zip(table.column_names, table.columns, strict=True))
    cells = [sources.get(field.name, field.type) for field in fields]
    return Frame(file, tuple(field.name.strip() for field in fields), True, cells, table.num_rows, text_format)
