"""What the user asked of a fit."""

from dataclasses import dataclass, field

from rfgp.counts import check_count
from rfgp.fitting.checkpoint import Journal
from rfgp.fitting.progress import Reporter


@dataclass(frozen=True)
class Plan:
    """What the user asked of a fit.

    Attributes:
        fixed: Names of hyperparameters that stay.
        given_iterations: The most iterations and steps, where the user said.
        reporter: Told of each iteration.
        journal: Remembers what has been computed.
    """

    fixed: tuple[str, ...] = ()
    given_iterations: int | None = None
    reporter: Reporter = field(default_factory=Reporter)
    journal: Journal = field(default_factory=Journal)

    def __post_init__(self) -> None:
        check_count("max_iterations", self.max_iterations, least=0)

    @property
    def max_iterations(self) -> int:
        """The most iterations of L-BFGS on any set of rows."""
        return 500 if self.given_iterations is None else self.given_iterations

    @property
    def steps(self) -> int:
        """The steps of learning frequencies."""
        return 300 if self.given_iterations is None else self.given_iterations
