"""The posterior of a Matern process of one column, from the states of rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp.autograd import as_array
from rfgp.blocks import Prior
from rfgp.blocks.precision import COLUMNS
from rfgp.solvers.bordered import BorderedPosterior
from rfgp.solvers.chain.rows import Ascending, ChainRows, as_tensor, column_of
from rfgp.solvers.operators import LatentOperator
from rfgp.solvers.role import Functions, Posterior, Shape
from rfgp.solvers.terms import check_joint, known_terms


@dataclass(frozen=True, eq=False)
class ChainProjection:
    """The posterior at n points.

    Attributes:
        given: The process given the rows.
        points: The values of the column at the points, in ascending order.
    """

    given: ChainRows
    points: Ascending

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """The means (n, k) and variances (n,)."""
        states, given = [of_output.states_at(self.points.values) for of_output in self.given.states], self.given
        means = np.sqrt(given.variance) * np.stack([state.mean for state in states], axis=1)
        variances = given.variance * states[0].variance
        return as_tensor(self.points.restored(means)), as_tensor(self.points.restored(variances))

    @property
    def mean(self) -> Tensor:
        """The mean (n, k) of f."""
        return self._moments[0]

    @property
    def variances(self) -> Tensor:
        """The variances (n,) of f."""
        return self._moments[1]

    @property
    def covariance(self) -> Tensor:
        """The covariance (n, n) of f."""
        covariance = self.given.variance * self.given.states[0].covariance(self.points.values)
        return as_tensor(self.points.restored(self.points.restored(covariance).T))


@dataclass(frozen=True, eq=False)
class ChainPosterior(Posterior):
    """The posterior of a Matern process of one column, stored as the rows.

    After loading, the states are computed again from the rows.

    Means, variances and covariances are computed from the states. Derivatives in points and products are computed on
    demand from the sparse factor of the same rows.

    Methods have the arguments of those of `Posterior`.

    Attributes:
        prior: The prior of one block.
        inputs: The inputs of the rows, (n, d).
        noise_diag: The noise D, (n,).
        targets: The centered targets y - mean, (n, k).
        given: The computed process given the rows. If None, it is computed on demand.
    """

    prior: Prior
    inputs: Tensor
    noise_diag: Tensor
    targets: Tensor
    given: ChainRows | None = None

    serialized_fields = ("inputs", "noise_diag", "targets")

    @cached_property
    def _states(self) -> ChainRows:
        if self.given is not None:
            return self.given
        return ChainRows(self.prior, self.inputs, self.noise_diag.double(), self.targets)

    @cached_property
    def _sparse(self) -> BorderedPosterior:
        return BorderedPosterior(self.prior, self.inputs, self.noise_diag, self.targets)

    @property
    def width(self) -> int:
        """The number of entries of a point.

        They are the states before and after it, and temporary arrays.
        """
        return COLUMNS

    def project(self, inputs: Tensor) -> Any:
        """Return the posterior at n single points (n, d), with its mean and variances."""
        if torch.is_grad_enabled() and inputs.requires_grad:
            return self._sparse.project(inputs)
        return self._project_single(inputs)

    def mean(self, projected: Any) -> Tensor:
        """Return the posterior mean, (n, k)."""
        mean: Tensor = projected.mean
        return mean

    def variance(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return the marginal posterior variances, (n,)."""
        variance: Tensor = projected.variances
        return variance

    def covariance(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return the posterior covariance (n, n) of at most 2,000 points.

        Raises:
            InvalidArgumentError: If there are more points.
            NotDifferentiableError: If the inputs require gradients.
        """
        check_joint(len(inputs), "points")
        if torch.is_grad_enabled() and inputs.requires_grad:
            return self._sparse.covariance(inputs, projected)
        return self._project_single(inputs).covariance

    def operator(self, inputs: Tensor) -> LatentOperator | None:
        """Return the posterior covariance (n, n) as products and solves, or None.

        The result is None if the covariance must be formed.
        """
        return self._sparse.operator(inputs)

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Raise an error, because the process is defined at given positions only.

        Raises:
            InvalidArgumentError: Always.
        """
        return self._sparse.sample_functions(count, generator)

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of noise_diag and targets by name."""
        return {"noise_diag": (n,), "targets": (n, k)}

    def of(self, names: Sequence[str]) -> "ChainPosterior":
        """Return the posterior itself, which is the sum of its one term.

        Raises:
            InvalidArgumentError: If a term is unknown, or none is named.
        """
        known_terms(self.prior, names)
        return self

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariance (n, n) of the only term with itself.

        Raises:
            InvalidArgumentError: If a term is unknown, none is named, or there are more than 2,000 points.
            NotDifferentiableError: If the inputs require gradients.
        """
        for names in (first, second):
            known_terms(self.prior, names)
        return self.covariance(inputs, self._project_single(inputs))

    def _project_single(self, inputs: Tensor) -> ChainProjection:
        return ChainProjection(self._states, Ascending.of(as_array(inputs[:, column_of(self.prior).position])))
