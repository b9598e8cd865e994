"""Sums of two and three terms through random features: how a number of features is best divided among the terms."""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np

import rfgp
from benchmarks import protocol
from benchmarks.record import Result, Scale, Value
from rfgp import kernels as k
from rfgp import random

ROWS, NEW, FEATURES, DRAWS = 600, 200, 384, 4
TABLES = ("airfoil", "concrete", "power-plant")
SPLITS = ("degrees of freedom", "equal", "joint")


def made(columns: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray, k.Kernel]:
    """Return rows, targets and the kernel of a rough term of one column and a smooth one of several."""
    rng = random.numpy_generator(seed, random.Role.DATA)
    rows = {f"x{i}": rng.uniform(-1, 1, ROWS + NEW) for i in range(columns + 1)}
    smooth = sum(np.sin(2 * rows[f"x{i}"] + i) for i in range(1, columns + 1))
    y = np.sin(12 * rows["x0"]) + smooth / columns**0.5 + 0.1 * rng.normal(size=ROWS + NEW)
    kernel = k.RBF("x0", name="rough") + k.RBF(tuple(f"x{i}" for i in range(1, columns + 1)), ard=False, name="smooth")
    return rows, y, kernel


def real(name: str) -> tuple[dict[str, np.ndarray], np.ndarray, k.Kernel]:
    """Return rows and targets of a table, and a term of its first half of columns and one of the others."""
    X, y = protocol.load(name)
    order = random.numpy_generator(0, random.Role.SPLIT).permutation(len(X))[: ROWS + NEW]
    rows = {f"x{i}": X[order, i] for i in range(X.shape[1])}
    names, half = tuple(rows), X.shape[1] // 2
    kernel = k.RBF(names[:half], ard=False, name="first") + k.RBF(names[half:], ard=False, name="others")
    return rows, y[order], kernel


def counts(split: str, gp: rfgp.GP, generator: np.random.Generator) -> dict[str, int]:
    """Return the numbers of frequencies of the terms."""
    names, m = list(gp.terms), FEATURES // 2
    freedom = np.array([gp.terms[name].degrees_of_freedom for name in names])
    scale = np.array([gp.hyperparameters[f"{name}.outputscale"].item() for name in names])
    if split == "joint":
        found = np.maximum(generator.multinomial(m, scale / scale.sum()), 1)
    else:
        share = freedom / freedom.sum() if split == "degrees of freedom" else np.full(len(names), 1 / len(names))
        found = np.maximum(np.round(m * share).astype(int), 1)
    return dict(zip(names, map(int, found), strict=True))


def divergences(
    exact: rfgp.GP, new: Mapping[str, np.ndarray], sizes: Mapping[str, int], split: str, seed: int
) -> list[float]:
    """Return KL(exact || approximate) of the observations at new rows: of the sum, and of each term."""
    gp = exact.with_approximation({name: rfgp.RandomFeatures(m, seed=seed) for name, m in sizes.items()})
    if split == "joint":  # each term has the variance of its share of the frequencies
        scales = {name: exact.hyperparameters[f"{name}.outputscale"].item() for name in sizes}
        total, m = sum(scales.values()), sum(sizes.values())
        for name, size in sizes.items():
            gp.hyperparameters[f"{name}.outputscale"] = total * size / m
    first, second = exact.predict(new), gp.predict(new)
    each = [rfgp.metrics.kl_divergence(first.terms[t].observed(), second.terms[t].observed()) for t in sizes]
    return [rfgp.metrics.kl_divergence(first, second), *each]


def terms(scale: Scale) -> Result:
    """Return the divergences for each division of the features, on made and real tables."""
    cases = {f"made, smooth term of {d} columns": made(d, d) for d in (2, 4, 8)}
    if not scale.quick:
        cases |= {name: real(name) for name in TABLES}
    values: list[Value] = []
    for case, (rows, y, kernel) in cases.items():
        train, new = (
            {name: column[part] for name, column in rows.items()} for part in (slice(ROWS), slice(ROWS, None))
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rfgp.RfgpWarning)
            exact = rfgp.GP(kernel, approximation=rfgp.Exact(), seed=0).fit(train, y[:ROWS])
            for split in SPLITS:
                generator = random.numpy_generator(1, random.Role.SAMPLE)
                found = np.array(
                    [
                        divergences(exact, new, counts(split, exact, generator), split, seed)
                        for seed in range(scale(DRAWS))
                    ]
                )
                names: Sequence[str] = ("the sum", *exact.terms)
                for name, one in zip(names, found.T, strict=True):
                    values.append(Value(f"{case}, {split}: KL of {name}", *protocol.mean_error(one)))
    return Result(
        "dividing a number of features among the terms of a sum",
        f"Fixed before the results were seen. {ROWS} training and {NEW} new rows, two terms, {FEATURES} Fourier "
        f"features in all, {DRAWS} draws, hyperparameters of the exact process; KL(exact || approximate) of the joint "
        "distribution of observations at the new rows, in nats, of the sum and of each term by itself (which do not "
        "add up). 'degrees of freedom': frequencies in proportion to the effective degrees of freedom of the terms; "
        "'equal': as many for each; 'joint': one draw from the mixture of the spectra. In real tables one term has the "
        "first half of the columns.",
        values,
    )


FIGURES = {"terms": terms}
