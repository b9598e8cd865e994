"""The family of tables by features with a local process beside them, or by that alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from torch import Tensor

from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError
from rfgp.inference import KernelPrior, LocalPrior
from rfgp.local import KINDS
from rfgp.parameters import Hyperprior, Quantity, Values
from rfgp.regression.family import OUTPUTSCALE_BOUNDS, Family, Variance
from rfgp.regression.table import FeatureFamily, FeatureOptions, KernelOptions, TableInputs, texts_of
from rfgp.scaling import Scaling

START, SHARE = 0.5, 0.25
"""Of the features' starting lengthscale, and of the targets' variance: where a local process beside features starts."""


@dataclass(frozen=True)
class LocalOptions:
    """What a user chooses of a process with a local part; see `rfgp.TableGP`.

    Attributes:
        base: Of the features beside it; without features, of what all tables have.
        local: Its kernel.
        num_neighbors: The most of a row.
        seed: What everything random follows from.

    Raises:
        InvalidArgumentError: an unknown kernel, or a number of neighbours that is not positive.
    """

    base: FeatureOptions | KernelOptions
    local: str = "matern32"
    num_neighbors: int = 30
    seed: int = 0

    def __post_init__(self) -> None:
        if self.local not in KINDS:
            raise InvalidArgumentError(f"local must be one of {', '.join(KINDS)}, got {self.local!r}.")
        object.__setattr__(self, "num_neighbors", check_count("num_neighbors", self.num_neighbors))

    @property
    def starts(self) -> Mapping[str, Any]:
        """The user's starting values."""
        return self.base.starts

    @property
    def hyperpriors(self) -> Mapping[str, Hyperprior | None] | None:
        """The user's log densities."""
        return self.base.priors


@dataclass(frozen=True, eq=False)
class LocalInputs(TableInputs):
    """Numeric tables (n, d) with lengthscales of the local process beside those of the features."""

    def quantities(self, spread: Tensor, scaling: Scaling) -> dict[str, Quantity]:
        """Return the lengthscales of both for columns of these standard deviations, (d,)."""
        own = super().quantities(spread, scaling)
        return own | {"local_lengthscale": replace(own["lengthscale"], start=START * own["lengthscale"].start)}


@dataclass(frozen=True, eq=False)
class LocalFamily(Family):
    """Features and a local process; or, where there are none, the local process alone, by the names of any kernel.

    Attributes:
        options: The user's choices.
        base: The features with their draw; None: there are none.
    """

    options: LocalOptions
    base: FeatureFamily | None = None

    @classmethod
    def of(cls, options: LocalOptions) -> Self:
        """Return the family of options, before anything is drawn."""
        base = options.base
        return cls(options, FeatureFamily(base) if isinstance(base, FeatureOptions) else None)

    @property
    def inputs(self) -> TableInputs:
        """Tables."""
        return (TableInputs if self.base is None else LocalInputs)(self.options.base)

    @property
    def variances(self) -> tuple[Variance, ...]:
        """The output scale and the noise, and beside features the output scale of the local process."""
        beside = () if self.base is None else (Variance("local_outputscale", SHARE, OUTPUTSCALE_BOUNDS),)
        return (*super().variances, *beside)

    def drawn(self, scaling: Scaling) -> Self:
        """Return the family with frequencies for these columns."""
        return self if self.base is None else replace(self, base=self.base.drawn(scaling))

    def prior(self, values: Values) -> LocalPrior:
        """Return the prior of both parts."""
        prefix = "" if self.base is None else "local_"
        return LocalPrior(
            None if self.base is None else self.base.prior(values),
            self.options.local,
            values.standardized(f"{prefix}lengthscale"),
            values.standardized(f"{prefix}outputscale"),
            self.options.num_neighbors,
            self.options.seed,
        )

    def exact(self) -> "SumFamily":
        """Return the family of the two parts' exact covariance."""
        return SumFamily(self.options, self)

    def identity(self) -> Iterator[str | Tensor]:
        """Yield the choices, and the draw (m, d) with its weights (m,) where there is one."""
        yield f"local={self.options.local}, {self.options.num_neighbors}, {self.options.seed}"
        if self.base is not None:
            yield from self.base.identity()
        else:
            yield from texts_of(self.options.base)


@dataclass(frozen=True, eq=False)
class SumFamily(Family):
    """The covariance of features and local process together, exactly: no neighbours.

    Attributes:
        options: The user's choices.
        parts: The two.
    """

    options: LocalOptions
    parts: LocalFamily

    @property
    def inputs(self) -> TableInputs:
        """Tables."""
        return self.parts.inputs

    @property
    def variances(self) -> tuple[Variance, ...]:
        """Those of the parts."""
        return self.parts.variances

    def drawn(self, scaling: Scaling) -> Self:
        """Return the family with frequencies for these columns."""
        return replace(self, parts=self.parts.drawn(scaling))

    def prior(self, values: Values) -> KernelPrior:
        """Return the prior of the sum."""
        both = self.parts.prior(values)
        return KernelPrior(both.kernel, both.diagonal)

    def identity(self) -> Iterator[str | Tensor]:
        """Yield what those of the parts are, texts and tensors (m, d) and (m,)."""
        yield "sum"
        yield from self.parts.identity()
