"""The family of tables by random features."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from torch import Tensor

from rfgp import features as feature_maps
from rfgp import random
from rfgp.blocks import Prior, WeightBlock
from rfgp.couplings import Frequencies
from rfgp.parameters import Values
from rfgp.regression.family import Family
from rfgp.regression.report import FitReport
from rfgp.regression.table.diagnostics import warnings_of
from rfgp.regression.table.inputs import TableInputs
from rfgp.regression.table.kernel import KernelFamily
from rfgp.regression.table.options import FeatureOptions, texts_of
from rfgp.rows import Rows
from rfgp.scaling import Scaling

FeatureMap = feature_maps.Fourier | feature_maps.Laplace


@dataclass(frozen=True, eq=False)
class FeatureFamily(Family):
    """A kernel estimated by coupled random features.

    Attributes:
        options: The user's choices.
        feature_map: The map of the drawn frequencies. If None, they are not drawn yet.
    """

    options: FeatureOptions
    feature_map: FeatureMap | None = None

    has_few_features = True

    @property
    def inputs(self) -> TableInputs:
        """Tables."""
        return TableInputs(self.options)

    @property
    def num_features(self) -> int:
        """The number F of features."""
        return self.drawn_map.num_features

    @property
    def drawn_map(self) -> FeatureMap:
        """The map of the frequencies, once they are drawn."""
        assert self.feature_map is not None
        return self.feature_map

    def with_sample(self, scaling: Scaling, rows: Rows | None = None) -> Self:
        """Return the family with frequencies for these columns."""
        assert scaling.inputs is not None
        generator, options = random.generator(self.options.seed, random.Role.FREQUENCIES), self.options
        size = (options.num_frequencies, len(scaling.inputs.scale))
        return self.with_frequencies(options.coupling.sample(*size, spectrum=options.spectrum, generator=generator))

    def exact(self) -> KernelFamily:
        """Return the family of the kernel that is estimated."""
        return KernelFamily(self.options.without_features())

    def with_frequencies(self, frequencies: Frequencies) -> Self:
        """Return the family with these frequencies."""
        return replace(self, feature_map=feature_maps.by_name(self.options.features)(frequencies))

    def prior(self, values: Values) -> Prior:
        """Return the prior of the weights."""
        lengthscale, variance = values.standardized("lengthscale"), values.standardized("outputscale")
        block = WeightBlock(partial(_scaled_map, self.drawn_map), self.num_features, (lengthscale,), variance)
        return Prior(weights=(block,))

    def prior_of(self, frequencies: Tensor, values: Values) -> Prior:
        """Return the prior with other frequencies (m, d), in which it is differentiable."""
        make, weights = feature_maps.by_name(self.options.features), self.drawn_map.frequencies.weights
        parameters = (values.standardized("lengthscale"), frequencies)
        variance = values.standardized("outputscale")
        return Prior(weights=(WeightBlock(partial(_map_of, make, weights), self.num_features, parameters, variance),))

    def diagnosed(
        self, values: Values, rows: Rows | None, scaling: Scaling, report: FitReport | None
    ) -> Iterator[Warning]:
        """Yield warnings about the features, given the report of a fit."""
        if report is not None:
            yield from warnings_of(report, values, scaling.columns)

    def identity(self) -> Iterator[str | Tensor]:
        """Yield the options, and the frequencies (m, d) with their weights (m,)."""
        yield from texts_of(self.options)
        frequencies = self.drawn_map.frequencies
        yield from (frequencies.dense(), frequencies.weights)


def _scaled_map(feature_map: FeatureMap, x: Tensor, lengthscale: Tensor) -> Tensor:
    phi: Tensor = feature_map(x / lengthscale)
    return phi


def _map_of(make: type[FeatureMap], weights: Tensor, x: Tensor, lengthscale: Tensor, frequencies: Tensor) -> Tensor:
    phi: Tensor = make(Frequencies(frequencies, weights))(x / lengthscale)
    return phi
