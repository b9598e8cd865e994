"""What a choice may cost: predicted seconds and bytes, and seconds of the clock."""

import math
import re
from dataclasses import dataclass
from typing import Any

from rfgp.errors import InvalidArgumentError

RATE = 2e10
"""Operations a second: of products and factorisations of matrices in double precision on one core of 2020 or later."""
FIRST, A_ROW, LONGEST = 60.0, 8e-3, 1800.0
"""Seconds that a choice and its fit are allowed, where nobody says: of any table, of each row, and at most."""
MEMORY = 8e9
"""Bytes, where nobody says."""
_UNITS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}
_SIZES = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9}


@dataclass(frozen=True)
class Limits:
    """What a choice and the fit of the best may cost.

    Attributes:
        budget: Predicted seconds; None: as many as suit the rows.
        memory: Predicted bytes.
        max_seconds: Seconds of the clock, after which nothing more is measured; None: no such end.
    """

    budget: float | None = None
    memory: float = MEMORY
    max_seconds: float | None = None

    @classmethod
    def of(cls, budget: Any, memory: Any, max_seconds: Any) -> "Limits":
        """Return the limits that a user gives, as "30s", "5min" and "2h", or "500MB" and "4GB", or as numbers.

        Raises:
            InvalidArgumentError: one cannot be read, or is not positive.
        """
        return cls(
            None if budget is None else read_seconds("budget", budget),
            MEMORY if memory is None else _read("memory", memory, _SIZES, '"500MB" or "4GB"'),
            None if max_seconds is None else _read("max_seconds", max_seconds, {"": 1.0}, "60"),
        )

    def seconds(self, rows: int) -> float:
        """Return the predicted seconds that are allowed for so many rows."""
        return min(FIRST + A_ROW * rows, LONGEST) if self.budget is None else self.budget


def read_seconds(name: str, value: Any) -> float:
    """Return the seconds of "30s", "5min" or "2h", or of a number.

    Raises:
        InvalidArgumentError: they cannot be read, or are not positive.
    """
    return _read(name, value, _UNITS, '"30s", "5min" or "2h"')


def _read(name: str, value: Any, units: dict[str, float], such: str) -> float:
    said = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", str(value).lower())
    try:
        number = float(said[1]) * units[said[2]] if said else math.nan
    except (KeyError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not 0 < number < math.inf:
        raise InvalidArgumentError(f"{name} must be such as {such}, or a positive number, got {value!r}.")
    return number
