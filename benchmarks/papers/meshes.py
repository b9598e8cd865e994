"""Interpolation on meshes by walks: Fig. 4 of the couplings paper, under two protocols; and how well features train.

Protocol, fixed before the results were seen. All parts of each mesh; faces are nodes, the target is the z component
of the face normal, a random 5 % of the faces is masked (three masks on meshes of up to 2,000 faces, one on the others;
five draws on each of these, three on the others), diffusion kernel.
- "F.2": the hyperparameters are fitted through 8 i.i.d. walkers with halt .4 (App. F.2 of the paper, by the package's
  own optimiser), and all walkers have halt .4.
- "exact": the hyperparameters are fitted exactly, and all walkers have halt .1.
The exact process with these hyperparameters is compared with 16, 32 and 64 walkers: i.i.d., antithetic, sigma (the
permutation matched to the fitted kernel on the mesh itself), systematic and stratified, the same after exact hops
within four non-zeros a row for each walker, and the Chebyshev series within as many. Relative Frobenius error of the
kernel over all nodes, RMSE at the masked faces, KL of the joint law of observations there, total nats; means and
standard errors over draws. On meshes of more than 4,000 faces the exact fit uses that 95 % of the faces are observed:
with M = s k(L) + noise on all faces, whose inverse and determinant the eigenvalues give, those of the observed part
follow from the block of M^-1 at the masked faces (Schur complement).
- Training: the RMSE of the exact process with hyperparameters fitted exactly, through 64 stratified walkers with exact
  hops, through Chebyshev features of as many non-zeros, and through F.2's walkers; and the features' own RMSE.

    python -m benchmarks.papers.meshes [OUT] [MESH ...]
"""

import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize

import graphs
import rfgp
from rfgp import datasets
from rfgp.compare import Comparison, Plan, to_json, to_table
from rfgp.compare.protocol import Case, node_case, run_comparison
from rfgp.compare.results import Exact
from rfgp.files import write_atomically

MESHES = ("teapot", "fuze", "unit_sphere", "idler_riser", "busted", "torus")
METHODS = ("sigma", "iid", "antithetic", "stratified", "exact-hops", "chebyshev")
SIZES = (16, 32, 64)
PLAIN = {"num_walkers": 8, "halt": 0.4, "lengths": "iid", "directions": "independent", "exact_hops": 0}
SMALL, LARGE = 2000, 4000


def fit_exactly(graph: graphs.Graph, train: np.ndarray, y: np.ndarray) -> rfgp.GraphGP:
    if graph.num_nodes <= LARGE:
        return rfgp.GraphGP(graph, features="exact").fit(train, y)
    return fit_by_complement(graph, train, y)


def fit_by_complement(graph: graphs.Graph, train: np.ndarray, y: np.ndarray) -> rfgp.GraphGP:
    """Fit the exact process where nearly all nodes are observed, see above."""
    values, vectors = (torch.from_numpy(np.ascontiguousarray(a)) for a in graph.spectrum)
    hidden = np.setdiff1d(np.arange(graph.num_nodes), train)
    whole = torch.zeros(graph.num_nodes, dtype=torch.float64)
    scale = y.std()
    V, at = vectors.mT @ whole.index_fill(0, torch.from_numpy(train), 1.0), vectors[hidden]
    targets = vectors.mT @ whole.index_copy(0, torch.from_numpy(train), torch.from_numpy(y / scale))

    def negative(raw: torch.Tensor) -> torch.Tensor:
        lengthscale, outputscale, noise = raw[:3].exp()
        precision = 1 / (outputscale * torch.exp(-0.5 * lengthscale**2 * values) + noise)
        r = targets - raw[3] * V  # residuals, 0 at hidden nodes, in the eigenbasis
        factor = torch.linalg.cholesky((at * precision) @ at.mT)
        inner = torch.linalg.solve_triangular(factor, (at @ (precision * r))[:, None], upper=False)
        square = (precision * r**2).sum() - inner.square().sum()
        prior = 0.5 * raw[2]  # of the noise, as `rfgp.GraphGP` has
        return (0.5 * (square - precision.log().sum()) + factor.diagonal().log().sum() - prior) / len(train)

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        raw = torch.from_numpy(x).requires_grad_()
        value = negative(raw)
        value.backward()
        return value.item(), raw.grad.numpy()

    bounds = [(np.log(0.01), np.log(1e3)), (None, None), (np.log(1e-6), np.log(100)), (None, None)]
    starts = []
    for lengthscale in (1.0, 2.0, 4.0, 8.0, 16.0):
        size = torch.exp(-0.5 * lengthscale**2 * values).mean()
        starts += [
            np.array([np.log(lengthscale), -float(size.log()), np.log(noise), 0.0]) for noise in (0.1, 0.01, 1e-4)
        ]
    starts.sort(key=lambda x: objective(x)[0])
    options = {"ftol": 1e-10}
    tried = [minimize(objective, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options) for x in starts[:2]]
    found = min(tried, key=lambda result: result.fun)
    lengthscale, outputscale, noise = np.exp(found.x[:3])
    gp = rfgp.GraphGP(graph, features="exact").condition(train, y)
    gp.hyperparameters.set(
        lengthscale=lengthscale, outputscale=outputscale * scale**2, noise=noise * scale**2, mean=found.x[3] * scale
    )
    return gp


def fit(graph: graphs.Graph, train: np.ndarray, y: np.ndarray, **options: object) -> rfgp.GraphGP:
    return rfgp.GraphGP(graph, seed=0, **options).fit(train, y)


class Mesh(NamedTuple):
    """A mesh with its masks and the fits on the other faces."""

    name: str
    graph: graphs.Graph
    field: np.ndarray
    plan: Plan
    parts: list[tuple[np.ndarray, np.ndarray]]
    exacts: list[rfgp.GraphGP]
    plain: list[rfgp.GraphGP]


def load(name: str) -> Mesh:
    mesh = datasets.load(name)
    graph, field = graphs.Graph.from_mesh(mesh), np.asarray(mesh.face_normals[:, 2], dtype=np.float64)
    N = graph.num_nodes
    plan = Plan(3 if N <= SMALL else 1, 5 if N <= SMALL else 3, 0)
    masks = [plan.order(split, N) for split in range(plan.splits)]
    parts = [(np.sort(order[round(0.05 * N) :]), np.sort(order[: round(0.05 * N)])) for order in masks]
    exacts = [fit_exactly(graph, train, field[train]) for train, _ in parts]
    plain = [fit(graph, train, field[train], features="walks", **PLAIN) for train, _ in parts]
    return Mesh(name, graph, field, plan, parts, exacts, plain)


def compare(mesh: Mesh, protocol: str, halt: float) -> Comparison:
    def run(split: int) -> tuple[Case, Exact]:
        hidden = mesh.parts[split][1]
        exact = mesh.exacts[split] if protocol == "exact" else mesh.plain[split].exact()
        permutation = graphs.match_quantiles(mesh.graph, exact.fitted_kernel, halt)
        return node_case(exact, list(hidden), mesh.field[hidden], halt, time.perf_counter(), permutation)

    words = f"{protocol}, halt {halt:g}, {mesh.plan.splits} masks x {mesh.plan.draws} draws"
    title = f"{mesh.name}, {mesh.graph.num_nodes} faces, protocol {protocol}"
    return run_comparison(title, words, "walkers", METHODS, list(SIZES), mesh.plan, run, None)


def train_rows(mesh: Mesh) -> Iterator[list[str]]:
    for split, (train, hidden) in enumerate(mesh.parts):
        y = mesh.field[hidden]
        models = [fit(mesh.graph, train, mesh.field[train], features=kind) for kind in ("walks", "chebyshev")]
        cells = [f"{rfgp.metrics.rmse(y, mesh.exacts[split].predict(hidden)):.4f}"]
        for gp in (*models, mesh.plain[split]):
            through_exact, own = (rfgp.metrics.rmse(y, model.predict(hidden)) for model in (gp.exact(), gp))
            cells.append(f"{through_exact:.4f} ({own:.4f})")
        yield [mesh.name, str(split), *cells, repr(mesh.exacts[split].hyperparameters)]


def main() -> None:
    warnings.simplefilter("ignore")
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    console = Console(width=150)
    training = Table(title="RMSE at masked faces: exact process, hyperparameters fitted ... (the features' own)")
    for column in ("mesh", "mask", "exactly", "64 walkers and hops", "chebyshev", "F.2", "hyperparameters, exact"):
        training.add_column(column)
    for name in sys.argv[2:] or MESHES:
        mesh = load(name)
        for protocol, halt in (("F.2", 0.4), ("exact", 0.1)):
            found = compare(mesh, protocol, halt)
            console.print(to_table(found))
            if out is not None:
                out.mkdir(parents=True, exist_ok=True)
                write_atomically(out / f"{name}-{protocol}.json", to_json(found).encode())
        for row in train_rows(mesh):
            training.add_row(*row)
        console.print(training)


if __name__ == "__main__":
    main()
