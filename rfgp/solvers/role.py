"""The interfaces of solvers: covariance operators, inference given rows, and posteriors for predictions."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from rfgp.blocks import Prior, Weights
from rfgp.errors import InvalidArgumentError
from rfgp.limits import limits
from rfgp.linalg import covariance_root
from rfgp.rows import Block

# --- The role of a covariance that is never formed: products, solves and draws ---------------------------------------


class LatentOperator(Protocol):
    """Interface: the covariance S (n, n) of latent values."""

    def __len__(self) -> int:
        """Return n."""

    def times(self, v: Tensor) -> Tensor:
        """Return S v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """

    def solve(self, v: Tensor, noise: Tensor) -> Tensor:
        """Return (S + D)^-1 v, (n, p).

        Args:
            v: The vectors v, (n, p).
            noise: The diagonal of D, (n,), positive.
        """

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw from N(0, S).

        Args:
            count: The number of draws.
            generator: A generator on the CPU.

        Returns:
            The draws, (n, count).
        """


# --- Named terms of a posterior, and checks shared by posteriors -----------------------------------------------------

MAX_JOINT = 2000
"""The maximum number of points with a joint covariance in one solve."""


def known_terms(prior: Prior, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of terms of a prior.

    Args:
        prior: The prior.
        names: The names of terms.

    Raises:
        InvalidArgumentError: If a term is unknown, or none is named.
    """
    known = prior.names
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        given = ", ".join(map(repr, unknown)) if unknown else "none"
        raise InvalidArgumentError(
            f"Terms must be among {', '.join(map(repr, known))}, got {given}. Name at least one of them."
        )
    return tuple(names)


def check_divided(prior: Prior, *sums: Sequence[str]) -> None:
    """Raise if sums of terms have different parts of a block of neighbors.

    The latent values of the block are those of its sum.

    Args:
        prior: The prior.
        sums: The names of the terms of each sum.

    Raises:
        InvalidArgumentError: If they have.
    """
    block = prior.neighbors
    parts = [] if block is None else [tuple(bool(flag) for flag in block.flags(names)) for names in sums]
    if block is not None and len({part for part in parts if any(part)}) > 1:
        raise InvalidArgumentError(
            f"The terms {', '.join(block.names)} must be predicted together, got a part of them: their latent "
            "neighbors are not divided. Use Vecchia(condition_on='responses')."
        )


def check_joint(count: int, num_rows: int = 0, advice: str = "") -> None:
    """Raise if a joint covariance has too many points.

    Args:
        count: The number of points.
        num_rows: The number of rows whose covariances with the points are in memory. The default is 0.
        advice: A remedy for the message.

    Raises:
        InvalidArgumentError: If there are more than 2,000 points, or their projections do not fit in memory.
    """
    in_memory = max(limits().max_solved, limits().max_joint_numbers // max(num_rows, 1))
    max_points = min(MAX_JOINT, in_memory)
    if count > max_points:
        raise InvalidArgumentError(
            f"A joint covariance must have at most {max_points} points, got {count}. Use fewer{advice}."
        )


def make_contiguous(state: Any, *names: str) -> None:
    """Make tensors of a frozen object contiguous, like loaded ones.

    The last bits of products depend on the memory layout.

    Args:
        state: The object.
        names: The names of the attributes, which are tensors.
    """
    for name in names:
        object.__setattr__(state, name, getattr(state, name).contiguous())


# --- Interfaces of inference given rows, and of posteriors for predictions -------------------------------------------

Functions = Callable[[Tensor], Tensor]
"""Functions of the inputs of n points, (count, n, k)."""
Shape = tuple[int, ...]
"""The shape of a tensor."""
WarmStart = tuple[Tensor, ...]
"""Tensors from which a search for a posterior starts, in the format of one kind of inference."""


class Posterior(ABC):
    """The state for predictions: a Gaussian posterior and its projection to points.

    The posterior is that of the latent vectors, which are projected to points. Predictions are computed for chunks of
    points. `project` returns the projection of points, an argument of the other methods. k outputs share one
    covariance. C functions without a shared covariance have one more axis.

    Attributes:
        prior: The prior, without gradients unless predictions are differentiated in its parameters.
    """

    prior: Prior
    serialized_fields: ClassVar[tuple[str, ...]] = ()
    """The names of the attributes that are saved. They are tensors, made contiguous like loaded ones."""
    noise_process: "Posterior | None" = None
    """The posterior of the logarithm of the noise, if the noise is a function of the inputs."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of entries of one point in memory."""

    @property
    def num_functions(self) -> int:
        """The number C of functions that do not share a covariance."""
        return 1

    @abstractmethod
    def project(self, inputs: Tensor) -> Any:
        """Return the projection of n points.

        Examples are features (n, F), covariances with the rows, or an object with a mean and variances.

        Args:
            inputs: The inputs of the points, (n, d), or positions (n,).
        """

    def mean(self, projected: Any) -> Tensor:
        """Return the posterior mean, (n, k), by default that of the projection.

        Args:
            projected: The projection of the points by `project`.
        """
        mean: Tensor = projected.mean
        return mean

    def variance(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return the marginal variances (n,), or (n, C) of C functions, by default those of the projection.

        Args:
            inputs: The inputs of the points.
            projected: Their projection by `project`.
        """
        variances: Tensor = projected.variances
        return variances

    @abstractmethod
    def covariance(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return the posterior covariance (n, n), or (n, n, C) of C functions.

        Args:
            inputs: The inputs of the points.
            projected: Their projection by `project`.
        """

    def root(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return a matrix R (n, r) such that R R^T is the covariance.

        For C functions R is (C n, r), function by function.

        Args:
            inputs: The inputs of the points.
            projected: Their projection by `project`.
        """
        return covariance_root(self.covariance(inputs, projected))

    def moments(self, inputs: Tensor, projected: Any) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and the marginal variances (n,).

        Args:
            inputs: The inputs of the points.
            projected: Their projection by `project`.
        """
        return self.mean(projected), self.variance(inputs, projected)

    def function_covariance(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return the covariances of C functions at each point, (n, C, C).

        By default the functions are independent.

        Args:
            inputs: The inputs of the points.
            projected: Their projection by `project`.
        """
        return torch.diag_embed(self.variance(inputs, projected))

    def operator(self, inputs: Tensor) -> LatentOperator | None:
        """Return the covariance (n, n) as products and solves, or None.

        The result is None if the covariance must be formed.

        Args:
            inputs: The inputs of the points.
        """
        return None

    @abstractmethod
    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions from the posterior.

        Args:
            count: The number of draws.
            generator: A generator on the CPU.

        Returns:
            A map of the inputs of n points to (count, n, k).

        Raises:
            InvalidArgumentError: If the model is defined at given points only.
        """

    def sample_values(self, num_points: int, count: int, generator: torch.Generator) -> Functions | None:
        """Draw weights for values at n points, or return None if a root of their covariance is needed or costs less.

        In contrast to `sample_functions`, values include variances that are independent between points. They exclude
        new levels, like the moments.

        Args:
            num_points: The number n of points.
            count: The number of draws.
            generator: A generator on the CPU.

        Returns:
            A map of the inputs of some of the points to (count, b, k), or None. Each point is mapped once.
        """
        return None

    def __post_init__(self) -> None:
        make_contiguous(self, *self.serialized_fields)

    def tensors(self) -> dict[str, Tensor]:
        """Return the saved tensors (...) by name, without those of the noise process."""
        return {name: getattr(self, name) for name in self.serialized_fields}

    def with_noise_process(self, noise: "Posterior") -> Self:
        """Return the posterior with that of the logarithm of the noise.

        Args:
            noise: The posterior of the logarithm of the noise.
        """
        posterior = copy.copy(self)
        object.__setattr__(posterior, "noise_process", noise)
        return posterior

    @abstractmethod
    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of the saved tensors by name, except that of inputs.

        A file is rejected if its tensors have other shapes. The shapes therefore depend on the prior, n and k alone.

        Args:
            n: The number of rows.
            k: The number of outputs.

        Returns:
            The shape of each tensor.
        """

    @property
    def can_update(self) -> bool:
        """Whether rows can be added without access to the old ones."""
        return False

    def of(self, names: Sequence[str]) -> "Posterior":
        """Return the posterior of the sum of some terms.

        Args:
            names: The names of blocks.

        Raises:
            InvalidArgumentError: If this posterior is not divided into terms.
        """
        raise InvalidArgumentError("This posterior is not divided into terms. Use the sum of all terms.")

    def differentiated(self, column: int) -> "Posterior":
        """Return the posterior of the derivative of the function in one column.

        Args:
            column: The index of the column among those of the inputs.

        Raises:
            InvalidArgumentError: If this posterior has neither exact covariances nor features.
        """
        raise InvalidArgumentError(
            "Derivatives require exact covariances or features, got another approximation. Use "
            "gp.with_approximation(rfgp.Exact()), rfgp.EquispacedFourier() or rfgp.RandomFeatures(512)."
        )

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariance (n, n) between sums of terms at n inputs.

        Args:
            inputs: The points.
            first: The names of the terms of the rows.
            second: The names of the terms of the columns.

        Raises:
            InvalidArgumentError: If this posterior is not divided into terms.
        """
        raise InvalidArgumentError("This posterior is not divided into terms. Use the sum of all terms.")


OnDemand = Callable[[], Any]
"""Returns the projection of single points."""


class Joint(NamedTuple):
    """The projection of n points that may be neighbors of each other."""

    projected: Any
    scales: Tensor | None = None
    """The ratios (n,) of the standard deviations of single points to those in the joint distribution. If None, 1."""


def joint_scales(single: Tensor, joint: Tensor) -> Tensor:
    """Return the ratios (n,) of the standard deviations of single points to those in a joint distribution.

    Correlations are those of the joint distribution, in which points have earlier points as neighbors. Variances are
    those of single points, whose neighbors are rows.

    Args:
        single: The variances of single points, (n,).
        joint: Their variances in the joint distribution, (n,).
    """
    return (single / joint.clamp_min(torch.finfo(joint.dtype).tiny)).sqrt()


@dataclass(frozen=True, eq=False)
class TermwisePosterior(Posterior):
    """A posterior that is divided into terms.

    The covariance between two sums of terms is that of their projections, plus the residual covariance of the terms in
    both, rescaled to the variances of single points.

    Attributes:
        prior: The prior of all terms.
        terms: The names of the terms whose sum is predicted. If None, all.
    """

    prior: Prior
    terms: tuple[str, ...] | None = field(default=None, kw_only=True)

    def joints(self, inputs: Tensor, parts: Sequence[Any], projected: Sequence[OnDemand]) -> Sequence[Joint]:
        """Return the joint projections of points for sums of terms, by default those of single points.

        Args:
            inputs: The inputs of the points.
            parts: This posterior, restricted to the terms of each sum.
            projected: Return the projection of single points by each of them.
        """
        return [Joint(own()) for own in projected]

    @abstractmethod
    def between(self, left: Any, right: Any) -> Tensor:
        """Return the covariance (n, n) or (n, n, C) of projected sums, without residuals of terms.

        Args:
            left: The joint projection of the points for the sum of the rows.
            right: Their joint projection for the sum of the columns.
        """

    @abstractmethod
    def residual_covariance(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return the covariance (n, n) of the predicted terms that `between` excludes. Sums share that of common terms.

        Args:
            inputs: The inputs of the points.
            projected: Their joint projection.
        """

    def covariance(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return the posterior covariance (n, n), or (n, n, C) of C functions.

        Args:
            inputs: The inputs of the points.
            projected: Their projection by `project`.
        """
        (joint,) = self.joints(inputs, [self], [lambda: projected])
        return self._covariance(joint, joint, self.residual_covariance(inputs, joint.projected))

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariance (n, n) or (n, n, C) between sums of terms at n inputs.

        Args:
            inputs: The points.
            first: The names of the terms of the rows.
            second: The names of the terms of the columns.

        Raises:
            InvalidArgumentError: If a term is unknown, none is named, terms are not divided, or there are too many
                points.
        """
        parts = [self.of(first), self.of(second)]
        if shared := [name for name in first if name in second]:
            parts.append(self.of(shared))
        left, right, *both = self.joints(inputs, parts, [partial(part.project, inputs) for part in parts])
        residuals = [parts[-1].residual_covariance(inputs, joint.projected) for joint in both]
        return self._covariance(left, right, sum(residuals, start=torch.zeros((), dtype=torch.float64)))

    def _covariance(self, left: Joint, right: Joint, residual: Tensor) -> Tensor:
        covariance = self.between(left.projected, right.projected)
        covariance = covariance + (residual if covariance.ndim == 2 else residual[..., None])
        if left.scales is None or right.scales is None:
            return covariance
        return covariance * left.scales[:, None] * right.scales

    def of(self, names: Sequence[str]) -> Self:
        """Return the posterior of the sum of some terms.

        Args:
            names: The names of the terms.

        Raises:
            InvalidArgumentError: If a term is unknown, none is named, or terms are not divided.
        """
        return replace(self, terms=known_terms(self.prior, names))


class Inference(Protocol):
    """Interface: inference given rows under a prior, differentiable in its tensors."""

    @abstractmethod
    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d, constants included."""

    @property
    def likelihood_error(self) -> float:
        """The standard error of the log marginal likelihood, 0 if it is exact."""
        return 0.0

    @property
    def effective_dof_fraction(self) -> float | None:
        """The effective degrees of freedom of the weights divided by F.

        It is (F - tr A^-1) / F, or None without weights.
        """
        return None

    @property
    def remark(self) -> str:
        """A clause in brackets on the arithmetic, for a report, or an empty string."""
        return ""

    def warm_start(self) -> WarmStart:
        """Return the start of searches at nearby hyperparameters.

        It is empty if there is no search.
        """
        return ()

    @abstractmethod
    def posterior(self) -> Posterior:
        """Return the posterior for predictions."""

    @abstractmethod
    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all others.

        The variance includes the noise of the mean of the row's observations.
        """


def with_feature_residuals(
    weights: Weights, rows: Block, noise: Tensor, border: Tensor
) -> tuple[Block, Tensor, Tensor]:
    """Add residual variances of features, to the noise (FITC) or to the bound (VFE).

    Args:
        weights: The weights. The formulas are those of `rfgp.solvers.lowrank`.
        rows: The data.
        noise: The variance of one observation, 0-d.
        border: Phi of the weights, and possibly of further ones, (n, F).

    Returns:
        The rows with residual noise, the term of VFE residuals in the log marginal likelihood, 0-d, and the residual
        variances (n,) that are not in the noise of row means.
    """
    if not weights.has_residual:
        return rows, torch.zeros_like(noise), torch.zeros_like(noise)
    of_weights, counts = border[:, : weights.num_features], rows.counts()
    by_kind = ([b.name for b in weights.blocks if b.residual and b.residual.is_noise == flag] for flag in (True, False))
    as_noise, bounding = (
        weights.with_residuals_of(names).residual_variance(rows.inputs, of_weights) for names in by_kind
    )
    if weights.adds_noise:
        rows = rows.with_more_noise(as_noise)
    bound = -0.5 * rows.output_weights.sum() * (counts * bounding / rows.observation_noise(noise)).sum()
    return rows, bound, (1 - 1 / counts) * as_noise + bounding


class Solver(Inference):
    """Gaussian regression of rows in memory, y = mean + f + e.

    The function f is from the prior, and e ~ N(0, D). k outputs share one covariance C = K + D. Their log likelihoods
    have the signs of the rows (`Block.given_output_weights`). A solver caches the algebra that depends on the prior and
    the inputs only. `with_data` changes targets and noise, for searches for the sites of other likelihoods.

    All of it follows from a = C^-1 (y - mean), p, the diagonal of C^-1, and the log determinant. Row i given all others
    has the mean y_i - a_i / p_i and the variance 1 / p_i. At the rows f has the mean y - mean - D a and the variances
    D - D p D. A solver with a form of these without cancellation overrides them.

    Args:
        rows: The data, in the order of the solver.
        mean: The prior mean, (k,), float64.
        noise: The variance of one observation, 0-d, float64.
        features: The dense weights, whose features may have a residual, and Phi of the rows, (n, F). If None, no
            residual is added to the noise or to the bound.
        order: The place of each row in the given order, (n,). If None, the rows are in the given order.
    """

    def __init__(
        self,
        rows: Block,
        mean: Tensor,
        noise: Tensor,
        *,
        features: tuple[Weights, Tensor] | None = None,
        order: Tensor | None = None,
    ) -> None:
        weights, phi = features or (Weights(()), rows.targets[:, :0])
        rows, bound, self._missing = with_feature_residuals(weights, rows, noise, phi)
        self._rows, self._residual, self._noise = rows, rows.targets - mean, rows.noise_diag(noise).expand(len(rows))
        self._other_terms, self._order = rows.replicate_log_prob(noise) + bound, order

    @abstractmethod
    def with_data(self, rows: Block, mean: Tensor, noise: Tensor) -> "Solver":
        """Return the solver for other targets and noise of the same inputs.

        If the noise is unchanged, the factors are reused, and other targets cost one solve.

        Args:
            rows: The same inputs with targets (n, k), noise and weights, in the given order.
            mean: The prior mean, (k,), float64.
            noise: The variance of one observation, 0-d, float64.
        """

    @property
    @abstractmethod
    def solved(self) -> Tensor:
        """The coefficients a = C^-1 (y - mean), (n, k), without gradients."""

    @property
    @abstractmethod
    def precisions(self) -> Tensor:
        """The diagonal p of C^-1, (n,), without gradients."""

    @property
    @abstractmethod
    def log_determinant(self) -> Tensor:
        """The log determinant of I + K D^-1, 0-d."""

    @property
    def coefficients(self) -> Tensor:
        """The coefficients C^-1 (y - mean), (n, k), in the given order."""
        return self.in_given_order(self.solved)

    @property
    def fitted(self) -> Tensor:
        """The posterior mean of f at the rows, (n, k), in the given order."""
        with torch.no_grad():
            return self.in_given_order(self._residual - self._noise[:, None] * self.solved)

    @property
    def latent_variances(self) -> Tensor:
        """The posterior variances of f at the rows, (n,), in the given order."""
        with torch.no_grad():
            return self.in_given_order(self._noise * (1 - self._noise * self.precisions)).clamp_min(0)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all others, in the given order."""
        with torch.no_grad():
            variance = 1 / self.precisions
            mean = self._rows.targets - self.solved * variance[:, None]
            return self.in_given_order(mean), self.in_given_order(variance + self._missing)

    def in_given_order(self, values: Tensor) -> Tensor:
        """Return values (n, ...) of the rows in the given order.

        Args:
            values: The values in the order of the solver, (n, ...).
        """
        return values if self._order is None else values[torch.argsort(self._order)]


def log_density(squares: Tensor, log_determinant: Tensor | float, output_weights: Tensor, count: int) -> Tensor:
    """Return the log density of k outputs with one covariance C, weighted by output, 0-d.

    Args:
        squares: The quadratic forms (y - mean)^T C^-1 (y - mean), (k,).
        log_determinant: The log determinant of C.
        output_weights: The weight of each output, (k,).
        count: The number of rows.
    """
    constants = log_determinant + count * math.log(2 * math.pi)
    return -0.5 * (output_weights.sum() * constants + squares @ output_weights)
