"""Figs. 2 and 3 of the orthogonal paper: biases and variances of ORF, ORF' and SORF at two points."""

import numpy as np
import torch

from benchmarks.papers.orthogonal.data import ABSENT, NAMES, sampled
from benchmarks.protocol import mean_error
from benchmarks.record import Result, Scale, Value, everywhere
from rfgp import couplings, random, special, theory
from rfgp.couplings.orthogonal import haar_rows

DIMS = (2, 4, 8, 16, 32)
Z = np.array([0.5, 1.0, 2.0, 3.0])
GRID = np.linspace(0.02, 4, 200)


def asymptotic(z: np.ndarray) -> np.ndarray:
    """Return Eq. 3 for D = d and d to infinity: the variance of ORF divided by that of RFF."""
    half = z**2 / 2  # z^4 exp(-z^2) / (1 - exp(-z^2))^2 = (half / sinh half)^2
    return 1 - (half / np.sinh(half)) ** 2


def estimates(name: str, d: int, draws: int, seed: int) -> np.ndarray:
    """Return the kernel estimates at Z, (draws, 4), of D = d frequencies at two fixed points."""
    generator = random.generator(seed)
    direction = torch.as_tensor(np.random.default_rng(0).standard_normal(d))
    direction /= direction.norm()
    if name == "structured":  # its blocks are independent draws, in order
        angles = couplings.by_name(name).sample(draws * d, d, generator=generator).project(direction[None])
        angles = angles.reshape(draws, d)
    else:
        angles = haar_rows(draws, d, d, generator).reshape(draws, d, d) @ direction
        norms = torch.randn(draws, d, d, generator=generator, dtype=torch.float64).norm(dim=2)
        angles = angles * (norms if name == "orthogonal" else d**0.5)
    return np.stack([(angles * z).cos().mean(1).numpy() for z in Z], axis=1)


def variance_ratio(values: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the variances relative to independent frequencies, (4,), and their standard errors."""
    squares = (values - values.mean(0)) ** 2 / theory.variance("iid", Z, d, d)
    return squares.mean(0), squares.std(0, ddof=1) / np.sqrt(len(squares))


def figure_2(scale: Scale) -> Result:
    """Return variances of ORF, and distances in units of the lengthscale."""
    small = np.array([0.05, 0.1])
    slope = float(np.diff(np.log(asymptotic(small)))[0] / np.diff(np.log(small))[0])
    why = (
        "the paper's is an error: 1 - exp(-x) x^2 / (1 - exp(-x))^2 with x = z^2 is x^2 / 12 at small x, as the first "
        "terms of numerator and denominator cancel; the gain is larger than it says"
    )
    values = [Value("power of z with which the ratio falls at z to 0, d to infinity", slope, 0.0, "2", why=why)]
    values += [Value(f"Eq. 3 at z = {z:g}, D = d to infinity", float(asymptotic(z))) for z in Z]
    values.append(Value("Eq. 3, the largest of 200 z up to 4", float(asymptotic(GRID).max()), 0.0, "< 1"))
    draws = scale(20_000)
    for d in DIMS:
        ratio, error = variance_ratio(estimates("orthogonal", d, draws, d), d)
        exact = theory.variance("orthogonal", Z, d, d) / theory.variance("iid", Z, d, d)
        for place, one, its_error, closed in zip(Z, ratio, error, exact, strict=True):
            values.append(Value(f"variance ratio, d = {d}, z = {place:g}", float(one), float(its_error)))
            values.append(Value(f"variance ratio, d = {d}, z = {place:g}, closed form", float(closed)))
    finite = theory.variance("orthogonal", GRID, 32, 32) / theory.variance("iid", GRID, 32, 32)
    values.append(
        Value("largest distance from Eq. 3, d = 32, z up to 4", float(np.abs(finite - asymptotic(GRID)).max()))
    )
    for d in DIMS:
        exact = theory.variance("orthogonal", GRID, d, d) / theory.variance("iid", GRID, d, d)
        if (over := GRID[exact > 1]).size:
            values.append(Value(f"least z at which ORF is worse, d = {d}", float(over[0])))
    values += [Value(f"share of pairs with z < 2, {name}", *_near(name), "> 0.5", comparable=False) for name in NAMES]
    return Result(
        "variance of ORF relative to RFF, and the distances that occur",
        "(a) Eq. 3 with D = d; (b) 20,000 draws of D = d frequencies at two fixed points, compared with the closed "
        "form; errors over draws; (c) pairs of 1,000 rows of digits and five tables, in mean distances of the 50th "
        "nearest neighbor among all rows (errors over rows).",
        values,
        [
            "The ratio of Eq. 3 is below 1 for every z, as the text claims (tested); at finite d ORF is worse than RFF "
            "beyond the z above, as the simplex paper's Sec. 4.1 says. That most pairs have z < 2 is claimed of data "
            "that are not at hand."
        ],
        missing=[ABSENT, "whether neighbors are sought among all rows or among the 1,000"],
    )


def _near(name: str) -> tuple[float, float]:
    x = sampled(name, 1000)
    near = (torch.cdist(x, x) < 2).double()
    return mean_error(((near.sum(1) - 1) / (len(x) - 1)).tolist())


NEAR = 0.05
"""What "close" is read as, in a caption: of a kernel value, or of a ratio, of 1. Chosen with our figures at hand."""


def close_at_32(label: str, found: np.ndarray) -> list[Value]:
    """Return the claims of bias and variance ratio at d = 32, from estimates (draws, 4), by the z farthest off."""
    bias = found.mean(0) - np.exp(-(Z**2) / 2), found.std(0, ddof=1) / np.sqrt(len(found))
    ratio, spread = variance_ratio(found, 32)
    values = []
    for what, (off, error) in (
        ("bias", bias),
        ("distance of its variance ratio from Eq. 3", (ratio - asymptotic(Z), spread)),
    ):
        supports = (NEAR - np.abs(off)) / error
        at = int(supports.argmin())
        name = f"largest {what}, {label}, d = 32"
        values.append(
            Value(name, float(abs(off[at])), float(error[at]), f"< {NEAR}", together=everywhere(supports.tolist()))
        )
    return values


def figure_3(scale: Scale) -> Result:
    """Return biases and variances of ORF' and SORF."""
    values, claims, draws = [], [], scale(20_000)
    for name, label in (("constant-norm", "ORF'"), ("structured", "SORF")):
        for d in DIMS:
            found = estimates(name, d, draws, d)
            bias, error = found.mean(0) - np.exp(-(Z**2) / 2), found.std(0, ddof=1) / np.sqrt(draws)
            ratio, ratio_error = variance_ratio(found, d)
            for k, z in enumerate(Z):
                values.append(Value(f"bias, {label}, d = {d}, z = {z:g}", float(bias[k]), float(error[k])))
                values.append(
                    Value(f"variance ratio, {label}, d = {d}, z = {z:g}", float(ratio[k]), float(ratio_error[k]))
                )
        claims += close_at_32(label, found)
    for d in DIMS:
        exact = special.sphere_cosine(np.sqrt(d) * GRID, d) - np.exp(-(GRID**2) / 2)
        values.append(Value(f"largest bias of ORF', d = {d}, closed form", float(np.abs(exact).max())))
    return Result(
        "bias and variance of ORF' and SORF",
        "20,000 draws of D = d frequencies at two fixed points in a random direction, the same for all; errors over "
        f"draws; variances relative to the closed form of RFF. Tested is the caption's claim that at d = 32 the "
        f"bias is close to 0 and the variance close to that of d to infinity: within {NEAR}, a reading.",
        [*values, *claims],
        missing=["the two points", "how close is close"],
    )
