"""Parts of all reports: cards, diagnostics, and the comparison with the exact process."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rfgp import metrics
from rfgp.compare import Comparison
from rfgp.compare.show import format_estimate
from rfgp.effects.variables import CATEGORY, DATE, NUMBER, as_dates
from rfgp.graph_gp import GraphGP, MeshGP, RoadGP
from rfgp.likelihoods import Bernoulli
from rfgp.messages import counted
from rfgp.models import FitReport
from rfgp.models.report import MAX_LEFT_OUT
from rfgp.report import figures
from rfgp.report.page import Block, Grid, Plot, Section, Text
from rfgp.report.study import Study

FEW = 20
"""The fewest held-out points whose coverage of 95 % intervals is assessed."""
_ROUNDING = 1e-9  # nats


def number(value: float) -> str:
    """Return a number as text with four significant digits.

    Args:
        value: The number.

    Examples:
        >>> number(1234.567), number(12345.67)
        ('1235', '12,346')
    """
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"


def cards(study: Study, noun: str) -> list[tuple[str, str, str]]:
    """Return the names, values and remarks of the cards of a report.

    Args:
        study: The study.
        noun: The noun of observations, such as "rows".
    """
    count, covered = len(study.test), round(study.coverage * len(study.test))
    explained = f"{100 * study.r_squared:.1f} %" if math.isfinite(study.r_squared) else "not defined"
    others = f"standard deviation of the training targets: {number(study.target_std)}"
    if study.baselines:
        best = min(study.baselines, key=lambda baseline: baseline.rmse)
        others += f"; best baseline ({best.name}): {number(best.rmse)}"
    if study.is_log:
        others = f"of logarithms, about {100 * math.expm1(study.rmse):.2g} % of the target; {others}"
    share = f"{100 * study.coverage:.1f} %"
    out = [
        ("Error on held-out data (RMSE)", number(study.rmse), others),
        ("Variance explained (R²)", explained, f"of {count:,} held-out {noun}{in_groups(study)}"),
        ("Coverage of 95 % intervals", share, f"{covered:,} of {count:,}: {verdict(study, noun)}"),
    ]
    if study.comparison is not None and study.method_and_size is not None:
        kl = study.comparison.estimate("kl", *study.method_and_size)
        points = len(study.comparison.example.observed)
        method, size = study.method_and_size
        total = format_estimate(kl) if abs(kl.mean) > _ROUNDING else "0 up to rounding"
        key = ", with the standard error of the last digit in brackets" * ("(" in total)
        name = f"nats per held-out point; {method}, m = {size}: {total} over {points} {noun}{key}"
        out.append(("KL from the exact process", f"{kl.mean / points if abs(kl.mean) > _ROUNDING else 0:.2g}", name))
    return out


def verdict(study: Study, noun: str) -> str:
    """Return an assessment of the coverage of 95 % intervals and of the calibration curve.

    The levels of the tests are 5 % and 1 %. Standard errors are for the effective number of groups.

    Args:
        study: The study.
        noun: The noun of observations, such as "rows".
    """
    if few := too_few(study, noun):
        return few
    number = int(study.num_independent)
    low, high = stats.binom.ppf([0.025, 0.975], number, 0.95)
    expected = f"{low:.0f} to {high:.0f} are expected"
    if in_groups(study):
        expected = f"{100 * low / number:.0f} to {100 * high / number:.0f} % are expected{in_groups(study)}"
    covered = study.coverage * number
    if not low - _ROUNDING <= covered <= high + _ROUNDING:
        return f"intervals too {'narrow' if covered < low else 'wide'}, {expected}"
    scores = metrics.standardized_residuals(study.observed, study.prediction).abs().cpu().numpy()
    far = stats.kstest(scores, stats.halfnorm.cdf).statistic
    if stats.kstwo.sf(far, number) < 0.01:
        return f"as expected ({expected}), but intervals of other levels are not: see the calibration in the report"
    return f"as expected ({expected})"


def too_few(study: Study, noun: str) -> str:
    """Return a remark if too few groups are held out to assess the coverage, or ""."""
    if study.num_independent >= FEW:
        return ""
    if not in_groups(study):
        return f"too few {noun} to assess"
    assert study.groups is not None
    largest = int(np.unique(study.groups, return_counts=True)[1].max())
    of_one = f", {largest:,} of the {len(study.test):,} {noun} in one of them" if largest > 1 else ""
    return f"cannot be assessed: {counted(study.num_groups, 'held-out group')}{of_one}"


def in_groups(study: Study) -> str:
    """Return a phrase with the number of held-out groups, or "" if each observation is a group."""
    return "" if study.num_groups == len(study.test) else f" in {counted(study.num_groups, 'group')}"


def diagnostics(study: Study) -> list[Block]:
    """Return the notes on a fit, the baselines, and the diagnostic plots."""
    y, prediction = study.observed, study.prediction
    is_vague = bool(in_groups(study) and too_few(study, ""))
    blocks: list[Block] = [
        *(Text(note) for note in (repeats(study), *study.notes) if note not in ("", study.remark)),
        *_errors(study),
    ]
    blocks += _of_likelihood(study)
    if not isinstance(study.model.spec.options.likelihood, Bernoulli):
        caption = (
            f"Held-out observations against predictions{shown(len(y), figures.MAX_BARS)}. Bars are one standard "
            "deviation of the posterior predictive distribution. About two thirds of them should reach the diagonal."
        )
        blocks.append(Plot(figures.predicted(y, prediction, is_log=study.is_log), caption))
    left_out = study.model.calibration() if study.model.num_observations <= MAX_LEFT_OUT else None
    in_training = " The dotted curve is that of training rows, each predicted given all others."
    blocks += [
        Plot(
            figures.calibration(y, prediction, max(1, int(study.num_independent)), left_out),
            "Calibration: the share of held-out observations inside the central interval of each level. Above the "
            "diagonal intervals are too wide, below it too narrow. Differences inside the grey band may be chance."
            + in_training * (left_out is not None)
            + _of_band(study),
        ),
        Plot(
            figures.residuals(y, prediction),
            f"Standardized residuals against predictions{shown(len(y), figures.MAX_POINTS)}. If the model fits, there "
            "is no trend, and about 5 % of them are outside the dashed lines. A funnel means that the noise varies."
            f"{' There are too few groups to assess this.' * is_vague}",
        ),
    ]
    fit = study.model.fit_report
    if fit is not None and len(fit.trace) > 1:
        stages = " Each line is a stage of the fit." * (len(fit.stages) > 1)
        caption = f"Convergence of the fit: the log marginal likelihood. {convergence(fit)}{stages}"
        blocks.append(Plot(figures.convergence(fit), caption))
    return blocks


def _of_band(study: Study) -> str:
    """Return the end of the caption of the calibration if observations are in groups."""
    if not in_groups(study):
        return ""
    few = too_few(study, "observations")
    text = f" The band is that of {study.num_groups:,} groups, because errors in a group are not independent."
    return f"{text} The calibration {few}." if few else text


def _of_likelihood(study: Study) -> list[Block]:
    """Return the plots of a likelihood that is not Gaussian."""
    likelihood, y, predictive = study.model.spec.options.likelihood, study.observed, study.prediction.observed()
    if isinstance(likelihood, Bernoulli):
        caption = (
            "Reliability: the share of ones among held-out observations with similar predicted probabilities, with two "
            "standard errors. On the diagonal the probabilities are calibrated."
        )
        right = int(((np.asarray(predictive.mean) > 0.5) == (y > 0.5)).sum())
        cells = [[int(((y == t) & ((np.asarray(predictive.mean) > 0.5) == p)).sum()) for p in (0, 1)] for t in (0, 1)]
        table = [[f"observed {t}", *(f"{cell:,}" for cell in row)] for t, row in enumerate(cells)]
        head = ["", "predicted 0", "predicted 1"]
        counts = (
            f"{right:,} of {counted(len(y), 'held-out observation')} ({100 * right / len(y):.1f} %) are of the "
            "more probable class."
        )
        plot = figures.reliability(y, np.asarray(predictive.mean), design_effect=len(y) / study.num_independent)
        return [Plot(plot, caption), Grid(head, table, counts, wide=False)]
    if not likelihood.is_discrete:
        return []
    caption = (
        "Rootogram: square roots of the observed frequencies of counts (bars) and of the predicted ones (line), over "
        "the held-out observations. Differences between them show where the likelihood does not fit."
    )
    return [Plot(figures.rootogram(y, predictive), caption)]


def _errors(study: Study) -> list[Block]:
    """Return the errors of the model and of the baselines, as a table."""
    if not study.baselines:
        return []
    total = float(np.mean((study.observed - study.observed.mean()) ** 2))
    rows = [
        [name, number(rmse), f"{100 * (1 - rmse**2 / total):.1f} %" if total > 0 else "not defined"]
        for name, rmse in (("this model", study.rmse), *study.alternatives, *study.baselines)
    ]
    caption = "Errors on the held-out part of the model and of baselines that were fitted to the same training part."
    return [Grid(["prediction", "RMSE", "R²"], rows, caption, wide=False)]


def shown(count: int, most: int) -> str:
    """Return a phrase with the number of drawn observations, or "" if all are drawn.

    Examples:
        >>> shown(5000, 2000)
        ', 2,000 of 5,000 shown'
    """
    return "" if count <= most else f", {most:,} of {count:,} shown"


def convergence(fit: FitReport) -> str:
    """Return a sentence on the convergence of a fit."""
    steps = f"{counted(fit.iterations, 'iteration')} and {counted(fit.evaluations, 'evaluation')}"
    if fit.converged:
        return f"The optimizer converged after {steps}."
    return f"The optimizer stopped after {steps} without converging ({fit.message}); the hyperparameters may be poor."


def repeats(study: Study) -> str:
    """Return a phrase with the number of repeated rows, or nodes of observations, or ""."""
    if not study.num_repeated:
        return ""
    is_single, is_apart = study.num_repeated == 1, study.holdout == "random"
    if isinstance(study.model, GraphGP | MeshGP | RoadGP):
        together = " Observations of one node are all held out or none." * is_apart
        shared = "shares its node with another one" if is_single else "share their node with another one"
        return f"{counted(study.num_repeated, 'observation')} {shared}.{together}"
    subject = f"{counted(study.num_repeated, 'row')} {'repeats' if is_single else 'repeat'}"
    return f"{subject} another exactly{'; copies are on one side of the split' * is_apart}."


def accuracy(study: Study) -> Section:
    """Return the section on the approximation against the exact process."""
    title, comparison = "Against the exact process", study.comparison
    blocks = [] if comparison is None else distances(comparison)
    return Section(title, [Text(study.remark), *blocks])


def distances(comparison: Comparison) -> list[Block]:
    """Return the plots and the table of a comparison with the exact process."""
    rows = [_accuracy_row(comparison, method, size) for method, size in comparison.groups()]
    exact = comparison.exact[0]
    rows.insert(0, ["exact", "", "0", "0", number(exact.rmse), number(exact.nlpd), f"{exact.seconds:.2f}"])
    noun = comparison.size_name
    kind = "coupling" if noun == "frequencies" else "features"
    header = [kind, "m", "KL, nats", "kernel error", "RMSE", "NLPD", "seconds"]
    return [
        Plot(
            figures.by_size(comparison, "kl", "KL from the exact posterior (nats)"),
            f"KL from the exact to the approximate posterior at the held-out points, against the number of {noun}. "
            "It is a total over the points. Below 1 nat the posteriors hardly differ. Bars are 2 standard errors.",
        ),
        Plot(
            figures.by_size(comparison, "kernel_error", "relative error of the kernel"),
            "Relative error of the kernel matrix in the Frobenius norm; 0.1 is 10 %.",
        ),
        Plot(
            figures.against_exact(comparison),
            f"One draw of {comparison.example.method}, m = {comparison.example.size}, against the exact process at "
            f"{counted(len(comparison.example.observed), 'held-out point')}.",
        ),
        Grid(
            header,
            rows,
            "Means over draws. 1.23(4) is 1.23 with standard error 0.04. Seconds include drawing, conditioning and "
            "prediction.",
        ),
    ]


def _accuracy_row(comparison: Comparison, method: str, size: int) -> list[str]:
    names = ("kl", "kernel_error", "rmse", "nlpd")
    cells = [format_estimate(comparison.estimate(name, method, size)) for name in names]
    return [method, str(size), *cells, f"{comparison.estimate('seconds', method, size).mean:.2f}"]


def mebibytes(count: float) -> str:
    """Return a number of bytes in MiB as text.

    Examples:
        >>> mebibytes(2**21)
        '2.0 MiB'
    """
    return f"{count / 2**20:,.1f} MiB"


STATISTICS = ("column", "mean", "sd", "min", "median", "max", "distinct")
"""The header of statistics of columns."""


def statistics(names: Sequence[str], columns: NDArray[np.float64], noun: str) -> Grid:  # columns (n, k)
    """Return a table of the statistics of columns (n, k)."""
    rows = [statistics_row(name, column) for name, column in zip(names, columns.T, strict=True)]
    return Grid(STATISTICS, rows, f"{counted(len(columns), noun)}.")


def statistics_row(name: str, values: NDArray[Any], role: str = NUMBER) -> list[str]:
    """Return the statistics of the values (n,) of a variable.

    Examples:
        >>> statistics_row("size", np.array([1.0, 2.0, 3.0]))
        ['size', '2', '1', '1', '2', '3', '3']
    """
    distinct_values, counts = np.unique(values, return_counts=True)
    shown, distinct = figures.plain(name), f"{len(distinct_values):,}"
    if role == CATEGORY:
        return [shown, "-", "-", "-", figures.plain(distinct_values[counts.argmax()], 24), "-", distinct]
    statistics = [values.mean(), values.min(), np.median(values), values.max()]
    mean, low, middle, high = (
        as_dates(np.floor(statistics)) if role == DATE else [number(float(value)) for value in statistics]
    )
    deviation = number(float(values.std(ddof=1))) + " days" * (role == DATE)
    return [shown, mean, deviation, low, middle, high, distinct]
