"""The family of tables by features of inducing points."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import torch
from torch import Tensor

from rfgp import random
from rfgp.features import Nystrom
from rfgp.features.inducing import JITTER, LEAST_SAMPLE, SAMPLED, by_k_means, by_pivots, mean_square_error
from rfgp.inference import EvidenceBounds, FeaturePrior, LinearModel, LocalPrior, Residual, evidence_bounds
from rfgp.local.kinds import kind_of
from rfgp.parameters import Values
from rfgp.regression.family import Family, Variance
from rfgp.regression.report import FitReport
from rfgp.regression.table.inputs import LEAST_NOISE, TableInputs
from rfgp.regression.table.kernel import KernelFamily
from rfgp.regression.table.options import BESIDE, InducingOptions, texts_of
from rfgp.regression.table.told import Remedies, warnings_of
from rfgp.rows import Rows, SourceRows, gathered
from rfgp.scaling import Scaling
from rfgp.spectra import Spectrum

LEARNED = Remedies("num_inducing", "", "", "")
FIXED = LEARNED._replace(learned=" use learn_inducing=True,")
SHARED = ("lengthscale", "outputscale")
"""Hyperparameters of the one kernel that points and their residual have."""
MOVED = 2.0
"""The factor between two columns' changes of lengthscale from which on other points suit the rows better."""


@dataclass(frozen=True, eq=False)
class InducingFamily(Family):
    """A kernel through its values at inducing points.

    Attributes:
        options: The user's choices.
        points: Z (M, d), standardised; None before there are rows. Fewer than asked for where distinct rows are.
        lengthscale: That at which they were chosen, standardised, () or (d,).
        jitter: j of the features. If None, that of float64. Given for float32 data, whose models had 1e-5 before.
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
        """M."""
        return len(self.drawn_points)

    @property
    def drawn_points(self) -> Tensor:
        """Z (M, d), once there are some."""
        assert self.points is not None
        return self.points

    @property
    def chosen_at(self) -> Tensor:
        """The lengthscale at which the points were chosen, () or (d,), once there are some."""
        assert self.lengthscale is not None
        return self.lengthscale

    def begun(self, values: Values, rows: Rows) -> tuple[Self, Values]:
        """Return the family with points among rows, unless it has some."""
        return (self.chosen(values, rows) if self.points is None else self), values

    def chosen(self, values: Values, rows: Rows) -> Self:
        """Return the family with points chosen anew, among a sample of rows in the lengthscales of these values."""
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
            points = by_pivots(x, options.num_inducing, options.spectrum, generator)
        jitter = None if pool.inputs.dtype == torch.float64 else JITTER[torch.float64]
        return replace(self, points=points * lengthscale, lengthscale=lengthscale, jitter=jitter)

    def has_moved(self, values: Values) -> bool:
        """Return whether lengthscales have changed so that other points suit the rows better.

        Centres of k-means are the same at lengthscales that are longer or shorter all together; pivots are not.
        """
        change = (values.standardized("lengthscale").detach().double() / self.chosen_at).reshape(-1)
        shorter = self.options.inducing == "pivots" and float(change.min()) * MOVED < 1
        return shorter or bool(change.max() > MOVED * change.min())

    def beside(self, other: Family) -> Self:
        """Return the family with the points of another, if it would choose as that did; learned ones too."""
        if not isinstance(other, InducingFamily):
            return self
        kept = {name: getattr(other.options, name) for name in BESIDE}
        same = replace(self.options, **kept) == other.options
        drawn = {name: getattr(other, name) for name in ("points", "lengthscale", "jitter")}
        return replace(self, **drawn) if same else self

    def with_points(self, points: Tensor) -> Self:
        """Return the family with these, (M, d)."""
        return replace(self, points=points.detach())

    def exact(self) -> KernelFamily:
        """Return the family of the kernel itself."""
        return KernelFamily(self.options.without_features())

    def map_at(self, values: Values) -> Nystrom:
        """Return the feature map, for standardised inputs divided by the lengthscale."""
        points = self.drawn_points / values.standardized("lengthscale").double()
        return Nystrom(points, self.options.spectrum, self.jitter or JITTER[torch.float64])

    @property
    def variances(self) -> tuple[Variance, ...]:
        """The output scale and the noise, which may be less where neighbours take up what the features leave."""
        outputscale, noise = super().variances
        least = LEAST_NOISE if self.options.has_residual else noise.bounds[0]
        return outputscale, noise._replace(bounds=(least, noise.bounds[1]))

    def prior(self, values: Values) -> FeaturePrior | LocalPrior:
        """Return the prior of the features, and of what they leave where neighbours take it up."""
        return self.prior_of(self.drawn_points, values)

    def prior_of(self, points: Tensor, values: Values) -> FeaturePrior | LocalPrior:
        """Return the prior with other points (M, d), in which gradients may be wanted."""
        options, features = self.options, self._features(points, values)
        if not options.has_residual:
            return features
        name, lengthscale, variance = kind_of(options.spectrum), *map(values.standardized, SHARED)
        assert name is not None
        given = options.num_neighbors, options.seed, options.conditioning
        return LocalPrior(features, name, lengthscale, variance, *given, is_residual=True)

    def _features(self, points: Tensor, values: Values) -> FeaturePrior:
        parameters = (values.standardized("lengthscale"), points)
        features = _Features(self.options.spectrum, self.jitter or JITTER[torch.float64])
        diagonal, variance = self.options.diagonal, values.standardized("outputscale")
        residual = Residual(diagonal == "fitc", partial(_kernel, self.options.spectrum)) if diagonal else None
        return FeaturePrior(features, len(points), parameters, variance, residual, features.rounding)

    def bounds(self, values: Values, rows: Rows, scaling: Scaling) -> EvidenceBounds:
        """Return bounds of the exact log marginal likelihood, in the user's units."""
        values = values.detached()
        mean, noise = values.standardized("mean").reshape(-1).double(), values.standardized("noise").double()
        bounded = replace(self, options=replace(self.options, diagonal="vfe", local=None))
        prior = bounded._features(self.drawn_points, values)
        model = LinearModel(prior, rows, mean, noise)
        return evidence_bounds(model, scaling.targets.log_jacobian(rows.count))

    def checked(
        self, values: Values, rows: Rows | None, scaling: Scaling, report: FitReport | None
    ) -> Iterator[Warning]:
        """Yield what the report of a fit should not be the only place to say.

        That rows determine all weights is no sign of starvation here: so they do where every row is a point.
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


class _Features:
    """phi of inputs (n, d), a lengthscale and points (M, d); what of it the inputs do not change is kept."""

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
