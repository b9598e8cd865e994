"""Airfoil with Fourier features, which nothing explains: what readings of the protocol give in Tables 1, 3 and 4."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from scipy import optimize
from scipy.spatial import distance
from scipy.stats import norm
from torch import Tensor

import rfgp
from benchmarks.papers.couplings.vectors.ensembles import drawn
from benchmarks.papers.couplings.vectors.estimates import Exact, evaluated, judged
from benchmarks.papers.couplings.vectors.printed import DIVERGENCE, KERNEL, PREDICTION
from benchmarks.papers.couplings.vectors.splits import (
    SPLITS,
    TABLES,
    Array,
    Case,
    Fit,
    best_scales,
    fitted,
    most_likely,
    parts,
    table,
)
from benchmarks.record import Scale
from rfgp import random

NAME, ENSEMBLES, DRAWS = "airfoil", ("i.i.d.", "orthogonal", "PNC"), 20
LEVEL, LEAST_FREQUENCY = 124.836, 200.0
"""Of the published table, whose columns are centred in ours: the mean of its targets in dB, and the least frequency."""


def standard(x: Array, z: Array) -> Array:
    return np.asarray((z - x.mean(0)) / x.std(0))


def unit_interval(x: Array, z: Array) -> Array:
    return np.asarray((z - x.min(0)) / np.ptp(x, axis=0))


def normal_scores(x: Array, z: Array) -> Array:
    places = (np.arange(len(x)) + 0.5) / len(x)
    return np.stack([norm.ppf(np.interp(c, np.sort(s), places)) for c, s in zip(z.T, x.T, strict=True)], 1)


def whitened(x: Array, z: Array) -> Array:
    values, vectors = np.linalg.eigh(np.cov(x.T))
    return np.asarray((z - x.mean(0)) @ vectors / np.sqrt(values))


def log_frequency(x: Array, z: Array) -> Array:
    least = table(NAME)[0][:, 0].min()
    one, other = (np.column_stack([np.log(a[:, 0] - least + LEAST_FREQUENCY), a[:, 1:]]) for a in (x, z))
    return standard(one, other)


def with_its_mean(y: Array, w: Array) -> Array:
    return np.asarray((w + LEVEL) / y.std())


def _squares(x: Array) -> Array:
    return np.asarray(distance.squareform(distance.pdist(x, "sqeuclidean")))


def _refitted(x: Array, y: Array, lengthscale: float) -> Fit:
    return best_scales(_squares(x), y, lengthscale)


def longer(factor: float) -> Callable[[Array, Array, int], Fit]:
    """Return a function to fits with the noise and signal of the likeliest, and a longer lengthscale."""

    def fit(x: Array, y: Array, index: int) -> Fit:
        found = fitted(NAME, index)
        return Fit(factor * found.lengthscale, found.noise, found.signal, np.nan)

    return fit


def medians(x: Array, y: Array, index: int) -> Fit:
    """Return one fit for all splits."""
    fits = [fitted(NAME, i) for i in range(SPLITS)]
    found = [float(np.median([getattr(fit, key) for fit in fits])) for key in ("lengthscale", "noise", "signal")]
    return Fit(*found, np.nan)


def with_noise(variance: float) -> Callable[[Array, Array, int], Fit]:
    """Return a function to the likeliest lengthscale and signal for a given noise variance."""

    def fit(x: Array, y: Array, index: int) -> Fit:
        squares = _squares(x)

        def negative(logs: Array) -> float:
            length, signal = np.exp(logs)
            covariance = signal * np.exp(-squares / (2 * length**2)) + variance * np.eye(len(y))
            factor = np.linalg.cholesky(covariance)
            half = np.linalg.solve(factor, y)
            return float(half @ half / 2 + np.log(np.diag(factor)).sum())

        found = optimize.minimize(negative, [0.5, 0.5], method="Nelder-Mead", options={"xatol": 0.01, "fatol": 0.01})
        length, signal = np.exp(found.x)
        return Fit(float(length), variance / float(signal), float(signal), np.nan)

    return fit


@dataclass(frozen=True)
class Reading:
    """How a split becomes a case.

    Attributes:
        columns: From training rows and rows to what these become.
        targets: Likewise.
        fit: From training rows, targets and the number of the split.
        test: The most test rows.
        relevance: Whether each column has a lengthscale.
    """

    columns: Callable[[Array, Array], Array] = standard
    targets: Callable[[Array, Array], Array] = standard
    fit: Callable[[Array, Array, int], Fit] = lambda x, y, index: most_likely(x, y)
    test: int = 256
    relevance: bool = False

    def case(self, index: int) -> Case:
        """Return a split."""
        X, y = table(NAME)
        rows, others = parts(len(X), index)
        others = others[: self.test]
        x, z = (self.columns(X[rows], X[chosen]) for chosen in (rows, others))
        t, w = (self.targets(y[rows], y[chosen]) for chosen in (rows, others))
        if self.relevance:
            found = rfgp.ExactGP(ard=True).fit(x, t).hyperparameters
            lengths = found.lengthscale.detach().numpy()
            x, z, signal = x / lengths, z / lengths, found.outputscale.item()
            fit = Fit(1.0, found.noise.item() / signal, signal, np.nan)
        else:
            fit = self.fit(x, t, index)
        tensors = [torch.as_tensor(part) for part in (x / fit.lengthscale, z / fit.lengthscale, t, w)]
        return Case(*tensors, fit)


READINGS = {
    "as above": Reading(),
    "75 test rows, a twentieth": Reading(test=75),
    "150 test rows, a tenth": Reading(test=150),
    "columns in [0, 1]": Reading(columns=unit_interval),
    "columns to normal scores": Reading(columns=normal_scores),
    "columns whitened": Reading(columns=whitened),
    "the frequency's logarithm": Reading(columns=log_frequency),
    "targets in [0, 1], not centred": Reading(targets=unit_interval),
    "columns and targets in [0, 1]": Reading(columns=unit_interval, targets=unit_interval),
    "targets with their mean of 125 dB": Reading(targets=with_its_mean),
    "a lengthscale for each column": Reading(relevance=True),
    "one fit for all splits": Reading(fit=medians),
    "noise variance .5": Reading(fit=with_noise(0.5)),
    "noise variance 1": Reading(fit=with_noise(1.0)),
    "the median distance": Reading(fit=lambda x, y, i: _refitted(x, y, float(np.median(distance.pdist(x))))),
    "the lengthscale of Eq. 36": Reading(
        fit=lambda x, y, i: _refitted(x, y, 2 * float(np.linalg.norm(x[:, None] + x, axis=2).mean()))
    ),
    "twice the lengthscale": Reading(fit=longer(2.0)),
    "2.5 times the lengthscale": Reading(fit=longer(2.5)),
    "2.5 times it, noise and signal refitted": Reading(
        fit=lambda x, y, i: _refitted(x, y, 2.5 * fitted(NAME, i).lengthscale)
    ),
}


def marginal(case: Case, exact: Exact, train: Tensor, test: Tensor) -> float:
    """Return the mean over test rows, and draws, of KL(exact || draw) of single observations."""
    noise = case.fit.noise
    lower = torch.linalg.cholesky(train.mT @ train + noise * torch.eye(train.shape[2], dtype=torch.float64))
    mean = (test @ torch.cholesky_solve(train.mT @ case.y[:, None], lower))[..., 0]
    inside = torch.linalg.solve_triangular(lower, test.mT, upper=False)
    ratio = exact.covariance.diagonal() / (noise * (1 + inside.square().sum(1)))
    own = exact.covariance.diagonal() / ratio * case.fit.signal
    return float((ratio + (mean - exact.mean).square() / own - 1 - ratio.log()).mean() / 2)


@cache
def measured(name: str, splits: int) -> Array:  # (splits, 3, 5)
    """Return the kernel error, KL both ways and of single rows, and the test RMSE, by split and ensemble."""
    found = []
    for index in range(splits):
        case, generator = READINGS[name].case(index), random.generator(index, random.Role.FREQUENCIES)
        exact, rows = Exact.of(case), []
        for ensemble in ENSEMBLES:
            draws = drawn(ensemble, "fourier", case.train.shape[1], DRAWS, generator)
            squared, forward, backward, error = judged(case, exact, draws, "fourier").mean(0).tolist()
            single = marginal(case, exact, *(evaluated(draws, "fourier", x) for x in (case.train, case.test)))
            rows.append([case.fit.signal * squared**0.5, forward, backward, single, error])
        found.append(rows)
    return np.array(found)


def _row(name: str, splits: int) -> str:
    means = measured(name, splits).mean(0)
    first, last = means[:, 0] / means[0, 0], means[:, 4] / means[0, 4]
    kls = [" / ".join(f"{value:.2f}" for value in means[:, k]) for k in (1, 2, 3)]
    return f"| {name} | {first[1]:.3f} / {first[2]:.3f} | {' | '.join(kls)} | {last[1]:.3f} / {last[2]:.3f} |"


def readings_of_airfoil(scale: Scale) -> tuple[str, str]:
    """Return a table of what readings give, and what it says."""
    place, splits = TABLES.index(NAME), scale(SPLITS)
    one, three, four = (
        [f"0{part['fourier'][ensemble][0].split()[place].removeprefix('0')}" for ensemble in ENSEMBLES]
        for part in (KERNEL, DIVERGENCE, PREDICTION)
    )
    rows = [
        "| reading | Table 1 | Table 3 | approximate first | of single rows | Table 4 |",
        "|---|---|---|---|---|---|",
    ]
    rows.append(f"| printed | {' / '.join(one[1:])} | {' / '.join(three)} | | | {' / '.join(four[1:])} |")
    rows += [_row(name, splits) for name in READINGS]
    said = (
        f"Airfoil, RFF, is open. Readings, with {DRAWS} draws a split: Tables 1 and 4 of orthogonal / PNC features,"
        " Table 3 of i.i.d. / orthogonal / PNC. None that the text allows comes near all three tables; lengthscales 2"
        " to 2.5 times the likelihood's do, at its noise and signal, and cost some 10 nats. Adam does not end there: on"
        " three splits, from four starts, in logarithms and through softplus, it came to the highest likelihood within"
        " 1,800 steps, and on six splits the likelihood has no other maximum in the lengthscale."
    )
    return said, "\n".join(rows)
