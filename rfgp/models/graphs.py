"""Diagnosis of features of nodes by held-out nodes, and the recommendation of `graphs.advise` as a report.

Some observed nodes that are close to each other are selected, and a few of them held out. The model's features predict
them from the others, and so does an independent draw. The divergence between the two predictive distributions is about
twice the divergence of each from the exact process, because expectations of small errors add.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order
from torch import Tensor

import graphs
from graphs.advice import Candidate, exact_block
from graphs.kernels import GraphKernel
from rfgp import random
from rfgp.approximations.nodes import (
    NodeApproximation,
    NodeFeatures,
    drawn_with,
    node_term,
    nodes_of,
    sample_of,
)
from rfgp.approximations.role import TermData, TermPrior
from rfgp.blocks import Prior
from rfgp.linalg import cholesky
from rfgp.messages import counted
from rfgp.models.report import ERROR, FLOPS_PER_SECOND, Budget, Score, SelectionReport, Trial
from rfgp.models.spec import ModelSpec, mean_and_noise
from rfgp.models.state import GPState
from rfgp.rows import Block, gathered
from rfgp.solvers import solver_for

# --- Diagnosis of features by an independent draw and held-out nodes, without the exact process ----------------------

MAX_ROWS, MAX_HELD_OUT, MIN_ROWS = 1000, 64, 8
_SEEDS = 4
POOR = 0.1
"""The divergence in nats per node above which features are called poor."""


@dataclass(frozen=True)
class FeatureCheck:
    """A diagnosis of features, at the hyperparameters of a model.

    Attributes:
        features: The kind of features.
        divergence: The symmetric Kullback-Leibler divergence between joint predictions of held-out observations, by
            the model's features and by an independent draw, in nats per node. None for features that are not random,
            or if too few nodes are observed.
        walk_variance: The mean variance over draws at observed nodes, relative to the noise, or None. A fit includes it
            in the noise, and error bars at observed nodes are too small by it.
        shift: The root mean square difference of the two means, in standard deviations of an observation, or None.
        kernel_error: |Phi Phi^T - K| / |K| over a sample of nodes, for features that are not random, or None. Infinite
            for polynomials if degree 2,000 is too small for the kernel.
        spectral_error: The largest relative error of the kernel's spectrum, for features that bound it ("rational"), or
            None.
        calibration: The mean squared z-score of the held-out observations, 1 for calibrated error bars.
        nlpd: The mean negative log predictive density of held-out observations, in the user's units.
        num_rows: The number of observations that predict the held-out ones.
        num_held_out: The number of held-out observations.
    """

    features: str
    divergence: float | None
    walk_variance: float | None
    shift: float | None
    kernel_error: float | None
    spectral_error: float | None
    calibration: float | None
    nlpd: float | None
    num_rows: int
    num_held_out: int

    @property
    def is_poor(self) -> bool:
        """Whether the divergence, an error or the variance over draws is too large.

        The limit of the divergence and the errors is 0.1, and that of the variance over draws is the variance of the
        noise.
        """
        errors = (self.divergence, self.kernel_error, self.spectral_error)
        return max(error or 0.0 for error in errors) > POOR or (self.walk_variance or 0.0) > 1

    def __str__(self) -> str:
        parts = []
        if self.divergence is not None:
            parts.append(
                "two independent draws lead to predictive distributions of "
                f"{counted(self.num_held_out, 'held-out observation')} that differ by "
                f"{self.divergence:.2g} nats per node (means by {self.shift:.2g} standard deviations)"
            )
        if self.walk_variance is not None:
            parts.append(
                f"the variance over draws at observed nodes is {self.walk_variance:.2g} times that of the noise"
            )
        if self.kernel_error == math.inf:
            parts.append("a polynomial of degree 2,000 does not approximate this kernel")
        elif self.kernel_error is not None:
            parts.append(f"the relative error of the kernel on a sample of nodes is {self.kernel_error:.2g}")
        if self.spectral_error is not None:
            parts.append(f"the relative error of the spectrum is {self.spectral_error:.2g}")
        if self.calibration is not None:
            parts.append(f"squared held-out errors are {self.calibration:.2g} times the predicted variances")
        return f"{self.features}: " + ("; ".join(parts) or "exact")


def check_features(state: GPState, seed: int) -> FeatureCheck:
    """Return a diagnosis of the features of a model of one kernel on nodes.

    Args:
        state: The state of the model.
        seed: The seed of the selection of nodes.

    Raises:
        NotFittedError: If the rows are not known.
    """
    spec, values = state.spec, state.hyperparameters.detached()
    rows = gathered(state.require_rows(purpose="a diagnosis"))
    (term,), (data,) = spec.term_priors, spec.term_data(values, len(rows))
    graph, kernel, _ = nodes_of(data)
    features, other_features = features_of(term), _other_draw(spec, data, term)
    name, error, bound = "precision", None, None
    if features is not None:
        name, bound = features.name, features.spectral_error(kernel)
        error = _kernel_error(graph, kernel, features) if not features.is_exact and other_features is None else None
    if not spec.is_gaussian:  # only Gaussian observations are compared
        rows = rows.take(slice(0))
    ((_, (column,), _),) = spec.terms[0].parts()
    used, held_out = split(graph, rows.inputs[:, column].long().numpy(), seed)
    if len(held_out) == 0:
        return FeatureCheck(name, None, None, None, error, bound, None, None, len(used), 0)
    seen, observed, (mean, noise) = rows.take(used), rows.take(held_out), mean_and_noise(values)
    with torch.no_grad():
        known = {name: values.standardized(name) for name in values.space.names}
        terms = [term] if other_features is None else [term, other_features]
        priors = [one.at(known, spec.columns) for one in terms]
        moments = [_moments(prior, seen, observed, mean, noise) for prior in priors]
    noise_diag = observed.noise_diag(noise).expand(len(observed))
    residual, variance = observed.targets - mean - moments[0][0], moments[0][1].diagonal() + noise_diag
    squares = residual.square() / variance[:, None]
    log_scale = -state.scaling.targets.log_jacobian(1) / rows.num_outputs
    log_prob = -0.5 * (squares + (2 * math.pi * variance[:, None]).log()).mean() - log_scale
    divergence = shift = own_variance = None
    if other_features is not None:
        divergence, shift = _between(moments[0], moments[1], noise_diag)
        own_variance = _walk_variance(priors[0], priors[1], seen) / float(seen.noise_diag(noise).mean())
    figures = (float(squares.mean()), -float(log_prob), len(used), len(held_out))
    return FeatureCheck(name, divergence, own_variance, shift, error, bound, *figures)


def _moments(prior: Prior, rows: Block, new: Block, mean: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean (b, k) and covariance (b, b) at new rows, given the rows."""
    posterior = solver_for(prior, rows, mean, noise).posterior()
    projected = posterior.project(new.inputs)
    return posterior.mean(projected), posterior.covariance(new.inputs, projected)


def _between(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], noise_diag: Tensor) -> tuple[float, float]:
    """Return the symmetric divergence in nats per node, and the mean's shift in deviations."""
    n, k = first[0].shape
    a, b = (covariance + torch.diag(noise_diag) for _, covariance in (first, second))
    difference = first[0] - second[0]
    total = -2.0 * n
    for left, right in ((a, b), (b, a)):
        factor = cholesky(left, "The covariance of held-out observations")
        total += float(torch.cholesky_solve(right, factor).diagonal().sum())
        total += float((difference * torch.cholesky_solve(difference, factor)).sum()) / k
    deviations = ((a + b).diagonal() / 2).sqrt()[:, None]
    return 0.25 * total / n, float((difference / deviations).square().mean().sqrt())


def _walk_variance(first: Prior, second: Prior, rows: Block) -> float:
    """Return the mean over rows of E|phi|^2 - |E phi|^2, unbiased from two draws: |phi - phi'|^2 / 2."""
    with torch.no_grad():
        a, b = (prior.graph_features[0].features(rows.inputs, keep=False).matrix() for prior in (first, second))
    return 0.5 * float(first.graph_features[0].variance) * float((a - b).power(2).sum()) / len(rows)


def _kernel_error(graph: graphs.Graph, kernel: GraphKernel, features: NodeFeatures) -> float | None:
    sample = sample_of(graph)
    try:
        exact = exact_block(graph, kernel, sample)
    except graphs.InvalidArgumentError:  # the graph is too large for this diagnosis
        return math.inf if features.is_sparse else None
    theta = torch.as_tensor(kernel.values)
    positions = torch.from_numpy(sample)
    with torch.no_grad():
        rows = positions[:, None]
        prior = features.prior(theta, torch.ones((), dtype=torch.float64), 0, "nodes")
        estimate = prior.kernel(rows, rows).double().numpy()
    return float(np.linalg.norm(estimate - exact) / np.linalg.norm(exact))


def features_of(term: TermPrior) -> NodeFeatures | None:
    """Return the features of nodes of a term.

    Args:
        term: The term.

    Returns:
        The features, or None for other features and sparse precisions.
    """
    return term.basis if isinstance(term.basis, NodeFeatures) else None


def _other_draw(spec: ModelSpec, data: TermData, term: TermPrior) -> TermPrior | None:
    """Return a term with an independent draw of its walks, or None for other features."""
    approximation, features = spec.approximations[data.term.name], features_of(term)
    if features is None or features.walks is None or not isinstance(approximation, NodeApproximation):
        return None
    options = {**approximation.options, **drawn_with(features.walks)}
    seed = spec.options.seed if approximation.seed is None else random.resolve_seed(approximation.seed)
    child = random.child_seed(seed, random.Role.CHECK)
    return node_term(data, replace(approximation, seed=None).make(data, child, options))


def split(graph: graphs.Graph, positions: NDArray[np.int64], seed: int) -> tuple[Tensor, Tensor]:
    """Return close rows (n,) for prediction, and rows (b,) of other nodes to hold out.

    Args:
        graph: The graph.
        positions: The nodes of the rows, as integers, (n,).
        seed: The seed of the nodes from which the selection grows.
    """
    generator = random.numpy_generator(seed, random.Role.SPLIT)
    observed, taken = np.unique(positions), np.zeros(0, dtype=np.int64)
    most = MAX_ROWS + MAX_HELD_OUT
    if len(observed) <= most:
        taken = observed
    else:
        is_observed = np.zeros(graph.num_nodes, dtype=bool)
        is_observed[observed] = True
        for start in generator.choice(observed, _SEEDS, replace=False):
            order = breadth_first_order(graph.adjacency, start, directed=False, return_predecessors=False)
            near = order[is_observed[order]]
            taken = np.union1d(taken, near[: most // _SEEDS])
    count = min(MAX_HELD_OUT, len(taken) // 5)
    if len(taken) < MIN_ROWS:
        count = 0
    hidden = np.isin(positions, generator.permutation(taken)[:count])
    used = np.flatnonzero(np.isin(positions, taken) & ~hidden)[: 2 * MAX_ROWS]
    return torch.from_numpy(used), torch.from_numpy(np.flatnonzero(hidden)[: 2 * MAX_HELD_OUT])


# --- The recommendation of `graphs.advise` as a report ---------------------------------------------------------------

_SOLVED = ("precision", "rational", "exact")
"""Features with a factorization as solver, instead of conjugate gradients."""
_EVALUATIONS, _PRODUCTS, _BYTES = 30.0, 400.0, 12.0
"""Evaluations of a fit, products with a sparse matrix in each, and bytes of a non-zero with its column index."""


def _trial(candidate: Candidate, graph: graphs.Graph, sampled: int) -> Trial:
    """Return the trial of a candidate.

    Costs grow with its non-zeros, or their squares per row for a factor.
    """
    N, nonzeros = graph.num_nodes, candidate.nonzeros
    products = 4.0 * nonzeros**2 if candidate.features in _SOLVED else _PRODUCTS * 4.0 * nonzeros
    shown = ", ".join(f"{name}={value}" for name, value in candidate.options.items())
    options = {"features": candidate.features} | {
        name: value if isinstance(value, str | bool | int | float | None) else str(value)
        for name, value in candidate.options.items()
    }
    seconds, memory = _EVALUATIONS * products * N / FLOPS_PER_SECOND, _BYTES * nonzeros * N
    scores = (Score(sampled, float(candidate.error), 0.0),)
    return Trial(f"{candidate.features}({shown})", options, seconds, memory, scores)


def advised_selection(
    graph: graphs.Graph, kernel: GraphKernel, max_nonzeros: int, seed: int, limits: Budget | None = None
) -> SelectionReport:
    """Return the recommendation of `graphs.advise` within the limits, as a report.

    Args:
        graph: The graph.
        kernel: The kernel.
        max_nonzeros: The maximal number of non-zeros of a row of the feature matrix.
        seed: The seed of the sample of nodes.
        limits: The limits of time and memory. If no candidate is within them, the cheapest one is selected. If None,
            there are none.
    """
    advice, sampled = graphs.advise(graph, kernel, max_nonzeros, seed=seed), min(128, graph.num_nodes)
    trials = [_trial(candidate, graph, sampled) for candidate in advice.candidates]
    best, way = advice.candidates.index(advice.best), "of a sample, against the exact kernel"
    selection = SelectionReport(best, tuple(trials), advice.reason, ERROR, sampled, way, rate=FLOPS_PER_SECOND)
    if limits is None:
        return selection
    most = math.inf if limits.time_limit is None else limits.time_limit
    for number, trial in enumerate(trials):
        status = f"its predicted time exceeds the limit of {most:.3g} s" if trial.seconds > most else ""
        if trial.memory > limits.memory:
            status = f"{trial.memory:.2g} bytes exceed the limit of {limits.memory:.2g}"
        trials[number] = replace(trial, status=status)
    allowed = [number for number, trial in enumerate(trials) if not trial.status]
    reason = advice.reason
    if best not in allowed:
        numbers = allowed or range(len(trials))
        best = min(numbers, key=lambda i: trials[i].scores[-1].value if allowed else trials[i].seconds)
        choice = "the best within the limits" if allowed else "the cheapest, because none is within the limits"
        reason = f"{trials[best].name}: {choice}; without limits {reason}"
    seconds = limits.time_limit or 0.0
    return replace(selection, trials=tuple(trials), best=best, reason=reason, time_limit=seconds, memory=limits.memory)
