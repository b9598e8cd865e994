"""Fitting under a non-Gaussian likelihood: on growing subsets, then on all rows.

Up to 10,000 rows, hyperparameters are fitted with few random features, at a fraction of the cost. The posterior is then
computed once, with all features. Variational inference maximizes the evidence lower bound (ELBO). Without random
features, its search starts at the end of a cheaper fit, by Laplace's approximation or with a Gaussian likelihood. There
is no cheaper fit for several classes.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from rfgp.approximations import Approximation, RandomFeatures
from rfgp.fitting.context import TermFit
from rfgp.fitting.driver import learn_basis, message_of
from rfgp.fitting.last_stage import FEWEST_CHECKED, conditioned
from rfgp.fitting.lattices import fit_lattices_by_laplace
from rfgp.fitting.maximize import Objective, Plan, maximize
from rfgp.fitting.starts import SCREENED_ROWS
from rfgp.fitting.subsets import fit_coarsely, grow
from rfgp.inference.observed import LeaveOneOut
from rfgp.likelihoods import Gaussian
from rfgp.models import FitReport, GPState
from rfgp.models.spec import inference_of
from rfgp.models.state import at_starting_values, with_basis_of
from rfgp.parameters import ParameterValues
from rfgp.rows import gathered, is_read_in_blocks
from rfgp.solvers import Inference
from rfgp.solvers.onepass import has_lattices

FEW_FREQUENCIES, FEWEST = 128, 64
"""The number of frequencies of a search for the hyperparameters of one latent function, and of several.

1,800 rows of four classes, 512 frequencies: 57 s with 64 and 87 s with 128, leave-one-out log densities -0.321 and
-0.316."""
MAX_ROWS = 10_000
"""The maximum number of rows of a search with few frequencies. More rows determine functions that few features cannot
represent."""
CLASS_ROWS = 800
"""The maximum number of rows for the hyperparameters of several classes. An evaluation takes time n^3 a class."""
CLASS_GAIN = 1e-4
"""The smallest gain of an iteration on the ELBO for several classes, in nats a row.

If inputs separate the classes, a search would continue for a hundred evaluations that gain 0.1 nats each."""

LATTICE_ROWS = 2000
"""The number of rows above which the search on lattices is that under a Gaussian likelihood."""

Strategy = Callable[[GPState, Plan], tuple[GPState, FitReport]]


def dispersion_of(
    predicted: LeaveOneOut,
    y: Tensor,  # (n,)
    *,
    is_white: bool,
) -> tuple[float, float]:
    """Return the mean squared z-score of counts, and its excess over 1 in standard deviations.

    The variance of a squared z-score is 2 plus the excess kurtosis. That is 1 / v + 6 (v - m) / m^2 for a negative
    binomial distribution with the mean m and the variance v of the leave-one-out prediction. If the log rate of a row
    says nothing of other rows, it is noise that counts as dispersion: v is the variance m of Poisson counts.

    Args:
        predicted: The leave-one-out predictions.
        y: The counts, (n,).
        is_white: Whether the log rates of different rows are independent.
    """
    m, v = (torch.as_tensor(moment).double().cpu() for moment in (predicted.mean, predicted.variance))
    v = m if is_white else v
    mean = float(((y.cpu() - m).square() / v).mean())
    variance = float((2 + 1 / v + 6 * (v - m).clamp_min(0) / m.square()).mean()) / len(y)
    return mean, (mean - 1) / math.sqrt(variance)


NEAR_BOUND = 2.0
"""The ratio of a lengthscale to its lower bound up to which different rows are called independent."""


def _is_white(state: GPState) -> bool:
    """Return whether all stationary terms have lengthscales near their lower bounds."""
    values, quantities = state.hyperparameters, state.hyperparameters.space.quantities
    names = [
        f"{prefix}lengthscale"
        for term in state.spec.terms
        for factor, _, prefix in term.parts()
        if factor.measure is not None
    ]
    known = [name for name in names if name in quantities]
    return bool(known) and all(
        bool((values.standardized(name) < NEAR_BOUND * quantities[name].bounds[0]).all()) for name in known
    )


def fit_observed(state: GPState, plan: Plan, strategy: Strategy) -> tuple[GPState, FitReport]:
    """Fit a model with a non-Gaussian likelihood.

    Args:
        state: The state. Its likelihood is not Gaussian.
        plan: The options of the fit.
        strategy: Fits a cheaper model, to start the search for the highest ELBO.

    Returns:
        The state with its posterior, and the report.
    """
    rows, few = state.require_rows(purpose="a fit"), with_few(state)
    fit = TermFit.of(few, plan)
    with torch.no_grad():
        if inference_of(state.spec, rows) != "variational":
            fitted, reports, message = _by_laplace(fit)
            inference = None
        else:
            fitted, reports, inference = _by_elbo(fit, strategy)
            message = reports[-1].message if reports else "every hyperparameter is fixed"
        fitted = state.replace(spec=fitted.spec, hyperparameters=fitted.hyperparameters)
        if few is not state:
            message, fitted = f"{message}, with fewer frequencies", fitted.replace(spec=state.spec)
        return _with_posterior_and_report(fit, fitted, reports, message, inference if few is state else None)


def with_few(state: GPState) -> GPState:
    """Return the state with fewer random features, if rows are not too many.

    Args:
        state: The model state.
    """
    spec, count = state.spec, len(state.require_rows(purpose="a fit"))
    few = FEW_FREQUENCIES if spec.options.likelihood.num_latents == 1 else FEWEST
    changed = {name: _fewer(approximation, few) for name, approximation in spec.approximations.items()}
    if count > MAX_ROWS or changed == spec.approximations or spec.noise_process is not None:
        return state
    return state.replace(spec=spec.with_approximations(changed, state.hyperparameters, count))


def _fewer(approximation: Approximation, few: int) -> Approximation:
    if not isinstance(approximation, RandomFeatures) or approximation.learn_frequencies:
        return approximation
    return replace(approximation, num_frequencies=min(few, approximation.num_frequencies))


def _by_laplace(fit: TermFit) -> tuple[GPState, list[FitReport], str]:
    """Return the state at the optimal hyperparameters, the reports, and a message."""
    if not fit.free:
        return fit.state, [], "every hyperparameter is fixed"
    if fit.spec.options.likelihood.num_latents > 1:
        fit, report = fit_coarsely(fit, CLASS_ROWS)
        return fit.state, [report], f"on {report.stages[-1].rows:,} rows ({report.message})"
    if has_lattices(fit.prior) and len(fit.pool) > LATTICE_ROWS:
        fit, reports, message = fit_lattices_by_laplace(fit)
    else:
        fit, reports, message = grow(fit)
        fit, reports = learn_basis(fit, reports)
        message = message_of(reports, message)
    return fit.state, reports, message


def _by_elbo(fit: TermFit, strategy: Strategy) -> tuple[GPState, list[FitReport], Inference]:
    """Return the state with the highest ELBO, the reports, and the inference."""
    rows, likelihood, spec = fit.rows, fit.spec.options.likelihood, fit.spec
    has_features = any(isinstance(approximation, RandomFeatures) for approximation in spec.approximations.values())
    if likelihood.num_latents > 1 or (has_features and not likelihood.has_noise_process):
        fit, report = fit_coarsely(fit, len(rows), SCREENED_ROWS, CLASS_GAIN if likelihood.num_latents > 1 else None)
        return fit.state, [report], fit.state.infer(rows)
    cheaper = _cheaper(fit.state)
    held = set(fit.values.space.names) - set(fit.free)
    fixed = tuple(name for name in cheaper.hyperparameters.space.names if name in held)
    reached, first = strategy(cheaper, replace(fit.plan, fixed=fixed))
    initial = fit.at(_with_values_found(fit.values, reached, fit.free, spec.noise_prefix))
    is_same = reached.spec.options.likelihood is likelihood
    initial = initial.with_spec(with_basis_of(spec, reached.spec) if is_same else initial.with_new_basis().spec)
    values, report = maximize(Objective.of(initial.state, rows), initial.values, fit.plan, stage="bound")
    fit, reports = learn_basis(initial.at(values), [first, report])
    return fit.state, reports, fit.state.infer(rows)


def _cheaper(state: GPState) -> GPState:
    """Return the state by Laplace's approximation, or with a Gaussian likelihood."""
    spec = state.spec
    if "laplace" in spec.options.likelihood.approximations:
        return state.replace(spec=replace(spec, options=spec.options.changed(inference="laplace")))
    options = spec.options.changed(likelihood=Gaussian(), inference=None, approximations=dict(spec.approximations))
    return at_starting_values(state, replace(spec, options=options, noise_process=None))


def _with_values_found(values: ParameterValues, cheaper: GPState, free: list[str], prefix: str) -> ParameterValues:
    """Return values with the free ones found, also for the kernel of a noise process."""
    reached = cheaper.hyperparameters
    of_terms = {name: reached.value(name) for name in reached.space.names if name in free}
    scales = {term.outputscale for term in cheaper.spec.terms}
    kernel = set(reached.space.quantities) - {"noise", *scales}
    of_noise = {f"{prefix}{name}": reached.value(name) for name in kernel if f"{prefix}{name}" in free}
    return values.with_values(**of_terms, **of_noise)


def _with_posterior_and_report(
    fit: TermFit, state: GPState, reports: list[FitReport], message: str, inference: Inference | None
) -> tuple[GPState, FitReport]:
    """Return the state with its posterior given all rows, and the report."""
    rows = fit.rows
    inference = state.infer(rows) if inference is None else inference
    converged = not reports or reports[-1].converged
    message = f"{'converged' if converged else 'stopped'}: {message}" if reports else message
    report = FitReport(converged, 0, 0, math.nan, message, reports[-1].at_bounds if reports else ())
    state, report = conditioned(state, inference, report.merged_with(reports))
    if is_read_in_blocks(rows):
        return state, report
    predicted = state.leave_one_out(rows, inference)
    report = replace(report, leave_one_out=float(predicted.log_prob.mean()))
    if state.spec.options.likelihood.has_fixed_dispersion and len(rows) >= FEWEST_CHECKED:
        size, zscore = dispersion_of(predicted, gathered(rows).targets[:, 0], is_white=_is_white(state))
        report = replace(report, mean_squared_zscore=size, dispersion_zscore=zscore)
    return state, report
