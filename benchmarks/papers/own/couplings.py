"""Couplings of frequencies against the published ones: kernel errors and divergences of posteriors on six tables."""

import math
import warnings
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
from scipy import stats

import rfgp
from benchmarks import protocol
from benchmarks.papers.own.alternatives import Leverage, SphericalRadial
from benchmarks.record import Result, Scale, Value
from rfgp import couplings

SPLITS, ENTRIES = 4, 40
DRAWS = {"fourier": 50, "laplace": 200}
"""A split; the errors of positive features have longer tails."""
TIMES = {"fourier": (1, 4, 16), "laplace": (2, 8)}
"""Numbers of frequencies, in dimensions."""
SOBOL = "scrambled Sobol, m a power of two"
OTHERS = ("iid", "orthogonal", "pairwise", "sobol", SOBOL, "near-orthogonal", "quadrature", "leverage")
METHODS = {
    "fourier": (*OTHERS, "energy", "energy, weighted", "energy, tilted"),
    "laplace": ("iid", "orthogonal-antithetic", "pairwise-antithetic", "energy", "energy, weighted"),
}
BASES = {"fourier": {"error": "pairwise", "kl": "orthogonal"}, "laplace": {"error": "pairwise-antithetic"}}
"""The published couplings to which the figures are relative."""
Case = protocol.Split
NAMES = {"error": "kernel error", "kl": "KL of posteriors"}


def made(method: str, case: Case, kind: str) -> couplings.Coupling:
    """Return the coupling of a method."""
    if method in ("leverage", "energy, tilted"):
        heights = couplings.leverage_histogram(case.x[: len(case.y)], case.noise, spectrum=case.spectrum)
        energy = couplings.Energy(kind, True, proposal_histogram=heights)
        return Leverage(heights) if method == "leverage" else energy
    if method == "quadrature":  # with the node at the origin, as in its paper
        return SphericalRadial(origin=True)
    if method == "energy, weighted":
        return couplings.Energy(kind, weighted=True)
    return couplings.for_features("sobol" if method == SOBOL else method, kind)


@cache
def judged(name: str, kind: str, times: int, splits: int, draws: int) -> dict[str, list[protocol.Figures]]:
    """Return the scores of the draws of each method on the splits of a table."""
    found: dict[str, list[protocol.Figures]] = {method: [] for method in METHODS[kind]}
    for index in range(splits):
        case = protocol.split(name, index)
        case = case.for_positive_features() if kind == "laplace" else case
        d = case.x.shape[1]
        for method, rows in found.items():
            m = 2 ** math.ceil(math.log2(times * d)) if method == SOBOL else times * d
            draw = protocol.sampler(made(method, case, kind), m, case, kind)
            rows.append(protocol.judge(case, draw, kind, draws, index, with_kl=kind == "fourier"))
    return found


def relative(found: dict[str, list[protocol.Figures]], method: str, base: str, figure: str) -> tuple[float, float]:
    """Return the mean over splits of a method's ratio to another, and its standard error."""
    pairs = zip(found[method], found[base], strict=True)
    return protocol.mean_error(getattr(one, figure) / getattr(other, figure) for one, other in pairs)


def over_tables(label: str, ratios: Iterable[tuple[float, float]]) -> list[Value]:
    """Return the geometric mean of tables' ratios, and the least and the largest."""
    means, errors = np.array(list(ratios)).T
    mean = protocol.geometric(means)
    low, high = int(means.argmin()), int(means.argmax())
    return [
        Value(label, mean, mean * float(np.linalg.norm(errors / means)) / len(means)),
        Value(f"{label}, least of the tables", means[low], errors[low]),
        Value(f"{label}, largest of the tables", means[high], errors[high]),
    ]


def _values(kind: str, scale: Scale) -> list[Value]:
    """Return the figures over tables, for each number of frequencies and method."""
    values, splits, draws = [], scale(SPLITS), scale(DRAWS[kind], least=10)
    for times in TIMES[kind]:
        tables = {name: judged(name, kind, times, splits, draws) for name in protocol.TABLES}
        for figure, base in BASES[kind].items():
            for method in METHODS[kind]:
                if method != base:
                    label = f"m = {times} d, {method}: {NAMES[figure]} / {base}"
                    values += over_tables(label, (relative(t, method, base, figure) for t in tables.values()))
    return values


def _unbiased(kind: str, scale: Scale) -> str:
    """Return the largest |z| of kernel entries of each method, and the limit that chance allows."""
    splits, draws = scale(SPLITS), scale(DRAWS[kind], least=10)
    tables = [judged(name, kind, times, splits, draws) for name in protocol.TABLES for times in TIMES[kind]]
    worst = {method: max(one.z for table in tables for one in table[method]) for method in METHODS[kind]}
    limit = stats.t.isf(1e-3 / (2 * ENTRIES * splits * len(tables)), draws - 1)
    said = ", ".join(f"{method} {z:.1f}" for method, z in worst.items())
    return (
        f"The largest |z| of {ENTRIES * splits * len(tables)} kernel entries: {said}; by chance it exceeds {limit:.1f} "
        "once in a thousand runs."
    )


PROTOCOL = (
    "Fixed before the results were seen. {splits} splits with 256 training and 256 test rows, columns standardized on "
    "the training rows, hyperparameters of the exact process with one lengthscale; {draws} draws; errors of the kernel "
    "over all rows, root mean squares. Ratios are of each split's figures, their standard errors over splits; over the "
    "tables the geometric mean, whose error is that of splits alone. Tables are as `rfgp.datasets` has them, abalone "
    "with one-hot letters. The default distribution of distances, one solution for "
    "each m and d. "
)


def _result(kind: str, title: str, words: str, scale: Scale) -> Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rfgp.RfgpWarning)
        values = _values(kind, scale)
    said = PROTOCOL.format(splits=scale(SPLITS), draws=scale(DRAWS[kind], least=10))
    return Result(title, said + words, values, [_unbiased(kind, scale)])


def fourier(scale: Scale) -> Result:
    """Return Fourier features' figures."""
    words = (
        "The other Sobol points are of the next power of two from m on, to their advantage. Weighted energy broadens "
        "the radial distribution; tilted follows the ridge leverage of the training rows as well (power 1). KL(exact "
        "|| approximate) of the joint distribution of observations at the test rows, nats a row."
    )
    return _result("fourier", "couplings for Fourier features on six tables, relative to published ones", words, scale)


def laplace(scale: Scale) -> Result:
    """Return positive features' figures."""
    words = (
        "The lengthscale is that of Eq. 36 of Reid et al. (2024), twice the mean of |x + y| over pairs of training "
        "rows. No divergences: at these sizes such estimates are not made for posteriors."
    )
    return _result("laplace", "couplings for positive features on six tables, relative to published ones", words, scale)


FIGURES: dict[str, Callable[[Scale], Result]] = {"couplings": fourier, "couplings-positive": laplace}
