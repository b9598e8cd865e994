"""Priors that are sums of terms of every kind, and the same Gaussian process by dense algebra."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch

from graphs.precisions import IndependentField
from graphs.precisions.role import MarkovField, Pattern
from rfgp.blocks import KernelBlock, PrecisionBlock, Prior, Residual, VecchiaBlock, WeightBlock
from rfgp.features import Fourier, Nystrom
from rfgp.local.kinds import spectrum_of
from rfgp.rows import Block

F64 = torch.float64
NODES = np.linspace(-4, 4, 12)
LEVELS = 5
START = {
    "mean": [0.3, -0.2],
    "noise": 0.05,
    "neighbors.lengthscale": [0.5, 0.9, 0.7],
    "neighbors.variance": 0.6,
    "fourier.lengthscale": [1.0, 2.0, 1.5],
    "fourier.variance": 0.8,
    "linear.variance": 0.4,
    "inducing.lengthscale": [0.8, 1.2, 1.0],
    "inducing.variance": 0.7,
    "kernel.lengthscale": 1.3,
    "groups.variance": 0.5,
    "chain.lengthscale": [1.5],
    "chain.variance": 0.9,
}


def theta(**changes):
    return {name: torch.tensor(value, dtype=F64).requires_grad_() for name, value in (START | changes).items()}


def data(n=40, seed=0, uneven=True, copies=True):
    """Return rows of three columns and two outputs, one of them twice if there are copies."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.standard_normal((n, 3)))
    if copies:
        x[7] = x[3]
    more = (torch.from_numpy(rng.uniform(0.01, 0.1, n)), torch.from_numpy(rng.integers(1, 4, n).astype(float)))
    return Block(x, torch.from_numpy(rng.standard_normal((n, 2))), *(more if uneven else ()))


def points(n=9, seed=1):
    """Return new points, of which one is there twice and one is a row of `data`."""
    new = torch.randn(n, 3, dtype=F64, generator=torch.Generator().manual_seed(seed))
    new[2], new[3] = new[1], data().inputs[0]
    return new


class ChainField(MarkovField):
    """Values u at places of a line, sorted, of covariance exp(-|s - t| / lengthscale)."""

    parameters = ("lengthscale",)

    def __init__(self, places):
        self._gaps, size = torch.from_numpy(np.diff(places)), len(places)
        ones = sp.diags_array([np.ones(size - 1), np.ones(size), np.ones(size - 1)], offsets=[-1, 0, 1]).tocsr()
        self._pattern = Pattern(ones.indptr.astype(np.int64), ones.indices.astype(np.int32))

    @property
    def pattern(self):
        return self._pattern

    def _entries(self, values):
        """u_1 ~ N(0, 1), and u_(i+1) ~ N(r_i u_i, 1 - r_i^2) given u_i."""
        r = torch.exp(-self._gaps / values[0])
        rate, zero = 1 / (1 - r**2), values.new_zeros(1)
        diagonal = torch.cat([values.new_ones(1), rate]) + torch.cat([rate * r**2, zero])
        beside = -rate * r
        return torch.stack([torch.cat([zero, beside]), diagonal, torch.cat([beside, zero])], 1).reshape(-1)[1:-1]

    def entries(self, values):
        return self._entries(torch.from_numpy(values)).numpy()

    def pull_back(self, values, weights):
        with torch.enable_grad():
            free = torch.tensor(values, requires_grad=True)
            (found,) = torch.autograd.grad(self._entries(free) @ torch.from_numpy(weights), free)
        return found.numpy()


def chain_covariance(places, other, lengthscale):
    return torch.exp(-(places[:, None] - other).abs() / lengthscale[0])


@dataclass(frozen=True)
class Term:
    """A block, its covariance between inputs (n, 3) and (m, 3), and the variance (n,) of a residual."""

    block: object
    covariance: Callable
    residual: Callable = lambda a: torch.zeros(len(a), dtype=F64)

    @property
    def name(self):
        return self.block.name


def _neighbors(p, k=10**3, kernel="matern32", condition_on="responses"):
    length, variance = p["neighbors.lengthscale"], p["neighbors.variance"]

    def covariance(a, b):
        return variance * spectrum_of(kernel).kernel_between(a / length, b / length)

    return Term(VecchiaBlock(kernel, length, variance, k, 0, condition_on), covariance)


def _weights(block):
    return Term(block, lambda a, b: block.scaled(a).double() @ block.scaled(b).double().mT)


def _fourier(p):
    omega = torch.randn(4, 3, dtype=F64, generator=torch.Generator().manual_seed(0))
    make = partial(_scaled, Fourier(omega))
    return _weights(WeightBlock(make, 8, (p["fourier.lengthscale"],), p["fourier.variance"], None, "fourier"))


def _scaled(feature_map, x, lengthscale):
    return feature_map(x / lengthscale)


def _linear(p):
    return _weights(WeightBlock(lambda x: x, 3, (), p["linear.variance"], None, "linear"))


def _nystrom(x, lengthscale):
    z = torch.randn(6, 3, dtype=F64, generator=torch.Generator().manual_seed(3))
    return Nystrom(z / lengthscale, spectrum_of("matern32"))(x / lengthscale)


def _inducing(p, residual):
    length, variance = p["inducing.lengthscale"], p["inducing.variance"]
    block = WeightBlock(_nystrom, 6, (length,), variance, residual, "inducing")
    return block, lambda a: variance - block.scaled(a).square().sum(1)


def _fitc(p):
    block, residual = _inducing(p, Residual(True, lambda *given: None))
    return replace(_weights(block), residual=residual)


def _kernel(p):
    def covariance(a, b, lengthscale):
        far = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
        return torch.exp(-far / lengthscale)

    length = p["kernel.lengthscale"]
    block = KernelBlock(covariance, lambda a, _: a.new_ones(len(a)), (length,), name="kernel")
    return Term(block, lambda a, b: covariance(a, b, length))


def _levels(x):
    return (x[:, 2].floor() + 2).clamp(0, LEVELS - 1).long()


def _groups(p):
    def projector(x):
        count = len(x)
        return sp.csr_array((np.ones(count), _levels(x).numpy(), np.arange(count + 1)), shape=(count, LEVELS))

    values, variance = torch.zeros(0, dtype=F64), p["groups.variance"]
    block = PrecisionBlock(IndependentField(LEVELS), values, variance, projector, name="groups")
    return Term(block, lambda a, b: variance * (_levels(a)[:, None] == _levels(b)))


def _interpolation(x):
    """Return the weights (n, N) of the nodes at the second column."""
    place = ((x[:, 1].numpy() - NODES[0]) / (NODES[1] - NODES[0])).clip(0, len(NODES) - 1.001)
    left = place.astype(int)
    weights = np.stack([1 - (place - left), place - left], 1)
    columns = np.stack([left, left + 1], 1).reshape(-1)
    return sp.csr_array((weights.reshape(-1), columns, 2 * np.arange(len(x) + 1)), shape=(len(x), len(NODES)))


def _chain(p):
    length, variance = p["chain.lengthscale"], p["chain.variance"]
    nodes = torch.from_numpy(NODES)

    def covariance(a, b):
        left, right = (torch.from_numpy(_interpolation(x).toarray()) for x in (a, b))
        return variance * left @ chain_covariance(nodes, nodes, length) @ right.mT

    return Term(PrecisionBlock(ChainField(NODES), length, variance, _interpolation, name="chain"), covariance)


def _moving_chain(p):
    """A chain whose values are at the points themselves."""
    length, variance = p["chain.lengthscale"], p["chain.variance"]

    def refine(x):
        places = np.unique(x[:, 1].numpy())

        def projector(a):
            count, columns = len(a), np.searchsorted(places, a[:, 1].numpy())
            return sp.csr_array((np.ones(count), columns, np.arange(count + 1)), shape=(count, len(places)))

        return ChainField(places), projector

    block = PrecisionBlock(ChainField(NODES), length, variance, _interpolation, refine, "chain")
    return Term(block, lambda a, b: variance * chain_covariance(a[:, 1], b[:, 1], length))


TERMS = {
    "neighbors": _neighbors,
    "fourier": _fourier,
    "linear": _linear,
    "fitc": _fitc,
    "kernel": _kernel,
    "groups": _groups,
    "chain": _chain,
    "moving": _moving_chain,
}


def residual_terms(p, k=10**3):
    """Return inducing points and the neighbours that take up what they leave of a kernel."""
    length, variance = p["inducing.lengthscale"], p["inducing.variance"]
    block, _ = _inducing(p, None)
    weights = _weights(block)

    def covariance(a, b):
        whole = variance * spectrum_of("matern32").kernel_between(a / length, b / length)
        return whole - weights.covariance(a, b)

    return [weights, Term(VecchiaBlock("matern32", length, variance, k, 0, "responses", True), covariance)]


def terms_of(p, names, **options):
    """Return the terms of these names; of the residual of inducing points for "residual"."""
    if names == ("residual",):
        return residual_terms(p, **options)
    return [TERMS[name](p, **(options if name == "neighbors" else {})) for name in names]


def prior_of(terms):
    blocks = [term.block for term in terms]
    of = {kind: tuple(b for b in blocks if isinstance(b, kind)) for kind in (WeightBlock, KernelBlock, PrecisionBlock)}
    near = next((b for b in blocks if isinstance(b, VecchiaBlock)), None)
    return Prior(of[WeightBlock], of[KernelBlock], (), of[PrecisionBlock], near)


class Dense:
    """The process of some terms given rows, by dense algebra."""

    def __init__(self, terms, rows, p):
        self.terms, self.rows, self.mean, self.noise = terms, rows, p["mean"], p["noise"]
        self.residual = sum(term.residual(rows.inputs) for term in terms)
        self.each = (self.noise + self.residual).expand(len(rows)) + (
            0 if rows.fixed_noise is None else rows.fixed_noise
        )
        self.D = self.each / rows.counts()
        self.C = self.between(rows.inputs, rows.inputs) + self.D.diag()
        self.y = rows.targets - self.mean

    def between(self, a, b, names=None):
        return sum(
            (term.covariance(a, b) for term in self.terms if names is None or term.name in names),
            torch.zeros(len(a), len(b), dtype=F64),
        )

    def log_density(self):
        """Return that of all observations, each repetition a row of its own."""
        again = torch.repeat_interleave(torch.arange(len(self.rows)), self.rows.counts().long())
        x = self.rows.inputs[again]
        law = torch.distributions.MultivariateNormal(
            torch.zeros(len(x), dtype=F64), self.between(x, x) + self.each[again].diag()
        )
        return law.log_prob(self.y[again].mT) @ self.rows.each

    def mean_at(self, new, names=None):
        return self.between(new, self.rows.inputs, names) @ torch.linalg.solve(self.C, self.y)

    def covariance_at(self, new, first=None, second=None):
        left, right = (self.between(new, self.rows.inputs, names) for names in (first, second))
        first, second = ({t.name for t in self.terms} if names is None else set(names) for names in (first, second))
        shared = first & second
        own = sum((t.residual(new) for t in self.terms if t.name in shared), torch.zeros(len(new), dtype=F64))
        return self.between(new, new, shared) + own.diag() - left @ torch.linalg.solve(self.C, right.mT)

    def leave_one_out(self):
        inverse = torch.linalg.inv(self.C)
        variance = 1 / inverse.diagonal()
        mean = self.rows.targets - variance[:, None] * (inverse @ self.y)
        return mean, variance + (1 - 1 / self.rows.counts()) * self.residual

    def coefficients(self):
        return torch.linalg.solve(self.C, self.y)

    def latent(self):
        """Return means (n, k) and variances (n,) of f at the rows, whose noise is D."""
        K = self.C - self.D.diag()
        return K @ self.coefficients(), (K - K @ torch.linalg.solve(self.C, K)).diagonal()

    def log_determinant(self):
        return torch.linalg.slogdet(self.C)[1] - self.D.log().sum()
