"""The role of a specification: the prior, likelihood and hyperparameters of a model before there are data."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from torch import Tensor

from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError
from rfgp.likelihoods import Gaussian, Likelihood, by_name
from rfgp.parameters import Hyperparameter, Hyperprior, ParameterValues
from rfgp.regression.report import FitReport
from rfgp.rows import Chunk, DataSummary, InputReader, Rows
from rfgp.scaling import Scaling

NOISE_BOUNDS = (1e-6, 1e2)
"""The bounds of the noise variance, in variances of the targets."""
OUTPUTSCALE_BOUNDS = (1e-6, 1e8)
"""The bounds of the output scale, in variances of the targets."""
LEAST_LATENT = 1e-4
"""The least output scale under a likelihood that is not Gaussian, in starting values; `Likelihood.widest` is the
largest."""


class Variance(NamedTuple):
    """A variance among the hyperparameters, with its start and its bounds in variances of the targets."""

    name: str
    start: float
    bounds: tuple[float, float]


class Inputs(InputReader, Protocol):
    """The role: how the inputs of a specification are read, and the hyperparameters that they need."""

    def quantities(self, spread: Tensor, scaling: Scaling) -> dict[str, Hyperparameter]:
        """Return the kernel's hyperparameters at their starts, for columns of these standard deviations, (d,)."""

    def place_of(self, key: Any) -> int:
        """Return the place of a column of numbers.

        Raises:
            InvalidArgumentError: There is no such column of numbers.
        """

    @property
    def numbers(self) -> Mapping[int, Any]:
        """The keys of the columns of numbers by their places."""

    def check(self, inputs: Tensor) -> None:
        """Refuse inputs that `read` never returns, tables (n, d) or positions (n,).

        Raises:
            DataError: The inputs are invalid.
        """


class Options(Protocol):
    """The role: all options that a user chose; a frozen dataclass."""

    @property
    def starts(self) -> Mapping[str, Any]:
        """Starting values by name, in the user's units; None for a value that the data decide."""

    @property
    def hyperpriors(self) -> Mapping[str, Hyperprior | None] | None:
        """Log densities of named hyperparameters; None for a name that has none."""

    @property
    def seed(self) -> int:
        """The seed of everything random."""

    @property
    def likelihood(self) -> Likelihood:
        """The distribution of an observation given the latent function."""

    @property
    def has_matrices(self) -> bool:
        """Whether there are matrices of all pairs of rows, however many rows."""

    @property
    def approximation(self) -> str | None:
        """How the posterior is approximated. If None, as usual for the likelihood."""


def read_likelihood(likelihood: Any, noise: Any, *, takes_kernel: bool = False) -> Likelihood:
    """Return a likelihood as an object, and refuse a noise if it has none.

    Args:
        likelihood: The likelihood, or its name.
        noise: The starting noise of the model. If None, the data decide it.
        takes_kernel: Whether the logarithm of the noise may have a kernel of its own.

    Raises:
        InvalidArgumentError: There is no such likelihood, or the noise or its kernel belongs elsewhere.
    """
    found = by_name(likelihood)
    if found.noise_kernel is not None and not takes_kernel:
        raise InvalidArgumentError(f"The kernel of the noise must be None here, got {found!r}. Use rfgp.GP.")
    if isinstance(found, Gaussian):
        if found.noise is not None:
            raise InvalidArgumentError("The noise of a normal likelihood is the model's: give noise= to that.")
    elif noise is not None:
        raise InvalidArgumentError(f"noise is of a normal likelihood, got {found!r}.")
    return found


def check_approximation(approximation: str | None, likelihood: Likelihood) -> None:
    """Refuse an approximation that a likelihood does not have.

    Raises:
        InvalidArgumentError: The message names those that it has.
    """
    known = likelihood.approximations
    if approximation is not None and approximation not in known:
        has = f"has {' and '.join(map(repr, known))}" if known else "needs no approximation"
        raise InvalidArgumentError(f"inference={approximation!r} is not for {likelihood!r}, which {has}.")


class BaseSpec(ABC):
    """The options of a model and the random draws for its inputs. A specification is immutable."""

    options: Options
    noise_process: "BaseSpec | None" = None
    """The specification of the logarithm of the noise, if it has a kernel of its own. None if it has not."""
    noise_prefix: ClassVar[str] = "noise_"
    """The beginning of the names of the hyperparameters of a noise that is a function of the inputs."""

    @property
    @abstractmethod
    def inputs(self) -> Inputs:
        """How inputs are read."""

    @property
    def variances(self) -> tuple[Variance, ...]:
        """The variances among the hyperparameters."""
        if not self.is_gaussian:
            return (Variance("outputscale", 1.0, (LEAST_LATENT, self.options.likelihood.widest)),)
        return Variance("outputscale", 1.0, OUTPUTSCALE_BOUNDS), Variance("noise", 0.1, NOISE_BOUNDS)

    @property
    def is_gaussian(self) -> bool:
        """Whether observations are Gaussian given the latent function, so that inference is exact."""
        return isinstance(self.options.likelihood, Gaussian)

    @abstractmethod
    def prior(self, values: ParameterValues) -> Prior:
        """Return the prior of the standardized function over standardized inputs."""

    def members(self, values: ParameterValues) -> "tuple[Member, ...]":
        """Return the processes whose posteriors are averaged, that of these hyperparameters first."""
        return (Member(1.0, self, values),)

    def observation_noise(self, values: ParameterValues) -> Tensor:
        """Return the standardized variance of an observation given the function, 0-d, of a Gaussian likelihood."""
        first, *others = (member.weight * member.noise for member in self.members(values))
        return sum(others, start=first)

    def with_data(self, data: Chunk) -> tuple[Self, Chunk]:
        """Return the specification adapted to the columns of the data, and the data as `inputs` reads them."""
        return self, data

    def covering(self, values: ParameterValues, rows: Rows) -> Self:
        """Return the specification with draws that serve rows wherever they lie, or itself if its draws do.

        Args:
            values: The hyperparameters.
            rows: All standardized rows.
        """
        return self

    def with_data_summary(self, summary: DataSummary) -> tuple[Self, DataSummary]:
        """Return the specification with options from the data, and the summary with the maps that it uses."""
        return self, summary

    def with_sample(self, scaling: Scaling, rows: Rows | None = None) -> Self:
        """Return the specification with the random draws for inputs of these columns.

        Args:
            scaling: The maps to standardized units.
            rows: The standardized rows, if there are hyperparameters that they decide.
        """
        return self

    def initialized(self, values: ParameterValues, rows: Rows) -> tuple[Self, ParameterValues]:
        """Return the specification and the starting values that standardized rows decide, unless the user gave them."""
        return self, values

    def diagnosed(
        self, values: ParameterValues, rows: Rows | None, scaling: Scaling, report: FitReport | None
    ) -> Iterator[Warning]:
        """Yield warnings about the features, given hyperparameters and the report of a fit."""
        yield from ()

    @abstractmethod
    def identity(self) -> Iterator[str | Tensor]:
        """Yield everything that a fit is a function of, for checkpoints: texts, and tensors (...)."""

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # it never changes


@dataclass(frozen=True, eq=False)
class Member:
    """A process with its share in an average of posteriors.

    Attributes:
        weight: The share; the shares of an average sum to one.
        spec: The process.
        values: Its hyperparameters.
    """

    weight: float
    spec: BaseSpec
    values: ParameterValues

    def changed(self, change: Callable[[Any], BaseSpec]) -> "Member":
        """Return the member with another process, at the same hyperparameters."""
        return replace(self, spec=change(self.spec))

    @property
    def prior(self) -> Prior:
        """The prior at these hyperparameters."""
        return self.spec.prior(self.values)

    @property
    def mean(self) -> Tensor:
        """The standardized mean, (k,), float64."""
        return self.values.standardized("mean").reshape(-1).double()

    @property
    def noise(self) -> Tensor:
        """The standardized variance of an observation given the function, 0-d, float64, of a Gaussian likelihood."""
        return self.values.standardized("noise").double()


def mean_and_noise(values: ParameterValues) -> tuple[Tensor, Tensor]:
    """Return the standardized mean (k,) and noise, 0-d, float64."""
    return values.standardized("mean").reshape(-1).double(), values.standardized("noise").double()
