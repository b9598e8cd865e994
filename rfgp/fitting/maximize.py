"""Search of hyperparameters: coordinates, closed gradients of exact kernels, and L-BFGS.

Long lengthscales do not saturate in them, and terms on nodes have their mean prior variances in place of output scales.

On few rows, terms, blocks and autograd's graph cost several times as much as the matrices. A search takes hundreds of
evaluations, so everything that does not depend on the hyperparameters is prepared once.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.approximations.role import TermGram
from rfgp.blocks import Prior
from rfgp.descent import Descent, descend
from rfgp.errors import InvalidArgumentError
from rfgp.fitting.progress import Checkpoint, Reporter, Searched
from rfgp.grams import Gram
from rfgp.messages import check_count
from rfgp.models import FitReport, GPState, Stage, mean_and_noise
from rfgp.models.inputs import mean_variance, parameters_of_nodes
from rfgp.models.report import INTERRUPTED, TIME_OVER
from rfgp.models.spec import NORMALIZED_ROWS, ModelSpec
from rfgp.parameters import ParameterSpace, ParameterValues
from rfgp.rows import Block, Rows, gathered, rows_in_memory
from rfgp.solvers import WarmStart, onepass
from rfgp.solvers.choice import is_low_rank
from rfgp.solvers.dense import DenseSolver

# --- Coordinates of a search, in which all hyperparameters vary on one scale -----------------------------------------

Floats = NDArray[np.float64]
Interval = tuple[float | None, float | None]

_SATURATION = 0.1
"""The lengthscale e^f beyond which a column has hardly any effect, relative to its upper bound.

On 8 tables at 50 to 600 rows, 0.03 lowers likelihoods by up to 0.5 nats in longer searches, and 0.003 by up to 3."""
_RESTART, _MIN_GAIN = 0.03, 0.1
"""The lengthscale at which a saturated column is restarted, relative to e^f, and the smallest expected gain, in
nats.

Without restarts 7 of 136 fits of 18 tables at 50 and 200 rows end lower, by up to 2.9 nats."""
_STEP = 1e-4
"""The step of central differences in the logarithm of a parameter. Their relative error is about 1e-8."""

_LEAST = 1e-300
"""The least mean variance."""


@dataclass(frozen=True, eq=False)
class MeanVariances:
    """The mean prior variances of terms on nodes, at an output scale of 1.

    They are used under a non-Gaussian likelihood.

    They depend on the parameters of a graph kernel: on cora the one of a diffusion kernel falls from 0.6 at a
    lengthscale of 1 to 0.004 at 8.

    Attributes:
        spec: The specification.
        rows: The rows over which variances are averaged.
        parameters: The dotted names of the parameters of the graph kernel of each term, by that of its output scale.
    """

    spec: ModelSpec
    rows: Block
    parameters: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, state: GPState, rows: Rows) -> "MeanVariances | None":
        """Return the mean variances over rows, or None.

        They are None under a Gaussian likelihood, and if no output scale has bounds of the mean variance.

        Args:
            state: The model state.
            rows: The rows. The first rows in memory are used.
        """
        spec = state.spec
        if spec.is_gaussian:
            return None
        parameters = parameters_of_nodes(spec.terms)
        return cls(spec, rows_in_memory(rows).take(slice(NORMALIZED_ROWS)), parameters) if parameters else None

    def logs(self, values: ParameterValues) -> dict[str, float]:
        """Return the logarithms of mean variances by the dotted names of output scales.

        Args:
            values: The hyperparameters.
        """
        with torch.no_grad():
            prior = self.spec.prior(values)
            terms = [term for term in self.spec.terms if term.outputscale in self.parameters]
            sizes = {str(term.outputscale): mean_variance(prior, term, values, self.rows) for term in terms}
            return {path: float(size.clamp_min(_LEAST).log()) for path, size in sizes.items()}


@dataclass(frozen=True, eq=False)
class VarianceReparametrization:
    """The map from raw output scales of terms on nodes to log mean prior variances.

    A search moves the variance of the latent function, so that its size and its bounds do not depend on the lengthscale
    of a graph kernel. Priors of Gaussian fields are stated in the marginal standard deviation for the same reason.

    Source: Fuglstad, Simpson, Lindgren and Rue (2019), Constructing priors that penalize the complexity of Gaussian
    random fields.

    Attributes:
        variances: The mean variances.
        start: The starting values.
        free: The names of the entries of a vector, in its order.
    """

    variances: MeanVariances
    start: ParameterValues
    free: Sequence[str]

    def at(self, x: Floats) -> Floats:
        """Return the log mean variances (p,) at raw values x (p,).

        They do not depend on the output scales. All other entries are 0.
        """
        out, slices = np.zeros_like(x), self._slices
        for path, log in self.variances.logs(self.start.moved(self.free, x)).items():
            if path in slices:
                out[slices[path]] = log
        return out

    def gradient(self, x: Floats, gradient: Floats) -> Floats:
        """Return the gradient (p,) in the coordinates, given that in raw values x (p,).

        Args:
            x: The raw values, (p,).
            gradient: The gradient in raw values, (p,).
        """
        out, slices = gradient.copy(), self._slices
        moving = {name for path, names in self.variances.parameters.items() if path in slices for name in names}
        for index in (i for name in self.free if name in moving for i in np.arange(x.size)[slices[name]]):
            step = np.zeros_like(x)
            step[index] = _STEP
            slope = (self.at(x + step) - self.at(x - step)) / (2 * _STEP)
            out[index] -= slope @ gradient
        return out

    @property
    def _slices(self) -> dict[str, slice]:
        """The slice of each free name in a vector."""
        sizes = [self.start.raw[name].numel() for name in self.free]
        ends = np.cumsum(sizes).tolist()
        return {name: slice(end - size, end) for name, size, end in zip(self.free, sizes, ends, strict=True)}


@dataclass(frozen=True)
class Coordinates:
    """Coordinates u of raw values x in which long lengthscales do not saturate.

    A kernel depends on 1 / l^2, so its slope in x = log l vanishes like 1 / l^2. The lengthscale of an irrelevant
    column takes dozens of iterations to reach its upper bound, and never leaves it. The coordinate is

        u(x) = -log(e^(-2x) + e^(-2f)) / 2,    or u = x for infinite f.

    It is the logarithm up to l = e^f, and beyond that nearly linear in 1 / l^2. So the slope does not vanish.

    Attributes:
        saturation: The log lengthscale f of each entry (p,) above which its effect saturates, or infinity.
        reparametrization: The map from raw output scales to logarithms of mean variances. If None, output scales stay.

    Examples:
        >>> coordinates = Coordinates(np.array([np.log(1000.0)]))
        >>> u = coordinates.at(np.log([10.0]))
        >>> np.exp(u).round(3), np.exp(coordinates.raw(u)).round(3)
        (array([10.]), array([10.]))
    """

    saturation: Floats
    reparametrization: VarianceReparametrization | None = None

    @classmethod
    def of(
        cls, space: ParameterSpace, names: Iterable[str], reparametrization: VarianceReparametrization | None = None
    ) -> "Coordinates":
        """Return the coordinates of the raw values of some names, concatenated.

        Args:
            space: The parameter space, with its bounds.
            names: The names of the hyperparameters, in the order of the entries.
            reparametrization: The map from raw output scales to logarithms of mean variances. If None, output scales
                stay.
        """
        saturating = {name for name, quantity in space.quantities.items() if quantity.saturates}
        ends = [high if name in saturating else None for name in names for _, high in space.bounds(name)]
        return cls(np.array([np.inf if end is None else np.log(_SATURATION) + end for end in ends]), reparametrization)

    def at(self, x: Floats) -> Floats:
        """Return the coordinates u (p,) of raw values (p,)."""
        return (
            self._saturated(x) if self.reparametrization is None else self._saturated(x) + self.reparametrization.at(x)
        )

    def raw(self, u: Floats) -> Floats:
        """Return the raw values (p,) of coordinates u (p,).

        Args:
            u: The coordinates, (p,). Each must be less than its f.
        """
        x = np.asarray(u - 0.5 * np.log1p(-np.exp(2 * np.where(self._saturates, u - self.saturation, -np.inf))))
        return x if self.reparametrization is None else x - self.reparametrization.at(x)

    def gradient(self, x: Floats, gradient: Floats) -> Floats:
        """Return the gradient (p,) in u from the gradient in raw values x (p,).

        Args:
            x: The raw values, (p,).
            gradient: The gradient in raw values, (p,).
        """
        if self.reparametrization is not None:
            gradient = self.reparametrization.gradient(x, gradient)
        return gradient * self.slope(x)

    def slope(self, x: Floats) -> Floats:
        """Return dx / du (p,) at raw values x (p,), without the reparametrization."""
        return np.asarray(1 + np.exp(2 * np.where(self._saturates, x - self.saturation, -np.inf)))

    def restart(self, x: Floats, gradient: Floats) -> Floats:
        """Return raw values (p,) with saturated lengthscales shortened if that gains.

        The gradient in 1 / l^2 = e^(-2x) is -e^(2x) / 2 times the gradient in x. It does not vanish, so it estimates
        the gain of a saturated column.

        Args:
            x: Raw values (p,) at the end of a search.
            gradient: The gradient (p,) of the loss in them, in nats.
        """
        restart = self.saturation + np.log(_RESTART)
        with np.errstate(over="ignore", invalid="ignore"):
            gain = 0.5 * gradient * np.expm1(2 * (x - restart))
            return np.where(self._saturates & (x > restart) & (gain > _MIN_GAIN), restart, x)

    def limits(self, bounds: Sequence[Interval]) -> list[Interval]:
        """Return the bounds of u (p,) for those of x (p,).

        Bounds of reparametrized output scales are bounds of the mean variances.

        Args:
            bounds: The lower and upper bound of each raw value. None is no bound.
        """
        low, high = (
            [
                None if end is None else float(u)
                for end, u in zip(ends, self._saturated(np.array(ends, float)), strict=True)
            ]
            for ends in zip(*bounds, strict=True)
        )
        return list(zip(low, high, strict=True))

    def _saturated(self, x: Floats) -> Floats:
        """Return u (p,) of raw values (p,) without the reparametrization."""
        u = x.copy()
        u[self._saturates] = -0.5 * np.logaddexp(-2 * x[self._saturates], -2 * self.saturation[self._saturates])
        return u

    @property
    def _saturates(self) -> NDArray[np.bool_]:
        return np.isfinite(self.saturation)


# --- The log marginal likelihood under exact terms, and its gradient in closed form ----------------------------------

NO_PRIOR = Prior()
"""The prior of a solver whose covariance is given."""


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """The log marginal likelihood of rows under exact terms, and its gradient.

    Attributes:
        rows: The rows.
        terms: The covariances of the terms as functions of the hyperparameters.
    """

    rows: Block
    terms: tuple[TermGram, ...]

    @classmethod
    def of(cls, state: GPState, rows: Rows) -> "ClosedForm | None":
        """Return the likelihood of rows, or None if it has no closed form.

        Args:
            state: The model state.
            rows: The rows.
        """
        spec, space = state.spec, state.hyperparameters.space
        if not spec.is_gaussian or space.extra_tensors or not rows.is_homoscedastic:
            return None
        prior = state.prior()
        is_exact = (
            not (prior.graph_features or prior.precisions or prior.chains or prior.neighbors or prior.has_grids)
            and not spec.other_members
            and spec.areas is None
        )
        if not is_exact or is_low_rank(prior, rows) or onepass.supports(prior, rows):
            return None
        block, columns = gathered(rows), spec.columns
        assert columns is not None
        if block.inputs.requires_grad or block.inputs.dtype != torch.float64:
            return None
        grams = [term.gram(block.inputs, columns) for term in spec.term_priors]
        terms = tuple(gram for gram in grams if gram is not None)
        return cls(block, terms) if len(terms) == len(grams) else None

    def __call__(self, values: ParameterValues, free: Sequence[str]) -> tuple[Tensor, Tensor] | None:
        """Return the log likelihood with hyperpriors and its gradient.

        Args:
            values: The hyperparameters.
            free: Names of hyperparameters, in the order of the gradient.

        Returns:
            The value, 0-d, and its gradient in free raw values, (p,), float64. None if a row is too far out for a
            closed form.
        """
        with torch.no_grad():
            known = {name: values.standardized(name).double() for name in values.space.quantities}
            solver = self._solver(values, known)
            if solver is None:
                return None
            value, gradients = solver.likelihood_and_gradients()
            names = [name for term in self.terms for name in term.names]
            total = self._in_raw(values, known, zip(names, gradients[:-2], strict=True), gradients[-2:])
        if values.space.hyperpriors:
            value = value + _add_hyperprior(total, values, free)
        parts = [total[name] if name in total else torch.zeros_like(known[name]) for name in free]
        return value, torch.cat([part.reshape(-1) for part in parts])

    def _solver(self, values: ParameterValues, known: Mapping[str, Tensor]) -> DenseSolver | None:
        """Return the solver at standardized values, or None without a closed form."""
        grams = [term.at(known) for term in self.terms]
        known_grams = [gram for gram in grams if gram is not None]
        if len(known_grams) < len(grams):
            return None
        return DenseSolver(NO_PRIOR, self.rows, *mean_and_noise(values), Gram.total(known_grams))

    def _in_raw(
        self,
        values: ParameterValues,
        known: Mapping[str, Tensor],
        of_terms: "zip[tuple[str, Tensor | None]]",
        of_noise_and_residual: Sequence[Tensor | None],
    ) -> dict[str, Tensor]:
        """Return the gradients in raw values by name, from those in standardized values."""
        in_noise, in_residual = of_noise_and_residual
        assert in_noise is not None
        assert in_residual is not None
        total = {"noise": in_noise.sum()}
        for name, gradient in of_terms:
            if gradient is not None:
                total[name] = gradient if name not in total else total[name] + gradient
        for name, gradient in total.items():
            if values.space.quantities[name].is_positive:
                total[name] = gradient * known[name]
        unit = values.space.mean.scale / values.space.targets.scale
        total["mean"] = (-in_residual.sum(0) * unit).sum_to_size(values.raw["mean"].shape or (1,))
        return total


def _add_hyperprior(total: dict[str, Tensor], values: ParameterValues, free: Sequence[str]) -> Tensor:
    """Return the log density of the hyperpriors, 0-d, and add its gradient to totals."""
    with torch.enable_grad():
        leaves = values.leaves(free)
        log_hyperprior = leaves.log_hyperprior()
        if not log_hyperprior.requires_grad:
            return log_hyperprior.double()
        tensors = [leaves.raw[name] for name in free]
        gradients = torch.autograd.grad(log_hyperprior, tensors, allow_unused=True)
    for name, gradient in zip(free, gradients, strict=True):
        if gradient is not None:
            total[name] = gradient.double() + total.get(name, 0.0)
    return log_hyperprior.detach().double()


# --- The options of a fit, and L-BFGS over raw hyperparameters -------------------------------------------------------

MIN_GAIN = 1e-5
"""The smallest gain of an iteration in nats. Differences below about one nat are not significant."""
_LAST = 5
"""The number of iterations whose total gain is compared with `Plan.least_gain`."""
_AT_BOUND = 1e-6
"""The distance of a raw value from a bound at which it has reached it."""
_ROUNDING = 1e-6
"""The smallest gain, in nats per observation, of a restart after a failed line search."""

clock = time.monotonic
"""The clock of time limits."""


class Evaluation(NamedTuple):
    """A log marginal likelihood, and the hyperparameters at which it was evaluated."""

    value: Tensor  # 0-d, of standardized targets
    reached: ParameterValues  # with gradients; they differ from the arguments if some of them are solved for
    warm_start: WarmStart = ()  # the start of the next search for a posterior


class LogLikelihood(Protocol):
    """Interface: the log marginal likelihood of rows as a function of hyperparameters."""

    def __call__(self, values: ParameterValues, warm_start: WarmStart = ()) -> Evaluation:
        """Evaluate the likelihood.

        A search for the posterior starts at the warm start (...) of values close by.
        """


Bounds = Mapping[str, tuple[float, float]]
"""Bounds of raw values by name."""


class Deadline:
    """The time after which a fit begins no evaluation.

    Args:
        seconds: The seconds until then. If None, there is no such time.
        start: The time by `clock` from which they count. If None, now.

    Attributes:
        was_reached: Whether a search asked after that time, so that it ended early.

    Examples:
        >>> Deadline(60).has_passed(), Deadline(1, start=-1).has_passed()
        (False, True)
    """

    def __init__(self, seconds: float | None = None, start: float | None = None) -> None:
        self._seconds = math.inf if seconds is None else seconds
        self._start = clock() if start is None else start
        self._interrupts = list[str]()  # shared with all parts
        self.was_reached = False

    def interrupt(self) -> None:
        """End the time now, also that of all parts."""
        self._interrupts.append(INTERRUPTED)

    @property
    def reason(self) -> str:
        """Why time is over."""
        return next(iter(self._interrupts), TIME_OVER)

    def part(self, fraction: float = 1.0) -> "Deadline":
        """Return a deadline at a fraction of the time, which no search has reached.

        Args:
            fraction: The fraction, from 0 to 1. By default, all of the time.
        """
        part = Deadline(fraction * self._seconds, self._start)
        part._interrupts = self._interrupts
        return part

    @property
    def seconds_passed(self) -> float:
        """The seconds since the start."""
        return clock() - self._start

    @property
    def seconds_left(self) -> float:
        """The seconds until this time."""
        return -math.inf if self._interrupts else self._seconds - self.seconds_passed

    def has_passed(self) -> bool:
        """Return whether this time has passed."""
        self.was_reached = self.was_reached or self.seconds_left < 0
        return self.was_reached


@dataclass(frozen=True)
class Plan:
    """The options of a fit.

    Attributes:
        fixed: Names of hyperparameters that keep their values.
        iteration_limit: The maximum number of iterations and steps. If None, 500 iterations and 300 steps.
        reporter: The reporter that is called after each iteration.
        checkpoint: The checkpoint of the fit.
        most_rows: The maximum number of rows of a search with neighbors. No posterior is then computed. If None, the
            default number of rows, and the posterior.
        is_continued: Whether the hyperparameters are those of an earlier search, so that no other starts are compared.
        fixed_also_compared: Whether fixed frequencies are a candidate of their own. If so, a fit with learned
            frequencies does not search with fixed ones.
        needed_gain: The gain over fixed frequencies, in nats a row, that makes learned ones useful. Learning stops
            early if its learning curve cannot reach this gain.
        needed_score: The standardized log density of a test row that makes learned frequencies useful. Learning stops
            early if it cannot reach this score.
        least_gain: The smallest total gain in nats of the last five iterations of a search. If 0, `MIN_GAIN` for each.
        horizon: The number of steps of the forecasts that a selection scores. If None, the user gave none.
        by: The column that names the series of each row. If None, there is one.
        deadline: The time after which no evaluation begins. Searches then end at the best point so far.

    Examples:
        >>> Plan(iteration_limit=100).max_iterations, Plan().steps
        (100, 300)
    """

    fixed: tuple[str, ...] = ()
    iteration_limit: int | None = None
    reporter: Reporter = field(default_factory=Reporter)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    most_rows: int | None = None
    is_continued: bool = False
    fixed_also_compared: bool = False
    needed_gain: float = -math.inf
    needed_score: float = -math.inf
    least_gain: float = 0.0
    horizon: int | None = None
    by: object = None
    deadline: Deadline = field(default_factory=Deadline, compare=False)

    def __post_init__(self) -> None:
        check_count("max_iterations", self.max_iterations, least=0)

    @property
    def max_iterations(self) -> int:
        """The maximum number of iterations of L-BFGS on any set of rows."""
        return 500 if self.iteration_limit is None else self.iteration_limit

    @property
    def steps(self) -> int:
        """The steps of learning frequencies."""
        return 300 if self.iteration_limit is None else self.iteration_limit

    def is_over(self) -> bool:
        """Return whether time is over.

        If so, the checkpoint is closed: a repeated fit continues from here, and takes other steps than this one.
        """
        if not self.deadline.has_passed():
            return False
        self.checkpoint.close()
        return True


@dataclass(frozen=True, eq=False)
class Objective:
    """The log posterior of hyperparameters, given rows.

    Attributes:
        log_likelihood: The log marginal likelihood as a function of the hyperparameters.
        rows: The number of rows.
        count: The number of observations, repetitions included.
        jacobian: The log Jacobian that converts the likelihood to the user's units.
        closed_form: The likelihood with its gradient in closed form. If None, autograd computes the gradient.
        variances: The mean prior variances of terms on nodes, which a search moves in place of their output scales. If
            None, it moves output scales.
    """

    log_likelihood: LogLikelihood
    rows: int
    count: float
    jacobian: float
    closed_form: ClosedForm | None = None
    variances: MeanVariances | None = None

    @classmethod
    def of(cls, state: GPState, rows: Rows, log_likelihood: LogLikelihood | None = None) -> "Objective":
        """Return the objective of rows under a state's prior, or with another likelihood.

        Args:
            state: The model state.
            rows: The rows.
            log_likelihood: The log marginal likelihood of the rows. If None, that of the state, in closed form if it
                has one.
        """
        jacobian = state.scaling.targets.log_jacobian(rows.count)
        closed_form = ClosedForm.of(state, rows) if log_likelihood is None else None
        log_likelihood = log_likelihood or marginal_likelihood(state, rows)
        return cls(log_likelihood, len(rows), rows.count, jacobian, closed_form, MeanVariances.of(state, rows))

    def likelihood(self, values: ParameterValues) -> float:
        """Return the log marginal likelihood in the user's units.

        Args:
            values: The hyperparameters.
        """
        with torch.no_grad():
            return self.log_likelihood(values)[0].item() + self.jacobian

    def log_posterior(self, values: ParameterValues) -> float:
        """Return the log likelihood, in standardized units, plus the log hyperpriors.

        Args:
            values: The hyperparameters.
        """
        with torch.no_grad():
            likelihood, reached, _ = self.log_likelihood(values)
            return float(likelihood + reached.log_hyperprior())

    def evaluated(self, values: ParameterValues, free: Iterable[str], warm_start: WarmStart = ()) -> "Evaluated":
        """Return the negative objective per observation, and its gradient (p,).

        The Jacobian is omitted, so that no search depends on the unit of the targets.

        Args:
            values: The hyperparameters.
            free: The names of the free hyperparameters, in the order of the gradient.
            warm_start: The tensors (...) of an earlier evaluation at values close by. If empty, there is no warm start.
        """
        names = list(free)
        in_closed_form = None if self.closed_form is None else self.closed_form(values, names)
        if in_closed_form is not None:
            value, gradient = in_closed_form
            return Evaluated(-value.item() / self.count, -gradient.numpy() / self.count, values, ())
        with torch.enable_grad():
            likelihood, reached, following = self.log_likelihood(values.leaves(names), warm_start)
            value = -(likelihood + reached.log_hyperprior()) / self.count
            gradients = torch.autograd.grad(value, [reached.raw[name] for name in names])
        gradient = torch.cat([g.reshape(-1) for g in gradients]).double().cpu()
        return Evaluated(value.item(), gradient.numpy(), reached.detached(), following)


class Evaluated(NamedTuple):
    """The negative objective per observation at some hyperparameters."""

    value: float
    gradient: NDArray[np.float64]  # in the free raw values, (p,)
    reached: ParameterValues  # without gradients
    warm_start: WarmStart  # of the next evaluation


def marginal_likelihood(state: GPState, rows: Rows) -> LogLikelihood:
    """Return the log marginal likelihood of rows as a function of the hyperparameters.

    Args:
        state: The model state.
        rows: The rows.
    """

    def log_likelihood(values: ParameterValues, warm_start: WarmStart = ()) -> Evaluation:
        inference = state.replace(hyperparameters=values).infer(rows, warm_start)
        return Evaluation(inference.log_marginal_likelihood(), values, inference.warm_start())

    return log_likelihood


def maximize(
    objective: Objective,
    values: ParameterValues,
    plan: Plan,
    *,
    stage: str = "all rows",
    held: Iterable[str] = (),
    bounds: Bounds | None = None,
    tolerance: float | None = None,
) -> tuple[ParameterValues, FitReport]:
    """Maximize the log posterior over the free hyperparameters.

    Args:
        objective: The objective.
        values: The starting values.
        plan: The options of the fit.
        stage: The name of the stage in the report.
        held: Names of further fixed hyperparameters.
        bounds: Bounds of raw values that replace a hyperparameter's own. If None, none are replaced.
        tolerance: The tolerance of the relative change of the objective per observation in one iteration. If None, a
            gain of `MIN_GAIN` nats.

    Returns:
        The hyperparameters found, and the report.

    Raises:
        InvalidArgumentError: If the log posterior at the starting values is not finite.

    Examples:
        >>> import rfgp
        >>> x = np.linspace(0, 3, 20)[:, None]
        >>> state = rfgp.ExactGP().condition(x, np.sin(x[:, 0])).state
        >>> objective = Objective.of(state, state.rows)
        >>> values, report = maximize(objective, state.hyperparameters, Plan(fixed=("mean",)))
        >>> report.converged, report.log_marginal_likelihood > objective.likelihood(state.hyperparameters)
        (True, True)
    """
    free = values.space.free((*plan.fixed, *held))

    def search(begun: Searched | None) -> tuple[ParameterValues, FitReport]:
        descent = _Search(objective, values, plan, stage, free, begun)
        return descent.run(bounds or {}, tolerance or MIN_GAIN / objective.count)

    def likelihood(at: ParameterValues) -> tuple[float, float]:
        return objective.likelihood(at), 0.0

    return recorded(values, plan, stage, objective.rows, free, likelihood, search)


def recorded(
    values: ParameterValues,
    plan: Plan,
    stage: str,
    rows: int,
    free: Sequence[str],
    likelihood: Callable[[ParameterValues], tuple[float, float]],
    search: Callable[[Searched | None], tuple[ParameterValues, FitReport]],
) -> tuple[ParameterValues, FitReport]:
    """Return the end of a search, and its report, from the checkpoint if they are known.

    Args:
        values: The starting values.
        plan: The options of the fit.
        stage: The name of the stage in the report.
        rows: The number of rows.
        free: The names of the free hyperparameters. If there are none, or if time is over, nothing is searched.
        likelihood: Returns the log marginal likelihood in the user's units, and its standard error.
        search: Searches from the starting values, or from a record of its last iteration.
    """
    plan.reporter.begin(stage, rows, plan.max_iterations)
    if not free:
        value, error = likelihood(values)
        return values, FitReport(True, 0, 0, value, "every hyperparameter is fixed", likelihood_error=error)
    if plan.is_over():
        return values, not_searched(stage, rows)
    begun = plan.checkpoint.begin(stage, values.raw)
    if begun is not None and begun.has_ended:
        return values.replaced(begun.tensors), begun.report
    values, report = search(begun)
    plan.checkpoint.record(values.raw, report, has_ended=True)
    return values, report


def at_bounds(values: ParameterValues, free: Sequence[str]) -> tuple[str, ...]:
    """Return the names of hyperparameters with an entry at a bound.

    Args:
        values: The hyperparameters.
        free: The names of the free ones.
    """
    entries = [(name, ends) for name in free for ends in values.space.bounds(name)]
    pairs = zip(entries, values.vector(free), strict=True)
    reached = [
        name for (name, ends), raw in pairs if any(end is not None and abs(raw - end) < _AT_BOUND for end in ends)
    ]
    return tuple(dict.fromkeys(reached))


def not_searched(stage: str, rows: int) -> FitReport:
    """Return the report of a search that did not begin, because time was over.

    Its likelihood is NaN.

    Args:
        stage: The name of the stage.
        rows: The number of rows.
    """
    done = Stage(stage, rows, 0, 0, 0.0)
    return FitReport(False, 0, 0, math.nan, TIME_OVER, trace=(math.nan,), stages=(done,))


def ended_early(report: FitReport, reason: str) -> FitReport:
    """Return the report of a fit that ended because time was over.

    Args:
        report: The report, which may not say so.
        reason: Why it was over, as `Deadline.reason` says.
    """
    message = report.message if reason in report.message else f"{reason}; {report.message}"
    message = message.replace("; converged: ", "; ")
    return replace(report, converged=False, message=message)


class _TimeOverError(Exception):
    """Ends a search within scipy."""


class _Last(NamedTuple):
    """The last evaluation of a search: point (p,), values and gradient (p,)."""

    point: NDArray[np.float64]
    evaluated: Evaluated
    gradient: NDArray[np.float64]


class _Search:
    """One run of L-BFGS, which may continue an earlier one."""

    def __init__(
        self,
        objective: Objective,
        values: ParameterValues,
        plan: Plan,
        stage: str,
        free: list[str],
        begun: Searched | None,
    ) -> None:
        self._objective, self._start, self._plan, self._stage, self._free = objective, values, plan, stage, free
        variances = objective.variances
        reparametrization = None if variances is None else VarianceReparametrization(variances, values, free)
        self._coordinates = Coordinates.of(values.space, free, reparametrization)
        self._begin = values if begun is None else values.replaced(begun.tensors)
        self._trace: list[float] = [] if begun is None else list(begun.report.trace)
        self._descent_start = 0  # the index in the trace of the first value of the last descent
        self._last: _Last | None = None
        self._best: _Last | None = None
        self._evaluations = self._earlier = 0 if begun is None else begun.report.evaluations

    def run(self, changed: Bounds, tolerance: float) -> tuple[ParameterValues, FitReport]:
        """Return the hyperparameters found, and the report."""
        entries = [(name, limits) for name in self._free for limits in self._start.space.bounds(name)]
        bounds = self._coordinates.limits([changed.get(name, limits) for name, limits in entries])
        search = self._descend(self._begin.vector(self._free), bounds, tolerance)
        search = self._again(search, bounds, tolerance)
        value, _ = self._evaluate(search.point)
        assert self._last is not None
        reached = self._start.replaced(self._last.evaluated.reached.raw)
        with torch.no_grad():
            likelihood = self._in_units(value) - float(reached.log_hyperprior())
        pairs = zip(entries, search.point, bounds, strict=True)
        at_bounds = tuple(dict.fromkeys(name for (name, _), point, limits in pairs if point in limits))
        gain = (self._trace[-1] - self._trace[0]) / self._objective.count
        evaluations = self._earlier + search.evaluations
        done = Stage(self._stage, self._objective.rows, len(self._trace) - 1, evaluations, gain)
        figures = (done.iterations, done.evaluations, likelihood)
        trace = tuple(self._trace)
        return reached, FitReport(search.converged, *figures, search.message, at_bounds, trace, (done,))

    def _again(self, search: Descent, bounds: list[Interval], tolerance: float) -> Descent:
        """Search again from shorter saturated lengthscales; return the better end."""
        value, slope = self._evaluate(search.point)
        end = self._coordinates.raw(search.point)
        restarted = self._coordinates.restart(end, slope / self._coordinates.slope(end) * self._objective.count)
        is_last = search.iterations >= self._plan.max_iterations or search.message == TIME_OVER
        if is_last or np.array_equal(restarted, end):
            return search
        last, length = self._last, len(self._trace)
        again = self._descend(restarted, bounds, tolerance)
        evaluations = search.evaluations + again.evaluations
        if self._evaluate(again.point)[0] < value:
            return again._replace(evaluations=evaluations)
        self._last = last
        del self._trace[length:]
        return search._replace(evaluations=evaluations)

    def _descend(self, start: NDArray[np.float64], bounds: list[Interval], tolerance: float) -> Descent:
        self._descent_start, evaluations = max(0, len(self._trace) - 1), self._evaluations
        try:
            return descend(
                self._evaluate_in_time,
                self._coordinates.at(start),
                bounds,
                most=self._plan.max_iterations - max(0, len(self._trace) - 1),
                tolerance=tolerance,
                gradient_tolerance=1e-6,
                restarts=1,
                rounding=_ROUNDING,
                after=self._after_iteration,
            )
        except _TimeOverError:
            assert self._best is not None
            self._last = self._best
            reached = self._in_units(self._best.evaluated.value)
            if reached > self._trace[-1]:
                self._trace.append(reached)
            iterations = len(self._trace) - 1 - self._descent_start
            return Descent(self._best.point, False, TIME_OVER, iterations, self._evaluations - evaluations)

    def _evaluate(self, point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        if self._last is None or not np.array_equal(self._last.point, point):
            raw = self._coordinates.raw(point)
            values = self._start.moved(self._free, raw)
            start = () if self._last is None else self._last.evaluated.warm_start
            evaluated = self._objective.evaluated(values, self._free, start)
            gradient = self._coordinates.gradient(raw, evaluated.gradient)
            self._last, self._evaluations = _Last(point.copy(), evaluated, gradient), self._evaluations + 1
            if self._best is None or evaluated.value < self._best.evaluated.value:
                self._best = self._last
        value = self._last.evaluated.value
        if not self._trace:
            if not math.isfinite(value):
                raise InvalidArgumentError(
                    f"The log posterior at the starting values must be finite, got {-value:g}. Choose starting values "
                    "that the priors allow."
                )
            self._trace.append(self._in_units(value))
        return value, self._last.gradient

    def _evaluate_in_time(self, point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        before = self._evaluations
        evaluated = self._evaluate(point)
        if self._evaluations > before and self._plan.is_over():
            raise _TimeOverError
        return evaluated

    def _in_units(self, value: float) -> float:
        return self._objective.jacobian - value * self._objective.count

    def _after_iteration(self, value: float) -> None:
        self._trace.append(self._in_units(value))
        assert self._last is not None
        assert self._best is not None
        present = self._start.moved(self._free, self._coordinates.raw(self._last.point))
        iterations, trace = len(self._trace) - 1, tuple(self._trace)
        if value <= self._best.evaluated.value:  # a second descent must not replace the better end of the first
            report = FitReport(False, iterations, self._evaluations, math.nan, "interrupted", trace=trace)
            self._plan.checkpoint.record(present.raw, report, has_ended=False)
        self._plan.reporter.iteration(iterations, trace[-1])
        since = self._trace[self._descent_start :]
        if len(since) > _LAST and since[-1] - since[-1 - _LAST] < self._plan.least_gain:
            raise StopIteration
