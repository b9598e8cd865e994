"""The posterior of a field with a sparse precision, and its laws."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.autograd import as_array
from rfgp.errors import InvalidArgumentError
from rfgp.inference.iterated.evidence import check_joint
from rfgp.inference.laws import Functions, InputBlocks, in_memory, root_of
from rfgp.inference.markov.prior import Factor, MarkovPrior, products, squares
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
        return self.known or self._given(self.prior.seeing(self.inputs))

    def law(self, inputs: Tensor | InputBlocks) -> "MarkovLaw":
        """Return the latent law at n inputs, positions (n,) or rows (n, d)."""
        points = in_memory(inputs)
        if self.prior.finer is None:
            return MarkovLaw(self.system, self.prior.observe(points))
        prior = self.prior.seeing(self.inputs, points)
        return MarkovLaw(self._given(prior), prior.observe(points))

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions from the posterior: a map of inputs of n points to (count, n, k).

        Raises:
            InvalidArgumentError: the field has values at some places only.
        """
        if self.prior.finer is not None:
            raise InvalidArgumentError(
                "This process has no functions to draw: it is known at the positions that are asked for. Draw from "
                "predict(X).sample(...)."
            )
        mean = self.system.mean
        size, k = mean.shape
        standard = torch.randn(size, count * k, generator=generator, dtype=torch.float64).numpy()
        drawn = np.tile(mean, (1, count)) + self.system.factor.sample(standard)
        observe = self.prior.observe
        return lambda x: torch.from_numpy(observe(x) @ drawn).reshape(len(x), count, k).movedim(0, 1)

    def _given(self, prior: MarkovPrior) -> MarkovSystem:
        """Return a field that has the rows among its values, given these."""
        numbers = as_array(self.noise_diag), as_array(self.targets)
        observed = prior.observe(self.inputs)
        return MarkovSystem(prior.field, as_array(prior.values), float(prior.variance), observed, *numbers)

    def tensors(self) -> dict[str, Tensor]:
        """Return the rows: inputs (n,) or (n, d), noise_diag (n,) and targets (n, k)."""
        return {name: getattr(self, name) for name in ("inputs", "noise_diag", "targets")}


@dataclass(frozen=True, eq=False)
class MarkovLaw:
    """The law that a field's posterior gives: exact means and variances at any number of points.

    Attributes:
        system: The field given the rows.
        observed: What the points read of it, A (n, N).
    """

    system: MarkovSystem
    observed: sp.csr_array

    def mean(self) -> Tensor:
        """Return the mean (n, k)."""
        return torch.from_numpy(np.asarray(self.observed @ self.system.mean))

    def variance(self) -> Tensor:
        """Return the marginal variances (n,)."""
        system = self.system
        return torch.from_numpy(squares(system.field, system.factor, self.observed)).clamp_min(0)

    def covariance(self) -> Tensor:
        """Return the covariance (n, n), of at most 2,000 points."""
        check_joint(self.observed.shape[0], "points", "")
        found = torch.from_numpy(products(self.system.factor, self.observed, self.observed))
        return (found + found.mT) / 2

    def root(self) -> Tensor:
        """Return a matrix R (n, n) with R R^T the covariance."""
        return root_of(self.covariance())

    def operator(self) -> "MarkovOperator":
        """Return the covariance (n, n), which is not formed."""
        return MarkovOperator(self.system, self.observed)


class MarkovOperator:
    """S = A H^-1 A^T, the covariance of what n points read of a field.

    Args:
        system: The field given rows, with the precision H.
        observed: A (n, N).
    """

    def __init__(self, system: MarkovSystem, observed: sp.csr_array) -> None:
        self._system, self._observed = system, observed
        self._further: tuple[Tensor, Factor] | None = None

    def __len__(self) -> int:
        return int(self._observed.shape[0])

    def times(self, v: Tensor) -> Tensor:
        """Return S v, (n, p)."""
        return torch.from_numpy(self._observed @ self._system.factor.solve(self._observed.T @ v.numpy()))

    def solve(self, v: Tensor, noise: Tensor) -> Tensor:
        """Return (S + D)^-1 v = D^-1 (v - A (H + A^T D^-1 A)^-1 A^T D^-1 v), (n, p); the last D (n,) is kept."""
        if self._further is None or self._further[0] is not noise:
            self._further = noise, self._system.further(self._observed, noise.numpy())
        scaled = v / noise[:, None]
        told = self._further[1].solve(self._observed.T @ scaled.numpy())
        return scaled - torch.from_numpy(self._observed @ told) / noise[:, None]

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return draws of N(0, S), (n, count)."""
        standard = torch.randn(self._observed.shape[1], count, generator=generator, dtype=torch.float64)
        return torch.from_numpy(self._observed @ self._system.factor.sample(standard.numpy()))
