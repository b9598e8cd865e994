"""What rows say under a prior."""

from abc import ABC, abstractmethod

from torch import Tensor

from rfgp.inference.laws import Posterior

Guess = tuple[Tensor, ...]
"""Of the posterior, where that is searched for: tensors (...) that one kind of evidence knows how to read."""


class Evidence(ABC):
    """What rows say under a prior; it holds them, and is differentiable in whatever it was built from."""

    @abstractmethod
    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of y, 0-d, constants included."""

    @property
    def likelihood_error(self) -> float:
        """The standard error of the log marginal likelihood, 0 where it is none."""
        return 0.0

    def guess(self) -> Guess:
        """Return where a search at hyperparameters close by may begin; nothing where nothing is searched."""
        return ()

    @abstractmethod
    def posterior(self) -> Posterior:
        """Return what prediction needs of the rows."""

    @abstractmethod
    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,), noise included, of each row given all the others.

        The noise is that of the mean of the row's observations.
        """
