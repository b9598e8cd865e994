"""The family of processes on tables through inducing points."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from rfgp import random
from rfgp.blocks import Prior, Residual, WeightBlock
from rfgp.features import Nystrom
from rfgp.features.inducing import JITTER, LEAST_SAMPLE, SAMPLED, by_k_means, by_pivots, mean_square_error
from rfgp.local.kinds import kind_of
from rfgp.parameters import Values
from rfgp.regression.family import Family, Variance, mean_and_noise
from rfgp.regression.report import FitReport
from rfgp.regression.table.diagnostics import Remedies, warnings_of
from rfgp.regression.table.inputs import LEAST_NOISE, TableInputs
from rfgp.regression.table.kernel import KernelFamily
from rfgp.regression.table.local import vecchia_block
from rfgp.regression.table.options import BESIDE, InducingOptions, texts_of
from rfgp.rows import Rows, SourceRows, gathered
from rfgp.scaling import Scaling
from rfgp.solvers.lowrank import EvidenceBounds, LinearModel, evidence_bounds
from rfgp.spectra import Spectrum

LEARNED = Remedies("num_inducing", "", "", "")
FIXED = LEARNED._replace(learned=" use learn_inducing=True,")
SHARED = ("lengthscale", "outputscale")
"""Hyperparameters of the kernel that inducing points and their residual share."""
MOVED = 2.0
"""The factor between the changes of two columns' lengthscales from which on points are chosen again."""


@dataclass(frozen=True, eq=False)
class InducingFamily(Family):
    """A kernel through its values at inducing points.

    Attributes:
        options: The user's choices.
        points: The points Z (M, d), standardised. If None, there are no rows yet. M is at most the number of distinct
            rows.
        lengthscale: The standardised lengthscale at which they were chosen, () or (d,).
        jitter: The jitter j of the features. If None, that of float64. Given for float32 data, whose models had 1e-5
            before.
    """

    options: InducingOptions
    points: Tensor | None = None
    lengthscale: Tensor | None = None
    jitter: float | None = None

    has_few_features = True

    @property
    def inputs(self) -> TableInputs:
        """Tables."""
        return TableInputs(self.options)

    @property
    def num_features(self) -> int:
        """The number M of inducing points."""
        return len(self.drawn_points)

    @property
    def drawn_points(self) -> Tensor:
        """The points Z (M, d), once they are chosen."""
        assert self.points is not None
        return self.points

    @property
    def chosen_at(self) -> Tensor:
        """The lengthscale at which the points were chosen, () or (d,)."""
        assert self.lengthscale is not None
        return self.lengthscale

    def initialized(self, values: Values, rows: Rows) -> tuple[Self, Values]:
        """Return the family with points chosen among rows, unless it has some."""
        return (self.chosen(values, rows) if self.points is None else self), values

    def chosen(self, values: Values, rows: Rows) -> Self:
        """Return the family with points chosen among a sample of rows, at the lengthscales of these values."""
        options, lengthscale = self.options, values.standardized("lengthscale").detach().double()
        generator = random.numpy_generator(options.seed, random.Role.INDUCING)
        pool = rows.sample if isinstance(rows, SourceRows) else gathered(rows)
        assert pool is not None  # data are surveyed before
        most = max(LEAST_SAMPLE, SAMPLED[options.inducing] * options.num_inducing)
        some = generator.permutation(len(pool))[:most]
        x = pool.inputs[torch.from_numpy(some)].double() / lengthscale
        if options.inducing == "k-means":
            points = by_k_means(x, options.num_inducing, generator)
        else:
            points = by_pivots(x, options.num_inducing, options.spectrum.kernel_between, generator)
        jitter = None if pool.inputs.dtype == torch.float64 else JITTER[torch.float64]
        return replace(self, points=points * lengthscale, lengthscale=lengthscale, jitter=jitter)

    def has_moved(self, values: Values) -> bool:
        """Return whether the lengthscales have changed so much that points should be chosen again.

        A common factor of all lengthscales does not change the centres of k-means, but it changes pivots.
        """
        change = (values.standardized("lengthscale").detach().double() / self.chosen_at).reshape(-1)
        shorter = self.options.inducing == "pivots" and float(change.min()) * MOVED < 1
        return shorter or bool(change.max() > MOVED * change.min())

    def beside(self, other: Family) -> Self:
        """Return the family with the points of another, learned ones too, if their options agree."""
        if not isinstance(other, InducingFamily):
            return self
        kept = {name: getattr(other.options, name) for name in BESIDE}
        same = replace(self.options, **kept) == other.options
        drawn = {name: getattr(other, name) for name in ("points", "lengthscale", "jitter")}
        return replace(self, **drawn) if same else self

    def with_points(self, points: Tensor) -> Self:
        """Return the family with these points (M, d)."""
        return replace(self, points=points.detach())

    def exact(self) -> KernelFamily:
        """Return the family of the exact kernel."""
        return KernelFamily(self.options.without_features())

    def map_at(self, values: Values) -> Nystrom:
        """Return the feature map, for standardised inputs divided by the lengthscale."""
        points = self.drawn_points / values.standardized("lengthscale").double()
        return Nystrom(points, self.options.spectrum, self.jitter or JITTER[torch.float64])

    @property
    def variances(self) -> tuple[Variance, ...]:
        """The output scale and the noise, which may be less if neighbours estimate the residual."""
        outputscale, noise = super().variances
        least = LEAST_NOISE if self.options.has_residual else noise.bounds[0]
        return outputscale, noise._replace(bounds=(least, noise.bounds[1]))

    def prior(self, values: Values) -> Prior:
        """Return the prior of the weights, and of their residual if neighbours estimate it."""
        return self.prior_of(self.drawn_points, values)

    def prior_of(self, points: Tensor, values: Values) -> Prior:
        """Return the prior with other points (M, d), in which it is differentiable."""
        options, weights = self.options, (self._weights(points, values),)
        if not options.has_residual:
            return Prior(weights=weights)
        name, lengthscale, variance = kind_of(options.spectrum), *map(values.standardized, SHARED)
        assert name is not None
        return Prior(weights, neighbors=vecchia_block(options, name, lengthscale, variance, is_residual=True))

    def _weights(self, points: Tensor, values: Values) -> WeightBlock:
        parameters = (values.standardized("lengthscale"), points)
        features = _NystromFeatures(self.options.spectrum, self.jitter or JITTER[torch.float64])
        diagonal, variance = self.options.diagonal, values.standardized("outputscale")
        residual = Residual(diagonal == "fitc", partial(_kernel, self.options.spectrum)) if diagonal else None
        return WeightBlock(features, len(points), parameters, variance, residual, features.rounding)

    def bounds(self, values: Values, rows: Rows, scaling: Scaling) -> EvidenceBounds:
        """Return bounds of the exact log marginal likelihood, in the user's units."""
        values = values.detached()
        bounded = replace(self, options=replace(self.options, diagonal="vfe", local=None))
        model = LinearModel(bounded.prior(values).dense, rows, *mean_and_noise(values))
        return evidence_bounds(model, scaling.targets.log_jacobian(rows.count))

    def diagnosed(
        self, values: Values, rows: Rows | None, scaling: Scaling, report: FitReport | None
    ) -> Iterator[Warning]:
        """Yield warnings about the points, given the report of a fit.

        The share of weights that rows determine is no sign of variance starvation here: it is 1 if every row is an
        inducing point.
        """
        if report is not None:
            remedies = LEARNED if self.options.learn_inducing else FIXED
            yield from warnings_of(replace(report, weights_used=None), values, scaling.columns, remedies)

    def identity(self) -> Iterator[str | Tensor]:
        """Yield the options, the jitter of float32 models, and the points (M, d)."""
        yield from texts_of(self.options)
        if self.jitter is not None:
            yield f"jitter={self.jitter!r}"
        yield self.drawn_points


def _kernel(spectrum: Spectrum, a: Tensor, b: Tensor, lengthscale: Tensor, points: Tensor) -> Tensor:
    return spectrum.kernel_between(a.double() / lengthscale.double(), b.double() / lengthscale.double())


class _NystromFeatures:
    """Features of inputs (n, d) at a lengthscale and points (M, d); the last factor of the points' kernel is kept."""

    def __init__(self, spectrum: Spectrum, jitter: float) -> None:
        self._spectrum, self._jitter = spectrum, jitter
        self._last: tuple[Tensor, Tensor, Nystrom] | None = None

    def __call__(self, x: Tensor, lengthscale: Tensor, points: Tensor) -> Tensor:
        last = self._last
        if last is None or last[0] is not lengthscale or last[1] is not points:
            made = Nystrom(points / lengthscale.double(), self._spectrum, self._jitter)
            last = (lengthscale, points, made)
            self._last = None if made.points.requires_grad else last
        phi: Tensor = last[2](x / lengthscale.to(x))
        return phi

    def rounding(self, lengthscale: Tensor, points: Tensor) -> float:
        """Return the mean of |phi_32(x) - phi(x)|^2, for a lengthscale and points (M, d)."""
        lengthscale, points = (p.detach() if p.requires_grad else p for p in (lengthscale, points))
        return mean_square_error(lambda x: self(x, lengthscale, points), points)

    def __reduce__(self) -> tuple[Any, ...]:
        return _NystromFeatures, (self._spectrum, self._jitter)
