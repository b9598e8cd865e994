"""A Gaussian process given data, of all terms or of some terms."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.inference.distributions import Distribution, InputBlocks, LatentDistribution, check_joint_fits
from rfgp.inference.mixture import MixturePosterior
from rfgp.inference.new_levels import HeteroscedasticDistribution, blocks_with_new_levels, with_new_levels
from rfgp.solvers import Posterior

Terms = str | Sequence[str]
"""The name of a term, or the names of several."""


@dataclass(frozen=True, eq=False)
class ConditionedGP:
    """The posterior of a sum of terms, which are the blocks of its prior.

    Attributes:
        posterior: The posterior.
        names: The names of the terms of the sum. If None, all terms.
        derivative_column: The index of the column in which the function is differentiated. If None, it is not
            differentiated.
        memory: The memory limit of joint distributions in bytes. If None, the memory of this machine.
    """

    posterior: Posterior
    names: tuple[str, ...] | None = None
    derivative_column: int | None = None
    memory: float | None = None

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of all terms of the prior."""
        return self.posterior.prior.names

    def at(self, inputs: Tensor | InputBlocks) -> Distribution:
        """Return the distribution of the latent function at n inputs.

        Args:
            inputs: The points, (n, d), or positions (n,), or blocks of them.
        """
        if isinstance(self.posterior, MixturePosterior):
            return self.posterior.at(inputs, self.memory)
        latent = LatentDistribution(self.posterior, inputs, self.memory)
        if self.derivative_column is not None:
            return latent
        if self.posterior.noise_process is not None:
            latent = HeteroscedasticDistribution(self.posterior, inputs, self.memory)
        return with_new_levels(latent, self.posterior.prior, self.names, inputs, self.memory)

    def of(self, *terms: str) -> "ConditionedGP":
        """Return the process of the sum of some terms.

        Args:
            terms: The names of the terms.

        Raises:
            InvalidArgumentError: If no term or an unknown term is named, or the posterior is not divided into terms.
        """
        names = self._checked(terms)
        return replace(self, posterior=self.posterior.of(names), names=tuple(names))

    def differentiated(self, column: int) -> "ConditionedGP":
        """Return the process of the derivative of the function in a column.

        Args:
            column: The index of the column among those of the inputs.

        Raises:
            InvalidArgumentError: If a term has no derivative, or the posterior is not one of features.
        """
        return replace(self, posterior=self.posterior.differentiated(column), derivative_column=column)

    def without(self, *terms: str) -> "ConditionedGP":
        """Return the process of the sum of all other terms.

        Args:
            terms: The names of the terms that are left out.

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
            first: The names of the terms of the first sum, along the rows, or one name.
            second: The names of the terms of the second sum, along the columns, or one name.

        Returns:
            The covariance (n, n), or (n, n, C) for C functions that do not share it.

        Raises:
            InvalidArgumentError: If no term or an unknown term is named, or the posterior is not divided into terms.
        """
        names = [self._checked([terms] if isinstance(terms, str) else terms) for terms in (first, second)]
        check_joint_fits(len(inputs), self.memory, self.posterior.num_functions)
        both = [name for name in names[0] if name in names[1]]
        blocks = blocks_with_new_levels(self.posterior.prior, both)
        base = self.posterior.cross_covariance(inputs, *names)
        new = (block.new_covariance(inputs, inputs) for block in blocks)
        return sum((covariance[..., None] if base.ndim > 2 else covariance for covariance in new), start=base)

    def sample_functions(self, count: int, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Draw standardized functions from the posterior, without the prior mean.

        Effects of levels without training rows are 0 in the draws. `at` includes their prior variance.

        Args:
            count: The number of draws.
            generator: A generator on the CPU.

        Returns:
            A function of the inputs (n, d), or positions (n,), to values (count, n, k), or (count, n, C) for C
            functions.

        Raises:
            InvalidArgumentError: If the posterior cannot draw functions, as with nearest neighbors, residuals, exact
                kernels on tables, or averages of models.
        """
        return self.posterior.sample_functions(count, generator)

    def tensors(self) -> dict[str, Tensor]:
        """Return the saved tensors (...) by name."""
        return self.posterior.tensors()

    def _checked(self, terms: Sequence[str]) -> list[str]:
        unknown = [name for name in terms if name not in self.terms]
        if unknown or not terms:
            given = ", ".join(map(repr, unknown)) if unknown else "none"
            raise InvalidArgumentError(
                f"Terms must be among {', '.join(map(repr, self.terms))}, got {given}. Name at least one of them."
            )
        return list(terms)
