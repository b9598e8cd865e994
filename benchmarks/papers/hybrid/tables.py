"""Table 1: errors on rows of two tables."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize
from sklearn.datasets import load_wine

from benchmarks import protocol
from benchmarks.record import Result, Scale, Value
from rfgp import couplings, random, theory
from rfgp.features import softmax

Array = NDArray[np.float64]

PAIRS, DRAWS, FEATURES, M, N = 100, 200, 512, 64, 8
PRINTED = {
    "wine": {"HRF-ort": (0.70, 0.08), "HRF-iid": (0.85, 0.05), "ORF-reg": (1.00, 0.04), "ORF-Had": (1.10, 0.06),
             "Halton-R": (4.02, 0.1)},
    "Boston": {"HRF-ort": (0.72, 0.06), "HRF-iid": (0.79, 0.08), "ORF-reg": (1.05, 0.03), "ORF-Had": (1.14, 0.02),
               "Halton-R": (2.53, 0.08)},
}  # fmt: skip
"""Mean squared errors and their standard deviations, 1e-3."""

WHYS = {
    ("HRF-iid", "ORF-reg"): "open: no reading of ours has it",
    (
        "ORF-Had",
        "Halton-R",
    ): "three Hadamard products with constant norms (Yu et al. 2016) are biased in 13 dimensions; "
    "with norms of chi, and Halton's points shifted, not scrambled, the printed order is found",
}


def _rows(table: str) -> Array:
    if table == "wine":
        return np.asarray(load_wine().data, dtype=np.float64)
    return protocol.load("housing")[0]


def pairs(table: str, standardized: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a hundred pairs of rows of length 1."""
    rows = _rows(table)
    unit = (rows - rows.mean(0)) / rows.std(0) if standardized else rows
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    chosen = random.numpy_generator(0, random.Role.SPLIT).permutation(len(unit))[: 2 * min(PAIRS, len(unit) // 2)]
    x, y = np.split(unit[chosen], 2)
    return torch.as_tensor(x), torch.as_tensor(y)


Estimator = Callable[[torch.Generator], softmax.FeaturePair]


def estimators(d: int) -> dict[str, Estimator]:
    """Return a function that draws the estimator, for each method."""

    def trigonometric(coupling: str) -> Estimator:
        law = couplings.by_name(coupling)
        return lambda generator: softmax.Trigonometric(law.sample(FEATURES, d, generator=generator))

    def hybrid(coupling: str) -> Estimator:
        law = couplings.by_name(coupling)

        def make(generator: torch.Generator) -> softmax.FeaturePair:
            omega, tau = (law.sample(count, d, generator=generator) for count in (M, N))
            return softmax.bipolar(omega, softmax.coefficients.Angular(tau), antithetic=True)

        return make

    return {
        "HRF-ort": hybrid("orthogonal"),
        "HRF-iid": hybrid("iid"),
        "ORF-reg": trigonometric("orthogonal"),
        "ORF-Had": trigonometric("structured"),
        "Halton-R": trigonometric("halton"),
        "ORF-Had with norms of chi": trigonometric("fast-orthogonal"),
        "Halton-R, shifted": lambda generator: softmax.Trigonometric(
            couplings.Halton("shifted").sample(FEATURES, d, generator=generator)
        ),
    }


def errors(drawn: list[softmax.FeaturePair], x: torch.Tensor, y: torch.Tensor) -> Array:  # (draws,)
    """Return mean squared errors over the pairs, 1e-3."""
    exact = (x * y).sum(-1).exp()
    return np.array([1e3 * float(((p.left(x) * p.right(y)).sum(-1) - exact).square().mean()) for p in drawn])


def _of_table(table: str, draws: int) -> list[Value]:
    found: dict[str, dict[str, Array]] = {"standardized": {}, "as they are": {}, "matched": {}}
    generator, (x, y) = random.generator(0, random.Role.FREQUENCIES), pairs(table, True)
    drawn = {name: [make(generator) for _ in range(draws)] for name, make in estimators(x.shape[1]).items()}

    def miss(length: float) -> float:
        wanted = PRINTED[table]["ORF-reg"][0]
        return float(np.log(errors(drawn["ORF-reg"][:40], length * x, length * y).mean() / wanted))

    length = float(optimize.brentq(miss, 0.2, 2.0, xtol=1e-3))
    raw = pairs(table, False)
    for name, some in drawn.items():
        found["standardized"][name] = errors(some, x, y)
        found["as they are"][name] = errors(some, *raw)
        found["matched"][name] = errors(some, length * x, length * y)
    return [*_printed(table, found, length), *_orders(table, found["standardized"])]


def _printed(table: str, found: dict[str, dict[str, Array]], length: float) -> list[Value]:
    whys = {
        "standardized": "standardized rows of the length 1",
        "as they are": "rows of the length 1, not standardized",
        "matched": f"standardized rows of the length {length:.3f}, at which ORF-reg is as printed",
    }
    return [
        Value(f"{table}, {name}, {reading}", *protocol.mean_error(values), f"{_print_of(table, name)[0]:.2f}",
              _print_of(table, name)[1], whys[reading], comparable=False)
        for reading, methods in found.items()
        for name, values in methods.items()
    ]  # fmt: skip


def _print_of(table: str, name: str) -> tuple[float, float]:
    """Return the printed figure and its deviation of a method, or of one of which it is a reading."""
    return next(found for key, found in PRINTED[table].items() if name.startswith(key))


def _orders(table: str, found: dict[str, Array]) -> list[Value]:
    names, values = list(PRINTED[table]), []
    for first, second in pairwise(names):
        ratio, error = protocol.ratio_of_means(found[first], found[second])
        why = WHYS.get((first, second), "") if ratio > 1 else ""
        values.append(Value(f"{table}: {first} over {second}", ratio, error, "< 1", why=why))
    return values


def _taken_back(table: str) -> list[Value]:
    """Return the errors that the coefficients leave of the parts of HRF-iid, by closed forms, on standardized rows."""
    x, y = (side.numpy() for side in pairs(table, True))
    moments = theory.angular_moments(x, y, N)
    hybrid = float(theory.bipolar_variance(x, y, M, moments, antithetic=True).mean())
    waves = {m: float(theory.softmax_variance(x, y, m, estimator="trigonometric").mean()) for m in (M, FEATURES)}
    signs = float(theory.softmax_variance(x, y, 2 * M, coupling="iid-antithetic").mean())
    name = f"{table}, HRF-iid, closed form, over"
    return [
        Value(f"{name} its trigonometric part, m = {M}", hybrid / waves[M]),
        Value(f"{name} its positive part, m = {M}", hybrid / signs),
        Value(f"{name} {FEATURES} independent trigonometric frequencies", hybrid / waves[FEATURES]),
    ]


def _in_words(values: list[Value]) -> str:
    """Return a note on the closed forms."""
    found = {
        table: [value.ours for value in values if value.name.startswith(f"{table}, HRF-iid, cl")] for table in PRINTED
    }
    parts = [
        f"{of[0]:.2f} of the trigonometric part's error and {of[1]:.2f} of the positive one's on {table}, which makes "
        f"{of[2]:.1f} times that of {FEATURES}"
        for table, of in found.items()
    ]
    return (
        "That hybrids are better than orthogonal features is open. Each estimator of a hybrid with m = 64 has 8 times "
        "the mean squared error of 512 independent frequencies. Of that lambda and 1 - lambda leave "
        f"{'; '.join(parts)} (closed forms, above). Errors fall as 1 / m, and what the multiplications of 512 "
        "frequencies in 13 dimensions allow is m = 133. Absolute errors weigh nearly equal vectors most, where "
        "trigonometric ones, of the fourth power of the angle, beat the hybrid's, of its first power."
    )


def table_1(scale: Scale) -> Result:
    """Return mean squared errors on rows of wine and Boston."""
    closed = [value for table in PRINTED for value in _taken_back(table)]
    return Result(
        "Mean squared errors (1e-3) on pairs of rows of two tables",
        "100 random pairs of rows (178 of wine make 89), mean over 200 draws with its standard error over them; "
        "Fourier features of 512 frequencies, Halton's scrambled; angular hybrids (m, n) = (64, 8), as App. I pairs "
        "with 512, both signs, orthogonal signs too where frequencies are. How rows are scaled is not stated, and "
        "errors grow with the fourth power of their length, so printed figures are not compared: three readings are "
        "given, and the printed order is tested for standardized rows of the length 1.",
        [*(value for table in PRINTED for value in _of_table(table, scale(DRAWS))), *closed],
        [_in_words(closed)],
        missing=("the scale of the rows", "m and n of the hybrids", "over what standard deviations are taken"),
    )
