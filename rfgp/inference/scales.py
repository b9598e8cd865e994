"""The scale of residuals as a function of the inputs, and predictions with this scale and Student-t tails.

Residuals r of left-out rows with predictive variances T (latent variance plus noise) have squared scales T exp(g(z)).
Here g(z) = phi(z) . w is linear in features of the columns, the predicted mean and log T, and w ~ N(weights,
covariance). The *whole* predictive variance is scaled, because errors of the kernel also vary.

With members c of an average of models and Gauss-Hermite nodes a_k with weights q_k, an observation has the density

    p(y) = sum_c w_c sum_k q_k t_df(y; m_c, T_c exp(g + h^(1/2) a_k) + floor),    h = phi' covariance phi.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp.inference.distributions import (
    CHUNK_SIZE,
    Distribution,
    InputBlocks,
    MarginalMixture,
    ResultCache,
    chunks_of,
    in_memory,
    kept,
    variance_ratio,
)
from rfgp.inference.mixture import MixtureDistribution
from rfgp.inference.prediction import Prediction
from rfgp.likelihoods.role import drawing
from rfgp.linalg import covariance_root
from rfgp.threads import computed

WEIGHT_BOUNDS = (1e-3, 1e3)
"""The bounds of the weights of rows."""
MAX_LOG_SCALE = 14.0
"""The bound of the logarithm of a squared scale."""
MAX_NONLINEAR_COLUMNS = 20
"""The maximum number of columns with nonlinear features of their own, tanh(2 x) and |x|."""
_NUM_HARMONICS = 3
"""The number of sines and cosines of the mean."""


NODES, NODE_WEIGHTS = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(5))
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()

Members = tuple[Tensor, Tensor, Tensor]
"""The weights (c,), means (c, n) and predictive variances (c, n) of the members of an average."""


def factors(nodes: Tensor) -> Tensor:
    """Return the means of e^g (n,), given the nodes of g, (q, n)."""
    return NODE_WEIGHTS @ nodes.exp() if len(nodes) > 1 else nodes[0].exp()


def scaled_mixture(
    members: Members, nodes: Tensor, df: float, floor: float = 0.0, ceiling: float = math.inf
) -> MarginalMixture:
    """Return the distributions of observations at n points.

    Args:
        members: The members of an average.
        nodes: The nodes of g, (q, n). With zeros (1, n), scales are those of the members.
        df: The degrees of freedom, or inf.
        floor: The smallest squared scale.
        ceiling: The largest part of a predictive variance that is scaled. Far from all rows the prior variance is kept.
    """
    (weights, means, variances), q = members, len(nodes)
    node_weights = NODE_WEIGHTS if q > 1 else weights.new_ones(1)
    squares = variances[:, None] + nodes.expm1() * variances.clamp_max(ceiling)[:, None] + floor
    parts = (weights[:, None] * node_weights).flatten(), means.repeat_interleave(q, 0), squares.flatten(0, 1)
    return MarginalMixture(*parts, df)


@dataclass(frozen=True, eq=False)
class ScaleBasis:
    """Features of the columns of numbers, the predicted mean and the logarithm of the predictive variance.

    Blocks are a constant, the mean, its sines and cosines, the columns, nonlinear functions of each (up to 20 columns),
    log T, and random Fourier features of a Gaussian kernel of all columns. All arguments are clipped to the range of
    the rows.

    Attributes:
        columns: The indices of the columns of numbers, (d,).
        column_ranges: Their center, unit, lower and upper ends, (4, d).
        mean_range: The center, unit and ends of the mean, (4,).
        variance_range: Those of log T, (4,).
        frequencies: The frequencies of the random features, (d, W).
        phases: Their phases, (W,).
    """

    columns: Tensor
    column_ranges: Tensor
    mean_range: Tensor
    variance_range: Tensor
    frequencies: Tensor
    phases: Tensor

    @classmethod
    def of(
        cls,
        inputs: Tensor,
        columns: Sequence[int],
        mean: Tensor,
        variance: Tensor,
        num_random: int,
        seed: int,
        uses_mean: bool = True,
    ) -> "ScaleBasis":
        """Return the features for rows.

        Args:
            inputs: The inputs, (n, D).
            columns: The indices of d columns of numbers.
            mean: The predicted means, (n,).
            variance: The predictive variances T, (n,).
            num_random: The number of random features.
            seed: Their seed.
            uses_mean: Whether scales depend on the mean.
        """
        rng, d = np.random.default_rng(seed), len(columns)
        frequencies = rng.standard_normal((d, num_random)) / math.sqrt(2 * max(d, 1))
        phases = rng.uniform(0, 2 * math.pi, num_random)
        index = torch.tensor(list(columns), dtype=torch.long)
        x = inputs.detach().double().cpu()[:, index]
        low, high = torch.quantile(mean, torch.tensor([0.005, 0.995], dtype=torch.float64))
        low, high = (low, high) if uses_mean else (mean.mean(), mean.mean())
        log_variance = variance.log()
        return cls(
            index,
            torch.stack([x.mean(0), _unit(x), x.amin(0), x.amax(0)]),
            torch.stack([mean.mean(), _unit(mean), low, high]),
            torch.stack([log_variance.mean(), _unit(log_variance), log_variance.amin(), log_variance.amax()]),
            torch.from_numpy(frequencies),
            torch.from_numpy(phases),
        )

    @property
    def blocks(self) -> Tensor:
        """The number of the block of each feature, (F,)."""
        none = self.frequencies.new_zeros(0)
        parts = self._blocks(none.expand(len(self.columns), 0).mT, none, none)
        return torch.cat([torch.full((part.shape[1],), block) for block, part in enumerate(parts)])

    def __call__(self, inputs: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Return the features at n points, (n, F).

        Args:
            inputs: The inputs, (n, D).
            mean: The predicted means, (n,).
            variance: The predictive variances, (n,).
        """
        x, u = _standardized(inputs.double()[:, self.columns], self.column_ranges), _standardized(mean, self.mean_range)
        return torch.cat(self._blocks(x, u, _standardized(variance.log(), self.variance_range)), dim=1)

    def _blocks(self, x: Tensor, u: Tensor, log_variance: Tensor) -> list[Tensor]:
        """Return the blocks of features of standardized columns (n, d), means (n,) and log T (n,)."""
        angles = torch.arange(1, _NUM_HARMONICS + 1) * u[:, None] / 1.5
        harmonics = torch.cat([angles.sin(), angles.cos()], dim=1) / math.sqrt(_NUM_HARMONICS)
        d, scale = x.shape[1], math.sqrt(max(x.shape[1], 1))
        few = x if d <= MAX_NONLINEAR_COLUMNS else x[:, :0]
        nonlinear = torch.cat([(2 * few).tanh(), few.abs() - 0.8], dim=1) / scale
        waves = math.sqrt(2 / max(len(self.phases), 1)) * (x @ self.frequencies + self.phases).cos()
        linear = torch.ones_like(u)[:, None], u[:, None], harmonics, x / scale, nonlinear, log_variance[:, None]
        return [*linear, waves if d else waves[:, :0]]


def _unit(values: Tensor) -> Tensor:
    """Return the standard deviations of values (n, ...), or 1 where they are 0."""
    if not values.numel():
        return values.new_ones(values.shape[1:])
    deviation = values.std(0, correction=0)
    return torch.where(deviation > 1e-9 * values.abs().amax(0).clamp_min(1e-300), deviation, 1.0)


def _standardized(values: Tensor, ranges: Tensor) -> Tensor:
    """Return values (n, ...) clipped to their range and standardized, given center, unit and ends (4, ...)."""
    center, unit, low, high = ranges
    standardized: Tensor = (torch.minimum(torch.maximum(values, low), high) - center) / unit
    return standardized


@dataclass(frozen=True, eq=False)
class ScaleModel:
    """A model of the scale of residuals, in variances of standardized targets.

    Attributes:
        basis: The features phi.
        weights: The means of their weights, (F,).
        covariance: The covariance of the weights, (F, F).
        df: The degrees of freedom of Student's t. If inf, residuals are normal.
        floor: The smallest squared scale, the rounding error of targets.
        row_weights: The weights of the training rows in the posterior, (n,). If None, ones.
        row_nodes: The nodes of g at the training rows by models without their fold, (5, n). If None, of this model.
    """

    basis: ScaleBasis
    weights: Tensor
    covariance: Tensor
    df: float
    floor: float = 0.0
    row_weights: Tensor | None = None
    row_nodes: Tensor | None = None

    @property
    def ceiling(self) -> float:
        """The largest predictive variance of the rows from which scales were learned."""
        return float(self.basis.variance_range[3].exp())

    def nodes(self, inputs: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Return the Gauss-Hermite nodes of g at n points, (5, n).

        Args:
            inputs: The inputs, (n, D).
            mean: The predicted means of standardized targets, (n,).
            variance: The predictive variances, (n,).
        """
        return self.nodes_of(self.basis(inputs, mean, variance))

    def mixture(self, members: Members, nodes: Tensor) -> MarginalMixture:
        """Return the distributions of observations at n points.

        Args:
            members: The members of an average.
            nodes: The nodes of g, (q, n).
        """
        return scaled_mixture(members, nodes, self.df, self.floor, self.ceiling)

    def weights_of(self, targets: Tensor, inputs: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Return the weights of rows in a posterior, (n,): (df + 1) / (df + u) e^-g with u = r^2 / (T e^g).

        The first factor is the E step of Student's t. Outliers have little weight.

        Args:
            targets: The standardized targets, (n,).
            inputs: The inputs, (n, D).
            mean: Their predicted means, (n,).
            variance: Their predictive variances T, (n,).
        """
        factor = self._log_scales(self.basis(inputs, mean, variance))[0].clamp(-7, 7).exp()
        if not math.isinf(self.df):
            u = (targets - mean).square() / (variance * factor)
            factor = factor * (self.df + u) / (self.df + 1)
        return (1 / factor).clamp(*WEIGHT_BOUNDS)

    def nodes_of(self, features: Tensor) -> Tensor:
        """Return the nodes of g (5, n), given the features (n, F)."""
        g, h = self._log_scales(features)
        return (g + h.clamp_min(0).sqrt() * NODES[:, None]).clamp(-MAX_LOG_SCALE, MAX_LOG_SCALE)

    def _log_scales(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return features @ self.weights, ((features @ self.covariance) * features).sum(1)


Part = tuple[float, Distribution, Tensor, Tensor]
"""A member of an average: its weight, latent distribution, shift of the mean (1,), and noise variance, 0-d."""


def _parts_of(latent: Distribution, noise: Tensor) -> list[Part]:
    if isinstance(latent, MixtureDistribution):
        return list(zip(latent.weights, latent.members, latent.shifts, latent.noises, strict=True))
    return [(1.0, latent, noise.new_zeros(1), noise)]


def members_of(latent: Distribution, center: Tensor, noise: Tensor) -> Members:
    """Return the predictive distributions of the members of an average.

    Args:
        latent: The standardized distribution of the latent function at n points, with one output.
        center: The standardized mean of the (first) process, 0-d.
        noise: Its noise variance, 0-d. Members of an average have their own.
    """
    parts = _parts_of(latent, noise)
    variances = torch.stack([d.variance().double().cpu().clamp_min(0) + noise.cpu() for _, d, _, noise in parts])
    means = torch.stack([(d.mean()[:, 0] + shift + center).double().cpu() for _, d, shift, _ in parts])
    return torch.tensor([w for w, *_ in parts], dtype=torch.float64), means, variances


@dataclass(frozen=True, eq=False)
class PointScales:
    """The scales at n points, computed lazily.

    Attributes:
        model: The model of the scales.
        latent: The standardized distribution of the latent function without scales.
        inputs: The standardized points, (n, D), or blocks of them.
        center: The standardized mean of the (first) process, 0-d.
        noise: Its standardized noise variance, 0-d. Members of an average have their own.
        own_nodes: The nodes of g at the points, (5, n). If None, those of the model.
    """

    model: ScaleModel
    latent: Distribution
    inputs: Tensor | InputBlocks
    center: Tensor
    noise: Tensor
    own_nodes: Tensor | None = None
    _cache: ResultCache = field(default_factory=ResultCache, init=False)

    @kept
    def members(self) -> Members:
        """Return the predictive distributions of the members without scales."""
        return members_of(self.latent, self.center, self.noise)

    @kept
    def nodes(self) -> Tensor:
        """Return the nodes of g at the points, (5, n)."""
        if self.own_nodes is not None:
            return self.own_nodes
        (weights, means, variances), parts, start = self.members(), [], 0
        mean, total = weights @ means, weights @ variances
        for x in chunks_of(self.inputs, CHUNK_SIZE):
            points = slice(start, start + len(x))
            parts.append(self.model.nodes(x.cpu(), mean[points], total[points]))
            start += len(x)
        return torch.cat(parts, dim=1)

    def mixture(self) -> MarginalMixture:
        """Return the marginal distributions of standardized observations."""
        return self.model.mixture(self.members(), self.nodes())

    def expected_squares(self) -> Tensor:
        """Return the means over g of the squared scales of each member, (c, n)."""
        _, _, variances = self.members()
        return variances + (factors(self.nodes()) - 1) * variances.clamp_max(self.model.ceiling) + self.model.floor

    def factors(self) -> Tensor:
        """Return the factors of the latent variances of each member at the points, (c, n).

        They are those of predictive variances. If rows have weights, the posterior follows the scales already, and
        latent variances are only bounded by those of observations.
        """
        squares, (_, _, variances) = self.expected_squares(), self.members()
        if self.model.row_weights is None:
            return (squares - self.model.floor) / variances
        return (squares / (variances - self._noises()).clamp_min(1e-300)).clamp_max(1.0)

    def scaled(self) -> Distribution:
        """Return the distribution of the latent function with scales."""
        latent = self.latent
        if isinstance(latent, MixtureDistribution):
            members = tuple(ScaledDistribution(d, self, number) for number, d in enumerate(latent.members))
            return replace(latent, members=members)
        return ScaledDistribution(latent, self)

    def extra_noises(self) -> Tensor:
        """Return the variances of observations minus those of the scaled latent function, of each member, (c, n)."""
        latent = (self.members()[2] - self._noises()).clamp_min(0) * self.factors()
        return variance_ratio(self.model.df) * self.expected_squares() - latent

    def extra_noise(self) -> Tensor:
        """Return the mean of the extra noises over the members, (n,)."""
        return self.members()[0] @ self.extra_noises()

    def _noises(self) -> Tensor:
        """Return the noise variances of the members, (c, 1)."""
        return torch.stack([noise.double().cpu() for *_, noise in _parts_of(self.latent, self.noise)])[:, None]

    def observed(self, prediction: Prediction) -> "ScaledPrediction":
        """Return the distribution of observations.

        Args:
            prediction: The prediction of the latent function, with these scales.
        """
        return prediction.as_kind(ScaledPrediction, has_noise=True, of_observations=None, source=prediction)

    def samples(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw standardized observations minus `center` from their joint distribution, (count, n).

        Args:
            count: The number of draws.
            generator: A generator on the CPU.
        """
        (weights, means, variances), model, df = self.members(), self.model, self.model.df
        root = covariance_root(model.covariance)
        standard = torch.randn(count, root.shape[1], generator=generator, dtype=torch.float64)
        features = model.basis(in_memory(self.inputs).cpu(), weights @ means, weights @ variances)
        g = (model.weights + standard @ root.mT) @ features.mT
        rows = torch.multinomial(weights, max(count, 1), True, generator=generator)[:count]
        out = torch.empty_like(g)
        for number, (_, latent, shift, noise) in enumerate(_parts_of(self.latent, self.noise)):
            of_member = (rows == number).nonzero()[:, 0]
            if len(of_member):
                center = latent.mean()[:, 0].double().cpu()
                values = latent.sample(len(of_member), generator)[..., 0].double().cpu() - center
                normal = torch.randn(values.shape, generator=generator, dtype=torch.float64)
                rounding = torch.randn(values.shape, generator=generator, dtype=torch.float64) * model.floor**0.5
                variance = variances[number]
                ratio = 1 + g[of_member].expm1() * (variance.clamp_max(model.ceiling) / variance)
                scaled = (values + noise.cpu().sqrt() * normal) * ratio.sqrt() + rounding
                if not math.isinf(df):
                    square = torch.from_numpy(drawing(generator).chisquare(df, size=values.shape))
                    scaled = scaled * (df / square).sqrt()
                out[of_member] = center + shift.cpu() + scaled
        return out


@dataclass(frozen=True, eq=False)
class ScaledDistribution(Distribution):
    """The distribution of latent values whose deviations from the mean are scaled.

    Attributes:
        latent: The distribution without scales.
        scales: The scales at its points.
        number: The number of the member of an average.
    """

    latent: Distribution
    scales: PointScales
    number: int = 0

    @property
    def num_points(self) -> int | None:
        """The number n of points, or None if they are read in blocks."""
        return self.latent.num_points

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw values from the joint distribution, (count, n, 1).

        Args:
            count: The number of draws.
            generator: A generator on the CPU.
        """
        mean = self.latent.mean()
        return mean + self._roots()[:, None] * (self.latent.sample(count, generator) - mean)

    @kept
    def mean(self) -> Tensor:
        """Return the mean, (n, 1)."""
        return self.latent.mean()

    @kept
    def variance(self) -> Tensor:
        """Return the marginal variances, (n,)."""
        variance = self.latent.variance()
        return variance * self.scales.factors()[self.number].to(variance)

    @kept
    def covariance(self) -> Tensor:
        """Return the covariance, (n, n)."""
        roots = self._roots()
        return roots[:, None] * self.latent.covariance() * roots

    @kept
    def root(self) -> Tensor:
        """Return a root of the covariance, (n, r)."""
        return self._roots()[:, None] * self.latent.root()

    def _roots(self) -> Tensor:
        return self.scales.factors()[self.number].sqrt().to(self.latent.mean())


@dataclass(frozen=True, eq=False, repr=False)
class ScaledPrediction(Prediction):
    """The distribution of observations whose scale depends on the inputs, with normal or Student-t tails.

    Methods are those of `Prediction`. Moments, densities, probabilities and quantiles are those of the mixture, and
    draws are joint. Sums (`linear`) have the normal distribution with these moments.

    Attributes:
        source: The prediction of the latent function.

    Examples:
        >>> import rfgp
        >>> rng, X = np.random.default_rng(0), np.linspace(0, 6, 200)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.02 * np.exp(X[:, 0] / 2) * rng.standard_normal(200)
        >>> gp = rfgp.GP(rfgp.kernels.RBF(), "auto", seed=0).fit(X, y)
        >>> low, high = gp.predict([[1.0], [5.0]]).observed().std
        >>> bool(high > 3 * low)
        True
    """

    scales: PointScales = field(kw_only=True)
    source: Prediction = field(kw_only=True)

    def observed(self, exposure: Any = None, trials: Any = None, censored: Any = None) -> Prediction:
        """Return the distribution itself, or raise an InvalidArgumentError if numbers of rows are given."""
        return self.source.observed(exposure, trials, censored)

    @property
    def unscaled(self) -> Prediction:
        """The normal distribution of observations without scales."""
        return self.source.unscaled.observed()

    @computed
    def variance_tensor(self) -> Tensor:
        """Return the marginal variances (n,), float64 tensor."""
        return self.marginals().moments()[1].to(self.scale.device)

    @computed
    def covariance_tensor(self) -> Tensor:
        """Return the covariance (n, n), float64 tensor."""
        return self._normal.covariance_tensor()

    @kept
    def marginals(self) -> MarginalMixture:
        """Return the marginal distributions in the user's units."""
        standard, center = self.scales.mixture(), self.scales.center.cpu()
        location, scale = self.location.double().cpu(), self.scale.double().cpu()
        return standard._replace(
            means=location + scale * (standard.means - center), squares=scale**2 * standard.squares
        )

    def draws(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw observations from the joint distribution, (s, n), float64 tensor.

        Latent values and noise are jointly normal. Their sum is multiplied by e^(g / 2), and for Student's t by the
        root of df / chi^2 of each observation.
        """
        return self.location + self.scale * self.scales.samples(count, generator).to(self.scale.device)

    def linear(self, weights: Any) -> Prediction:
        """Return the normal distribution with the moments of linear functionals, with weights (m, n) or (n,)."""
        return self._normal.linear(weights)

    def operator(self) -> None:
        """Return None, because the covariance must be formed."""

    @property
    def _normal(self) -> Prediction:
        """The normal distribution with the moments of these observations."""
        return self._with_moments().as_kind(Prediction)

    def __repr__(self) -> str:
        return f"Scaled{super().__repr__()}"
