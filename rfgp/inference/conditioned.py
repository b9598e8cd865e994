"""A Gaussian process given data, of all terms or of some terms."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.inference.distributions import Distribution, InputBlocks, LatentDistribution
from rfgp.inference.mixture import MixturePosterior
from rfgp.inference.new_levels import blocks_with_new_levels, with_new_levels
from rfgp.solvers import Posterior

Terms = str | Sequence[str]
"""The name of a term, or the names of several."""


@dataclass(frozen=True, eq=False)
class ConditionedGP:
    """The posterior of a sum of terms. The terms are the blocks of its prior.

    Attributes:
        posterior: The posterior.
        names: The names of the terms of the sum. If None, all terms.
        column: The index of the column in which the function is differentiated. If None, it is not differentiated.
    """

    posterior: Posterior
    names: tuple[str, ...] | None = None
    column: int | None = None

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of the terms."""
        return self.posterior.prior.names

    def at(self, inputs: Tensor | InputBlocks) -> Distribution:
        """Return the distribution of the latent function at n inputs.

        Args:
            inputs: The points, a table (n, d) or positions (n,), or blocks of them.
        """
        if isinstance(self.posterior, MixturePosterior):
            return self.posterior.at(inputs)
        found = LatentDistribution(self.posterior, inputs)
        if self.column is not None:
            return found
        return with_new_levels(found, blocks_with_new_levels(self.posterior.prior, self.names), inputs)

    def of(self, *terms: str) -> "ConditionedGP":
        """Return the process of the sum of some terms.

        Raises:
            InvalidArgumentError: If no term or an unknown term is named, or the posterior is not divided into terms.
        """
        names = self._checked(terms)
        return replace(self, posterior=self.posterior.of(names), names=tuple(names))

    def differentiated(self, column: int) -> "ConditionedGP":
        """Return the process of the derivative of the function in the column with index `column`.

        Raises:
            InvalidArgumentError: If a term has no derivative, or the posterior is not one of features.
        """
        return replace(self, posterior=self.posterior.differentiated(column), column=column)

    def without(self, *terms: str) -> "ConditionedGP":
        """Return the process of the sum of all other terms.

        Raises:
            InvalidArgumentError: If an unknown term is named, no term remains, or the posterior is not divided into
                terms.
        """
        left_out = self._checked(terms)
        return self.of(*(name for name in self.terms if name not in left_out))

    def cross_covariance(self, inputs: Tensor, first: Terms, second: Terms) -> Tensor:
        """Return the posterior covariance between two sums of terms at n inputs.

        Args:
            inputs: The points, (n, d) or (n,).
            first: The names of the terms of the rows, or one name.
            second: The names of the terms of the columns, or one name.

        Returns:
            The covariance (n, n), or (n, n, C) for C functions that do not share it.

        Raises:
            InvalidArgumentError: If no term or an unknown term is named, or the posterior is not divided into terms.
        """
        names = [self._checked([terms] if isinstance(terms, str) else terms) for terms in (first, second)]
        both = [name for name in names[0] if name in names[1]]
        blocks = blocks_with_new_levels(self.posterior.prior, both)
        known = self.posterior.cross_covariance(inputs, *names)
        new = (block.new_covariance(inputs, inputs) for block in blocks)
        return sum((each[..., None] if known.ndim > 2 else each for each in new), start=known)

    def sample_functions(self, count: int, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Draw functions from the posterior.

        Args:
            count: The number of draws.
            generator: A generator on the CPU.

        Returns:
            A map of the inputs of n points to (count, n, k).

        Raises:
            InvalidArgumentError: If the posterior is known at given points only.
        """
        return self.posterior.sample_functions(count, generator)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors (...) that a file keeps, by name."""
        return self.posterior.tensors()

    def _checked(self, terms: Sequence[str]) -> list[str]:
        unknown = [name for name in terms if name not in self.terms]
        if unknown or not terms:
            found = ", ".join(map(repr, unknown)) if unknown else "none"
            raise InvalidArgumentError(
                f"Terms must be among {', '.join(map(repr, self.terms))}, got {found}. Name at least one of them."
            )
        return list(terms)
