"""Posterior predictive distributions of labels: probabilities of several classes."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.stats import qmc
from torch import Tensor

from rfgp import random
from rfgp.ambient import plain
from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError
from rfgp.inference.arguments import check_probabilities, check_values
from rfgp.inference.distributions import sample_functions_jointly
from rfgp.inference.prediction import Prediction
from rfgp.inference.refusals import NO_EXPOSURE
from rfgp.likelihoods import Likelihood

_SOBOL_DRAWS = 512
"""The number of draws of a Sobol sequence, over which softmaxes are averaged."""
_CHUNK = 2**14
"""The number of points times classes that are averaged at once."""


@dataclass(frozen=True, eq=False, repr=False)
class ObservedClasses(Prediction):
    """The distribution of labels at n points: probabilities of the classes.

    They are means of softmaxes over the joint Gaussian distribution of the C functions at a point, by 512 draws of a
    Sobol sequence. Their error is about 0.002 for wide distributions.

    Attributes:
        likelihood: The likelihood, with the number C of classes.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 1, 12)[:, None]
        >>> gp = rfgp.ExactGP(likelihood="categorical", lengthscale=0.3).condition(X, np.arange(12) // 4)
        >>> gp.predict([[0.0], [0.5], [1.0]]).observed().labels.tolist()
        [0.0, 1.0, 2.0]
    """

    likelihood: Likelihood = field(kw_only=True)
    _has_closed_form = False

    def observed(self, exposure: Any = None) -> "ObservedClasses":
        """Return the distribution itself; labels have no exposure."""
        if exposure is not None:
            raise InvalidArgumentError(NO_EXPOSURE)
        return self

    @property
    def probabilities(self) -> Any:
        """The probabilities of the classes, (n, C)."""
        return self.mean

    @property
    def labels(self) -> Any:
        """The most probable classes, (n,)."""
        return self._out(self._probabilities().argmax(-1))

    @plain()
    def mean_tensor(self) -> Tensor:
        """Return the probabilities (n, C), float64 tensor."""
        return self._probabilities().clone()

    @plain()
    def variance_tensor(self) -> Tensor:
        """Return the variances of the classes' indicators, (n, C), float64 tensor."""
        p = self._probabilities()
        return p * (1 - p)

    def log_density(self, y: Any) -> Any:
        """Return the logarithm of the probability of each label (n,)."""
        p = self._probabilities()
        values = check_values(y, p[:, 0])
        if (wrong := self.likelihood.check(values)) is not None:
            raise InvalidArgumentError(f"y is no observation: {wrong}.")
        return self._out(p.gather(1, values.long()[:, None])[:, 0].log())

    def cdf(self, y: Any) -> Any:
        """Return the probabilities of labels of at most y, one number or (n,)."""
        p = self._probabilities()
        values = check_values(y, p[:, 0], may_be_one=True).expand(len(p))
        labels = torch.arange(p.shape[1], dtype=values.dtype)
        return self._out((p * (labels <= values[:, None])).sum(1))

    @plain()
    def quantile(self, probability: Any) -> Any:
        """Return the smallest label with cdf(label) at least a probability, (n,), or (q, n) for q probabilities."""
        found = self._probabilities()
        p = check_probabilities("probability", probability, found)
        cumulative = found.cumsum(1).clamp_max(1.0)
        cumulative[:, -1] = 1.0
        return self._out((cumulative < p[..., None, None]).sum(-1))

    @plain()
    def sample(self, num_samples: int, *, seed: int | None = None, generator: torch.Generator | None = None) -> Any:
        """Draw labels from their joint distribution, (s, n)."""
        num_samples = check_count("num_samples", num_samples, least=0)
        generator = random.chosen(seed, generator, random.Role.FUNCTIONS)
        mean = (self.location.double() + self.latent.mean()).cpu()
        f = mean + sample_functions_jointly(self.latent.root().cpu(), num_samples, mean, generator)
        return self._out(self.likelihood.sample(f, generator))

    def __repr__(self) -> str:
        return f"ObservedClasses({self.likelihood!r})"

    def _probabilities(self) -> Tensor:
        """Return the probabilities (n, C), which are kept."""
        with torch.no_grad():
            return self._cache.get("probabilities", self._averaged_softmax, keep=not self.latent.requires_grad)

    def _averaged_softmax(self) -> Tensor:
        covariance = self.latent.function_covariance()
        return averaged_softmax((self.location.double() + self.latent.mean()).cpu(), covariance.cpu())


def averaged_softmax(
    mean: Tensor,  # (n, C)
    covariance: Tensor,  # (n, C, C)
) -> Tensor:  # (n, C)
    """Return the means of softmaxes of f ~ N(mean, covariance) at each point."""
    num_classes = mean.shape[1]
    standard = torch.from_numpy(qmc.MultivariateNormalQMC(np.zeros(num_classes), seed=0).random(_SOBOL_DRAWS))
    values, vectors = torch.linalg.eigh(covariance)
    roots = vectors * values.clamp_min(0).sqrt()[:, None]
    size = max(1, _CHUNK // num_classes)
    parts = zip(torch.split(mean, size), torch.split(roots, size), strict=True)
    return torch.cat([torch.softmax(m[:, None] + standard @ root.mT, dim=2).mean(1) for m, root in parts])
