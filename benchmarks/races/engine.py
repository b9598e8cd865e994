"""Speed and memory of what models do, by public names only, so that two versions of the package can be compared.

Protocol. Each case runs in a process of its own, on one thread. It prepares its data, runs a tenth of itself once for
compilers and caches, and then `--repeats` times in full, each time with a new model on the same data. Seconds are of
the processor, since other processes may share the cores; the median is reported. Memory is the
peak of the process less what it held before the first full run. `value` is a number that a case computes: of two
versions it should be the same but for rounding. Real data are read from `--folder`; without it the rows of "learned"
are drawn.

    python -m benchmarks.races.engine [--case NAME ...] [--repeats 3] [--quick] [--folder UCI] [--out FILE]
    python -m benchmarks.races.engine --compare OLD NEW

Another version runs the same file: `PYTHONPATH=OLD python benchmarks/races/engine.py`.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[[], float]
ITERATIONS = 40
"""Steps of the search for frequencies."""


class Scale:
    """The sizes of a case: full, or a fraction."""

    def __init__(self, share: float, folder: Path | None) -> None:
        self._share, self.folder = share, folder

    def __call__(self, size: int) -> int:
        """Return a size, ten at least."""
        return max(10, round(self._share * size))

    def smaller(self) -> "Scale":
        """Return a tenth."""
        return Scale(self._share / 10, self.folder)


def table(rows: int, columns: int = 8, dtype: Any = np.float64) -> tuple[Array, Array]:
    """Return standard normal inputs (n, d) and targets (n,) of unit variance, a hundredth of it noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] / 2 + 0.3 * X[:, 3]
    return X.astype(dtype), (y / y.std() + 0.1 * rng.standard_normal(rows)).astype(dtype)


def total(prediction: Any) -> float:
    """Return the sum of the means and standard deviations of a prediction."""
    return float(np.sum(prediction.mean) + np.sum(prediction.std))


def with_gradient(gp: Any) -> float:
    """Return the log marginal likelihood of a model, after its gradient."""
    gp.hyperparameters.requires_grad_(True)
    value = gp.log_marginal_likelihood()
    value.backward()
    return float(value)


def likelihood(scale: Scale) -> Run:
    """Return the case of a likelihood with its gradient: 36,000 rows, 1,024 frequencies, float32."""
    import rfgp

    X, y = table(scale(36_000), dtype=np.float32)
    options: dict[str, Any] = {"num_frequencies": scale(1024), "coupling": "orthogonal", "seed": 0}

    def run() -> float:
        return with_gradient(rfgp.SparseSpectrumGP(lengthscale=[3.0] * 8, noise=0.1, **options).condition(X, y))

    return run


def dense(scale: Scale) -> Run:
    """Return the case of ten likelihoods with their gradients by an exact process of 1,000 rows."""
    X, y = table(scale(1000))
    return lambda: sum(with_gradient(exact_model().condition(X, y)) for _ in range(10))


def bordered(scale: Scale) -> Run:
    """Return the case of a likelihood with its gradient: 100,000 cells of a grid plus 64 frequencies of columns."""
    import graphs
    import rfgp
    from rfgp import kernels as k

    side = round(scale(100_000) ** 0.5)
    graph, nodes = graphs.Graph.from_grid((side, side)), np.arange(side * side)
    seen, y = wave(nodes // side, nodes % side, scale(20_000))
    columns = table(len(seen), 4)[0]
    X = {"node": seen, "a": columns[:, 0], "b": columns[:, 1]}
    field = graphs.kernels.RegularizedLaplacian(1, 5.0)
    kernel = k.Nodes(graph, field, name="nodes") + k.RBF(["a", "b"], name="rest")
    ways = {"nodes": rfgp.SparsePrecision(), "rest": rfgp.RandomFeatures(32)}
    return lambda: with_gradient(rfgp.GP(kernel, "gaussian", ways, start={"noise": 0.1}, seed=0).condition(X, y))


def equispaced(scale: Scale) -> Run:
    """Return the case of a likelihood with its gradient by equispaced frequencies: a million rows, two columns."""
    import rfgp

    X, y = table(scale(1_000_000), 4)
    kernel = rfgp.kernels.Matern(nu=1.5, lengthscale=[1.0, 1.0])
    model = rfgp.EquispacedFourier()
    return lambda: with_gradient(rfgp.GP(kernel, approximation=model, start={"noise": 0.1}).condition(X[:, :2], y))


def small(scale: Scale) -> Run:
    """Return the case of conditioning an exact process on 60 rows, hundreds of times."""
    X, y = table(60)
    return lambda: sum(float(exact_model().condition(X, y).num_observations) for _ in range(scale(300)))


def start(scale: Scale) -> Run:
    """Return the case of `import rfgp` and of the first name that needs torch, in new processes.

    The seconds are of this process's children, which `measure` adds.
    """
    commands = ("import rfgp", "import rfgp; rfgp.GP")

    def run() -> float:
        for command in commands:
            subprocess.run([sys.executable, "-c", command], check=True)
        return 0.0

    return run


def learned(scale: Scale) -> Run:
    """Return the case of some steps of a search for 128 frequencies: kin40k, or similar rows."""
    import rfgp

    X, y = table(scale(36_000))
    if scale.folder is not None:
        numbers = np.loadtxt(scale.folder / "kin40k.csv.gz", delimiter=",")[: len(X)]
        X, y = numbers[:, :-1], numbers[:, -1]
    options: dict[str, Any] = {"num_frequencies": 128, "learn_frequencies": True, "seed": 0}

    def run() -> float:
        gp: Any = rfgp.SparseSpectrumGP(**options).fit(X, y, max_iterations=ITERATIONS)
        return float(gp.fit_report.log_marginal_likelihood)

    return run


def streamed(scale: Scale) -> Run:
    """Return the case of the posterior of a million rows in blocks: 10 columns, 128 frequencies, float32."""
    import rfgp

    X, y = table(scale(1_000_000), 10, np.float32)

    def blocks() -> Any:
        return ((X[i : i + 2**16], y[i : i + 2**16]) for i in range(0, len(X), 2**16))

    def run() -> float:
        gp = rfgp.SparseSpectrumGP(num_frequencies=128, lengthscale=[3.0] * 10, noise=0.1, seed=0)
        return total(gp.condition(rfgp.tables.Batches(blocks)).predict(X[:100]))

    return run


def grid(scale: Scale) -> Run:
    """Return the case of a grid of a million nodes by a sparse precision, with 10,000 observations.

    It computes all means and deviations.
    """
    import graphs
    import rfgp

    side = round(scale(1_000_000) ** 0.5)
    graph, nodes = graphs.Graph.from_grid((side, side)), np.arange(side * side)
    seen, y = wave(nodes // side, nodes % side, scale(10_000))

    def run() -> float:
        kernel = graphs.kernels.RegularizedLaplacian(1, 5.0)
        gp = rfgp.GraphGP(graph, kernel, features="precision", noise=0.01, seed=0)
        return total(gp.condition(nodes[seen], y).predict(nodes))

    return run


def wave(a: Array, b: Array, count: int) -> tuple[Array, Array]:
    """Return the indices (count,) of random positions with coordinates a and b (N,), and targets there."""
    rng = np.random.default_rng(0)
    seen = rng.permutation(len(a))[:count]
    return seen, np.sin(a[seen] / 30) + np.cos(b[seen] / 47) + 0.1 * rng.standard_normal(len(seen))


def streets(count: int) -> tuple[Any, Array, Array, Array]:
    """Return a network of pieces of road between neighbors in a grid, the middles of pieces, and observations."""
    import graphs

    side, rng = round((count / 2) ** 0.5) + 1, np.random.default_rng(0)
    corners = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), axis=-1)
    points = 100.0 * corners + rng.uniform(-30, 30, corners.shape)
    ends = [(points[:-1], points[1:]), (points[:, :-1], points[:, 1:])]
    lines = np.concatenate([np.stack(pair, axis=2).reshape(-1, 2, 2) for pair in ends])
    middles = np.stack([np.arange(len(lines)), np.full(len(lines), 0.5)], axis=1)
    a, b = lines.mean(axis=1).T / 100
    seen, y = wave(a, b, max(10, len(lines) // 100))
    return graphs.RoadNetwork.from_lines(list(lines), metric="euclidean"), middles, seen, y


def on_roads(network: Any) -> Any:
    """Return a model of a network."""
    import rfgp

    return rfgp.RoadGP(network, 1, lengthscale=3000.0, outputscale=1.0, noise=0.01, seed=0)


def roads(scale: Scale) -> Run:
    """Return the case of a million pieces of road: 10,000 observations, means and deviations at all middles."""
    network, middles, seen, y = streets(scale(1_000_000))
    return lambda: total(on_roads(network).condition(middles[seen], y).predict(middles))


def nodes(scale: Scale) -> Run:
    """Return the case of a fit of an exact kernel on a graph: a grid of 2,000 nodes, nine tenths of them observed."""
    import graphs
    import rfgp

    graph = graphs.Graph.from_grid((scale(50), 40))
    rng, count = np.random.default_rng(0), graph.num_nodes
    places = rng.permutation(count)[: 9 * count // 10]
    y = np.sin(places // 40 / 8) + np.cos(places % 40 / 6) + 0.1 * rng.standard_normal(len(places))

    def run() -> float:
        gp = rfgp.GraphGP(graph, features="exact", seed=0)
        return total(gp.fit(places, y).predict(np.arange(count)))

    return run


def local_model() -> Any:
    """Return a model of a local process alone."""
    import rfgp

    kernel, near = rfgp.kernels.Matern(nu=1.5, lengthscale=[3.0] * 8), rfgp.Vecchia(condition_on="responses")
    return rfgp.GP(kernel, approximation=near, start={"noise": 0.1}, seed=0)


def local(scale: Scale) -> Run:
    """Return the case of a local process of 40,000 rows: a likelihood with its gradient, and 2,000 predictions."""
    X, y = table(scale(40_000))

    def run() -> float:
        gp = local_model().condition(X, y)
        return with_gradient(gp) + total(gp.predict(X[:2000] + 0.01))

    return run


def fit(scale: Scale) -> Run:
    """Return the case of ten fits of 100 rows each by an exact process, and ten by 128 frequencies."""
    import rfgp

    X, y = table(1000)
    parts = [slice(i, i + 100) for i in range(0, scale(1000), 100)]

    def run() -> float:
        models: list[Any] = [rfgp.ExactGP(), rfgp.SparseSpectrumGP(num_frequencies=128, seed=0)]
        fits = (gp.fit(X[part], y[part]) for part in parts for gp in models)
        return sum(float(gp.fit_report.log_marginal_likelihood) for gp in fits)

    return run


def laplace(scale: Scale) -> Run:
    """Return the case of Laplace's approximation with its gradient: 100,000 rows of two classes, 256 frequencies."""
    import rfgp

    X, y = table(scale(100_000), dtype=np.float32)
    labels = (y > 0).astype(np.float32)
    options: dict[str, Any] = {"num_frequencies": 256, "likelihood": "bernoulli", "inference": "laplace", "seed": 0}
    return lambda: with_gradient(rfgp.SparseSpectrumGP(lengthscale=[3.0] * 8, **options).condition(X, labels))


def often(gp: Any, points: Array, count: int, size: int = 10) -> float:
    """Return the sum over `count` predictions of `size` points each."""
    return sum(total(gp.predict(points[i % 50 : i % 50 + size])) for i in range(count))


def predict(make: Callable[[], Any], rows: int, size: int = 10) -> Callable[[Scale], Run]:
    """Return the case of many small predictions by a table's model."""

    def case(scale: Scale) -> Run:
        X, y = table(rows)
        gp = make().condition(X, y)
        gp.predict(X[:1]).std  # noqa: B018
        return lambda: often(gp, X[:60] + 0.01, scale(1000), size)

    return case


def features_model() -> Any:
    """Return a model of 512 frequencies."""
    import rfgp

    return rfgp.SparseSpectrumGP(num_frequencies=512, lengthscale=[3.0] * 8, noise=0.1, seed=0)


def exact_model() -> Any:
    """Return an exact process."""
    import rfgp

    return rfgp.ExactGP(lengthscale=[3.0] * 8, noise=0.1)


def predict_roads(scale: Scale) -> Run:
    """Return the case of many small predictions on 10,000 pieces of road."""
    network, middles, seen, y = streets(10_000)
    gp = on_roads(network).condition(middles[seen], y)
    gp.predict(middles[:1]).std  # noqa: B018
    return lambda: often(gp, middles[:60], scale(1000))


CASES: dict[str, Callable[[Scale], Run]] = {
    "likelihood": likelihood,
    "dense": dense,
    "bordered": bordered,
    "equispaced": equispaced,
    "small": small,
    "import": start,
    "learned": learned,
    "streamed": streamed,
    "grid": grid,
    "roads": roads,
    "nodes": nodes,
    "local": local,
    "fit": fit,
    "laplace": laplace,
    "predict-features": predict(features_model, 5000),
    "predict-exact": predict(exact_model, 1500),
    "predict-small": predict(exact_model, 60, 5),
    "predict-roads": predict_roads,
    "predict-local": predict(local_model, 5000),
}


def status(name: str) -> int:
    """Return bytes of this process: `VmRSS` is its memory, `VmHWM` its peak."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in text.splitlines() if line.startswith(name)))


def forget_peak() -> None:
    """Reset the peak of the memory, if the system allows it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def of_processes() -> float:
    """Return the seconds that this process and its children took of the processor."""
    return time.process_time() + sum(os.times()[2:4])


def measure(name: str, scale: Scale, repeats: int) -> dict[str, Any]:
    """Return the seconds of each repeat, the peak of the memory in bytes, and the value, of a case in this process."""
    import torch

    import rfgp

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    CASES[name](scale.smaller())()
    run = CASES[name](scale)
    forget_peak()
    before, seconds, value = status("VmRSS"), [], 0.0
    for _ in range(repeats):
        begin = of_processes()
        value = run()
        seconds.append(of_processes() - begin)
    memory = max(0, status("VmHWM") - before)
    return {"seconds": seconds, "memory": memory, "value": value, "version": version(Path(rfgp.__file__).parent)}


@cache
def version(folder: Path) -> str:
    """Return the commit of a folder, marked if files differ from it, or the folder without a commit."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or str(folder)


def apart(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the result of a case in its own process."""
    command = [sys.executable, __file__, "--here", "--case", name, "--repeats", str(options.repeats)]
    command += ["--quick"] * options.quick + (["--folder", str(options.folder)] if options.folder else [])
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **threads}, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "quick": options.quick}


def line(name: str, found: dict[str, Any]) -> str:
    """Return the result of a case as text."""
    seconds = found["seconds"]
    spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
    return f"{name:17s} {statistics.median(seconds):8.2f} s ({spread}) {found['memory'] / 2**20:8.0f} MiB"


def compare(old: Path, new: Path) -> None:
    """Print the ratios of two files of results, for the cases of both."""
    before, after = (json.loads(path.read_text()) for path in (old, new))
    for name in (name for name in CASES if name in before and name in after):
        one, other = before[name], after[name]
        times = statistics.median(other["seconds"]) / statistics.median(one["seconds"])
        memory = other["memory"] / max(one["memory"], 1)
        distance = abs(other["value"] - one["value"]) / max(abs(one["value"]), 1e-300)
        sizes = "" if one["quick"] == other["quick"] else ", of other sizes"
        print(f"{name:17s} time x {times:.2f}, memory x {memory:.2f}, value differs by {distance:.1g}{sizes}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of each size")
    parser.add_argument("--folder", type=Path, help="that has kin40k.csv.gz")
    parser.add_argument("--out", type=Path, help="a file of JSON, to which results are added")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("OLD", "NEW"))
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compare:
        compare(*options.compare)
        return
    scale = Scale(0.1 if options.quick else 1.0, options.folder)
    for name in options.case or CASES:
        if options.here:
            print(json.dumps(measure(name, scale, options.repeats)))
            continue
        found = apart(name, options)
        print(line(name, found), flush=True)
        if options.out:
            known = json.loads(options.out.read_text()) if options.out.exists() else {}
            options.out.write_text(json.dumps({**known, name: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
