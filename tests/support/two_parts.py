"""Rows, features with a local process beside them, and the exact process of the sum kernel."""

from functools import partial

import numpy as np
import torch
from rfgp.inference.local import LocalEvidence, LocalPrior
from rfgp.inference.priors import FeaturePrior, KernelPrior

from rfgp import features
from rfgp.inference import dense
from rfgp.local import kinds
from rfgp.rows import Block

F64 = torch.float64
START = {
    "lengthscale": [1.0, 2.0, 1.5],
    "variance": 0.8,
    "local lengthscale": [0.5, 0.9, 0.7],
    "local variance": 0.6,
    "noise": 0.05,
    "mean": [0.3, -0.2],
}


def data(n=50, uneven=True, seed=0):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.standard_normal((n, 3)))
    x[7] = x[3]
    more = (torch.from_numpy(rng.uniform(0, 0.1, n)), torch.from_numpy(rng.integers(1, 4, n).astype(float)))
    return Block(x, torch.from_numpy(rng.standard_normal((n, 2))), *(more if uneven else ()))


def theta():
    return {name: torch.tensor(value, dtype=F64).requires_grad_() for name, value in START.items()}


def scaled(feature_map, x, lengthscale):
    return feature_map(x / lengthscale)


def feature_prior(p, seed=0):
    omega = torch.randn(6, 3, dtype=F64, generator=torch.Generator().manual_seed(seed))
    return FeaturePrior(partial(scaled, features.Fourier(omega)), 12, (p["lengthscale"],), p["variance"])


def local_prior(p, name="matern32", neighbors=50, with_features=True):
    of = feature_prior(p) if with_features else None
    return LocalPrior(of, name, p["local lengthscale"], p["local variance"], neighbors, 0)


def exact(p, rows, name="matern32", with_features=True):
    of, spectrum, length = feature_prior(p), kinds.spectrum_of(name), p["local lengthscale"]

    def kernel(a, b):
        near = p["local variance"] * spectrum.kernel_between(a / length, b / length)
        return near + of.kernel(a, b) if with_features else near

    prior = KernelPrior(kernel, lambda a: kernel(a, a).diagonal())
    return dense.KernelEvidence(prior, rows, p["mean"], p["noise"])


def evidence(p, rows, **options):
    return LocalEvidence.of(local_prior(p, **options), rows, p["mean"], p["noise"])
