"""Tables 1, 3 and 4: kernel errors, divergences of posteriors, and predictions of six tables of data.

PNC is pairwise norm coupling.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.papers.couplings.vectors import folds, splits
from benchmarks.papers.couplings.vectors.ensembles import (
    ENSEMBLES,
    EQUAL,
    HALTON,
    KINDS,
    OPPOSED,
    ORTHOGONAL,
    PNC,
    SOBOL,
    TRUE_PNC,
    drawn,
)
from benchmarks.papers.couplings.vectors.estimates import Exact, draw_errors
from benchmarks.papers.couplings.vectors.printed import DIVERGENCE, KERNEL, PREDICTION, Rows
from benchmarks.papers.couplings.vectors.splits import TABLES, Array
from benchmarks.protocol import mean_error, ratio_of_means
from benchmarks.record import Result, Scale, Value
from rfgp import random

DRAWS = {"fourier": 120, "laplace": 240}
"""Of each fold of the authors. Random splits have a quarter, other permutations an eighth."""
PERMUTATIONS = 8
"""Other permutations of the authors' rows."""
IID = "i.i.d."
ROWS = {"fourier": (IID, HALTON, ORTHOGONAL, PNC), "laplace": (IID, HALTON, ORTHOGONAL, EQUAL, OPPOSED)}
"""The ensembles that random splits and other permutations have."""


@dataclass(frozen=True)
class Printed:
    """A printed figure: features, ensemble, name of the data, and its standard error."""

    kind: str
    ensemble: str
    name: str
    figure: str
    error: float

    @property
    def label(self) -> str:
        return f"{self.name}, {KINDS[self.kind]}, {self.ensemble}"


@dataclass(frozen=True)
class Table:
    """A table of the paper.

    Attributes:
        measure: The index of its error among the errors of `outcomes`.
        printed: The printed figures, by features.
        is_relative: Whether figures are relative to those of i.i.d. frequencies.
    """

    measure: int
    printed: dict[str, Rows]
    is_relative: bool

    def all(self) -> Iterator[Printed]:
        """Yield all printed figures, row by row."""
        for kind, rows in self.printed.items():
            for ensemble, (figures, errors) in rows.items():
                for name, figure, error in zip(TABLES, figures.split(), errors.split(), strict=True):
                    yield Printed(kind, ensemble, name, f"{'0' * figure.startswith('.')}{figure}", float(error))

    def figures(self) -> Iterator[Printed]:
        """Yield the figures of the authors' folds.

        Figures of i.i.d. frequencies are omitted if they are 1 by definition, and Sobol figures always.
        """
        for one in self.all():
            if one.ensemble != SOBOL and not (self.is_relative and one.ensemble == IID):
                yield one


TABLE_1, TABLE_3, TABLE_4 = Table(0, KERNEL, True), Table(1, DIVERGENCE, False), Table(2, PREDICTION, True)


@cache
def outcomes(name: str, kind: str, permutation: int | None, count: int, draws: int) -> dict[str, Array]:
    """Return the errors of each ensemble, (folds, 2, 3): means over draws of each fold, and variances of these means.

    The first error is the root mean square error of the kernel with its signal variance. The second is KL(exact ||
    approximate) in nats per test row. The third is the root mean square error of predictions in the units of the data.

    Args:
        name: The name of the data.
        kind: The kind of features.
        permutation: The permutation of the authors' rows. If None, random splits of all rows.
        count: The number of folds or splits.
        draws: The number of draws of the features in each.
    """
    chosen = ENSEMBLES[kind] if permutation == folds.AUTHORS else ROWS[kind]
    found: dict[str, list[Array]] = {ensemble: [] for ensemble in chosen}
    for index in range(count):
        case = splits.case(name, kind, index) if permutation is None else folds.case(name, kind, index, permutation)
        exact, generator, d = Exact.of(case), random.generator(index, random.Role.FREQUENCIES), case.train.shape[1]
        for ensemble, parts in found.items():
            errors = draw_errors(case, exact, drawn(ensemble, kind, d, draws, generator), kind).numpy()
            errors[:, 0] = case.fit.signal * np.sqrt(errors[:, 0])
            errors[:, 2] *= case.scale
            parts.append(np.stack([errors.mean(0), errors.var(0, ddof=1) / draws]))
    return {ensemble: np.array(parts) for ensemble, parts in found.items()}


def by_draws(table: Table, found: dict[str, Array], ensemble: str) -> tuple[float, float]:
    """Return a figure of a table and its standard error over draws, for given folds."""
    own, base = (found[one][:, :, table.measure] for one in (ensemble, IID))
    mean, error = float(own[:, 0].mean()), math.sqrt(own[:, 1].sum()) / len(own)
    if not table.is_relative:
        return mean, error
    scale, noise = float(base[:, 0].mean()), math.sqrt(base[:, 1].sum()) / len(base)
    return mean / scale, mean / scale * math.hypot(error / mean, noise / scale)


def over_splits(table: Table, found: dict[str, Array], ensemble: str) -> tuple[float, float]:
    """Return a figure of a table and its standard error over splits."""
    own, base = (found[one][:, 0, table.measure] for one in (ensemble, IID))
    return ratio_of_means(own, base, paired=True) if table.is_relative else mean_error(own)


def over_folds(table: Table, found: dict[str, Array], ensemble: str) -> float:
    """Return the standard error of a figure over folds, in units of the mean of i.i.d. ones for relative figures."""
    own, base = (found[one][:, 0, table.measure] for one in (ensemble, IID))
    error = float(own.std(ddof=1) / math.sqrt(len(own)))
    return error / float(base.mean()) if table.is_relative else error


def _found(one: Printed, permutation: int | None, scale: Scale) -> dict[str, Array]:
    share = 1 if permutation == folds.AUTHORS else 4 if permutation is None else 8
    count = 4 if scale.quick else folds.FOLDS
    return outcomes(one.name, one.kind, permutation, count, scale(DRAWS[one.kind] // share, least=4))


def figures(table: Table, scale: Scale, permutation: int | None = folds.AUTHORS) -> list[Value]:
    """Return the figures by the authors' folds, with errors over draws; or by random splits, which are not compared."""
    error_of, how = (over_splits, " (random splits)") if permutation is None else (by_draws, "")
    return [
        Value(
            f"{one.label}{how}",
            *error_of(table, _found(one, permutation, scale), one.ensemble),
            one.figure,
            one.error,
            comparable=permutation == folds.AUTHORS,
        )
        for one in table.figures()
    ]


def _of_permutations(table: Table, one: Printed, ensemble: str, scale: Scale) -> tuple[float, float]:
    """Return the mean of a figure over other permutations, and its standard deviation over them."""
    chosen = range(1, 1 + (2 if scale.quick else PERMUTATIONS))
    values = [by_draws(table, _found(one, permutation, scale), ensemble)[0] for permutation in chosen]
    return float(np.mean(values)), float(np.std(values, ddof=1))


def permuted(table: Table, scale: Scale) -> list[Value]:
    """Return the figures over other permutations of the authors' rows: means and standard deviations, not compared."""
    return [
        Value(
            f"{one.label} (other permutations)",
            *_of_permutations(table, one, one.ensemble, scale),
            one.figure,
            comparable=False,
        )
        for one in table.figures()
    ]


def bars(table: Table, scale: Scale) -> list[Value]:
    """Return the standard errors over folds of i.i.d. frequencies, of tables of relative figures.

    Both are of the same folds. The error of the comparison is that of a standard deviation of 20 numbers.
    """
    return [
        Value(
            f"{one.label}, standard error over folds",
            over_folds(table, _found(one, folds.AUTHORS, scale), IID),
            0.0,
            f"{one.error:.3f}",
            one.error / math.sqrt(2 * (folds.FOLDS - 1)),
        )
        for one in table.all()
        if table.is_relative and one.ensemble == IID
    ]


def sobol(table: Table, scale: Scale) -> list[Value]:
    """Return the printed Sobol row of Table 4 compared with Halton points of other permutations, and true Sobol points.

    The error is that of one more permutation. True Sobol points are scrambled, since the first plain point is the
    origin and the second a frequency of 0.
    """
    values = []
    for one in table.all():
        if one.ensemble == SOBOL:
            mean, deviation = _of_permutations(table, one, HALTON, scale)
            error = deviation * math.sqrt(1 + 1 / PERMUTATIONS)
            values.append(Value(f"{one.label} as printed: Halton, other permutations", mean, error, one.figure))
            ours = by_draws(table, _found(one, folds.AUTHORS, scale), SOBOL)
            values.append(Value(f"{one.label}, scrambled", *ours, one.figure, comparable=False))
    return values


def true_pnc(table: Table, scale: Scale) -> list[Value]:
    """Return positive features of pairwise norms and opposite directions, compared with the printed row."""
    return [
        Value(
            f"{one.name}, {KINDS[one.kind]}, {TRUE_PNC}",
            *by_draws(table, _found(one, folds.AUTHORS, scale), TRUE_PNC),
            one.figure,
            comparable=False,
        )
        for one in table.figures()
        if one.ensemble in (EQUAL, OPPOSED)
    ]


def is_near(value: Value) -> bool:
    """Return whether a figure lies within one printed standard error, up to rounding."""
    return abs(value.ours - float(value.printed)) <= value.printed_error + half_unit(value.printed)


def half_unit(printed: str) -> float:
    """Return the largest change by rounding to the digits of a number."""
    return 0.5 * 10.0 ** -len(printed.partition(".")[2])


def _counts(own: list[Value], others: list[Value]) -> list[Value]:
    """Return the numbers of figures that agree, by the authors' folds and by random splits."""
    sharp = [abs(v.ours - float(v.printed)) <= 2 * v.error + half_unit(v.printed) for v in own]
    return [
        Value(f"figures of {len(own)} within one printed standard error", sum(map(is_near, own))),
        Value(f"figures of {len(own)} within two standard errors of our draws", sum(sharp)),
        Value(f"figures of {len(own)} within one printed standard error, random splits", sum(map(is_near, others))),
    ]


def _by_row(table: Table, scale: Scale, own: list[Value], others: list[Value]) -> tuple[str, str]:
    """Return a table by rows, the number of figures that agree, and errors over folds compared with printed ones."""
    rows = [
        "| row | within one printed standard error | the same, random splits | standard error over folds / printed |",
        "|---|---|---|---|",
    ]
    printed, width = list(table.figures()), len(TABLES)
    for first in range(0, len(printed), width):
        row = slice(first, first + width)
        ratios = [
            over_folds(table, _found(p, folds.AUTHORS, scale), p.ensemble) / p.error for p in printed[row] if p.error
        ]
        near = [f"{sum(map(is_near, values[row]))} of {width}" for values in (own, others)]
        label = printed[first].label.partition(", ")[2]
        rows.append(f"| {label} | {' | '.join(near)} | {np.median(ratios):.2f} |")
    return (
        "Agreement by row, and the median over the data of our standard error over folds over the printed one:",
        "\n".join(rows),
    )


_PROTOCOL = (
    "By the rows and folds of the authors' public code (cambridge-mlg/learnable-qmc): the first 512 rows of each"
    " published file, one permutation of them, 20 folds. A fold has 25 test rows (10 of machine), and the first"
    " 256 of the other rows train. Columns and targets are standardized on all rows outside the fold."
    " Hyperparameters are those of the highest likelihood for RFF; for abalone those where the authors' 5,000"
    " steps of Adam end. For RLF the lengthscale is twice the mean of |x - y| (Eq. 36 has a plus), and Adam fits"
    " signal and noise. m = d for RFF, 2 d for RLF; {fourier} and {laplace} draws a fold. Halton points are"
    " shifted by one uniform vector modulo 1, and the frequencies rotated. The row RLF, orthogonal has opposite"
    " directions with independent norms. The paper's last row of RLF is called PNC + antithetic and is {last}; PNC"
    " + antithetic under its own name is listed too. Errors of ours are over draws, since the folds are the"
    " paper's.{more} Two variants are not compared. One has 20 random splits of the whole tables with 256 training"
    " and 256 test rows (half of each small table), standardized on the training rows, the highest likelihood, and a"
    " quarter of the draws. The other has {permutations} other permutations of the authors' rows, an eighth of the"
    " draws, highest likelihood for all"
    " RFF. Their ± is the standard deviation over permutations."
)


def _result(table: Table, title: str, last: str, more: str, scale: Scale) -> Result:
    own, others = figures(table, scale), figures(table, scale, None)
    words = _PROTOCOL.format(**DRAWS, last=last, more=more, permutations=PERMUTATIONS)
    values = [
        *bars(table, scale),
        *own,
        *sobol(table, scale),
        *true_pnc(table, scale),
        *permuted(table, scale),
        *others,
        *_counts(own, others),
    ]
    return Result(title, words, values, _by_row(table, scale, own, others))


def table_1(scale: Scale) -> Result:
    """Return Table 1: errors of the kernel at the test rows."""
    more = (
        " The error of a draw is the root mean square over all pairs of test rows, of the kernel with its signal"
        " variance; figures are ratios of means over draws and folds."
    )
    title = "errors of the kernel with positive and Fourier features, relative to independent frequencies"
    return _result(TABLE_1, title, EQUAL, more, scale)


def table_3(scale: Scale) -> Result:
    """Return Table 3: divergences between exact and approximate posteriors."""
    more = (
        " KL(exact || approximate) of the joint distributions of the observed targets at the test rows, noise included"
        " on both sides. The printed errors are one standard error over folds; the caption says two."
    )
    return _result(
        TABLE_3, "divergences of the approximate posterior from the exact one, nats a test row", EQUAL, more, scale
    )


def table_4(scale: Scale) -> Result:
    """Return Table 4: errors of predictions."""
    more = (
        " The error of a draw is the root mean square error at the test rows, in the units of the data; figures are"
        " ratios of means over draws and folds. The printed errors are one standard error over folds; the caption says"
        " two. The printed Sobol row appears to be Halton points on other folds (the authors' class of that name draws"
        " Halton points), so it is compared with those."
    )
    return _result(
        TABLE_4, "root mean square errors of predictions, relative to independent frequencies", OPPOSED, more, scale
    )
