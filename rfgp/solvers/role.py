"""The roles of inference: what is known of rows under a prior, and what is kept of them for predictions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import covariance_root
from rfgp.rows import Block
from rfgp.solvers.operators import LatentOperator
from rfgp.solvers.terms import make_contiguous

Functions = Callable[[Tensor], Tensor]
"""Functions of the inputs of n points, (count, n, k)."""
Shape = tuple[int, ...]
"""The shape of a tensor."""
WarmStart = tuple[Tensor, ...]
"""Tensors from which a search for a posterior may begin, in the form of one kind of inference."""


class Posterior(ABC):
    """The state that predictions need: a Gaussian posterior of the latent vectors, and how points read them.

    Predictions are computed for chunks of points. `project` returns what ties points to the data, and the other methods
    take it. k outputs share one covariance; C functions that do not share it have an axis more.

    Attributes:
        prior: The prior, without gradients unless predictions are differentiated in its parameters.
    """

    prior: Prior
    stored: ClassVar[tuple[str, ...]] = ()
    """The names of the attributes that a file keeps. They are tensors, made contiguous as they are in files."""
    noise_process: "Posterior | None" = None
    """The posterior of the logarithm of the noise, if that is a function of the inputs."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of entries that a point takes in memory."""

    @abstractmethod
    def project(self, inputs: Tensor) -> Any:
        """Return what ties n inputs to the data, such as features (n, F) or covariances with the rows."""

    @abstractmethod
    def mean(self, projected: Any) -> Tensor:
        """Return the mean (n, k)."""

    @abstractmethod
    def variance(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return the marginal variances (n,), or (n, C) of C functions."""

    @abstractmethod
    def covariance(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return the covariance (n, n), or (n, n, C) of C functions."""

    def root(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return a matrix R (n, r) with R R^T the covariance. Of C functions R is (C n, r), function by function."""
        return covariance_root(self.covariance(inputs, projected))

    def moments(self, inputs: Tensor, projected: Any) -> tuple[Tensor, Tensor]:
        """Return mean (n, k) and marginal variances (n,)."""
        return self.mean(projected), self.variance(inputs, projected)

    def function_covariance(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return the covariances of C functions at each point, (n, C, C). Here the functions are independent."""
        return torch.diag_embed(self.variance(inputs, projected))

    def root_of_sums(self, inputs: Tensor, weights: Tensor) -> Tensor | None:
        """Return a matrix R (m, r) with R R^T the covariance of m weighted sums of values, each of q points of its own.

        It is without what is independent between points. None if the joint covariance of all points has to be formed.

        Args:
            inputs: The points, (m, q, D).
            weights: Their weights, (m, q).
        """
        return None

    def operator(self, inputs: Tensor) -> LatentOperator | None:
        """Return the covariance (n, n) as products and solves. None if it has to be formed."""
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
            InvalidArgumentError: the model is known at given points only.
        """

    def __post_init__(self) -> None:
        make_contiguous(self, *self.stored)

    def tensors(self) -> dict[str, Tensor]:
        """Return by name the tensors (...) that a file keeps."""
        return {name: getattr(self, name) for name in self.stored}

    @abstractmethod
    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return by name the shapes of these tensors for n rows and k outputs, except that of inputs.

        A file is refused if its tensors have other shapes, so they follow from the prior alone.
        """

    @property
    def takes_rows(self) -> bool:
        """Whether further rows can be added without the old ones."""
        return False

    def of(self, names: Sequence[str]) -> "Posterior":
        """Return the posterior of the sum of some terms.

        Args:
            names: The names of blocks.

        Raises:
            InvalidArgumentError: this posterior is not divided into terms.
        """
        raise InvalidArgumentError("This posterior is not divided into terms.")

    def differentiated(self, place: int) -> "Posterior":
        """Return the posterior of the derivative of the function in one column.

        Args:
            place: The place of the column among those of the inputs.

        Raises:
            InvalidArgumentError: this posterior is not one of features.
        """
        raise InvalidArgumentError(
            "Derivatives require a model of features, such as gp.with_approximation(rfgp.EquispacedFourier()) or "
            "rfgp.RandomFeatures(512)."
        )

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariance (n, n) between the sums of some terms and of others, at n inputs.

        Args:
            inputs: The points.
            first: The names of the terms of the rows.
            second: The names of the terms of the columns.

        Raises:
            InvalidArgumentError: this posterior is not divided into terms.
        """
        raise InvalidArgumentError("This posterior is not divided into terms.")


class Inference(Protocol):
    """The role: inference given rows under a prior. It is differentiable in the tensors that it was built from."""

    @abstractmethod
    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d, constants included."""

    @property
    def likelihood_error(self) -> float:
        """The standard error of the log marginal likelihood, 0 if it is not estimated."""
        return 0.0

    @property
    def effective_dof_fraction(self) -> float | None:
        """The share of the F weights that the rows determine, (F - tr A^-1) / F. None if weights are not the latent."""
        return None

    @property
    def remark(self) -> str:
        """A clause in brackets about the arithmetic, for a report. Empty if there is nothing to say."""
        return ""

    def warm_start(self) -> WarmStart:
        """Return where a search at hyperparameters close by may begin. Empty if nothing is searched."""
        return ()

    @abstractmethod
    def posterior(self) -> Posterior:
        """Return what predictions need."""

    @abstractmethod
    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all others.

        The variance includes the noise of the mean of the row's observations.
        """


@runtime_checkable
class Solver(Inference, Protocol):
    """The role: Gaussian regression of rows, y = mean + f + e, f from the prior and e ~ N(0, D).

    A solver does what depends on the prior and the inputs once; `at` gives the same prior and inputs other targets and
    another noise, which is how a search for the sites of other likelihoods uses it. k outputs share one covariance
    C = K + D, and their log densities count with the signs of the rows (`Block.signs`).
    """

    def at(self, rows: Block, mean: Tensor, noise: Tensor) -> Self:
        """Return the solver with other targets and noise of the same inputs.

        For the noise that the solver has, its factors are kept, so that other targets cost one solve.

        Args:
            rows: The same inputs with targets (n, k), noise and weights.
            mean: (k,), float64.
            noise: The variance of one observation, 0-d, float64.
        """

    @property
    def coefficients(self) -> Tensor:
        """The coefficients C^-1 (y - mean), (n, k)."""

    @property
    def fitted(self) -> Tensor:
        """The posterior mean of f at the rows, (n, k)."""

    @property
    def latent_variances(self) -> Tensor:
        """The posterior variances of f at the rows, (n,)."""

    @property
    def log_determinant(self) -> Tensor:
        """The log determinant of I + K D^-1, 0-d."""
