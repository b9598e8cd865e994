"""Random features as GPyTorch kernels."""

from collections.abc import Callable
from typing import Any

import gpytorch
import numpy as np
import torch
from linear_operator.operators import (
    LinearOperator,
    LowRankRootLinearOperator,
    MatmulLinearOperator,
    RootLinearOperator,
)
from torch import Tensor

import graphs
from graphs.kernels import GraphKernel
from rfgp import couplings, random, spectra
from rfgp.errors import InvalidArgumentError
from rfgp.features import Fourier, WalkFeatures


class RandomFeatureKernel(gpytorch.kernels.Kernel):
    """A stationary kernel estimated by coupled random Fourier features.

    The lengthscale is GPyTorch's own (ARD through `ard_num_dims`); wrap it in a `ScaleKernel` for an
    output scale. The draw lives in the sub-module `feature_map`.

    Args:
        num_frequencies: m; there are 2m features.
        spectrum: A spectrum, by name or as an object.
        coupling: A coupling, by name or as an object.
        num_dims: d; None: taken from the first inputs.
        seed: An integer, or None for one from the system, kept as `.seed`.
        kernel_kwargs: Of `gpytorch.kernels.Kernel`.

    Raises:
        InvalidArgumentError: an unknown name.
    """

    has_lengthscale = True

    def __init__(
        self,
        num_frequencies: int = 256,
        spectrum: str | spectra.Spectrum = "gaussian",
        coupling: str | couplings.Coupling = "energy",
        num_dims: int | None = None,
        seed: int | None = None,
        **kernel_kwargs: Any,
    ) -> None:
        super().__init__(**kernel_kwargs)
        self.num_frequencies = num_frequencies
        self.spectrum = spectra.by_name(spectrum)
        self.coupling = couplings.by_name(coupling)
        self.seed = random.resolve_seed(seed)
        self.feature_map: Fourier | None = None
        if num_dims is not None:
            self._draw(num_dims)

    def features(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, 2m)
        """Return the features of x at the present lengthscale."""
        feature_map = self.feature_map or self._draw(x.shape[-1])
        out: Tensor = feature_map(x.div(self.lengthscale))
        return out

    def get_extra_state(self) -> dict[str, Any]:
        """Return what a state_dict needs to repeat the draw."""
        dims = None if self.feature_map is None else self.feature_map.frequencies.shape[1]
        law = {"coupling": repr(self.coupling), "spectrum": repr(self.spectrum)}
        return {"seed": self.seed, "num_dims": dims, "num_frequencies": self.num_frequencies, **law}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Repeat the draw of a state_dict.

        Raises:
            InvalidArgumentError: it is that of another coupling, spectrum or number of frequencies.
        """
        if not isinstance(state, dict) or not {"seed", "num_dims", "num_frequencies"} <= set(state):
            raise InvalidArgumentError("This is no state of a RandomFeatureKernel.")
        for name in ("coupling", "spectrum"):
            own = repr(getattr(self, name))
            if state.get(name, own) != own:
                raise InvalidArgumentError(f"The state has the {name} {state[name]}, not {own}.")
        if state["num_frequencies"] != self.num_frequencies or state["seed"] is None:
            raise InvalidArgumentError(
                f"The state has {state['num_frequencies']} frequencies, not {self.num_frequencies}."
            )
        self.seed, self.feature_map = state["seed"], None
        if state["num_dims"] is not None:
            self._draw(state["num_dims"])

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor | LinearOperator:
        """Return the covariance of x1 (..., n, d) and x2 (..., k, d), or its diagonal (..., n)."""
        return _low_rank(self.features, x1, x2, diag)

    def _draw(self, num_dims: int) -> Fourier:
        generator = random.generator(self.seed, random.Role.FREQUENCIES)
        draw = self.coupling.sample(self.num_frequencies, num_dims, spectrum=self.spectrum, generator=generator)
        self.feature_map = Fourier(draw)
        return self.feature_map


class GraphFeatureKernel(gpytorch.kernels.Kernel):
    """A graph kernel estimated by the sparse features of random walks.

    Inputs are positions of nodes (..., n, 1), integer or float64. The graph kernel's parameters are
    GPyTorch parameters `raw_<name>` with a positive constraint, reachable as `kernel.<name>`.

    Args:
        walks: The draw; its start nodes must include every input.
        kernel: The graph kernel, at its starting values.
        kernel_kwargs: Of `gpytorch.kernels.Kernel`.

    Raises:
        InvalidArgumentError: at a call, where an input is no start node of the walks.
    """

    def __init__(self, walks: graphs.Walks, kernel: GraphKernel, **kernel_kwargs: Any) -> None:
        super().__init__(**kernel_kwargs)
        self.feature_map = WalkFeatures(walks, kernel)
        self._names = kernel.parameters
        pattern = walks.pattern
        self._rows = torch.as_tensor(np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr)))
        self._columns = torch.as_tensor(pattern.indices.astype(np.int64))
        self._row_of = torch.full((pattern.shape[1],), -1)
        self._row_of[torch.as_tensor(walks.nodes)] = torch.arange(pattern.shape[0])
        self._shape = pattern.shape
        for name, value in zip(kernel.parameters, kernel.values, strict=True):
            constraint = gpytorch.constraints.Positive()
            start = constraint.inverse_transform(torch.tensor(value))
            self.register_parameter(f"raw_{name}", torch.nn.Parameter(start))
            self.register_constraint(f"raw_{name}", constraint)

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_names", ()):
            raw = f"raw_{name}"
            return getattr(self, f"{raw}_constraint").transform(getattr(self, raw))
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_names", ()):
            raw = getattr(self, f"raw_{name}")
            start = getattr(self, f"raw_{name}_constraint").inverse_transform(torch.as_tensor(value).to(raw))
            self.initialize(**{f"raw_{name}": start})
        else:
            super().__setattr__(name, value)

    @property
    def lengthscale(self) -> Tensor | None:
        """The graph kernel's lengthscale, 0-d, or None where it has none."""
        return self.__getattr__("lengthscale") if "lengthscale" in self._names else None

    def features(
        self,
        x: Tensor,  # (..., n, 1)
    ) -> Tensor:  # (..., n, N)
        """Return the dense features of the nodes at positions x."""
        theta = torch.stack([getattr(self, name) for name in self._names]) if self._names else torch.zeros(0)
        phi = torch.zeros(self._shape, dtype=theta.dtype).index_put(
            (self._rows, self._columns), self.feature_map(theta)
        )
        return phi[self._find(x.squeeze(-1).long())]

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor | LinearOperator:
        """Return the covariance of x1 (..., n, 1) and x2 (..., k, 1), or its diagonal (..., n)."""
        return _low_rank(self.features, x1, x2, diag)

    def _find(self, positions: Tensor) -> Tensor:
        outside = (positions < 0) | (positions >= len(self._row_of))
        rows = self._row_of[positions.clamp(0, len(self._row_of) - 1)]
        missing = outside | (rows < 0)
        if bool(missing.any()):
            raise InvalidArgumentError(
                f"The walks do not start at position {int(positions[missing][0])}. Draw them from every node that "
                "the model will see: sample_walks(graph, nodes=...)."
            )
        return rows


def _low_rank(features: Callable[[Tensor], Tensor], x1: Tensor, x2: Tensor, diag: bool) -> Tensor | LinearOperator:
    phi1 = features(x1)
    same = x1.shape == x2.shape and torch.equal(x1, x2)
    phi2 = phi1 if same else features(x2)
    if diag:
        return (phi1 * phi2).sum(-1)
    if not same:
        return MatmulLinearOperator(phi1, phi2.mT)
    return LowRankRootLinearOperator(phi1) if phi1.shape[-1] < phi1.shape[-2] else RootLinearOperator(phi1)
