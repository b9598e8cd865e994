"""Sparse precisions: time and memory against nodes, and against other factorizations of the same matrix.

Matrices are (L + 0.04)^p of five kinds of graphs. Each row is from its own process. Seconds are for the elimination
order, the rest of the analysis, the factor, the inverse on the pattern (all variances) and 16 solves. The order is
ours, by planes if the nodes have coordinates. They are the least of several runs, since the first allocates memory.
Also printed are the non-zeros of the factor and the peak memory of the process. With `--rivals` there are factors of
CHOLMOD in cvxopt, in our order. Up to 200,000 nodes there are also SciPy's SuperLU in our order, and cholespy and
gstlearn with their own order (order and analysis included), if they are installed.

    python -m benchmarks.races.precision [--most 1000000] [--rivals]
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp
from rich.console import Console
from rich.table import Table
from scipy.sparse.linalg import splu

import graphs
from graphs.cholesky.orders import order
from graphs.precisions import resolvent_field

SHIFT = 0.04
SIZES = (10_000, 100_000, 1_000_000)
MAX_OF_RIVALS = 200_000
COLUMNS = ("order", "analysis", "factor", "inverse", "16 solves", "non-zeros", "GB")


def grid(size: int) -> graphs.Graph:
    side = round(size**0.5)
    return graphs.Graph.from_grid((side, side))


def sphere(size: int) -> graphs.Graph:
    import trimesh

    depth = round(np.log(size / 10) / np.log(4))
    return graphs.Graph.from_mesh(trimesh.creation.icosphere(depth), nodes="vertices", weights="unit")


def roads(size: int) -> graphs.Graph:
    """Streets: a grid of crossings that lacks a third of its edges, each cut into six pieces."""
    side, rng = round((size / 9) ** 0.5), np.random.default_rng(0)
    lattice = graphs.Graph.from_grid((side, side)).adjacency.tocoo()
    once = lattice.row < lattice.col
    a, b = lattice.row[once], lattice.col[once]
    kept = rng.uniform(size=len(a)) < 2 / 3
    a, b, count = a[kept], b[kept], side * side
    inner = count + np.arange(5 * len(a)).reshape(-1, 5)
    chain = np.concatenate([a[:, None], inner, b[:, None]], axis=1)
    pairs = np.stack([chain[:, :-1].ravel(), chain[:, 1:].ravel()])
    total = count + inner.size
    matrix = sp.coo_array((np.ones(pairs.shape[1]), (pairs[0], pairs[1])), shape=(total, total)).tocsr()
    return graphs.Graph.from_scipy(matrix + matrix.T)


def neighbours(size: int) -> graphs.Graph:
    return graphs.Graph.from_points(np.random.default_rng(0).uniform(size=(size, 2)), k=6)


def random(size: int) -> graphs.Graph:
    return graphs.Graph.from_networkx(nx.random_regular_graph(10, size, seed=0))


KINDS: dict[str, tuple[Callable[[int], graphs.Graph], int]] = {
    "grid": (grid, 10**6),
    "sphere": (sphere, 10**6),
    "roads": (roads, 10**6),
    "neighbours": (neighbours, 10**6),
    "random": (random, 10**4),
}


def timed(call: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Return the least time of some calls in seconds, and the last result."""
    seconds, found = np.inf, None
    for _ in range(repeats):
        begin = time.perf_counter()
        found = call()
        seconds = min(seconds, time.perf_counter() - begin)
    return seconds, found


def measured(kind: str, size: int, power: int, rivals: bool) -> list[str]:
    warm = resolvent_field(grid(400), 1)
    warm.factor(warm.entries(np.array([SHIFT]))).solve(warm.factor_at(np.array([SHIFT])).inverse[:800].reshape(400, 2))
    field = resolvent_field(KINDS[kind][0](size), power)
    pattern, data = field.pattern, field.entries(np.array([SHIFT]))
    ordering, permutation = timed(lambda: order(*pattern, field.coordinates))
    analysis, _ = timed(lambda: field.analysis)
    factoring, factor = timed(lambda: field.factor(data), 4)
    inverting = min(timed(lambda one=one: one.inverse)[0] for one in (factor, field.factor(data), field.factor(data)))
    right = np.random.default_rng(0).standard_normal((len(pattern.indptr) - 1, 16))
    solving, _ = timed(lambda: factor.solve(right), 2)
    seconds = [ordering, max(analysis - ordering, 0.0), factoring, inverting, solving]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    shown = [f"{s:.2f}" for s in seconds] + [f"{factor.analysis.num_nonzeros / 1e6:.1f} M", f"{memory:.1f}"]
    if rivals:
        whole = sp.csr_array((data, pattern.indices, pattern.indptr))
        ordered = sp.csc_array(whole[permutation][:, permutation])
        shown.append(cholmod(ordered))
        shown += [superlu(ordered), cholespy(whole), gstlearn(whole)] if size <= MAX_OF_RIVALS else []
    return shown


def superlu(matrix: sp.csc_array) -> str:
    options = {"SymmetricMode": True}
    seconds, _ = timed(lambda: splu(matrix, permc_spec="NATURAL", diag_pivot_thresh=0.0, options=options))
    return f"SuperLU {seconds:.2f}"


def cholespy(matrix: sp.csr_array) -> str:
    try:
        from cholespy import CholeskySolverD, MatrixType
    except ModuleNotFoundError:
        return "cholespy not installed"
    size = matrix.shape[0]
    seconds, _ = timed(
        lambda: CholeskySolverD(
            size, matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32), matrix.data, MatrixType.CSR
        )
    )
    return f"cholespy {seconds:.2f}"


def gstlearn(matrix: sp.csr_array) -> str:
    """Time an order, the analysis and the factor of gstlearn's `CholeskySparse`, which does all three each time."""
    try:
        from gstlearn import CholeskySparse, MatrixSparse, NF_Triplet
    except ModuleNotFoundError:
        return "gstlearn not installed"
    entries, triplets = sp.coo_array(matrix), NF_Triplet()
    for row, column, value in zip(entries.row.tolist(), entries.col.tolist(), entries.data.tolist(), strict=True):
        triplets.add(row, column, value)
    given = MatrixSparse.createFromTriplet(triplets, *matrix.shape)
    seconds, _ = timed(lambda: CholeskySparse(given).computeLogDeterminant(), 2)
    return f"gstlearn {seconds:.2f}"


def cholmod(matrix: sp.csc_array) -> str:
    """Time the numeric factorization of CHOLMOD (GPL) in the order that the matrix is in."""
    try:
        from cvxopt import cholmod as library
        from cvxopt import matrix as vector
        from cvxopt import spmatrix
    except ModuleNotFoundError:
        return "cvxopt not installed"
    lower = sp.coo_array(sp.tril(matrix))
    size = matrix.shape[0]
    given = spmatrix(lower.data, lower.row, lower.col, (size, size))
    library.options["supernodal"] = 2
    symbolic = library.symbolic(given, p=vector(list(range(size)), (size, 1), "i"), uplo="L")
    seconds, _ = timed(lambda: library.numeric(given, symbolic), 4)
    return f"CHOLMOD {seconds:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=SIZES[-1])
    parser.add_argument("--rivals", action="store_true")
    parser.add_argument("--one", nargs=3)
    asked = parser.parse_args()
    if asked.one:
        kind, size, power = asked.one
        print("|".join(measured(kind, int(size), int(power), asked.rivals)))
        return
    table = Table(title="Seconds of one process; rivals' are of the factor")
    for column in ("graph", "nodes", "order p", *COLUMNS, *(("", "", "") if asked.rivals else ())):
        table.add_column(column)
    for kind, (_, most) in KINDS.items():
        for size in (s for s in SIZES if s <= min(most, asked.most)):
            for power in (1, 2):
                command = [sys.executable, "-m", "benchmarks.races.precision", "--one", kind, str(size), str(power)]
                run = subprocess.run(
                    [*command, *(["--rivals"] if asked.rivals else [])], capture_output=True, text=True, check=False
                )
                found = run.stdout.strip().split("|") if run.returncode == 0 else [run.stderr.strip()[-60:]]
                table.add_row(kind, f"{size:,}", str(power), *found)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
