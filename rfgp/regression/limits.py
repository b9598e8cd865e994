"""What a choice may cost: predicted seconds and bytes, and seconds of the clock."""

from dataclasses import dataclass
from typing import Any

from rfgp.counts import read_amount, read_bytes, read_seconds

RATE = 2e10
"""Operations a second: of products and factorisations of matrices in double precision on one core of 2020 or later."""
FIRST, A_ROW, LONGEST = 60.0, 8e-3, 1800.0
"""Seconds that a choice and its fit are allowed, where nobody says: of any table, of each row, and at most."""
MEMORY = 8e9
"""Bytes, where nobody says."""


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
            MEMORY if memory is None else read_bytes("memory", memory),
            None if max_seconds is None else read_amount("max_seconds", max_seconds, {"": 1.0}, "60"),
        )

    def seconds(self, rows: int) -> float:
        """Return the predicted seconds that are allowed for so many rows."""
        return min(FIRST + A_ROW * rows, LONGEST) if self.budget is None else self.budget
