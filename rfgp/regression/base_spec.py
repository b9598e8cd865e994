"""The base class of specifications: prior, likelihood and hyperparameters of a model before data."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from torch import Tensor

from rfgp.blocks import Prior
from rfgp.likelihoods import Gaussian, Likelihood
from rfgp.parameters import Hyperparameter, Hyperprior, ParameterValues
from rfgp.regression.report import FitReport
from rfgp.rows import Chunk, DataSummary, InputReader, Rows
from rfgp.scaling import Scaling

NOISE_BOUNDS = (1e-6, 1e2)
"""The bounds of the noise variance, in variances of the targets."""
OUTPUTSCALE_BOUNDS = (1e-6, 1e8)
"""The bounds of the output scale, in variances of the targets."""
MIN_LATENT = 1e-4
"""The smallest output scale under a non-Gaussian likelihood, in starting values. The largest is
`Likelihood.widest`."""


class Variance(NamedTuple):
    """A variance among the hyperparameters, in variances of the targets.

    Attributes:
        name: The dotted name.
        start: The starting value.
        bounds: The lower and the upper bound.
    """

    name: str
    start: float
    bounds: tuple[float, float]


class Inputs(InputReader, Protocol):
    """The interface of readers of inputs, with the hyperparameters that inputs need."""

    def quantities(self) -> dict[str, Hyperparameter]:
        """Return the hyperparameters of the kernel by name."""

    def column_index(self, key: Any) -> int:
        """Return the index of a column of numbers.

        Args:
            key: The key of the column.

        Raises:
            InvalidArgumentError: If there is no such column of numbers.
        """

    @property
    def numeric_columns(self) -> Mapping[int, Any]:
        """The keys of the columns of numbers by index."""

    def check(self, inputs: Tensor) -> None:
        """Check inputs in the format of `read`.

        Args:
            inputs: The inputs, a table (n, d) or positions (n,).

        Raises:
            DataError: If the inputs are invalid.
        """


class Options(Protocol):
    """The interface of the user's options, a frozen dataclass."""

    @property
    def starts(self) -> Mapping[str, Any]:
        """Starting values by name, in the user's units.

        If a value is None, it comes from the data.
        """

    @property
    def hyperpriors(self) -> Mapping[str, Hyperprior | None] | None:
        """Log densities of hyperparameters by name, or None for no prior."""

    @property
    def seed(self) -> int:
        """The random seed."""

    @property
    def likelihood(self) -> Likelihood:
        """The distribution of an observation given the latent function."""

    @property
    def memory(self) -> float | None:
        """The memory limit in bytes. If None, it follows from the machine's memory."""

    @property
    def has_matrices(self) -> bool:
        """Whether matrices of all pairs of rows are used for any number of rows."""

    @property
    def inference(self) -> str | None:
        """The approximation of the posterior. If None, the default of the likelihood."""

    @property
    def time_limit(self) -> float | None:
        """The time limit of a fit in seconds. If None, there is none."""


class BaseSpec(ABC):
    """The options of a model and the bases for its inputs, as an immutable value."""

    options: Options
    noise_process: "BaseSpec | None" = None
    """The specification of the logarithm of the noise, or None if it has no kernel of its own."""
    noise_prefix: ClassVar[str] = "noise_"
    """The prefix of the hyperparameters of a noise that depends on the inputs."""

    @property
    @abstractmethod
    def inputs(self) -> Inputs:
        """The reader of inputs."""

    @property
    def variances(self) -> tuple[Variance, ...]:
        """The variances among the hyperparameters."""
        if not self.is_gaussian:
            return (Variance("outputscale", 1.0, (MIN_LATENT, self.options.likelihood.widest)),)
        return Variance("outputscale", 1.0, OUTPUTSCALE_BOUNDS), Variance("noise", 0.1, NOISE_BOUNDS)

    @property
    def is_gaussian(self) -> bool:
        """Whether observations are Gaussian given the latent function."""
        return isinstance(self.options.likelihood, Gaussian)

    @abstractmethod
    def prior(self, values: ParameterValues) -> Prior:
        """Return the prior of the standardized function over standardized inputs.

        Args:
            values: The hyperparameters.
        """

    def members(self, values: ParameterValues) -> "tuple[Member, ...]":
        """Return the processes whose posteriors are averaged.

        The first is the one at the given hyperparameters.

        Args:
            values: The hyperparameters of the first process.
        """
        return (Member(1.0, self, values),)

    def observation_noise(self, values: ParameterValues) -> Tensor:
        """Return the standardized noise variance of a Gaussian likelihood, 0-d.

        Args:
            values: The hyperparameters.
        """
        first, *others = (member.weight * member.noise for member in self.members(values))
        return sum(others, start=first)

    def with_data(self, data: Chunk) -> tuple[Self, Chunk]:
        """Return the specification adapted to the columns of the data, and the data.

        The data are in the format of the specification's reader.

        Args:
            data: The user's data.
        """
        return self, data

    def extended_to_range(self, values: ParameterValues, rows: Rows) -> Self:
        """Return the specification with bases that cover the range of all rows.

        Args:
            values: The hyperparameters.
            rows: All standardized rows.
        """
        return self

    def with_data_summary(self, summary: DataSummary) -> tuple[Self, DataSummary]:
        """Return the specification with options from the data, and the summary.

        The summary has the maps that the specification uses.

        Args:
            summary: The summary of the data.
        """
        return self, summary

    def with_sample(self, scaling: Scaling, rows: Rows) -> Self:
        """Return the specification with the bases for the columns of the inputs.

        Args:
            scaling: The maps to standardized units.
            rows: The standardized rows.
        """
        return self

    def initialized(self, values: ParameterValues, rows: Rows) -> tuple[Self, ParameterValues]:
        """Return the specification and starting values, from the user or from the rows.

        Args:
            values: The default starting values.
            rows: The standardized rows.
        """
        return self, values

    def diagnosed(self, values: ParameterValues, rows: Rows | None, report: FitReport | None) -> Iterator[Warning]:
        """Yield warnings about the bases, given hyperparameters and the report of a fit.

        Args:
            values: The hyperparameters.
            rows: The standardized rows. If None, they are not stored.
            report: The report of the fit. If None, there was none.
        """
        yield from ()

    @abstractmethod
    def identity(self) -> Iterator[str | Tensor]:
        """Yield all inputs of a fit for checkpoints, as texts and tensors (...)."""

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # immutable


@dataclass(frozen=True, eq=False)
class Member:
    """A process with its weight in an average of posteriors.

    Attributes:
        weight: The weight. The weights of an average sum to one.
        spec: The specification of the process.
        values: Its hyperparameters.
    """

    weight: float
    spec: BaseSpec
    values: ParameterValues

    @property
    def prior(self) -> Prior:
        """The prior at these hyperparameters."""
        return self.spec.prior(self.values)

    @property
    def noise(self) -> Tensor:
        """The standardized noise variance, 0-d, float64, of a Gaussian likelihood."""
        return self.values.standardized("noise").double()


def mean_and_noise(values: ParameterValues) -> tuple[Tensor, Tensor]:
    """Return the standardized mean (k,) and noise, 0-d, float64.

    Args:
        values: The hyperparameters.
    """
    return values.standardized("mean").reshape(-1).double(), values.standardized("noise").double()
