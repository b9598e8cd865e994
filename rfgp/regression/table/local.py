"""The family of nearest-neighbour (Vecchia) processes on tables, with or without features."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from rfgp.blocks import Prior, VecchiaBlock
from rfgp.couplings import Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.parameters import Values
from rfgp.regression.family import Family, Variance
from rfgp.regression.table.features import FeatureFamily, FeatureMap
from rfgp.regression.table.inputs import LEAST_NOISE, LOCAL_VARIANCE, TableInputs
from rfgp.regression.table.kernel import KernelFamily
from rfgp.regression.table.options import FeatureOptions, KernelOptions, LocalOptions, texts_of
from rfgp.rows import Rows
from rfgp.scaling import Scaling


@dataclass(frozen=True, eq=False)
class LocalFamily(Family):
    """The sum of features and a nearest-neighbour process, or that process alone.

    Attributes:
        options: The user's choices.
        base: The family of the features. If None, there are none.
    """

    options: FeatureOptions | LocalOptions
    base: FeatureFamily | None = None

    @property
    def inputs(self) -> TableInputs:
        """Tables."""
        return TableInputs(self.options)

    @property
    def variances(self) -> tuple[Variance, ...]:
        """The output scale, the noise, which may be less than with features alone, and the neighbours' scale."""
        outputscale, noise = super().variances
        own = (outputscale, noise._replace(bounds=(LEAST_NOISE, noise.bounds[1])))
        return own if self.base is None else (*own, LOCAL_VARIANCE)

    @property
    def drawn_map(self) -> FeatureMap:
        """The map of the features' frequencies.

        Raises:
            InvalidArgumentError: there are no features.
        """
        if self.base is None:
            raise InvalidArgumentError("A local process alone has no features.")
        return self.base.drawn_map

    def with_sample(self, scaling: Scaling, rows: Rows | None = None) -> Self:
        """Return the family with frequencies for these columns."""
        return self if self.base is None else replace(self, base=self.base.with_sample(scaling))

    def with_frequencies(self, frequencies: Frequencies) -> Self:
        """Return the family with these frequencies."""
        assert self.base is not None
        return replace(self, base=self.base.with_frequencies(frequencies))

    def prior(self, values: Values) -> Prior:
        """Return the prior of the neighbours, and of the features' weights."""
        weights = () if self.base is None else self.base.prior(values).weights
        return Prior(weights=weights, neighbors=self._neighbors(values))

    def prior_of(self, frequencies: Tensor, values: Values) -> Prior:
        """Return the prior with other frequencies (m, d), in which it is differentiable."""
        assert self.base is not None
        return Prior(weights=self.base.prior_of(frequencies, values).weights, neighbors=self._neighbors(values))

    def _neighbors(self, values: Values) -> VecchiaBlock:
        options, prefix = self.options, "" if self.base is None else "local_"
        assert options.local is not None
        lengthscale, variance = (values.standardized(f"{prefix}{name}") for name in ("lengthscale", "outputscale"))
        return vecchia_block(options, options.local, lengthscale, variance)

    def exact(self) -> KernelFamily:
        """Return the family of the exact kernels."""
        return KernelFamily(self.options.without_features())

    def identity(self) -> Iterator[str | Tensor]:
        """Yield the options, and the frequencies (m, d) with their weights (m,) if there are some."""
        yield "local"
        yield from texts_of(self.options) if self.base is None else self.base.identity()


def vecchia_block(
    options: KernelOptions,
    kernel_name: str,
    lengthscale: Tensor,  # () or (d,)
    variance: Tensor,  # ()
    *,
    is_residual: bool = False,
) -> VecchiaBlock:
    """Return the nearest-neighbour block of a user's options."""
    condition_on = "responses" if options.conditioning == "observations" else options.conditioning
    size = options.num_neighbors, options.seed, condition_on
    return VecchiaBlock(kernel_name, lengthscale, variance, *size, is_residual)
