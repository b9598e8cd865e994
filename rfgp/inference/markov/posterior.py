"""The posterior of a field with a sparse precision, and its laws."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.autograd import as_array
from rfgp.inference.iterated.evidence import check_joint
from rfgp.inference.laws import Functions, InputBlocks, in_memory, root_of
from rfgp.inference.markov.prior import MarkovPrior, products, squares
from rfgp.inference.markov.system import MarkovSystem
from rfgp.inference.posteriors import make_contiguous


@dataclass(frozen=True, eq=False)
class MarkovPosterior:
    """Through the rows, from which the factor is computed again after loading.

    Attributes:
        prior: Of the field.
        inputs: Of the rows.
        noise_diag: D (n,).
        targets: y - mean, (n, k).
        known: What was computed of the rows; None: nothing yet.
    """

    prior: MarkovPrior
    inputs: Tensor
    noise_diag: Tensor
    targets: Tensor
    known: MarkovSystem | None = None

    def __post_init__(self) -> None:
        make_contiguous(self, "inputs", "noise_diag", "targets")

    @cached_property
    def system(self) -> MarkovSystem:
        """The field given the rows."""
        if self.known is not None:
            return self.known
        prior = self.prior
        numbers = as_array(self.noise_diag), as_array(self.targets)
        observed = prior.observe(self.inputs)
        return MarkovSystem(prior.field, as_array(prior.values), float(prior.variance), observed, *numbers)

    def law(self, inputs: Tensor | InputBlocks) -> "MarkovLaw":
        """Return the latent law at n inputs, positions (n,) or rows (n, d)."""
        return MarkovLaw(self, in_memory(inputs))

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions from the posterior: a map of inputs of n points to (count, n, k)."""
        mean = self.system.mean
        size, k = mean.shape
        standard = torch.randn(size, count * k, generator=generator, dtype=torch.float64).numpy()
        drawn = np.tile(mean, (1, count)) + self.system.factor.sample(standard)
        observe = self.prior.observe
        return lambda x: torch.from_numpy(observe(x) @ drawn).reshape(len(x), count, k).movedim(0, 1)

    def tensors(self) -> dict[str, Tensor]:
        """Return the rows: inputs (n,) or (n, d), noise_diag (n,) and targets (n, k)."""
        return {name: getattr(self, name) for name in ("inputs", "noise_diag", "targets")}


@dataclass(frozen=True, eq=False)
class MarkovLaw:
    """The law that a field's posterior gives: exact means and variances at any number of points.

    Attributes:
        posterior: What the data say.
        inputs: The points.
    """

    posterior: MarkovPosterior
    inputs: Tensor

    def mean(self) -> Tensor:
        """Return the mean (n, k)."""
        return torch.from_numpy(np.asarray(self._observed @ self.posterior.system.mean))

    def variance(self) -> Tensor:
        """Return the marginal variances (n,)."""
        system = self.posterior.system
        return torch.from_numpy(squares(system.field, system.factor, self._observed)).clamp_min(0)

    def covariance(self) -> Tensor:
        """Return the covariance (n, n), of at most 2,000 points."""
        check_joint(len(self.inputs), "points", "")
        found = torch.from_numpy(products(self.posterior.system.factor, self._observed, self._observed))
        return (found + found.mT) / 2

    def root(self) -> Tensor:
        """Return a matrix R (n, n) with R R^T the covariance."""
        return root_of(self.covariance())

    @cached_property
    def _observed(self) -> sp.csr_array:
        return self.posterior.prior.observe(self.inputs)
