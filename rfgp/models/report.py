"""Reports of fits and of selections, and calibrated intervals of observations from left-out rows.

Let mu_-i and v_-i be the mean and the variance given all rows but i, at the hyperparameters of the model. The posterior
mean is linear in the targets, mu(x) = m + a(x)^T (y - m). With the residual r_i = y_i - mu_-i(x_i) and the left-out
variance t_i of y_i, removing row i changes predictions by

    mu_-i(x) = mu(x) - a_i(x) r_i,    v_-i(x) = v(x) + a_i(x)^2 t_i.

The jackknife+ interval lies between order statistics of mu_-i(x) -+ R_i s_-i(x), with scores R_i = |r_i| / s_i and
predictive deviations s. Source: Jaber et al. (2024), Conformal approach to Gaussian process surrogate evaluation with
coverage guarantees (J+GP), after Barber et al. (2021), Predictive inference with the jackknife+.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rfgp import metrics, random
from rfgp.blocks import ENTRIES
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.hyperparameters import HyperparameterPosterior
from rfgp.inference.distributions import check_level, in_memory
from rfgp.inference.mixture import Member, MixtureDistribution, latent_distribution
from rfgp.inference.prediction import Prediction
from rfgp.inference.scales import factors
from rfgp.messages import counted, read_bytes, read_seconds
from rfgp.models.state import GPState, left_out_prediction, predicted, row_numbers
from rfgp.rows import Block, Rows, gathered, is_read_in_blocks
from rfgp.rows.sources import OutputFormat
from rfgp.solvers import solver_for, uses_cg

# --- The budget of a selection, and its report: candidates, scores, costs, and the reason for the choice -------------

FLOPS_PER_SECOND = 2e10
"""Operations per second of double-precision matrix products and factorizations, on one core from 2020 or later."""
FIRST, A_ROW, LONGEST = 60.0, 8e-3, 1800.0
"""The default limit of a selection and its fit, in seconds: the constant, the part per row, and the maximum."""
MEMORY = 8e9
"""The default limit of memory, in bytes."""


@dataclass(frozen=True)
class Budget:
    """The limits of a selection and the fit of the best.

    Attributes:
        time_limit: The limit in seconds for the predicted time of selection and fit, and for the elapsed time of the
            selection. If None, the predicted time is at most 60 s + 8 ms per row, and half an hour.
        memory: The limit of predicted bytes.

    Examples:
        >>> Budget.of("5min", "4GB").time_limit
        300.0
    """

    time_limit: float | None = None
    memory: float = MEMORY

    @classmethod
    def of(cls, time_limit: Any, memory: Any) -> "Budget":
        """Return limits from texts such as "5min" and "4GB", or from numbers.

        Args:
            time_limit: A number of seconds, or a text such as "5min". If None, the limit depends on the number of rows.
            memory: A number of bytes, or a text such as "4GB". If None, 8 GB.

        Raises:
            InvalidArgumentError: If a limit has another form, or is not positive.
        """
        return cls(
            None if time_limit is None else read_seconds("time_limit", time_limit),
            MEMORY if memory is None else read_bytes("memory", memory),
        )

    def seconds(self, rows: int) -> float:
        """Return the limit of predicted seconds.

        Args:
            rows: The number of rows.
        """
        return min(FIRST + A_ROW * rows, LONGEST) if self.time_limit is None else self.time_limit


BASELINE_MARGIN = 0.02
"""The margin in nats per row by which a candidate must beat the constant baseline. The baseline uses the mean and
variance of all rows, an advantage of 0.01 nats per row for a hundred rows."""
CONSTANT, LINEAR = "a constant", "a linear model"
"""The names of the baselines."""
LOG_DENSITY, ERROR = "log density of a row", "error of the kernel"
"""The measures by which candidates are compared: larger is better on tables, smaller on graphs."""


@dataclass(frozen=True)
class Score:
    """The score of a candidate in one round.

    Attributes:
        rows: The number of rows in the fit, or of nodes in the sample of a graph.
        value: The mean log density of a validation row in nats and the target's units, or the kernel error on a graph.
        error: The standard error of the value.
        difference: The best score of the round minus this one, on the same rows.
        difference_error: The standard error of the difference.
    """

    rows: int
    value: float
    error: float
    difference: float = 0.0
    difference_error: float = 0.0


@dataclass(frozen=True)
class Trial:
    """A candidate of a selection.

    Attributes:
        name: The kernel and the approximations as text.
        options: The options of the model by name.
        seconds: The predicted seconds of a fit to all rows.
        memory: The predicted bytes.
        scores: The scores of the rounds, in order. Empty if the candidate was not scored.
        status: The reason if the candidate was pruned or eliminated.
    """

    name: str
    options: Mapping[str, Any]
    seconds: float
    memory: float
    scores: tuple[Score, ...] = ()
    status: str = ""

    @property
    def last(self) -> Score | None:
        """The score in its last round, or None."""
        return self.scores[-1] if self.scores else None


@dataclass(frozen=True, repr=False)
class SelectionReport:
    """The report of a selection.

    Selections with the same data, options and seed have equal reports.

    Attributes:
        best: The index of the selected candidate, or of the one with the largest weight.
        trials: All candidates, the cheapest first.
        reason: The reason for the choice, as text.
        measure: The measure by which candidates are compared, `LOG_DENSITY` or `ERROR`.
        num_validation: The number of validation rows, or nodes.
        validation: The kind of validation: "leave-one-out", "held out", "groups of" a column, "the last rows", or for
            graphs "of a sample, against the exact kernel".
        time_limit: The limit of predicted seconds. 0 if there is no limit.
        memory: The limit of bytes.
        rate: The operations per second in the prediction of costs.
        predicted: The predicted seconds of the selection.
        baselines: The scores of baselines on the same rows, by name, with differences from the selected model.
        weights: The weights of the candidates in a selected average. Empty if a single candidate was selected.
        last_times: The last time of the training rows, for each column of dates (days since 1970-01-01 UTC) and for a
            single column of ascending numbers. Empty if the last rows were held out, or none was scored.
        seconds: The elapsed seconds of the selection. Comparisons of reports ignore them.
        fit_seconds: The elapsed seconds of the final fit. Comparisons of reports ignore them.
        noise: The noises that were compared after the fit, with scores on left-out rows. If None, none were.
    """

    best: int
    trials: tuple[Trial, ...]
    reason: str
    measure: str = LOG_DENSITY
    num_validation: int = 0
    validation: str = ""
    time_limit: float = 0.0
    memory: float = 0.0
    rate: float = 0.0
    predicted: float = 0.0
    baselines: Mapping[str, Score] = field(default_factory=dict)
    weights: tuple[float, ...] = ()
    last_times: Mapping[str, float] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)
    fit_seconds: float = field(default=0.0, compare=False)
    noise: "SelectionReport | None" = None

    @property
    def chosen(self) -> Trial:
        """The selected candidate."""
        return self.trials[self.best]

    @property
    def has_random_validation(self) -> bool:
        """Whether validation rows were chosen at random, and not by their order or in given groups."""
        return self.validation != "the last rows" and not self.validation.startswith("groups of ")

    def weight(self, number: int) -> float:
        """Return the weight of a candidate in the selected model.

        Args:
            number: The index of the candidate in `trials`.
        """
        return self.weights[number] if self.weights else float(number == self.best)

    @property
    def parts(self) -> dict[str, float]:
        """The weights of the candidates in the selected model, by name."""
        weights = {trial.name: self.weight(number) for number, trial in enumerate(self.trials)}
        return {name: weight for name, weight in weights.items() if weight}

    @property
    def unbeaten_baseline(self) -> str | None:
        """The name of a baseline that the selected model did not beat, or None.

        It must beat the constant by at least two standard errors and `BASELINE_MARGIN` nats per row. A linear model may
        be a part of it, so it may score at most `BASELINE_MARGIN` below the linear baseline.
        """
        for name, score in self.baselines.items():
            clear = -BASELINE_MARGIN if name == LINEAR else max(2 * score.difference_error, BASELINE_MARGIN)
            if score.difference < clear:
                return name
        return None

    def __repr__(self) -> str:
        scored = sum(bool(trial.scores) for trial in self.trials)
        taken = self.chosen.name
        if self.weights:
            taken = f"an average of {sum(map(bool, self.weights))}, most of {taken}"
        return f"SelectionReport({taken}, of {len(self.trials)} candidates, {scored} scored)"

    def __str__(self) -> str:
        return "\n".join([self.reason, *self.table()])

    def table(self) -> list[str]:
        """Return a line for each candidate, the best first, and for each baseline."""
        ranked = sorted(range(len(self.trials)), key=self._rank)
        width = max(len(name) for name in (*self.baselines, *(trial.name for trial in self.trials)))
        lines = [self._line(number, width) for number in ranked]
        baselines = [
            f"  {name:<{width}} {score.value:>11.4f} {score.error:>7.4f}" for name, score in self.baselines.items()
        ]
        measure = "log density" if self.measure == LOG_DENSITY else "error"
        head = f"  {'candidate':<{width}} {measure:>11} {'s.e.':>7} {'rows':>8} {'seconds':>9}"
        return [head, *lines, *baselines]

    def _rank(self, number: int) -> tuple[float, int, float]:
        """Return the sort key: selected, then by the last round, then by the score."""
        last, sign = self.trials[number].last, -1.0 if self.measure == LOG_DENSITY else 1.0
        reached = len(self.trials[number].scores)
        return -self.weight(number), -reached, math.inf if last is None else sign * last.value

    def _line(self, number: int, width: int) -> str:
        trial, weight = self.trials[number], self.weight(number)
        last, begin = trial.last, f"{'*' if weight else ' '} {trial.name:<{width}}"
        scored = f"{'':>28}"
        if last is not None:
            shown = (
                f"{last.value:>11.4f} {last.error:>7.4f}"
                if self.measure == LOG_DENSITY
                else f"{last.value:>11.2g} {'':>7}"
            )
            scored = f"{shown} {last.rows:>8,}"
        status = f"{weight:.2f} of the average" if 0 < weight < 1 else trial.status
        return f"{begin} {scored} {trial.seconds:>9.3g}" + (f"  {status}" if status else "")


# --- Reports of fits -------------------------------------------------------------------------------------------------


TIME_OVER = "the time limit passed"
"""The message of a search that a time limit ended."""
INTERRUPTED = "an interrupt ended the fit"
"""The message of a fit that kept what was complete when the user interrupted it."""


@dataclass(frozen=True)
class Stage:
    """One stage of a fit.

    Attributes:
        name: The optimized quantity.
        rows: The number of rows.
        iterations: The number of iterations of L-BFGS, or of steps of Adam or scoring.
        evaluations: The number of evaluations of the likelihood and its gradient.
        gain: The increase of the mean log marginal likelihood of a row, in nats.

    Examples:
        >>> Stage("all rows", rows=40, iterations=12, evaluations=15, gain=0.8).rows
        40
    """

    name: str
    rows: int
    iterations: int
    evaluations: int
    gain: float


@dataclass(frozen=True)
class FitReport:
    """Record of a fit: its searches and its diagnostics.

    Attributes:
        converged: Whether the last search met its stopping criterion.
        iterations: The number of iterations of all stages: L-BFGS, and Adam for learned frequencies.
        evaluations: The number of evaluations of the likelihood and its gradient.
        log_marginal_likelihood: The log marginal likelihood of all rows at the end, in total nats in the user's units.
        message: The reason for the end of the fit.
        at_bounds: The names of hyperparameters with an entry at a bound, such as the lengthscale of a column without
            effect.
        trace: The log marginal likelihood plus log priors after each iteration of all stages, in total nats of the
            rows of each stage. `traces` splits it.
        stages: The parts of the fit, in order.
        frequencies: "fixed", "learned", or "rejected" if learned ones predicted held-out rows no better.
        mean_squared_zscore: The mean of (y - mean)^2 / variance of leave-one-out predictions. It is 1 for calibrated
            error bars and larger if they are too short. If frequencies are learned, it is that of held-out rows. None
            if it was not computed.
        leave_one_out: The mean leave-one-out log density of a value of the same rows, in the user's units.
        residual_autocorrelation: The correlation of the leave-one-out errors of these rows with those of their nearest
            rows. It is about 0 if the model leaves only noise. None if it was not computed.
        outliers: The numbers of the rows that have more than half of the squared leave-one-out errors, -1 if a number
            is not known.
        dispersion_zscore: For Poisson counts, the excess of `mean_squared_zscore` over 1 in its standard deviations for
            well-specified counts. None if it was not computed.
        effective_dof_fraction: The fraction of the F weights that the data determine, (F - tr A^-1) / F. Near 1 there
            are too few features. None if there are fewer rows than features.
        likelihood_error: The standard error of `log_marginal_likelihood` if conjugate gradients estimated it, else 0.
        selection: The report of the selection of a kernel or of approximations, if any.
        hyperparameter_posterior: The posterior of the integrated hyperparameters, with those that stay at the mode.
            None for a point fit. Other figures of this report are those of the point fit.
        fixed: The names of the hyperparameters that the fit did not change.
        by: The column that names the series of each row. None if the user named none.

    Examples:
        >>> import numpy as np, rfgp
        >>> x = np.linspace(0, 1, 40)
        >>> report = rfgp.ExactGP().fit(x[:, None], np.sin(6 * x)).fit_report
        >>> report.stages[0].rows
        40
    """

    converged: bool
    iterations: int
    evaluations: int
    log_marginal_likelihood: float
    message: str
    at_bounds: tuple[str, ...] = ()
    trace: tuple[float, ...] = ()
    stages: tuple[Stage, ...] = ()
    frequencies: str = "fixed"
    mean_squared_zscore: float | None = None
    leave_one_out: float | None = None
    effective_dof_fraction: float | None = None
    residual_autocorrelation: float | None = None
    likelihood_error: float = 0.0
    selection: SelectionReport | None = None
    outliers: tuple[int, ...] = ()
    dispersion_zscore: float | None = None
    hyperparameter_posterior: HyperparameterPosterior | None = None
    fixed: tuple[str, ...] = ()
    by: str | int | None = None

    def __repr__(self) -> str:
        bounds = f", at bounds: {', '.join(self.at_bounds)}" if self.at_bounds else ""
        return (
            f"FitReport({'' if self.converged else 'not '}converged, {counted(self.iterations, 'iteration')}, "
            f"log marginal likelihood {self.log_marginal_likelihood:.6g}{bounds})"
        )

    @property
    def learned_frequencies_rejected(self) -> bool:
        """Whether learned frequencies predicted held-out rows no better than fixed ones."""
        return self.frequencies == "rejected"

    def merged_with(self, reports: "Sequence[FitReport]") -> "FitReport":
        """Return the report with the stages, iterations and traces of all reports.

        Args:
            reports: The reports of all parts of the fit, in order.
        """
        return replace(
            self,
            iterations=sum(report.iterations for report in reports),
            evaluations=sum(report.evaluations for report in reports),
            stages=tuple(stage for report in reports for stage in report.stages),
            trace=tuple(value for report in reports for value in report.trace),
        )

    def traces(self) -> list[tuple[Stage, tuple[float, ...]]]:
        """Return the stages with their parts of the trace.

        The stage of learned frequencies has one entry less, because its final value is not computed. A trace that does
        not have the entries of all stages is that of the last one.
        """
        ends = list(accumulate(stage.iterations + 1 for stage in self.stages))
        if not ends or len(self.trace) not in (ends[-1], ends[-1] - 1):
            return [(self.stages[-1], self.trace)] if self.stages and self.trace else []
        parts = zip(self.stages, [0, *ends[:-1]], ends, strict=True)
        return [(stage, self.trace[begin:end]) for stage, begin, end in parts]


# --- Calibrated intervals of observations from left-out rows, and the coverage of a model by level -------------------

Moments = tuple[Tensor, Tensor]
PointMoments = Callable[[Tensor], Moments]
Ends = Callable[[Tensor, float], Moments]
"""A function of standardized points and a level to the ends of intervals in the user's units, (m,) or (m, k) each."""

MAX_LEFT_OUT = 2000
"""The maximum number of rows that are left out one at a time. With more rows, some are held out."""
HELD_OUT_FRACTION, MAX_HELD_OUT = 0.2, 4000
"""The fraction of rows that are held out, and their maximum number."""
LEVELS = (*(round(0.1 * i, 1) for i in range(1, 10)), 0.95, 0.99)
"""The default levels of a calibration."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """The coverage of central intervals by level, on rows that were left out.

    Attributes:
        levels: The levels of the intervals, (L,).
        coverage: The fraction of observations inside their intervals, (L,).
        standard_error: The standard error of the fraction if the model is calibrated and rows are independent, (L,).
        num_rows: The number of rows.
        rows: "left out one at a time", or "held out" for random rows of a large table.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 10, 60)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(60)
        >>> print(rfgp.GP(rfgp.kernels.RBF(), seed=0).fit(X, y).calibration([0.5, 0.95]))
        Coverage of central intervals for 60 rows, left out one at a time
        level  coverage  standard error
          0.5     0.483           0.065
         0.95     0.950           0.028
    """

    levels: NDArray[np.float64]
    coverage: NDArray[np.float64]
    standard_error: NDArray[np.float64]
    num_rows: int
    rows: str

    def __str__(self) -> str:
        lines = zip(self.levels, self.coverage, self.standard_error, strict=True)
        table = [f"{level:5.4g} {share:9.3f} {error:15.3f}" for level, share, error in lines]
        head = f"Coverage of central intervals for {counted(self.num_rows, 'row')}, {self.rows}"
        return "\n".join([head, "level  coverage  standard error", *table])


def calibration(state: GPState, levels: ArrayLike | None = None) -> Calibration:
    """Return the coverage of predictive intervals on left-out rows, at the hyperparameters of the state.

    Args:
        state: The state of the model.
        levels: The levels of the intervals, (L,). If None, 0.1, 0.2, ..., 0.9, 0.95 and 0.99.

    Raises:
        NotFittedError: If the rows are not known.
        InvalidArgumentError: If a level is not in (0, 1), or observations are labels without an order.
    """
    rows = state.require_rows(purpose="calibration")
    chosen = np.atleast_1d(np.asarray(LEVELS if levels is None else levels, dtype=np.float64))
    with torch.no_grad():
        if len(rows) <= MAX_LEFT_OUT or is_read_in_blocks(rows):
            kind, (prediction, y) = "left out one at a time", left_out_prediction(state, rows)
        else:
            held_out = state.results.get("held out", lambda: _held_out(state, rows))
            kind, (_, prediction, y) = "held out", held_out
        coverage = metrics.interval_coverage(y, prediction, chosen).cpu().numpy()
    return Calibration(chosen, coverage, np.sqrt(chosen * (1 - chosen) / len(y)), len(y), kind)


def calibrated_ends(state: GPState, report: FitReport | None, inputs: Any, level: float) -> Moments:
    """Return the ends, (n,) or (n, k) each, of calibrated intervals of observations in the user's units.

    They are jackknife+ intervals if left-out predictions have a closed form, and split conformal ones otherwise.

    Args:
        state: The state of the model.
        report: The report of the fit. If None, there was none.
        inputs: The standardized points, (n, d) or (n,).
        level: The level of the intervals.

    Raises:
        NotFittedError: If the rows are not known.
        DataError: If the rows are read in blocks.
        InvalidArgumentError: If rows are not exchangeable, or too few for the level.
    """
    level = check_level(level)
    selection = None if report is None else report.selection
    if selection is not None and not selection.has_random_validation:
        raise InvalidArgumentError(
            f"calibrated=True requires exchangeable rows, got a model that was selected by {selection.validation}. "
            "Use interval(level), or a model without validate=."
        )
    rows = state.require_rows(purpose="calibrated intervals")
    if not rows.is_homoscedastic:
        raise InvalidArgumentError(
            "calibrated=True requires exchangeable rows, got rows with known noise or weights. Use interval(level), or "
            "repeat rows instead of sample_weight=."
        )
    members = state.spec.members(state.hyperparameters)
    has_closed_form = all(member.prior.neighbors is None and not uses_cg(member.prior, rows) for member in members)
    is_split = is_read_in_blocks(rows) or len(rows) > MAX_LEFT_OUT or not has_closed_form
    with torch.no_grad():
        ends = state.results.get("calibrated", lambda: (_split_conformal if is_split else _jackknife_plus)(state, rows))
        return ends(in_memory(inputs).detach(), level)


def _without_each(member: Member, rows: Block, memory: float | None) -> tuple[Moments, PointMoments]:
    """Return means (n, k) and variances (n, 1) of the rows given all others, and a function to those at points."""
    units = replace(rows.standardized_block, targets=torch.eye(len(rows)).to(rows.targets))
    inference = solver_for(member.prior, units, member.mean.new_zeros(len(rows)), member.noise)
    posterior, centered = inference.posterior(), rows.targets - member.mean
    weights, variance = inference.leave_one_out()  # the means of n outputs with unit vectors as targets
    mean, variances = member.mean + weights @ centered, variance[:, None]
    more = rows.observation_noise(member.noise) - rows.noise_diag(member.noise)  # 0 without weights

    def moments(inputs: Tensor) -> Moments:
        latent = latent_distribution(posterior, inputs, memory)
        a = latent.mean()[..., None]
        means = (member.mean + a[..., 0] @ centered)[:, None] - a * (rows.targets - mean)
        return means, latent.variance()[:, None, None] + a.square() * variances + member.noise

    return (mean, variances + more.expand(len(rows))[:, None]), moments


def _jackknife_plus(state: GPState, given: Rows) -> Ends:
    """Return jackknife+ intervals with standardized scores. Scales of the rows come from models without their fold."""
    units, memory, model = state.scaling.targets, state.spec.options.memory, state.scale_model
    members, rows = state.spec.members(state.hyperparameters), gathered(state.weighted(given))
    left_out, without_each = zip(*(_without_each(member, rows, memory) for member in members), strict=True)

    def combined(inputs: Tensor, moments: Sequence[Moments]) -> Moments:
        """Return the means (m, ..., k) and predictive deviations of the average of all members at m points."""
        pairs = [(member.weight, *each) for member, each in zip(members, moments, strict=True)]
        mean: Any = sum(weight * m for weight, m, _ in pairs)
        variance: Any = sum(weight * (v + (m - mean) ** 2) for weight, m, v in pairs)
        if model is None:
            return mean, variance.sqrt()
        each, flat = inputs.repeat_interleave(mean[:1].numel(), 0), variance.reshape(-1)
        nodes = model.row_nodes if moments is left_out else None
        nodes = model.nodes(each.double().cpu(), mean.reshape(-1), flat) if nodes is None else nodes
        square = flat + (factors(nodes) - 1) * flat.clamp_max(model.ceiling) + model.floor
        return mean, square.sqrt().reshape(mean.shape)

    mean, deviation = combined(rows.inputs, left_out)
    scores = (rows.targets - mean).abs() / deviation

    def ends(inputs: Tensor, level: float) -> Moments:
        rank, found = _rank(level, len(scores)), []
        for x in torch.split(inputs, max(1, ENTRIES // (scores.numel() * len(members)))):
            mean, deviation = combined(x, [moments(x) for moments in without_each])
            low = (mean - scores * deviation).kthvalue(len(scores) + 1 - rank, 1).values
            high = (mean + scores * deviation).kthvalue(rank, 1).values
            found.append(torch.stack([low, high]).sort(0).values)  # they may cross at small levels
        low, high = units.inverse(torch.cat(found, 1))
        return (low, high) if units.scale.ndim else (low[:, 0], high[:, 0])

    return ends


def _split_conformal(state: GPState, rows: Rows) -> Ends:
    """Return intervals whose half-widths are a quantile of the scores of held-out rows times the deviation."""
    rest, prediction, y = state.results.get("held out", lambda: _held_out(state, rows))
    scores = (y - prediction.mean_tensor()).abs() / prediction.variance_tensor().sqrt()

    def ends(inputs: Tensor, level: float) -> Moments:
        observed = predicted(rest, inputs, OutputFormat(False, scores)).observed()
        score = scores.kthvalue(_rank(level, len(scores)), 0).values
        mean, half = observed.mean_tensor(), score * observed.variance_tensor().sqrt()
        return mean - half, mean + half

    return ends


def _held_out(state: GPState, rows: Rows) -> tuple[GPState, Prediction, Tensor]:
    """Return the state without some random rows, its prediction of their observations, and these in user units."""
    if is_read_in_blocks(rows):
        raise DataError("Rows must be in memory to be held out, got rows that are read in blocks. Pass arrays.")
    order = torch.randperm(len(rows), generator=random.generator(state.spec.options.seed, random.Role.CALIBRATION))
    count = min(int(HELD_OUT_FRACTION * len(rows)), MAX_HELD_OUT)
    held_out, others = (gathered(rows).take(part) for part in order.tensor_split([count]))
    scales = state.scale_model
    if scales is not None and scales.row_weights is not None:
        scales = replace(scales, row_weights=scales.row_weights[order[count:]], row_nodes=None)
    rest, units = state.replace(rows=others, num_observations=len(others), scale_model=scales), state.scaling.targets
    prediction = predicted(rest, held_out.inputs, OutputFormat(False, held_out.targets))
    latent = prediction.latent
    if isinstance(latent, MixtureDistribution):
        latent = replace(latent, noises=[held_out.observation_noise(noise) for noise in latent.noises])
    if state.spec.is_gaussian:
        prediction = replace(prediction, latent=latent, noise=held_out.observation_noise(prediction.noise))
    y = units.inverse(held_out.targets if units.scale.ndim else held_out.targets[:, 0])
    return rest, prediction.observed(**row_numbers(state, held_out)), y


def _rank(level: float, count: int) -> int:
    """Return the rank of the upper end among left-out rows, ceil(level (count + 1)).

    Raises:
        InvalidArgumentError: If there are too few left-out rows for the level.
    """
    rank = math.ceil(level * (count + 1) - 1e-9)
    if rank > count:
        needed = math.ceil(level / (1 - level) - 1e-9)
        raise InvalidArgumentError(
            f"calibrated=True at level {level:g} requires {needed:,} left-out rows, got {count:,}. Use a lower level, "
            "or interval(level)."
        )
    return rank
