"""Parquet files."""

from pathlib import Path
from typing import Any

from rfgp.errors import DataError
from rfgp.tables import content
from rfgp.tables.cells import is_known
from rfgp.tables.content import check_file
from rfgp.tables.frame import Frame
from rfgp.tables.messages import plain, title, unreadable
from rfgp.tables.options import TextFormat

_MOST_COLUMNS = 100_000
_MAGIC = b"PAR1"


def read_parquet_frame(file: Path, form: TextFormat) -> Frame:
    """Read the columns of a Parquet file.

    Raises:
        DataError: the file is missing, no Parquet, damaged, without rows or columns, or too large.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_file(file)
    try:
        check_magic(file)
        with pq.ParquetFile(file) as parquet:
            return _read(file, parquet, form)
    except PermissionError as error:
        raise unreadable(file, "permission denied.") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        raise unreadable(file, f"the Parquet data are damaged ({plain(str(error))}).") from error


def check_magic(file: Path) -> None:
    """Check the marks at both ends of a Parquet file.

    Raises:
        DataError: one of them is missing.
    """
    with file.open("rb") as stream:
        head = stream.read(4)
        stream.seek(max(0, file.stat().st_size - 4))
        tail = stream.read(4)
    if head != _MAGIC:
        raise unreadable(file, "its name says Parquet, and it does not begin as such a file.")
    if tail != _MAGIC or file.stat().st_size < 12:
        raise unreadable(file, "it begins as a Parquet file and ends too early; fetch it again.")


def _read(file: Path, parquet: Any, form: TextFormat) -> Frame:
    fields = list(parquet.schema_arrow)
    num_rows, width = parquet.metadata.num_rows, len(fields)
    if width == 0:
        raise DataError(f"{title(file)} has no columns.")
    if num_rows == 0:
        raise DataError(f"{title(file)} has columns and no rows.")
    if width > _MOST_COLUMNS:
        raise unreadable(file, f"it has {width:,} columns, more than {_MOST_COLUMNS:,}.")
    if num_rows < 0 or num_rows * width * 8 > content.MOST_BYTES:
        found = f"its footer claims {num_rows:,} rows and {width:,} columns"
        raise unreadable(file, f"{found}, which is more than {content.MOST_BYTES:,} bytes.")
    names = [field.name.strip() for field in fields]
    if len({field.name for field in fields}) < width:
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{title(file)} has two columns named {plain(twice)!r}. Rename one.")
    sources = _load(file, fields, num_rows, form)
    return Frame(file, tuple(names), True, sources, num_rows, form)


def _load(file: Path, fields: list[Any], num_rows: int, form: TextFormat) -> list[Any]:
    """Read the columns whose types are known; texts as dictionaries, for a long text repeated is short there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [f.name for f in fields if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
    known = [f.name for f in fields if is_known(f.type)]
    with pq.ParquetFile(file, read_dictionary=texts) as parquet:
        table = parquet.read(columns=known, use_pandas_metadata=False)
    if table.num_rows != num_rows and known:
        raise unreadable(file, f"its footer claims {num_rows:,} rows and it holds {table.num_rows:,}.")
    sources = dict(zip(table.column_names, table.columns, strict=True))
    for name in sources:
        sources[name].validate(full=True)
        _check_texts(file, name, sources[name])
    return [sources.get(field.name, field.type) for field in fields]


def _check_texts(file: Path, name: str, column: Any) -> None:
    """Check that the texts, each written out, stay below the limit."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type) or not pa.types.is_string(column.type.value_type):
        return
    total = 0
    for chunk in column.chunks:
        lengths = pc.binary_length(chunk.dictionary)
        total += pc.sum(pc.cast(lengths.take(chunk.indices), pa.int64())).as_py() or 0
    if total > content.MOST_BYTES:
        raise unreadable(file, f"column {plain(name)!r} holds {total:,} bytes of text.")
