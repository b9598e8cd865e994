"""The section on the terms of a model: their kernels, approximations and effects."""

from rfgp.effects.effects import LEVELS, MAP, SCATTER, Effect, Scale, effects_of, scale_of
from rfgp.effects.variables import CATEGORY
from rfgp.gp import GP
from rfgp.messages import counted
from rfgp.models.diagnostics import TermReport
from rfgp.report import figures
from rfgp.report.effect_figures import effect_figures
from rfgp.report.page import Block, Grid, Plot, Section, Text
from rfgp.report.words import number
from rfgp.tables import Table

_MISSING = "-"
_NAME, _KERNEL = 60, 200
"""The maximum number of characters of the name and of the kernel of a term."""


def section(model: GP, table: Table) -> Section:
    """Return the section on the terms of a fitted model of a table.

    Args:
        model: The fitted model.
        table: The table.
    """
    effects, scale = effects_of(model, table), scale_of(model.spec.options.likelihood, table.target)
    blocks: list[Block] = [grid(model)]
    if effects:
        blocks.append(Text(_reading(model, effects, scale)))
    for effect in effects:
        blocks += _plots(effect, scale)
    return Section("Terms and effects", blocks)


def grid(model: GP) -> Grid:
    """Return the table of the terms.

    Args:
        model: The fitted model.
    """
    header = ["term", "share of variance", "degrees of freedom", "kernel", "approximation", "computed with"]
    rows = [_row(name, term) for name, term in model.terms.items()]
    return Grid(
        header,
        rows,
        "Kernels with the fitted hyperparameters, in the units of the data. The share is that of the variance of the "
        "terms' posterior means over the rows. Degrees of freedom are effective ones.",
        texts=(3, 4, 5),
    )


def _row(name: str, term: TermReport) -> list[str]:
    share = _MISSING if term.share is None else f"{100 * term.share:.1f} %"
    freedom = _MISSING if term.degrees_of_freedom is None else number(term.degrees_of_freedom)
    shown = [figures.plain(repr(term.kernel), _KERNEL), figures.plain(repr(term.approximation), _KERNEL)]
    return [figures.plain(name, _NAME), share, freedom, *shown, figures.plain(term.cost.note, _KERNEL)]


def _reading(model: GP, effects: list[Effect], scale: Scale) -> str:
    """Return sentences on the interpretation of the plots of effects."""
    text = (
        "The effect of a term is its posterior with a 95 % band, minus its mean over the points that are shown. "
        "A constant that several terms share does not widen the bands. Where data are scarce, bands are wide."
    )
    if any(effect.is_partial for effect in effects):
        text += (
            " For a term of several columns, one column varies and the others have typical values: the median of "
            "numbers and the most frequent level of categories."
        )
    if model.members:
        weight = model.members[0][0]
        text += f" The model is an average; the effects are those of the member with the largest weight, {weight:.2f}."
    return f"{text} {scale.words}".strip()


def _plots(effect: Effect, scale: Scale) -> list[Block]:
    """Return the plots of an effect with their captions."""
    captions = _captions(effect, scale)
    height = 120 + 24 * len(effect.mean) if effect.shape == LEVELS else 360
    drawn, is_pair = zip(effect_figures(effect, scale), captions, strict=True), len(captions) > 1
    return [
        Plot(figure, caption, max(height, 300), starts_row=is_pair and i == 0)
        for i, (figure, caption) in enumerate(drawn)
    ]


def _captions(effect: Effect, scale: Scale) -> list[str]:
    name = _name(effect)
    columns = " and ".join(figures.plain(variable.name) for variable in effect.variables)
    if effect.shape in (MAP, SCATTER):
        of = "at rows of the table" if effect.shape == SCATTER else "with rows of the table as points"
        deviation = "its logarithm" if scale.is_factor else "the effect"
        return [f"{name}: effect of {columns}, {of}.", f"{name}: standard deviation of {deviation}."]
    text = f"{name}: effect of {columns}"
    if effect.is_partial:
        text += ", the other columns at typical values"
    if effect.period is not None:
        text += f", over one period of {effect.period:g}{' days' if effect.variables[0].role == 'date' else ''}"
    if effect.shape == LEVELS:
        text += f", with 95 % intervals{_of_levels(effect)}"
    return [f"{text}."]


def _name(effect: Effect) -> str:
    names = ", ".join(figures.plain(name, _NAME) for name in effect.terms)
    return f"Term {names}" if len(effect.terms) == 1 else f"Sum of the terms {names}"


def _of_levels(effect: Effect) -> str:
    """Return a phrase about the levels in the plot, if some are omitted."""
    noun = "level" if effect.variables[0].role == CATEGORY else "value"
    shown = len(effect.mean)
    return "" if shown == effect.num_levels else f"; the {shown} largest of {counted(effect.num_levels, noun)}"
