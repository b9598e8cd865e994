"""The classification of the simplex paper: kernel regression of the classes of eight tables by positive features.

The rows, scales and repeats are those of the authors' public code (isaac-reid/simplex_random_features), with the same
files. All text columns are one-hot, after the numbers, and the ranks of chess are among them. The last line of a file
is left out. Rows are in the order of numpy's generator 42, and columns are standardized on the training rows. The first
90 % are for training, the next 5 % for validation, the last 5 % for tests. This split was chosen by these tables. The
last version of the code trains on the first 95 % and validates on the test rows. With that, the accuracies of three of
six tables in Table 2 differ by 4.0 (abalone), 4.3 (cmc) and 7.3 (wifi) standard errors. With a separate validation set,
which the paper mentions, they agree. The test therefore covers everything except that choice of two.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.protocol import mean_error
from benchmarks.record import CLOSE, Result, Scale, Value
from rfgp import couplings, datasets, lengthscales
from rfgp.couplings.structured import next_power_of_two

NAMES = ("abalone", "banknote", "car", "yeast", "cmc", "nursery", "wifi", "chess")
SIGMAS = (0.41331138, 1.06445901, 0.77656608, 0.90918797, 0.48389667, 0.18788887, 0.21997651, 0.25754408)
SIGMA = dict(zip(NAMES, SIGMAS, strict=True))
MEAN_V = ("1.7", "2.6", "5.0", "3.1", "2.0", "1.4", "0.8", "2.3")
TEXT = {"abalone": (0,), "car": tuple(range(6)), "nursery": tuple(range(8)), "chess": tuple(range(6))}
LARGE, DRAWS, MANY = ("nursery", "chess"), 500, 2000
PLUS = couplings.SimplexPlus(5)

OPEN = "open"

TABLE_2 = {
    "SimRFs": "0.1421 0.7229 0.6754 0.3202 0.4047 0.6874 0.6314 0.2000",
    "SimRFs+": "0.1419 0.7132 0.6751 0.3208 0.4065 0.6917 0.6473 0.2000",
}
ERRORS_2 = {"SimRFs": (2, 12, 4, 4, 5, 5, 18, 1), "SimRFs+": (2, 12, 4, 4, 5, 4, 18, 1)}
TABLE_3 = {
    "IIDRFs": "0.1432 0.6441 0.6768 0.3187 0.4088 0.5870 0.4914 0.2011",
    "ORFs": "0.1445 0.6612 0.6788 0.3193 0.4149 0.6213 0.5224 0.2017",
    "fast ORFs": "0.1447 0.6596 0.6784 0.3171 0.4159 0.6193 0.5310 0.2016",
    "SimRFs": "0.1455 0.7196 0.6797 0.3187 0.4206 0.7030 0.6509 0.2021",
    "fast SimRFs": "0.1462 0.7296 0.6800 0.3195 0.4222 0.7037 0.6533 0.2021",
}
ERRORS_3 = {
    "IIDRFs": (3, 24, 6, 6, 9, 13, 26, 2),
    "ORFs": (3, 25, 6, 6, 9, 19, 25, 2),
    "fast ORFs": (3, 24, 6, 6, 9, 19, 24, 2),
    "SimRFs": (3, 19, 6, 6, 8, 8, 27, 2),
    "fast SimRFs": (3, 17, 6, 6, 8, 8, 27, 2),
}
COUPLINGS = {
    "IIDRFs": "iid",
    "ORFs": "orthogonal",
    "fast ORFs": "fast-orthogonal",
    "SimRFs": "simplex",
    "fast SimRFs": "fast-simplex",
    "SimRFs+": PLUS,
}
ROWS = (
    "Rows, their order and the scales sigma are those of the authors' public code: text columns one-hot, numpy's "
    "generator 42, standardized on the training rows, then multiplied by the published sigma. The first 90 % train, "
    "the next 5 % validate, the last 5 % test. The paper does not state the shares, and the last version of the code "
    "trains on the first 95 %; this reading was chosen by Table 2. Errors are over draws of the frequencies, as in the "
    "paper. There is one split."
)
MANY_DRAWS = (
    " 500 draws of nursery and chess, as in that code, 2,000 of the others: the printed errors are those of some "
    "10,000 draws in Table 2 and 4,500 in Table 3."
)


class Case(NamedTuple):
    """Rows of one table, standardized, and their classes."""

    train: torch.Tensor
    labels: np.ndarray
    test: torch.Tensor
    truth: np.ndarray
    valid: torch.Tensor
    checks: np.ndarray


@functools.cache
def case(name: str, order_seed: int = 42, share: float = 0.9) -> Case:
    """Return the rows of the paper's split, or of another order, or with another share to train on."""
    lines = datasets.fetch(name).read_text(encoding="utf-8").split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    cells = np.array([line.split(",") if "," in line else line.split() for line in lines[:-1]])
    cells = cells[:, 1:] if name == "yeast" else cells
    inputs, text = range(cells.shape[1] - 1), TEXT.get(name, ())
    numbers = [cells[:, k].astype(float)[:, None] for k in inputs if k not in text]
    dummies = [(cells[:, k][:, None] == np.unique(cells[:, k])).astype(float) for k in text]
    X, y = np.concatenate([*numbers, *dummies], axis=1), np.unique(cells[:, -1], return_inverse=True)[1]
    order = np.random.default_rng(order_seed).permutation(len(X))
    train, valid, test = order[: int(len(X) * share)], order[int(len(X) * 0.9) :], order[-int(len(X) * 0.05) :]
    valid = valid[: len(test)]
    mean, spread = X[train].mean(0), X[train].std(0)
    a, b, c = (torch.as_tensor((X[rows] - mean) / spread) for rows in (train, test, valid))
    return Case(a, y[train], b, y[test], c, y[valid])


def padded(x: torch.Tensor) -> torch.Tensor:
    """Return the columns with zeros up to the next power of two."""
    return torch.nn.functional.pad(x, (0, next_power_of_two(x.shape[1]) - x.shape[1]))


def accuracies(name: str, method: str, multiple: int, draws: int, *, pad: bool = False) -> np.ndarray:
    """Return the fraction of correct test rows, for each draw of m = multiple d frequencies.

    Draws are independent between tables and methods.
    """
    rows = case(name)
    a, b = (SIGMA[name] * (padded(x) if pad else x) for x in (rows.train, rows.test))
    m, seed = multiple * a.shape[1], 2 * list(COUPLINGS).index(method) + pad
    return lengthscales.class_accuracies(COUPLINGS[method], a, rows.labels, b, rows.truth, m, draws, seed=seed)


def draws_of(name: str, scale: Scale) -> int:
    """Return the number of draws: 500 for the large tables, as in the authors' code, and more for the others."""
    return scale(DRAWS if name in LARGE else MANY) // (5 if scale.quick else 1)


def compared(
    table: dict[str, str], errors: dict[str, tuple[int, ...]], scale: Scale, *, pad: bool
) -> tuple[list[Value], dict[tuple[str, str], float]]:
    """Return the values of a table of accuracies at m = d, and the means by method and data set."""
    values, means = [], {}
    for method, printed in table.items():
        for name, figure, error in zip(NAMES, printed.split(), errors[method], strict=True):
            mean, ours = mean_error(accuracies(name, method, 1, draws_of(name, scale), pad=pad))
            means[method, name] = mean
            value = Value(f"{name}, {method}", mean, ours, figure, error * 1e-4)
            values.append(value if value.verdict == "agrees" else dataclasses.replace(value, why=OPEN))
    return values, means


def elsewhere(name: str, draws: int, order: int = 42, share: float = 0.9) -> np.ndarray:
    """Return the accuracies of SimRFs, m = d, on another split, (draws,)."""
    rows = case(name, order, share)
    a, b = SIGMA[name] * rows.train, SIGMA[name] * rows.test
    return lengthscales.class_accuracies("simplex", a, rows.labels, b, rows.truth, a.shape[1], draws, seed=99)


def other_splits(name: str, scale: Scale) -> list[Value]:
    """Return the accuracy of SimRFs with 95 % training rows, and its variation over seven other orders of the rows."""
    place = NAMES.index(name)
    printed, error = TABLE_2["SimRFs"].split()[place], ERRORS_2["SimRFs"][place] * 1e-4
    found = mean_error(elsewhere(name, scale(MANY), share=0.95))
    spread = float(np.std([elsewhere(name, scale(150, 20), order).mean() for order in range(7)], ddof=1))
    return [
        Value(f"{name}, SimRFs, 95 % to train", *found, printed, error, "another reading", comparable=False),
        Value(f"{name}, SimRFs, standard deviation over other orders", spread),
    ]


def chosen_by(others: Sequence[Value]) -> str:
    """Return a sentence on the choice of the split: the distances of the other split from the printed figures."""
    read = [dataclasses.replace(value, comparable=True) for value in others if value.printed]
    far = {value.name.partition(",")[0]: value.distance or 0.0 for value in read}
    off = [f"{z:.1f} ({name})" for name, z in far.items() if z > CLOSE]
    return (
        "The split of 90, 5 and 5 % was chosen by this table, not before it: with 95 % to train, as that code's last "
        f"version has it, {len(off)} of {len(far)} accuracies of SimRFs are off by {', '.join(off)} standard errors. "
        "That was a choice among two: that these accuracies agree is no proof of the split."
    )


def mean_v(name: str) -> tuple[float, float]:
    """Return the mean of |x + y| over pairs of a test and a training row, scaled, and its error over test rows."""
    rows = case(name)
    lengths = torch.cat([torch.cdist(part, -rows.train).mean(1) for part in rows.test.split(100)]) * SIGMA[name]
    return mean_error(lengths.tolist())


def table_2(scale: Scale) -> Result:
    """Return the accuracies of SimRFs and SimRFs+ at m = d."""
    values = [Value(f"{name}, mean v", *mean_v(name), printed) for name, printed in zip(NAMES, MEAN_V, strict=True)]
    found, means = compared(TABLE_2, ERRORS_2, scale, pad=False)
    others = [value for name in NAMES if name not in LARGE for value in other_splits(name, scale)]
    wins = sum(means["SimRFs+", name] >= means["SimRFs", name] for name in NAMES)
    return Result(
        "accuracy of kernel regression by SimRFs and SimRFs+, m = d",
        ROWS
        + " The mean of v = |x + y| is over pairs of a test and a training row. SimRFs+ take 5 sweeps, as there."
        + MANY_DRAWS,
        values + found + others,
        [
            "That accuracies agree far within the spread over other orders shows that the order is theirs.",
            chosen_by(others),
            f"SimRFs+ are at least as good as SimRFs on {wins} of 8 tables; in the paper on 5.",
        ],
        missing=["the shares of rows that train, validate and test", "the pairs over which the mean of v goes"],
    )


def table_3(scale: Scale) -> Result:
    """Return the accuracies of regular and fast mechanisms at m = D, with inputs padded by zeros."""
    values, means = compared(TABLE_3, ERRORS_3, scale, pad=True)
    apart = [abs(means[f"fast {kind}", name] - means[kind, name]) for kind in ("ORFs", "SimRFs") for name in NAMES]
    return Result(
        "accuracy with regular and fast mechanisms, inputs padded to a power of two, m = D",
        ROWS
        + " Fast ones have three products H D in place of the Haar rotation, and chi norms with D degrees."
        + MANY_DRAWS,
        values,
        [f"The fast mechanisms are within {max(apart):.3f} of the regular ones, on average {np.mean(apart):.4f}."],
    )


def figure_8(scale: Scale) -> Result:
    """Return accuracies against m / d."""
    methods, values = ("IIDRFs", "ORFs", "SimRFs"), []
    parts: list[Value] = []
    for multiple in (1, 2, 4, 10):
        found = {
            (method, name): mean_error(accuracies(name, method, multiple, scale(20 if name in LARGE else 100)))
            for name in NAMES
            for method in methods
        }
        on_average = {method: averaged([found[method, name] for name in NAMES]) for method in methods}
        values += [Value(f"average, m = {multiple} d, {method}", *on_average[method]) for method in methods]
        for other in methods[:2]:
            gain = less(on_average["SimRFs"], on_average[other])
            values.append(Value(f"average, m = {multiple} d, SimRFs less {other}", *gain, "> 0"))
        for name in NAMES:
            gain = less(found["SimRFs", name], found["ORFs", name])
            parts.append(Value(f"{name}, m = {multiple} d, SimRFs less ORFs", *gain, "> 0"))
    return Result(
        "accuracy of kernel regression against m / d",
        ROWS + " 100 draws, 20 for nursery and chess. The plot prints no figures; its caption says that SimRFs "
        "consistently perform best: tested on average over the tables, and against ORFs on each.",
        [*values, *parts],
    )


def averaged(found: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean of independent means, and its standard error."""
    means, errors = zip(*found, strict=True)
    return float(np.mean(means)), float(np.linalg.norm(errors)) / len(found)


def less(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """Return the difference of two independent means, and its standard error."""
    return first[0] - second[0], float(np.hypot(first[1], second[1]))


def figure_10(scale: Scale) -> Result:
    """Return the tuned scale sigma."""
    values, worse = [], 0
    for name in NAMES:
        rows = case(name)
        few = (1000, 100) if name in LARGE else (len(rows.train), len(rows.valid))
        given = (rows.train[: few[0]], rows.labels[: few[0]], rows.valid[: few[1]], rows.checks[: few[1]])
        draws = scale(10)
        length, _ = lengthscales.tuned_to_classes(*given, num_draws=draws)
        a, p, b, q = given
        best, there = (
            lengthscales.class_accuracies("iid", a * s, p, b * s, q, 10 * a.shape[1], draws, seed=1)
            for s in (1 / length, SIGMA[name])
        )
        difference, error = mean_error((best - there).tolist())  # the same frequencies at both scales
        worse += bool(difference > 2 * error)
        why = f"accuracy {best.mean():.4f} there and {there.mean():.4f} at the published one, over {draws} other draws"
        values.append(Value(f"{name}, sigma", 1 / length, 0.0, f"{SIGMA[name]:.8f}", why=why, comparable=False))
    return Result(
        "the scale of the inputs at which independent features classify best",
        "The sigma among 20 from 0.1 to 2, evenly spaced in the logarithm, with the highest accuracy of independent "
        "features at m = 10 d over 10 draws, 1000 training and 100 test rows of nursery and chess. The paper prints no "
        "values; the authors' code publishes eight, all members of this grid, which the paper does not state either. "
        "They validate on the rows between those that train and those that test. As the accuracies are means of ten "
        "noisy draws, the scales themselves are not compared, but their accuracies over other draws.",
        values,
        [f"At {worse} of the 8 published scales the accuracy is below that at ours by two standard errors."],
        missing=["which rows validate"],
    )
