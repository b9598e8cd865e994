"""Mean prior variances of terms on nodes, as functions of their parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rfgp.parameters import ParameterValues
from rfgp.regression import GPState
from rfgp.regression.inputs import mean_variance, parameters_of_nodes
from rfgp.regression.spec import NORMALIZED_ROWS, ModelSpec
from rfgp.rows import Block, Rows, rows_in_memory

Floats = NDArray[np.float64]

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
