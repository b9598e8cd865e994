"""The law of labels: probabilities of several classes."""

from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import torch
from scipy.stats import qmc
from torch import Tensor

from rfgp import random
from rfgp.ambient import Cached, plain
from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError
from rfgp.inference.laws import Law
from rfgp.inference.prediction import NO_LOGARITHM, LogNormal, Prediction, drawn_together, probabilities, values_like
from rfgp.likelihoods import Likelihood

NO_COVARIANCE = (
    "Observations under this likelihood have no covariance in closed form: take that of many samples, or that of the "
    "latent function, predict(X).covariance."
)
NO_SUMS = "Sums of observations under this likelihood have no law in closed form: sample them."
_DRAWS = 512
"""Of a Sobol sequence, for softmaxes."""
_CHUNK = 2**14
"""Of points times classes."""


class SpreadLaw(Law, Protocol):
    """The role: the law of C functions at n points that are not independent."""

    def spread(self) -> Tensor:
        """Return the covariances of the functions at each point, (n, C, C)."""


@dataclass(frozen=True, eq=False, repr=False)
class ObservedClasses(Prediction):
    """The law of labels at n points, in the user's units: probabilities of the classes.

    They are means of softmaxes over the C functions' joint normal law at a point, by 512 draws of a Sobol sequence: to
    some .002 for broad laws.

    Attributes:
        likelihood: With the number C of classes.
    """

    likelihood: Likelihood | None = None

    def observed(self, exposure: Any = None) -> "ObservedClasses":
        """Return the law itself; labels have no exposure."""
        if exposure is not None:
            raise InvalidArgumentError("exposure is of counts and positive values around e^f.")
        return self

    @property
    def probabilities(self) -> Any:
        """The probabilities of the classes, (n, C)."""
        return self.mean

    @property
    def labels(self) -> Any:
        """The likeliest classes, (n,)."""
        return self._out(self._shares.argmax(-1))

    @plain()
    def mean_tensor(self) -> Tensor:
        """Return the probabilities (n, C), float64 tensor."""
        return self._shares

    @plain()
    def variance_tensor(self) -> Tensor:
        """Return the variances of the classes' indicators, (n, C), float64 tensor."""
        return self._shares * (1 - self._shares)

    def log_density(self, y: Any) -> Any:
        """Return the logarithm of the probability of each label (n,)."""
        values = values_like(y, self._shares[:, 0])
        if (wrong := self._law.check(values)) is not None:
            raise InvalidArgumentError(f"y is no observation: {wrong}.")
        return self._out(self._shares.gather(1, values.long()[:, None])[:, 0].log())

    def cdf(self, y: Any) -> Any:
        """Return the probabilities of labels of at most y, one number or (n,)."""
        values = values_like(y, self._shares[:, 0], may_be_one=True).expand(len(self._shares))
        labels = torch.arange(self._shares.shape[1], dtype=values.dtype)
        return self._out((self._shares * (labels <= values[:, None])).sum(1))

    @plain()
    def quantile(self, probability: Any) -> Any:
        """Return the least label with at least this probability of at most that, (n,), or (q, n)."""
        p = probabilities("probability", probability, self._shares)
        below = self._shares.cumsum(1).clamp_max(1.0)
        below[:, -1] = 1.0
        return self._out((below < p[..., None, None]).sum(-1))

    @plain()
    def sample(self, num_samples: int, *, seed: int | None = None, generator: torch.Generator | None = None) -> Any:
        """Draw labels from the joint law, (s, n)."""
        num_samples = check_count("num_samples", num_samples, least=0)
        generator = random.chosen(seed, generator, random.Role.FUNCTIONS)
        mean = (self.location.double() + self.law.mean()).cpu()
        drawn = mean + drawn_together(self.law.root().cpu(), num_samples, mean, generator)
        return self._out(self._law.sample(drawn, generator))

    def covariance_tensor(self) -> Tensor:
        """Refuse: (n, n) numbers would be an integral each.

        Raises:
            InvalidArgumentError: always; with what to do.
        """
        raise InvalidArgumentError(NO_COVARIANCE)

    def linear(self, weights: Any) -> Prediction:
        """Refuse: sums (m, n) of labels mean nothing.

        Raises:
            InvalidArgumentError: always; with what to do.
        """
        raise InvalidArgumentError(NO_SUMS)

    def exp(self) -> LogNormal:
        """Refuse: labels are no logarithms.

        Raises:
            InvalidArgumentError: always.
        """
        raise InvalidArgumentError(NO_LOGARITHM)

    def operator(self) -> None:
        """Return that there is none of a covariance (n, n)."""
        return

    def __repr__(self) -> str:
        return f"ObservedClasses({self.likelihood!r})"

    @property
    def _law(self) -> Likelihood:
        assert self.likelihood is not None
        return self.likelihood

    @Cached
    def _shares(self) -> Tensor:
        """The probabilities (n, C)."""
        with torch.no_grad():
            law = cast(SpreadLaw, self.law)
            return class_shares((self.location.double() + law.mean()).cpu(), law.spread().cpu())


def class_shares(mean: Tensor, spread: Tensor) -> Tensor:
    """Return the means (n, C) of softmaxes of f ~ N(mean (n, C), spread (n, C, C))."""
    count = mean.shape[1]
    standard = torch.from_numpy(qmc.MultivariateNormalQMC(np.zeros(count), seed=0).random(_DRAWS))
    values, vectors = torch.linalg.eigh(spread)
    roots = vectors * values.clamp_min(0).sqrt()[:, None]
    size = max(1, _CHUNK // count)
    parts = zip(torch.split(mean, size), torch.split(roots, size), strict=True)
    return torch.cat([torch.softmax(m[:, None] + standard @ root.mT, dim=2).mean(1) for m, root in parts])
