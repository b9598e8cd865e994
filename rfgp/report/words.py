"""What every report says, whatever its subject: cards, diagnostics, accuracy, cost, and how it was made."""

import datetime
import math
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from scipy import stats

from rfgp import metrics
from rfgp.compare import Comparison
from rfgp.compare.show import format_estimate
from rfgp.counts import counted
from rfgp.likelihoods import Bernoulli
from rfgp.models import Process, TableGP
from rfgp.models.fields import MeshGP, RoadGP
from rfgp.models.graph import GraphGP
from rfgp.regression import FitReport
from rfgp.report import figures
from rfgp.report.page import Block, Grid, Plot, Section, Text
from rfgp.report.study import Study

FEW = 20
"""Fewer held-out points say nothing about the coverage of 95 % intervals."""
_ROUNDING = 1e-9  # nats


def number(value: float) -> str:
    """Write a figure with four significant digits."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"


def cards(study: Study, noun: str) -> list[tuple[str, str, str]]:
    """Return the figures to see first; `noun` is what the data are: "rows" or "nodes"."""
    count, covered = len(study.test), round(study.coverage * len(study.test))
    explained = f"{100 * study.explained:.1f} %" if math.isfinite(study.explained) else "not defined"
    beside = f"the training targets' sd is {number(study.spread)}"
    if study.baselines:
        best = min(study.baselines, key=lambda baseline: baseline.rmse)
        beside += f"; of simple rules the {best.name} does best, {number(best.rmse)}"
    out = [
        ("Error on held-out data (RMSE)", number(study.rmse), beside),
        ("Variance explained (R²)", explained, f"of {count:,} held-out {noun}{_in_groups(study)}"),
        ("95 % intervals cover", f"{100 * study.coverage:.1f} %", f"{covered:,} of {count:,}: {verdict(study, noun)}"),
    ]
    if study.comparison is not None and study.own is not None:
        kl = study.comparison.estimate("kl", *study.own)
        points = len(study.comparison.example.observed)
        method, size = study.own
        total = format_estimate(kl) if abs(kl.mean) > _ROUNDING else "0 but for rounding"
        key = ", with the standard error of the last digit in brackets" * ("(" in total)
        name = f"nats per held-out point; {method}, m = {size}: {total} over {points} {noun}{key}"
        out.append(("KL from the exact process", f"{kl.mean / points if abs(kl.mean) > _ROUNDING else 0:.2g}", name))
    return out


def verdict(study: Study, noun: str) -> str:
    """Judge the coverage of 95 % intervals, and the whole calibration curve, at the 5 % and the 1 % level.

    Errors in a group count as equal, so that the error bar is that of the effective number of groups.
    """
    if few := too_few(study, noun):
        return few
    number = int(study.independent)
    low, high = stats.binom.ppf([0.025, 0.975], number, 0.95)
    expected = f"{low:.0f} to {high:.0f} are to be expected"
    if _in_groups(study):
        expected = f"{100 * low / number:.0f} to {100 * high / number:.0f} % are to be expected{_in_groups(study)}"
    covered = study.coverage * number
    if not low - _ROUNDING <= covered <= high + _ROUNDING:
        return f"intervals too {'narrow' if covered < low else 'wide'}, {expected}"
    scores = metrics.standardized_residuals(study.observed, study.prediction).abs().cpu().numpy()
    far = stats.kstest(scores, stats.halfnorm.cdf).statistic
    if stats.kstwo.sf(far, number) < 0.01:
        return f"as it should be ({expected}), but intervals of other levels are off: see the calibration in the report"
    return f"as it should be ({expected})"


def too_few(study: Study, noun: str) -> str:
    """Say that too few groups, or observations, are held out to judge the coverage; "" if it can be judged."""
    if study.independent >= FEW:
        return ""
    if not _in_groups(study):
        return f"too few {noun} to judge"
    assert study.groups is not None
    largest = int(np.unique(study.groups, return_counts=True)[1].max())
    of_one = f", {largest:,} of the {len(study.test):,} {noun} in one of them" if largest > 1 else ""
    return f"cannot be judged: {counted(study.num_groups, 'held-out group')}{of_one}"


def _in_groups(study: Study) -> str:
    """Say in how many groups the held-out observations are; "" where each is its own."""
    return "" if study.num_groups == len(study.test) else f" in {counted(study.num_groups, 'group')}"


def diagnostics(study: Study) -> list[Block]:
    """Return what is to be said of the fit, simple rules beside it, and the plots of its diagnosis and convergence."""
    y, law = study.observed, study.prediction
    is_vague = bool(_in_groups(study) and too_few(study, ""))
    found: list[Block] = [
        *(Text(note) for note in (repeats(study), *study.notes) if note not in ("", study.remark)),
        *_beside(study),
    ]
    found += _of_likelihood(study)
    if not isinstance(study.model.family.options.likelihood, Bernoulli):
        said = (
            f"Held-out observations against predictions{shown(len(y), figures.MOST_BARS)}. Points scatter around the "
            "diagonal, by about their bars."
        )
        found.append(Plot(figures.predicted(y, law), said))
    found += [
        Plot(
            figures.calibration(y, law, max(1, int(study.independent))),
            "Calibration: the share of held-out observations inside the central interval of each level. Above the "
            "diagonal the intervals are too wide, below it too narrow; inside the grey band chance explains it."
            + _of_band(study),
        ),
        Plot(
            figures.residuals(y, law),
            f"Standardised residuals against predictions{shown(len(y), figures.MOST_POINTS)}. No trend and about 5 % "
            "outside the dashed lines: the model fits. A funnel means that the noise is not the same everywhere."
            + " This cannot be judged from so few groups."
            * is_vague,
        ),
    ]
    fit = study.model.fit_report
    if fit is not None and len(fit.trace) > 1:
        stages = " Each line is a stage of the fit, one after another, from where it began." * (len(fit.stages) > 1)
        what = f"Convergence of the fit: the log marginal likelihood. {convergence(fit)}{stages}"
        found.append(Plot(figures.convergence(fit), what))
    return found


def _of_band(study: Study) -> str:
    """Return what to add to the caption of the calibration where observations are in groups."""
    if not _in_groups(study):
        return ""
    few = too_few(study, "observations")
    said = f" The band counts the groups, {study.num_groups:,}, because errors in a group are not independent."
    return f"{said} The calibration {few}." if few else said


def _of_likelihood(study: Study) -> list[Block]:
    """Return the plots of a likelihood that is not normal."""
    likelihood, y, law = study.model.family.options.likelihood, study.observed, study.prediction.observed()
    if isinstance(likelihood, Bernoulli):
        said = (
            "Reliability: the share of ones among held-out observations of about one predicted probability, with two "
            "standard errors, against it. On the diagonal probabilities mean what they say."
        )
        right = int(((np.asarray(law.mean) > 0.5) == (y > 0.5)).sum())
        cells = [[int(((y == t) & ((np.asarray(law.mean) > 0.5) == p)).sum()) for p in (0, 1)] for t in (0, 1)]
        table = [[f"observed {t}", *(f"{cell:,}" for cell in row)] for t, row in enumerate(cells)]
        head = ["", "predicted 0", "predicted 1"]
        told = (
            f"{right:,} of {counted(len(y), 'held-out observation')} ({100 * right / len(y):.1f} %) are of the "
            "likelier class."
        )
        plot = figures.reliability(y, np.asarray(law.mean), each=len(y) / study.independent)
        return [Plot(plot, said), Grid(head, table, told, wide=False)]
    if not likelihood.is_discrete:
        return []
    said = (
        "Rootogram: square roots of how often a count was observed (bars) and of how often the predictions expect it "
        "(line), among held-out observations. Bars that end off the line show what the likelihood misses."
    )
    return [Plot(figures.rootogram(y, law), said)]


def _beside(study: Study) -> list[Block]:
    """Return the errors of the model and of simple rules, as a table."""
    if not study.baselines:
        return []
    total = float(np.mean((study.observed - study.observed.mean()) ** 2))
    rows = [
        [name, number(rmse), f"{100 * (1 - rmse**2 / total):.1f} %" if total > 0 else "not defined"]
        for name, rmse in (("this model", study.rmse), *study.others, *study.baselines)
    ]
    caption = "Simple rules learned from the same training part, on the same held-out part."
    if study.others:
        caption = "Walks fitted to, and simple rules learned from, the same training part, on the same held-out part."
    return [Grid(["prediction", "RMSE", "R²"], rows, caption, wide=False)]


def shown(count: int, most: int) -> str:
    """Say that only a part is drawn, where that is so."""
    return "" if count <= most else f", {most:,} of {count:,} shown"


def convergence(fit: FitReport) -> str:
    """Say in words how a fit went."""
    steps = f"{counted(fit.iterations, 'iteration')} and {counted(fit.evaluations, 'evaluation')}"
    return (
        f"The optimiser converged after {steps}."
        if fit.converged
        else f"The optimiser stopped after {steps} without converging ({fit.message}); doubt the hyperparameters."
    )


def repeats(study: Study) -> str:
    """Say that rows repeat each other, or observations their node, where they do."""
    if not study.repeated:
        return ""
    one, is_apart = study.repeated == 1, study.holdout == "random"
    if isinstance(study.model, GraphGP | MeshGP | RoadGP):
        together = "; those of one node are held out, or trained on, together" * is_apart
        return f"{counted(study.repeated, 'observation')} {'is' if one else 'are'} at the node of another{together}."
    those = f"{counted(study.repeated, 'row')} {'repeats' if one else 'repeat'}"
    return f"{those} another exactly{'; copies are held out, or trained on, together' * is_apart}."


def accuracy(study: Study) -> Section:
    """Return the section on the approximation against the exact process."""
    comparison = study.comparison
    if comparison is None:
        return Section("Against the exact process", [Text(study.remark)])
    rows = [_accuracy_row(comparison, method, size) for method, size in comparison.groups()]
    exact = comparison.exact[0]
    rows.insert(0, ["exact", "", "0", "0", number(exact.rmse), number(exact.nlpd), f"{exact.seconds:.2f}"])
    noun = comparison.size_name
    return Section(
        "Against the exact process",
        [
            Text(study.remark),
            Plot(
                figures.by_size(comparison, "kl", "KL from the exact posterior (nats)"),
                f"KL from the exact to the approximate posterior at the held-out points, against the number of {noun}. "
                "In total, not per point; below 1 nat the two can hardly be told apart. Bars are two standard errors.",
            ),
            Plot(
                figures.by_size(comparison, "kernel_error", "relative error of the kernel"),
                "Relative Frobenius error of the kernel matrix: 0.1 is ten percent.",
            ),
            Plot(
                figures.against_exact(comparison),
                f"One draw of {comparison.example.method}, m = {comparison.example.size}, against the exact process at "
                f"{counted(len(comparison.example.observed), 'held-out point')}.",
            ),
            Grid(
                [
                    "coupling" if noun == "frequencies" else "features",
                    "m",
                    "KL, nats",
                    "kernel error",
                    "RMSE",
                    "NLPD",
                    "seconds",
                ],
                rows,
                "Means over draws; 1.23(4) means 1.23 with standard error 0.04. Seconds to draw, condition, predict.",
            ),
        ],
    )


def _accuracy_row(comparison: Comparison, method: str, size: int) -> list[str]:
    cells = [
        format_estimate(comparison.estimate(name, method, size)) for name in ("kl", "kernel_error", "rmse", "nlpd")
    ]
    return [method, str(size), *cells, f"{comparison.estimate('seconds', method, size).mean:.2f}"]


def hyperparameters(model: Process[Any]) -> Grid:
    """Return the hyperparameters as a table, in the user's units."""
    found = model.hyperparameters
    rows = []
    for name in found.names:
        value = found.value(name).detach()
        text = (
            number(float(value))
            if value.ndim == 0
            else f"{counted(value.numel(), 'value')}, see the relevance of the columns"
        )
        rows.append([name, text])
    law = model.family.options.likelihood
    if not model.family.is_normal:
        told = "Of the latent function, and of the likelihood; outputscale is a variance."
        return Grid(["hyperparameter", "value"], [["likelihood", figures.plain(repr(law))], *rows], told)
    noise = float(found.noise.detach().reshape(-1)[0])
    rows.append(["noise, as a standard deviation", number(math.sqrt(noise))])
    told = "In the units of the data; outputscale and noise are variances."
    others = len(model.members) - 1 if isinstance(model, TableGP) else 0
    if others > 0:
        told += f" Of the process with the largest share; it is averaged with {counted(others, 'other')}."
    return Grid(["hyperparameter", "value"], rows, told)


def cost(study: Study, features: str, memory: float, of: str = "features") -> Section:
    """Return the section on what it cost; `features` says what was computed, `memory` is of these, bytes."""
    rows = [[what, f"{seconds:.2f} s"] for what, seconds in study.seconds.items()]
    if study.comparison is not None:
        exact = study.comparison.exact[0]
        rows.append(["the exact process of the comparison, without fitting", f"{exact.seconds:.2f} s"])
    rows += [[of, features], [f"memory of the {of}", f"{memory / 2**20:,.1f} MiB"]]
    return Section(
        "Cost",
        [
            Grid(
                ["what", "cost"],
                rows,
                "Seconds were measured while this report was made; memory follows from the sizes.",
            )
        ],
    )


def making(study: Study, settings: Mapping[str, object], command: str | None) -> Section:
    """Return the section on how the report was made."""
    rows = [[name, figures.plain(value, 300)] for name, value in {**settings, **study.making}.items()]
    fit = study.model.fit_report
    rows += [
        ["trained on", f"{len(study.train):,}"],
        [f"held out, {_how(study)}", f"{len(study.test):,}{_in_groups(study)}"],
        ["fit", "none" if fit is None else convergence(fit)],
        ["rfgp", version("rfgp")],
        ["Python", platform.python_version()],
        ["date", datetime.date.today().isoformat()],
    ]
    if study.repeated:
        rows.append(["copies", repeats(study)])
    if command is not None:
        rows.append(["command", figures.plain(command, 300)])
    return Section(
        "How it was made", [hyperparameters(study.model), Grid(["setting", "value"], rows, "Enough to make it again.")]
    )


def _how(study: Study) -> str:
    """Say how the held-out part was taken."""
    if study.holdout == "last":
        return "the last in their order"
    return f"at random, by {figures.plain(study.split_by)}" if study.split_by else "at random"


def statistics(names: Sequence[str], columns: np.ndarray) -> Grid:  # columns (n, k)
    """Return a table of the columns (n, k): mean, sd, min, median, max, distinct values."""
    rows = []
    for i, name in enumerate(names):
        values = columns[:, i]
        found = (values.mean(), values.std(ddof=1), values.min(), np.median(values), values.max())
        rows.append([figures.plain(name), *(number(float(v)) for v in found), f"{len(np.unique(values)):,}"])
    header = ["column", "mean", "sd", "min", "median", "max", "distinct"]
    return Grid(header, rows, f"{counted(len(columns), 'row')}.", wide=len(rows) > 12)
