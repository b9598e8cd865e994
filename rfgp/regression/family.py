"""Which prior the inputs of a regression have: the role of a family, and its duties."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.inference import Prior
from rfgp.likelihoods import Likelihood, Normal, by_name
from rfgp.parameters import Hyperprior, Quantity, Values
from rfgp.regression.record import Choice
from rfgp.regression.report import FitReport
from rfgp.rows import Block, DataSummary, InputReader, Rows
from rfgp.scaling import Scaling

NOISE_BOUNDS = (1e-6, 1e2)
OUTPUTSCALE_BOUNDS = (1e-6, 1e8)
"""Of the variance of the targets."""
LEAST_LATENT = 1e-4
"""Of the variance that the latent function starts with, where the likelihood is not normal; `Likelihood.widest` is the
most."""


class Variance(NamedTuple):
    """A variance among the hyperparameters, with its start and its bounds in those of the targets."""

    name: str
    start: float
    bounds: tuple[float, float]


class Inputs(InputReader, Protocol):
    """The role: what the inputs of a family are."""

    def quantities(self, spread: Tensor, scaling: Scaling) -> dict[str, Quantity]:
        """Return the kernel's hyperparameters at their starts, for columns of these standard deviations, (d,)."""

    def check(self, inputs: Tensor) -> None:
        """Refuse what no `read` returns, tables (n, d) or positions (n,).

        Raises:
            DataError: it is such.
        """


class Options(Protocol):
    """The role: what a user chose, all of it; a frozen dataclass."""

    @property
    def starts(self) -> Mapping[str, Any]:
        """Starting values by name, in the user's units; None: left open."""

    @property
    def hyperpriors(self) -> Mapping[str, Hyperprior | None] | None:
        """Log densities of named hyperparameters; None for a name that is to have none."""

    @property
    def seed(self) -> int:
        """What everything random follows from."""

    @property
    def likelihood(self) -> Likelihood:
        """The law of an observation given the latent function."""

    @property
    def approximation(self) -> str | None:
        """How the posterior is approximated; None: as usual for the likelihood."""


def read_likelihood(likelihood: Any, noise: Any) -> Likelihood:
    """Return a likelihood as an object, and refuse a noise beside one that has none.

    Raises:
        InvalidArgumentError: there is no such likelihood, or the noise belongs elsewhere.
    """
    found = by_name(likelihood)
    if isinstance(found, Normal):
        if found.noise is not None:
            raise InvalidArgumentError("The noise of a normal likelihood is the model's: give noise= to that.")
    elif noise is not None:
        raise InvalidArgumentError(f"noise is of a normal likelihood, got {found!r}.")
    return found


def check_approximation(approximation: str | None, likelihood: Likelihood) -> None:
    """Refuse an approximation that a likelihood does not have.

    Raises:
        InvalidArgumentError: with those that it has.
    """
    known = likelihood.approximations
    if approximation is not None and approximation not in known:
        has = f"has {' and '.join(map(repr, known))}" if known else "needs no approximation"
        raise InvalidArgumentError(f"approximation {approximation!r} is not for {likelihood!r}, which {has}.")


class Family(ABC):
    """A frozen value: options, and what was drawn for the columns of the inputs."""

    options: Options
    has_few_features: ClassVar[bool] = False
    """Whether matrices are of features rather than of all pairs of rows, where rows are more."""

    @property
    @abstractmethod
    def inputs(self) -> Inputs:
        """What the inputs are, and how they are read."""

    @property
    def variances(self) -> tuple[Variance, ...]:
        """The variances among the hyperparameters."""
        if not self.is_normal:
            return (Variance("outputscale", 1.0, (LEAST_LATENT, self.options.likelihood.widest)),)
        return Variance("outputscale", 1.0, OUTPUTSCALE_BOUNDS), Variance("noise", 0.1, NOISE_BOUNDS)

    @property
    def is_normal(self) -> bool:
        """Whether observations are normal given the latent function, so that nothing is approximated."""
        return isinstance(self.options.likelihood, Normal)

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """The kernel's hyperparameters that a fit multiplies by factors to compare starts; none here."""
        return ()

    @property
    def open_starts(self) -> frozenset[str]:
        """Hyperparameters whose starts a fit may choose, and "kernel" for those of the kernel."""
        return frozenset()

    @abstractmethod
    def prior(self, values: Values) -> Prior:
        """Return the prior of the standardised function over standardised inputs."""

    def observation_noise(self, values: Values) -> Tensor:
        """Return the standardised variance of an observation given the function, 0-d; of a normal likelihood."""
        return values.standardized("noise")

    def seeing(self, summary: DataSummary) -> Self:
        """Return the family with what data decide, where it is still open; here it is not."""
        return self

    def closed(self, rows: int) -> "Family":
        """Return the family that serves so many rows where nothing is to be measured: itself, where nothing is open."""
        return self

    def drawn(self, scaling: Scaling) -> Self:
        """Return the family with a draw for inputs of these columns, where the draw depends on them."""
        return self

    def begun(self, values: Values, rows: Rows) -> tuple[Self, Values]:
        """Return the family and the starting values that standardised rows decide, where the user left them open."""
        return self, values

    def normalized(self, values: Values, rows: Block) -> Values:
        """Return values whose prior variance is, on average over some rows, what the output scale was; here it is."""
        return values

    def retuned(self, values: Values) -> tuple[Self, bool]:
        """Return the family with what suits the hyperparameters found, and whether a fit should go on with it."""
        return self, False

    @property
    def choice(self) -> Choice | None:
        """What was chosen of this family's options, where some were open."""
        return None

    def checked(
        self, values: Values, rows: Rows | None, scaling: Scaling, report: FitReport | None
    ) -> Iterator[Warning]:
        """Yield warnings of what hyperparameters, or the report of a fit to rows, tell of the features."""
        yield from ()

    @abstractmethod
    def identity(self) -> Iterator[str | Tensor]:
        """Yield what a fit through this family is a function of, for checkpoints: texts, and tensors (...)."""

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # it never changes


def mean_and_noise(values: Values) -> tuple[Tensor, Tensor]:
    """Return the standardised mean (k,) and noise, 0-d."""
    return values.standardized("mean").reshape(-1), values.standardized("noise")
