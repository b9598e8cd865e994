"""The family of tables by features with a local process beside them, or by that alone."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from rfgp.couplings import Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.inference import FeaturePrior, LocalPrior
from rfgp.parameters import Values
from rfgp.regression.family import Family, Variance
from rfgp.regression.table.features import FeatureFamily, FeatureMap
from rfgp.regression.table.inputs import LEAST_NOISE, LOCAL_VARIANCE, TableInputs
from rfgp.regression.table.kernel import KernelFamily
from rfgp.regression.table.options import FeatureOptions, LocalOptions, texts_of
from rfgp.scaling import Scaling


@dataclass(frozen=True, eq=False)
class LocalFamily(Family):
    """Features and a local process; or, where there are none, the local process alone, by the names of any kernel.

    Attributes:
        options: The user's choices.
        base: The features with their draw; None: there are none.
    """

    options: FeatureOptions | LocalOptions
    base: FeatureFamily | None = None

    @property
    def inputs(self) -> TableInputs:
        """Tables."""
        return TableInputs(self.options)

    @property
    def variances(self) -> tuple[Variance, ...]:
        """The output scale, the noise, which may be less than without a local process, and that process's scale."""
        outputscale, noise = super().variances
        own = (outputscale, noise._replace(bounds=(LEAST_NOISE, noise.bounds[1])))
        return own if self.base is None else (*own, LOCAL_VARIANCE)

    @property
    def drawn_map(self) -> FeatureMap:
        """The draw of the features with its map.

        Raises:
            InvalidArgumentError: there are no features.
        """
        if self.base is None:
            raise InvalidArgumentError("A local process alone has no features.")
        return self.base.drawn_map

    def drawn(self, scaling: Scaling) -> Self:
        """Return the family with frequencies for these columns."""
        return self if self.base is None else replace(self, base=self.base.drawn(scaling))

    def with_frequencies(self, frequencies: Frequencies) -> Self:
        """Return the family with these."""
        assert self.base is not None
        return replace(self, base=self.base.with_frequencies(frequencies))

    def prior(self, values: Values) -> LocalPrior:
        """Return the prior of both parts."""
        return self._prior(values, None if self.base is None else self.base.prior(values))

    def prior_of(self, frequencies: Tensor, values: Values) -> LocalPrior:
        """Return the prior with other frequencies (m, d), in which gradients are wanted."""
        assert self.base is not None
        return self._prior(values, self.base.prior_of(frequencies, values))

    def _prior(self, values: Values, features: FeaturePrior | None) -> LocalPrior:
        local, prefix = self.options.local, "" if self.base is None else "local_"
        assert local is not None
        lengthscale, variance = (values.standardized(f"{prefix}{name}") for name in ("lengthscale", "outputscale"))
        options = self.options
        return LocalPrior(
            features, local, lengthscale, variance, options.num_neighbors, options.seed, options.conditioning
        )

    def exact(self) -> KernelFamily:
        """Return the family of the exact kernels: of the spectrum that is estimated, and of the local process."""
        return KernelFamily(self.options.without_features())

    def identity(self) -> Iterator[str | Tensor]:
        """Yield the options, and the draw (m, d) with its weights (m,) where there is one."""
        yield "local"
        yield from texts_of(self.options) if self.base is None else self.base.identity()
