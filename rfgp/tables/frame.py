"""A file's columns before they are encoded."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rfgp.errors import DataError, InvalidArgumentError
from rfgp.tables.cells import Column, is_known, to_column
from rfgp.tables.messages import listed, plain, show, title
from rfgp.tables.options import TextFormat


@dataclass(frozen=True, eq=False)
class Frame:
    """The columns of a file.

    Attributes:
        file: The file.
        names: The columns' names; "0", "1", ... where the file has no header.
        header: Whether the file has names.
        sources: An Arrow array (n,) for each column; an Arrow type where the column cannot be read.
        num_rows: n.
        form: How text cells are spelled.
    """

    file: Path
    names: tuple[str, ...]
    header: bool
    sources: Sequence[Any]
    num_rows: int
    form: TextFormat

    def column(self, place: int) -> Column:
        """Return the column at a position.

        Raises:
            DataError: its type cannot become numbers.
        """
        import pyarrow as pa

        source = self.sources[place]
        if isinstance(source, pa.DataType) or not is_known(source.type):
            kind = plain(str(source if isinstance(source, pa.DataType) else source.type))
            raise self.error(place, f"holds values of type {kind}, which cannot become numbers. {self.drop(place)}")
        return to_column(source, self.form.missing_marks, self.form.decimal)

    def error(self, place: int, why: str) -> DataError:
        """Return an error that names the column at a position."""
        return DataError(f"{title(self.file)}: column {show(self.names[place])} {why}")

    def drop(self, place: int) -> str:
        """Return the advice to leave a column out."""
        return f"Leave it out with drop={place if not self.header else show(self.names[place])}."

    def find(self, wanted: str | int) -> int:
        """Return the position of a column given by name or position (negative: from the end).

        Raises:
            InvalidArgumentError: there is no such column.
        """
        if isinstance(wanted, str) and wanted in self.names:
            return self.names.index(wanted)
        width = len(self.names)
        try:
            place = int(wanted)
        except ValueError:
            place = width
        if -width <= place < width and not isinstance(wanted, bool):
            return place % width
        raise InvalidArgumentError(f"There is no column {show(str(wanted))}; the columns are {listed(self.names)}.")

    def check_names(self, places: Sequence[int]) -> None:
        """Check that the columns at these positions have different names.

        Raises:
            DataError: two have the same name.
        """
        seen: dict[str, int] = {}
        for place in places:
            first = seen.setdefault(self.names[place], place)
            if first != place:
                raise DataError(
                    f"{title(self.file)} has two columns named {show(self.names[place])}, at positions {first} and "
                    f"{place}. Rename one or leave it out with drop={place}."
                )
