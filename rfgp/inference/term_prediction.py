"""Predictions of a sum of terms, and of each term."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from rfgp.errors import InvalidArgumentError
from rfgp.inference.arguments import in_caller_form
from rfgp.inference.conditioned import ConditionedGP
from rfgp.inference.distributions import in_memory
from rfgp.inference.prediction import Prediction
from rfgp.inference.unsupported import raise_unsupported_terms
from rfgp.torch_context import unlisted


@unlisted("latent", "location", "scale", "template", "mean_tensor", "variance_tensor", "covariance_tensor", "operator")
@dataclass(frozen=True, eq=False, repr=False)
class TermPrediction(Prediction):
    """The joint Gaussian distribution at n points of a sum of terms, in user units.

    Attributes:
        process: The standardized process of the sum.
        inputs: The points, standardized, (n, D), or blocks of them.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> X = {"t": np.linspace(0, 1, 20), "store": ["a", "b"] * 10}
        >>> gp = rfgp.GP(k.RBF("t", name="trend") + k.Group("store")).condition(X, np.sin(X["t"]))
        >>> gp.predict(X).terms["trend"].mean.shape
        (20,)
    """

    process: ConditionedGP | None = None
    inputs: Any = None

    @property
    def terms(self) -> "Terms":
        """The prediction of each term by name, without the mean of the model."""
        return Terms(self)

    def of(self, *terms: str) -> "TermPrediction":
        """Return the prediction of the sum of some terms, without the mean of the model.

        Args:
            terms: The names of the terms.

        Raises:
            InvalidArgumentError: If no term or an unknown term is named, or the posterior is not divided into terms.
        """
        return self._restricted(self._process.of(*terms))

    def without(self, *terms: str) -> "TermPrediction":
        """Return the prediction of the sum of all other terms, without the mean of the model.

        Args:
            terms: The names of the terms that are left out.

        Raises:
            InvalidArgumentError: If an unknown term is named, no term remains, or the posterior is not divided into
                terms.
        """
        return self._restricted(self._process.without(*terms))

    def centered(self) -> "TermPrediction":
        """Return the prediction of the values minus their mean over the points.

        A constant that several terms share cancels, so it does not widen their intervals.
        """
        zero, _ = torch.zeros_like(self.location), in_memory(self.inputs)
        whole = replace(self._with_moments(), calibrated_ends=None)
        return replace(whole, latent=self.latent.centered(), location=zero, process=None)

    def linear(self, weights: Any) -> Prediction:
        """Return the joint distribution of linear functionals of the values.

        Args:
            weights: One functional a row, (m, n), or one functional, (n,).
        """
        functionals = super().linear(weights)
        return replace(functionals, process=None) if isinstance(functionals, TermPrediction) else functionals

    def cross_covariance(self, first: Any, second: Any) -> Any:
        """Return the posterior covariance between two sums of terms at the points.

        Args:
            first: The names of the terms of the first sum, along the rows, or one name.
            second: The names of the terms of the second sum, along the columns, or one name.

        Returns:
            The covariance (n, n), or (n, n, k) for k outputs.

        Raises:
            InvalidArgumentError: If no term or an unknown term is named, or the posterior is not divided into terms.
        """
        covariance = self._process.cross_covariance(in_memory(self.inputs), first, second)
        scaled = self.scale**2 * (covariance[..., None] if self.scale.ndim else covariance)
        return in_caller_form(scaled, self.template, self.as_numpy)

    @property
    def _process(self) -> ConditionedGP:
        if self.process is None:
            raise InvalidArgumentError(
                "This prediction is not divided into terms. Select terms before centered() or linear()."
            )
        return self.process

    def _restricted(self, process: ConditionedGP) -> "TermPrediction":
        of_observations = None if self.of_observations is None else raise_unsupported_terms
        zero = torch.zeros_like(self.location)
        latent = process.at(self.inputs)
        whole = replace(self, of_observations=of_observations, calibrated_ends=None, scales=None)
        return replace(whole, latent=latent, location=zero, process=process)


@dataclass(frozen=True)
class Terms(Mapping[str, TermPrediction]):
    """The predictions of the terms by name.

    Attributes:
        total: The prediction of their sum.
    """

    total: TermPrediction

    def __getitem__(self, name: str) -> TermPrediction:
        return self.total.of(name)

    def __contains__(self, name: object) -> bool:
        return name in list(self)

    def __iter__(self) -> Iterator[str]:
        return iter(self.total._process.terms)

    def __len__(self) -> int:
        return len(self.total._process.terms)
