"""Energy couplings against the published ones: kernel error and posterior KL on six tables.

Protocol, fixed before the results were seen (`benchmarks/protocol.py` has the splits): m = d, 4 d, 16 d, 64 d; 4 splits
x 50 draws, seed 0; the default law of distances, one solution per (m, d). Ratios are of each split's figures, the
errors over splits. "sobol 2^k" has the next power of two from m on, to its advantage. "weighted" broadens the
radial law; "tilted" follows the ridge leverage of the training rows as well (power 1). `max |z|` is over 40 kernel
entries of all splits and tests that the same draws are unbiased.

    python -m benchmarks.studies.energy [--spectrum gaussian|matern32|matern52] [--features laplace] [OUT.json]

Positive features have the lengthscale of `Split.for_positive_features`, m = 2 d, 8 d, 32 d, and no KL: at these sizes
their estimates are not made for posteriors.
"""

import argparse
import json
import math
import warnings
from pathlib import Path

from rich.console import Console
from rich.table import Table
from scipy import stats

import rfgp
from benchmarks import protocol
from rfgp import couplings, spectra

SPECTRA = {"gaussian": spectra.Gaussian(), "matern32": spectra.Matern(1.5), "matern52": spectra.Matern(2.5)}
FOURIER = ("iid", "orthogonal", "pairwise", "sobol", "sobol 2^k", "near-orthogonal", "quadrature", "leverage")
LAPLACE = ("iid", "orthogonal-antithetic", "pairwise-antithetic")


def make(method: str, case: protocol.Split, kind: str) -> couplings.Coupling:
    """Return the coupling of a method."""
    if method in ("leverage", "tilted"):
        tilt = couplings.leverage_tilt(case.x[: len(case.y)], case.noise, spectrum=case.spectrum)
        return couplings.Leverage(tilt) if method == "leverage" else couplings.Energy(kind, True, tilt=tilt)
    if method == "quadrature":  # with the node at the origin, as in its paper
        return couplings.SphericalRadial(origin=True)
    if method == "weighted":
        return couplings.Energy(kind, weighted=True)
    return couplings.for_features(method.removesuffix(" 2^k"), kind)


def run(name: str, options: argparse.Namespace) -> list[dict]:
    kind, law = options.features, SPECTRA[options.spectrum]
    base = FOURIER if kind == "fourier" else LAPLACE
    methods = [m for m in (*base, "energy", "weighted", "tilted") if law is SPECTRA["gaussian"] or m != "quadrature"]
    rows = []
    for index in range(options.splits):
        case = protocol.split(name, index, law)
        if kind == "laplace":
            case = case.for_positive_features()
            methods = [m for m in methods if m != "tilted"]
        d = case.x.shape[1]
        for times in options.times:
            for method in methods:
                m = times * d if "2^k" not in method else 2 ** math.ceil(math.log2(times * d))
                draw = protocol.sampler(make(method, case, kind), m, case, kind)
                found = protocol.judge(case, draw, kind, options.draws, index, with_kl=kind == "fourier")
                rows.append({"table": name, "split": index, "times": times, "method": method, **vars(found)})
    return rows


def report(rows: list[dict], options: argparse.Namespace) -> None:
    console = Console(width=120)
    base = "pairwise" if options.features == "fourier" else "pairwise-antithetic"
    other = "orthogonal" if options.features == "fourier" else "orthogonal-antithetic"
    names = list(dict.fromkeys(row["table"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    for figure, against in (("error", base), ("kl", other))[: 2 if options.features == "fourier" else 1]:
        for times in options.times:
            title = f"{'kernel RMSE' if figure == 'error' else 'posterior KL'} relative to {against}, m = {times} d"
            table = Table(title=title)
            for column in ("method", *names, "geometric mean"):
                table.add_column(column)
            for method in methods:
                ratios = [ratio(rows, name, times, method, against, figure) for name in names]
                cells = [f"{mean:.3f} ± {error:.3f}" for mean, error in ratios]
                table.add_row(method, *cells, f"{protocol.geometric(mean for mean, _ in ratios):.3f}")
            console.print(table)
    worst = {m: max(row["z"] for row in rows if row["method"] == m) for m in methods}
    entries = 40 * len(rows) // len(methods)
    limit = stats.t.isf(1e-3 / (2 * entries), options.draws - 1)
    console.print("max |z|:", {m: round(z, 1) for m, z in worst.items()})
    console.print(f"Of {entries} entries it exceeds {limit:.1f} by chance once in a thousand runs.")


def ratio(rows: list[dict], name: str, times: int, method: str, against: str, figure: str) -> tuple[float, float]:
    def of(chosen: str) -> dict[int, float]:
        key = {"table": name, "times": times, "method": chosen}
        return {row["split"]: row[figure] for row in rows if all(row[k] == v for k, v in key.items())}

    above, below = of(method), of(against)
    return protocol.mean_error(above[index] / below[index] for index in above)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--spectrum", choices=SPECTRA, default="gaussian")
    parser.add_argument("--features", choices=("fourier", "laplace"), default="fourier")
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--tables", nargs="*", default=list(protocol.TABLES))
    parser.add_argument("--times", nargs="*", type=int)
    options = parser.parse_args()
    options.times = options.times or ([1, 4, 16, 64] if options.features == "fourier" else [2, 8, 32])
    warnings.simplefilter("ignore", rfgp.RfgpWarning)
    rows = []
    for name in options.tables:
        rows += run(name, options)
        print(f"{name} done", flush=True)
        if options.out is not None:
            options.out.write_text(json.dumps(rows))
    report(rows, options)


if __name__ == "__main__":
    main()
