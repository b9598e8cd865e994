"""Coordinates of a search, in which all hyperparameters vary on one scale.

Long lengthscales do not saturate in them, and terms on nodes have their mean prior variances in place of output scales.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rfgp.parameters import ParameterSpace, ParameterValues
from rfgp.regression import GPState
from rfgp.regression.inputs import mean_variance, parameters_of_nodes
from rfgp.regression.spec import NORMALIZED_ROWS, ModelSpec
from rfgp.rows import Block, Rows, rows_in_memory

Floats = NDArray[np.float64]
Interval = tuple[float | None, float | None]

_SATURATION = 0.1
"""The lengthscale e^f beyond which a column has hardly any effect, relative to its upper bound.

On 8 tables at 50 to 600 rows, 0.03 lowers likelihoods by up to 0.5 nats in longer searches, and 0.003 by up to 3."""
_RESTART, _MIN_GAIN = 0.03, 0.1
"""The lengthscale at which a saturated column is restarted, relative to e^f, and the smallest expected gain, in
nats."""
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
