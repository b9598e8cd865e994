"""Side by side with `fast-graph-gp` on rings and grids: time and error of each, with its own settings.

Protocol, fixed before the results were seen. Rings and square grids of 1,024, 4,096 and 16,384 nodes. The field is
smoothed by exp(-t L / 2), t = 8, with variance 1, and observed with noise of deviation 0.2 at a random tenth of the
nodes. The rival has its default sampler (10 walks per node, halt 0.5, 10 steps) on the normalized Laplacian, its
diffusion kernel and GPyTorch's Gaussian likelihood. It has 100 steps of Adam with rate 0.05 on the exact marginal log
likelihood, and predicts from 64 samples at all nodes. Ours: `GraphGP(features="walks", num_walkers=10, p_halt=0.5)`,
and the defaults. Seconds for walks and fit, and for mean and variance at all nodes; RMSE of the field; mean negative
log density of the field under the predicted marginal distributions. One run each; compiled before the clock starts.
fast-graph-gp is not a dependency: name the interpreter of an environment that has it.

    python -m benchmarks.races.fast_graph_gp INTERPRETER
"""

import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import graphs
import rfgp
from graphs.kernels import Diffusion

SIZES = (1_024, 4_096, 16_384)
NOISE = 0.2

RIVAL = """
import json, sys, time, numpy as np, torch, gpytorch
from grf_gp import DiffusionGRFKernel, GRFGP, GRFSampler
torch.manual_seed(0)
a = np.load(sys.argv[1])
matrix = torch.sparse_csr_tensor(*(torch.as_tensor(a[k]) for k in ("indptr", "indices", "data")), a["size"].tolist())
nodes, y = torch.as_tensor(a["nodes"]).float()[:, None], torch.as_tensor(a["y"]).float()
begin = time.perf_counter()
walks = GRFSampler(matrix.float(), seed=1, use_tqdm=False)()
walked = time.perf_counter()
likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = GRFGP(nodes, y, likelihood, DiffusionGRFKernel(walks, max_walk_length=10))
objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
model.train(), likelihood.train()
for _ in range(100):
    optimizer.zero_grad()
    loss = -objective(model(nodes), y)
    loss.backward()
    optimizer.step()
fitted = time.perf_counter()
p = model.predict(torch.arange(len(a["indptr"]) - 1)[:, None].float())
mean, variance = p.mean.detach().numpy(), p.variance.detach().numpy()
done = time.perf_counter()
np.savez(sys.argv[2], mean=mean, variance=variance)
print(json.dumps([walked - begin, fitted - walked, done - fitted]))
"""


def problem(kind: str, count: int) -> tuple[graphs.Graph, np.ndarray, np.ndarray, np.ndarray]:
    side = round(count**0.5)
    graph = graphs.Graph.from_grid((count,) if kind == "ring" else (side, side), periodic=kind == "ring")
    rng = np.random.default_rng(0)
    term, total = rng.standard_normal(count), 0.0
    for coefficient in Diffusion(4.0).modulation(60):
        total = total + coefficient * term
        term = graph.shift_operator @ term
    field = total / total.std()
    nodes = rng.permutation(count)[: count // 10]
    return graph, field, nodes, field[nodes] + NOISE * rng.standard_normal(len(nodes))


def errors(field: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> list[str]:
    density = 0.5 * np.mean((field - mean) ** 2 / variance + np.log(2 * np.pi * variance))
    return [f"{np.sqrt(np.mean((field - mean) ** 2)):.3f}", f"{density:.2f}"]


def theirs(
    interpreter: str, graph: graphs.Graph, field: np.ndarray, nodes: np.ndarray, y: np.ndarray, folder: Path
) -> list[str]:
    L = graph.shift_operator.copy()
    L = (-L).tolil()
    L.setdiag(1.0)
    L = L.tocsr()
    np.savez(folder / "in.npz", indptr=L.indptr, indices=L.indices, data=L.data, size=L.shape, nodes=nodes, y=y)
    command = [interpreter, "-W", "ignore", "-c", RIVAL, str(folder / "in.npz"), str(folder / "out.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return [done.stderr.strip().splitlines()[-1][:60], "", "", ""]
    times, out = json.loads(done.stdout.splitlines()[-1]), np.load(folder / "out.npz")
    return [f"{times[0] + times[1]:.1f}", f"{times[2]:.1f}", *errors(field, out["mean"], out["variance"])]


def ours(graph: graphs.Graph, field: np.ndarray, nodes: np.ndarray, y: np.ndarray, **options: object) -> list[str]:
    begin = time.perf_counter()
    gp = rfgp.GraphGP(graph, seed=0, **options).fit(nodes, y)
    fitted = time.perf_counter()
    p = gp.predict(np.arange(graph.num_nodes))
    mean, variance = p.mean, p.variance
    done = time.perf_counter()
    return [f"{fitted - begin:.1f}", f"{done - fitted:.1f}", *errors(field, mean, variance), gp.features]


def main() -> None:
    warnings.simplefilter("ignore")
    table = Table(title="Seconds to fit and to predict all nodes; RMSE and NLPD of the field")
    for column in ("graph", "package", "fit", "predict", "RMSE", "NLPD", "features"):
        table.add_column(column)

    def add(*cells: str) -> None:
        print(*cells, flush=True)
        table.add_row(*cells)

    same = {"features": "walks", "num_walkers": 10, "p_halt": 0.5}
    ours(*problem("ring", 1_024), **same)  # compiles
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("ring", "grid"):
            for count in SIZES:
                case = problem(kind, count)
                add(f"{kind}, {count}", "fast-graph-gp", *theirs(sys.argv[1], *case, Path(folder)), "")
                add("", "rfgp, 10 walkers, halt 0.5", *ours(*case, **same))
                add("", "rfgp, defaults", *ours(*case))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
