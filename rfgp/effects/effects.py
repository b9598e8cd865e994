"""Effects of variables: the centered posterior of each term along its columns."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.columns import ColumnKind
from rfgp.effects.variables import CATEGORY, LOG_TARGET, Variable, input_frame, typical_row, variables_in, variables_of
from rfgp.errors import InvalidArgumentError
from rfgp.expressions import check_known
from rfgp.gp import GP
from rfgp.kernels.role import Term
from rfgp.likelihoods import Bernoulli, Beta, Binomial, Likelihood
from rfgp.tables import Table

MAX_LEVELS = 30
"""The maximum number of levels of an effect that are drawn, those with the largest effects."""
MAX_JOINT_LEVELS = 1000
"""The maximum number of levels, the most frequent, over which an effect is centered."""
MAX_PARTIAL = 8
"""The most variables of a term of more than two, those with the largest effects."""
_CURVE, _PARTIAL, _SIDE, _SCATTER = 200, 60, 30, 600
"""The numbers of points of a curve, of a partial curve, of a side of a map, and of a scatter of positions."""
_MAX_WAVES, _PER_WAVE = 50, 12
"""The most periods that a curve shows, and the points of each."""
_QUANTILES = np.linspace(0.02, 0.98, 9)
"""The quantiles at which the sizes of effects are computed."""

CURVE, LEVELS, MAP, SCATTER = "curve", "levels", "map", "scatter"
"""The shapes of effects."""


@dataclass(frozen=True, eq=False)
class Effect:
    """The centered posterior of some terms along one or two variables.

    Attributes:
        terms: The names of the terms. The effect is of their sum.
        shape: "curve", "levels", "map" or "scatter".
        variables: The variables of the points.
        values: The values of each variable at the points, (g,) each. For a map, the values along its sides.
        mean: The posterior mean, (g,). For a map, (second side, first side).
        std: The posterior standard deviation, with the shape of the mean.
        is_partial: Whether further variables of the terms are at typical values.
        data: The values of each variable in the table, (n,) each.
        num_levels: The number of levels of the variable. The points are the levels with the largest effects.
        period: The length of the period, if only one is shown, or None.

    Examples:
        >>> x = Variable("x", "number", "x", {})
        >>> zeros = np.zeros(2)
        >>> Effect(("rbf(x)",), CURVE, (x,), (zeros,), zeros, zeros, False, (zeros,)).period is None
        True
    """

    terms: tuple[str, ...]
    shape: str
    variables: tuple[Variable, ...]
    values: tuple[NDArray[Any], ...]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    is_partial: bool
    data: tuple[NDArray[Any], ...]
    num_levels: int = 0
    period: float | None = None

    def band(self, scale: "Scale") -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean and the ends of a 95 % band on a scale, with the shape of the mean.

        Args:
            scale: The scale.
        """
        half = 1.96 * self.std
        return scale.shown(self.mean), scale.shown(self.mean - half), scale.shown(self.mean + half)


@dataclass(frozen=True, eq=False)
class _Setting:
    """A model, the dataframe of its inputs (n, d), and its variables."""

    model: GP
    frame: Any
    variables: list[Variable]

    def posterior(self, names: Sequence[str], count: int, *cells: dict[str, NDArray[Any]]) -> tuple[Any, Any]:
        """Return mean and deviation (count,) of the centered sum of terms at cells."""
        prediction: Any = self.model.predict(self.rows(count, *cells))
        centered = prediction.of(*names).centered()
        return np.asarray(centered.mean, dtype=np.float64), np.asarray(centered.std, dtype=np.float64)

    def rows(self, count: int, *cells: dict[str, NDArray[Any]]) -> Any:
        """Return a dataframe (count, d) with cells, and otherwise typical values."""
        import pandas as pd

        known = typical_row(self.variables, self.frame, count)
        for cell in cells:
            known |= cell
        frame = pd.DataFrame(known)
        keys = self.model.spec.schema.sources if self.model.spec.schema else []
        return frame[list(map(str, keys))].to_numpy(float) if any(isinstance(key, int) for key in keys) else frame


@dataclass(frozen=True)
class Scale:
    """The scale of effects in plots.

    Attributes:
        name: The title of the axis.
        words: A sentence about the scale. Empty if effects are in units of the target.
        is_factor: Whether effects are factors: exponentials of effects of the latent function.

    Examples:
        >>> Scale("factor of y", is_factor=True).shown([0.0]).tolist()
        [1.0]
    """

    name: str
    words: str = ""
    is_factor: bool = False

    @property
    def no_effect(self) -> float:
        """The value of no effect."""
        return 1.0 if self.is_factor else 0.0

    def shown(self, values: Any) -> NDArray[np.float64]:
        """Return effects of the latent function on this scale.

        Args:
            values: Effects (n,).
        """
        array = np.asarray(values, dtype=np.float64)
        return np.exp(array) if self.is_factor else array


def scale_of(likelihood: Likelihood, target: str) -> Scale:
    """Return the scale of the effects in a model of a target.

    Args:
        likelihood: The likelihood of the model.
        target: The name of the target, which says whether it is a logarithm.
    """
    if isinstance(likelihood, Bernoulli):
        unit = "log odds" if likelihood.link == "logit" else "probit"
        return Scale(f"effect on the {unit}", f"Effects are added to the {unit} of {target}.")
    if isinstance(likelihood, Binomial | Beta):
        return Scale("effect on the log odds", f"Effects are added to the log odds of {target}.")
    if likelihood.has_log_link:
        words = f"Effects are factors by which the mean of {target} is multiplied."
        return Scale(f"factor of {target}", words, is_factor=True)
    if target.startswith(LOG_TARGET):
        in_units = target.removeprefix(LOG_TARGET)
        words = f"The model is of logarithms, so effects are factors by which the median of {in_units} is multiplied."
        return Scale(f"factor of {in_units}", words, is_factor=True)
    return Scale(f"effect on {target}")


def effects_of(model: GP, table: Table) -> list[Effect]:
    """Return the effects of the terms of a fitted model, centered over their points.

    A term of one variable has a curve or levels, and a term of two numbers has a map. A term of more variables has a
    curve for each of the variables with the largest effects. The other variables are at typical values: medians, or the
    most frequent level. Terms that read the same more than two variables are added. For an average of models, the
    effects are those of the model with the largest weight. Noise terms have no effects.

    Args:
        model: A fitted model of the table.
        table: The table.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> from rfgp.report import effects_of
        >>> from rfgp.tables import Table
        >>> X = np.random.default_rng(0).uniform(0, 6, (80, 2))
        >>> table = Table(X, np.sin(X[:, 0]) + X[:, 1], ("a", "b"), "y")
        >>> gp = rfgp.GP(k.RBF("a") + k.Linear("b"), seed=0).fit(table.frame(), table.y)
        >>> [(effect.terms, effect.shape) for effect in effects_of(gp, table)]
        [(('rbf(a)',), 'curve'), (('linear(b)',), 'curve')]
    """
    gp = model.members[0][1] if model.members else model
    frame = input_frame(table, gp)
    setting = _Setting(gp, frame, variables_of(table, gp, frame))
    prediction: Any = gp.predict(frame.iloc[:1])
    try:
        known = list(prediction.terms)
    except InvalidArgumentError:  # the posterior is not divided into terms
        return []
    terms = [term for term in gp.kernel.terms() if term.name in known]
    return [effect for group in _groups(terms, setting) for effect in _effects(group, setting)]


def effect_of(model: GP, name: str, X: Any, column: str | None = None) -> Effect:
    """Return the effect of one term of a fitted model, centered over its points.

    Args:
        model: A fitted model.
        name: The name of the term.
        X: Inputs over whose range the effect is computed: a dataframe, a dict of columns or an array (n, d).
        column: The column along which a term of several columns is evaluated. The others are at typical values. If
            None, the term must have one column, or two of numbers.

    Raises:
        InvalidArgumentError: If there is no such term, its posterior cannot be separated, or a column must be named.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> from rfgp.effects.effects import effect_of
        >>> x = np.linspace(0, 10, 50)
        >>> gp = rfgp.GP(k.RBF("t", name="trend") + k.Constant(), seed=0).condition({"t": x}, np.sin(x))
        >>> effect_of(gp, "trend", {"t": x}).mean.shape
        (200,)
    """
    import pandas as pd

    gp = model.members[0][1] if model.members else model
    frame = X.copy() if isinstance(X, pd.DataFrame) else pd.DataFrame(X)
    frame.columns = frame.columns.map(str)
    setting = _Setting(gp, frame, variables_in(frame, gp))
    terms = {str(term.name): term for term in gp.kernel.terms()}
    check_known("term", name, list(terms))
    effects = list(_effects([terms[name]], setting))
    if column is not None:
        effects = [effect for effect in effects if effect.variables[0].name == column]
    if len(effects) != 1:
        known = ", ".join(variable.name for variable in _read(terms[name], setting))
        raise InvalidArgumentError(f"column must be one of the columns of the term {name!r}, {known}, got {column!r}.")
    return effects[0]


def effect_sizes(model: GP, table: Table) -> dict[str, float]:
    """Return the standard deviation of the posterior mean along each variable.

    The other variables are at typical values.

    Args:
        model: A fitted model of the table.
        table: The table.

    Returns:
        The standard deviations by the names of the variables.
    """
    import pandas as pd

    frame = input_frame(table, model)
    setting = _Setting(model, frame, variables_of(table, model, frame))
    rows, owners = [], []
    for variable in setting.variables:
        if not variable.is_typical_of_row:
            values = _few_values(variable, frame)
            rows.append(setting.rows(len(values), variable.cells(values)))
            owners += [variable.name] * len(values)
    sizes = {variable.name: 0.0 for variable in setting.variables}
    if rows:
        means = np.asarray(model.predict(pd.concat(rows, ignore_index=True)).mean, dtype=np.float64)
        sizes |= {name: float(means[np.array(owners) == name].std()) for name in dict.fromkeys(owners)}
    return sizes


def _few_values(variable: Variable, frame: Any) -> NDArray[Any]:
    """Return a few values of a variable that represent all rows."""
    if variable.role == CATEGORY or variable.is_discrete:
        return np.array(variable.frequent(frame, MAX_LEVELS), dtype=object)
    return np.asarray(np.quantile(variable.values(frame), _QUANTILES))


def _groups(terms: Sequence[Term], setting: _Setting) -> list[list[Term]]:
    """Return groups of terms. Terms that read the same more than two variables are in one group."""
    groups: dict[Any, list[Term]] = {}
    for i, term in enumerate(terms):
        read = _read(term, setting)
        names = frozenset(variable.name for variable in read)
        groups.setdefault(names if len(read) > 2 else i, []).append(term)
    return list(groups.values())


def _read(term: Term, setting: _Setting) -> list[Variable]:
    """Return the variables that a term reads."""
    columns = {str(key) for factor in term.factors for key in factor.columns or ()}
    return [variable for variable in setting.variables if variable.columns & columns]


def _effects(group: list[Term], setting: _Setting) -> Iterator[Effect]:
    """Yield the effects of the sum of a group of terms, which read the same variables."""
    term, names = group[0], tuple(str(term.name) for term in group)
    read = _read(term, setting)
    coordinates = [variable for variable in read if variable.is_typical_of_row]
    if len(coordinates) > 1 and len(coordinates) == len(read):
        yield _scatter(names, read, setting)
    elif len(read) == 2 and not coordinates and not any(_has_levels(axis, term, setting) for axis in read):
        yield _map(names, read, setting)
    elif len(read) == 1:
        yield _along(names, term, read[0], setting, is_partial=False)
    else:
        effects = [_along(names, term, axis, setting, is_partial=True) for axis in read if axis not in coordinates]
        yield from sorted(effects, key=lambda effect: -float(np.ptp(effect.mean)))[:MAX_PARTIAL]


def _has_levels(variable: Variable, term: Term, setting: _Setting) -> bool:
    """Return whether the effect of a variable in a term has a value for each level."""
    kinds = {factor.kind for factor in term.factors if variable.columns & set(map(str, factor.columns or ()))}
    if variable.role == CATEGORY or kinds & {ColumnKind.LEVEL, ColumnKind.NODE}:
        return True
    return len(np.unique(variable.values(setting.frame)[:10_000])) <= 2


def _along(names: tuple[str, ...], term: Term, variable: Variable, setting: _Setting, *, is_partial: bool) -> Effect:
    """Return the effect of terms along one variable."""
    data = variable.values(setting.frame)
    if _has_levels(variable, term, setting):
        values = np.array(variable.frequent(setting.frame, MAX_JOINT_LEVELS), dtype=data.dtype)
        mean, deviation = setting.posterior(names, len(values), variable.cells(values))
        kept = np.sort(np.argsort(-np.abs(mean), kind="stable")[:MAX_LEVELS])
        count, kept = len(np.unique(data)), kept[np.argsort(mean[kept], kind="stable")]
        curve = ((values[kept],), mean[kept], deviation[kept])
        return Effect(names, LEVELS, (variable,), *curve, is_partial, (data,), count)
    period = None if is_partial else _period(term, data)
    low, high = float(np.min(data)), float(np.max(data))
    values = np.linspace(low, high if period is None else low + period, _num_points(term, high - low, is_partial))
    mean, deviation = setting.posterior(names, len(values), variable.cells(values))
    data = data if period is None else low + np.mod(data - low, period)
    return Effect(names, CURVE, (variable,), (values,), mean, deviation, is_partial, (data,), period=period)


def _period(term: Term, data: NDArray[Any]) -> float | None:
    """Return the period of a term if the data span more than one, else None."""
    period = getattr(term.factors[0], "period", None) if len(term.factors) == 1 else None
    return float(period) if period is not None and float(np.ptp(data)) > float(period) else None


def _num_points(term: Term, extent: float, is_partial: bool) -> int:
    """Return the number of points of a curve, more for products with a period."""
    periods = [float(factor.period) for factor in term.factors if getattr(factor, "period", None) is not None]
    waves = min(extent / min(periods), _MAX_WAVES) if periods and len(term.factors) > 1 else 0.0
    return max(_PARTIAL if is_partial else _CURVE, math.ceil(_PER_WAVE * waves))


def _map(names: tuple[str, ...], read: list[Variable], setting: _Setting) -> Effect:
    """Return the effect of terms over two numbers."""
    data = tuple(variable.values(setting.frame) for variable in read)
    sides = tuple(np.linspace(float(np.min(part)), float(np.max(part)), _SIDE) for part in data)
    first, second = (part.reshape(-1) for part in np.meshgrid(*sides))
    mean, deviation = setting.posterior(names, len(first), read[0].cells(first), read[1].cells(second))
    shape = (_SIDE, _SIDE)
    return Effect(names, MAP, tuple(read), sides, mean.reshape(shape), deviation.reshape(shape), False, data)


def _scatter(names: tuple[str, ...], read: list[Variable], setting: _Setting) -> Effect:
    """Return the effect of terms at positions of the table."""
    count = len(setting.frame)
    rows = np.unique(np.linspace(0, count - 1, min(count, _SCATTER)).astype(np.int64))
    values = tuple(variable.values(setting.frame)[rows] for variable in read)
    cells = [variable.cells(part) for variable, part in zip(read, values, strict=True)]
    mean, deviation = setting.posterior(names, len(rows), *cells)
    return Effect(names, SCATTER, tuple(read[:2]), values[:2], mean, deviation, False, values[:2])
