"""Gaussian processes on graphs through walks: Figs. 4 and 11 of Reid et al. (2024).

The hyperparameters are trained through 8 i.i.d. walkers by Adam and frozen (App. F.2); the exact process with them is
then compared with processes of 16, 32, 64 or 4, 8, 16 walkers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, lapack

import graphs
from benchmarks.papers.couplings.walks_shared import (
    OURS,
    PAPER,
    Floats,
    curve,
    draw,
    mean_ratios,
    nowhere_worse,
    quiet,
)
from benchmarks.protocol import kl, ratio_of_means
from benchmarks.record import Figure, Result, Scale, Value
from graphs import kernels
from rfgp import datasets, random
from rfgp.datasets import fetch
from rfgp.fields import read_road_field

HALT, QUANTILES, TRAINING_WALKERS = 0.4, 50, 8
RATE, EPOCHS, SETTLED, WINDOW = 0.05, 1000, 1e-3, 50
MESHES = ("teapot", "fuze", "unit_sphere", "idler_riser", "busted")
MESH_WALKERS, MESH_DRAWS = (16, 32, 64), 20
ROAD_WALKERS, ROAD_DRAWS, ROAD_SPLITS, ROAD_TRAIN = (4, 8, 16), 10, 10, 250
METRICS = ("kernel error", "RMSE", "KL")
TRAINED = (
    f"All three hyperparameters (gamma, kappa, sigma; mean 0) by Adam in their logarithms on the marginal likelihood "
    f"through {TRAINING_WALKERS} i.i.d. walkers a node, p = {HALT}, learning rate {RATE} (not stated in the paper), "
    f"and up to {EPOCHS} epochs. Training stops when none moved by {SETTLED} within {WINDOW} epochs. They are then "
    f"frozen. Diffusion kernel, p = {HALT}, permutations of order {QUANTILES} by Eq. 56 for the frozen kernel on the "
    "graph itself. KL of the joint distribution of observations at the test nodes, exact process first, total nats."
)

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Task:
    """The values of training nodes and of test nodes.

    Attributes:
        graph: The graph, with N nodes.
        train: The positions (n,) of the training nodes.
        test: The positions (t,) of the test nodes.
        y: The values (N,) minus their mean, in units for which hyperparameters can start at 1. They are 0 at nodes of
            neither set.
        unit: The unit of y.
    """

    graph: graphs.Graph
    train: Integers
    test: Integers
    y: Floats
    unit: float = 1.0


@dataclass(frozen=True)
class Trained:
    """The kernel exp(-gamma^2 L) times kappa, and the standard deviation of the noise."""

    gamma: float
    kappa: float
    sigma: float

    @property
    def kernel(self) -> kernels.Diffusion:
        return kernels.Diffusion(float(np.sqrt(2) * self.gamma))


def train(task: Task, seed: int) -> tuple[Trained, int]:
    """Return the hyperparameters and the number of epochs of the fit."""
    walks = draw(task.graph, TRAINING_WALKERS, HALT, seed, **PAPER["i.i.d."])
    x, first, second, path = np.log([1.0, 1.0, 0.1]), np.zeros(3), np.zeros(3), []
    for epoch in range(1, EPOCHS + 1):
        slope = gradient(task, walks, Trained(*np.exp(x).tolist()))
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        x = x - RATE * first / (1 - 0.9**epoch) / (np.sqrt(second / (1 - 0.999**epoch)) + 1e-8)
        path.append(x)
        if epoch > WINDOW and np.ptp(path[-WINDOW:], axis=0).max() < SETTLED:
            break
    return Trained(*np.exp(x).tolist()), epoch


def gradient(task: Task, walks: graphs.Walks, at: Trained) -> Floats:  # (3,)
    """Return the derivatives of the negative log marginal likelihood in the logarithms of gamma, kappa, sigma."""
    kernel, y = at.kernel, task.y[task.train]
    slope = kernel.modulation_jacobian(walks.max_length)[:, 0] * kernel.lengthscale
    phi, moved = (
        sp.csr_array((walks.values(f), walks.pattern.indices, walks.pattern.indptr), shape=walks.pattern.shape)[
            task.train
        ]
        for f in (kernel.modulation(walks.max_length), slope)
    )
    gram, crossed = (sp.coo_array(part @ phi.T) for part in (phi, moved))
    M = at.kappa * gram.toarray(order="F")
    np.fill_diagonal(M, M.diagonal() + at.sigma**2)
    factor = cho_factor(M, lower=True, overwrite_a=True)
    alpha = cho_solve(factor, y)
    inverse = lapack.dpotri(factor[0], lower=1, overwrite_c=1)[0]  # its lower triangle

    def against(part: sp.coo_array) -> float:
        """Return the sum of the products of entries with those of M^-1 - alpha alpha'."""
        row, column = part.coords
        entries = inverse[np.maximum(row, column), np.minimum(row, column)] - alpha[row] * alpha[column]
        return float(part.data @ entries)

    in_sigma = 2 * at.sigma**2 * (inverse.trace() - alpha @ alpha)
    return 0.5 * np.array([2 * at.kappa * against(crossed), at.kappa * against(gram), in_sigma])


Law = tuple[Floats, Floats]


def posterior(task: Task, K: Floats, noise: float) -> Law:
    """Return mean (t,) and covariance (t, t) of observations at the test nodes."""
    train, test = task.train, task.test
    factor = cho_factor(K[np.ix_(train, train)] + noise * np.eye(len(train)), lower=True)
    cross = K[np.ix_(train, test)]
    solved = cho_solve(factor, np.column_stack([cross, task.y[train]]))
    return cross.T @ solved[:, -1], K[np.ix_(test, test)] + noise * np.eye(len(test)) - cross.T @ solved[:, :-1]


def compare(
    task: Task, found: Trained, sizes: Sequence[int], draws: int, first: int
) -> tuple[dict[tuple[str, int, str], Floats], float]:
    """Return the metrics (draws,) by metric, walkers and method, and the exact process's RMSE."""
    exact = found.kappa * found.kernel.exact(task.graph)
    best, norm, noise = posterior(task, exact, found.sigma**2), np.linalg.norm(exact), found.sigma**2
    truth = task.y[task.test]
    sigma = graphs.match_quantiles(task.graph, found.kernel, HALT, QUANTILES, objective="quartic")
    out: dict[tuple[str, int, str], Floats] = {}
    for m in sizes:
        for method, options in {**PAPER, **OURS}.items():
            rows = []
            for seed in range(first, first + draws):
                phi = draw(task.graph, m, HALT, seed, permutation=sigma, **options).features(found.kernel)
                K = found.kappa * (phi @ phi.T).toarray()
                law = posterior(task, K, noise)
                rmse = task.unit * np.sqrt(np.mean((law[0] - truth) ** 2))
                rows.append((np.linalg.norm(K - exact) / norm, rmse, kl(best, law, per_point=False)))
            for metric, column in zip(METRICS, np.array(rows).T, strict=True):
                out[metric, m, method] = column
    return out, float(task.unit * np.sqrt(np.mean((best[0] - truth) ** 2)))


def cases(found: Mapping[tuple[str, int, str], Floats], metrics: Sequence[str] = METRICS) -> list[dict[str, Floats]]:
    """Return the methods' values of each metric and number of walkers."""
    sizes = sorted({m for _, m, _ in found})
    methods = {**PAPER, **OURS}
    return [{name: found[metric, m, name] for name in methods} for metric in metrics for m in sizes]


def claims(name: str, found: Mapping[tuple[str, int, str], Floats]) -> list[Value]:
    """Return the claim that sigma is nowhere worse, and the mean ratios of each metric over numbers of walkers."""
    means = [mean_ratios(f"{name}, {metric}, mean over m", cases(found, [metric])) for metric in METRICS]
    return [*nowhere_worse(name, cases(found)), *(value for some in means for value in some)]


def in_words(label: str, found: Mapping[tuple[str, int, str], Floats]) -> str:
    """Return all means of a task in a row."""
    sizes = sorted({m for _, m, _ in found})
    parts = [
        f"{metric}: "
        + ", ".join(f"{name} {curve([found[metric, m, name].mean() for m in sizes])}" for name in PAPER | OURS)
        for metric in METRICS
    ]
    return f"{label}, {', '.join(map(str, sizes))} walkers: {'; '.join(parts)}."


def mesh_task(name: str) -> Task:
    """Return the task of a mesh: the z component of the normals of its faces, 5 % of them masked."""
    mesh = datasets.load(name)
    graph = graphs.Graph.from_mesh(mesh)
    order = random.numpy_generator(0, random.Role.SPLIT).permutation(graph.num_nodes)
    masked = int(0.05 * graph.num_nodes)
    y = np.asarray(mesh.face_normals[:, 2], dtype=np.float64)
    return Task(graph, np.sort(order[masked:]), np.sort(order[:masked]), y)


def figure_4(scale: Scale) -> Result:
    """Return scores of the interpolation of the normals of mesh faces by walks: kernel error, RMSE and KL.

    The paper's figure is a plot of the three over numbers of walkers for six meshes. Its caption claims that sigma is
    better, at times by a factor above 2.
    """
    values, notes, gains = [], [], []
    with quiet():
        for name in MESHES[:2] if scale.quick else MESHES:
            task = mesh_task(name)
            trained, epochs = train(task, seed=0)
            found, rmse = compare(task, trained, MESH_WALKERS, scale(MESH_DRAWS, least=6), 1)
            values += claims(name, found)
            gains += cases(found, ("RMSE", "KL"))
            notes.append(
                f"{in_words(f'{name}, N = {task.graph.num_nodes}', found)} Exact process: RMSE {rmse:.3g}; gamma "
                f"{trained.gamma:.3g}, kappa {trained.kappa:.3g}, sigma {trained.sigma:.3g} after {epochs} epochs."
            )
    label = f"i.i.d. / sigma in the one of {len(gains)} cases of RMSE and KL that is largest in other draws"
    values.append(Value(label, *largest_gain(gains), "> 2"))
    return Result(
        "interpolation of face normals on meshes",
        "z component of the faces' normals, all parts of a mesh, 5 % of the faces masked at random, 16, 32 and 64 "
        f"walkers, {MESH_DRAWS} draws (not stated). {TRAINED} The paper claims better predictions and error bars by "
        "sigma, sometimes by a factor above 2: cases are metrics and numbers of walkers. The largest factor is that of "
        "the case with the largest one in half of the draws, taken over the other half, as the largest of many is too "
        "large; a first run, with 10 draws, had taken it over all.",
        values,
        notes,
        missing=(
            "one of six meshes: torus, at hand, has the 8,700 faces of the paper's largest; a step of training inverts "
            "a matrix of the faces that are not masked, and would take more than an hour of one core there, where "
            "busted takes minutes. Other counts are the paper's, but 1,000 (fuze) for 999, and 3,878 for 3,838",
            "learning rate, starts and number of draws; which meshes",
            "numbers: the figure is a plot",
        ),
    )


def largest_gain(found: Sequence[Mapping[str, Floats]]) -> tuple[float, float]:
    """Return i.i.d. / sigma, with its standard error, on every second draw, for the best case of the others."""

    def gain(case: Mapping[str, Floats], first: int) -> tuple[float, float]:
        return ratio_of_means(case["i.i.d."][first::2], case["sigma"][first::2], paired=True)

    return gain(max(found, key=lambda case: gain(case, 0)), 1)


def road_tasks(splits: int) -> Iterator[Task]:
    """Yield random splits of the sensors on the highways."""
    field = read_road_field(fetch("pems"))
    positions = field.graph.index(field.nodes)
    for split in range(splits):
        order = random.numpy_generator(0, random.Role.SPLIT, split).permutation(len(positions))
        train, test = positions[order[:ROAD_TRAIN]], positions[order[ROAD_TRAIN:]]
        known = field.values[order[:ROAD_TRAIN]]
        y = np.zeros(field.graph.num_nodes)
        y[positions] = (field.values - known.mean()) / known.std()
        yield Task(field.graph, train, test, y, float(known.std()))


def figure_11(scale: Scale) -> Result:
    """Return the same three metrics for the speeds on highways, with values at 325 of 1,016 nodes.

    The paper's figure is a plot over 4, 8 and 16 walkers; its text claims that sigma is best in each.
    """
    parts, exact = [], []
    with quiet():
        for split, task in enumerate(road_tasks(scale(ROAD_SPLITS))):
            trained, _ = train(task, seed=split)
            found, rmse = compare(task, trained, ROAD_WALKERS, ROAD_DRAWS, 1000 * (split + 1))
            parts.append(found)
            exact.append(rmse)
    whole = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    spread = np.std(exact, ddof=1) / np.sqrt(len(exact))
    values = [
        *claims("pems", whole),
        Value("RMSE of the exact process", np.mean(exact), spread),
    ]
    return Result(
        "speeds on the highways of San Jose",
        f"{ROAD_TRAIN} sensors to train, 75 to test, {ROAD_SPLITS} random splits with {ROAD_DRAWS} draws each (the "
        "paper has one split, and errors over draws); speeds less the mean of those to train, in their standard "
        f"deviations (not stated). {TRAINED} The paper claims that sigma is best in all three metrics for 4, 8 and 16 "
        "walkers.",
        values,
        [f"{in_words('pems', whole)} RMSE in mph."],
        missing=("the paper's split", "standardization, learning rate, starts", "numbers: the figure is a plot"),
    )


FIGURES: dict[str, Figure] = {"figure-4": figure_4, "figure-11": figure_11}
