"""Coupled random features of vectors as a GPyTorch kernel."""

import json
from typing import Any

import gpytorch
import torch
from gpytorch.models import exact_prediction_strategies as strategies
from linear_operator.operators import (
    LinearOperator,
    LowRankRootLinearOperator,
    MatmulLinearOperator,
    RootLinearOperator,
)
from torch import Tensor

from rfgp import couplings, random, spectra
from rfgp import features as feature_maps
from rfgp.errors import InvalidArgumentError
from rfgp.features import Fourier, Laplace
from rfgp.gpytorch.exact import exact_kernel, with_columns_as_batch
from rfgp.messages import check_count

LINEAR_STRATEGY: Any = getattr(strategies, "LinearPredictionStrategy", None)
"""GPyTorch's prediction strategy for products of features, since GPyTorch 1.15, or None."""
_DISTRIBUTION = ("feature_kind", "coupling", "spectrum")
"""Attributes that a state must agree with."""


class RandomFeatureKernel(gpytorch.kernels.Kernel):
    """A stationary kernel estimated by coupled random features.

    The lengthscale is a parameter of GPyTorch (ARD through `ard_num_dims`). Wrap the kernel in a `ScaleKernel` for an
    output scale. The submodule `feature_map` has the draw, which all elements of a batch share. It depends only on the
    seed and d. Therefore it can be drawn at the first inputs, and a `state_dict` repeats it.

    Args:
        num_frequencies: The number m of frequencies, for 2m Fourier or m Laplace features.
        spectrum: A spectrum, by name or as an object.
        coupling: A coupling, by name or as an object. "energy" is tuned to the features.
        num_dims: The number d of columns. If None, that of the first inputs.
        seed: The seed, kept as `.seed`. If None, one from the system.
        features: "fourier", or "laplace" for positive features of the Gaussian spectrum. Laplace features need inputs
            within a few lengthscales of 0.
        kernel_kwargs: Options of `gpytorch.kernels.Kernel`.

    Raises:
        InvalidArgumentError: If a name is unknown, m is not a positive integer, or numbers of dimensions differ.

    Examples:
        >>> import torch
        >>> from rfgp.gpytorch import RandomFeatureKernel
        >>> kernel = RandomFeatureKernel(64, seed=0)
        >>> kernel(torch.rand(5, 2)).shape
        torch.Size([5, 5])
    """

    has_lengthscale = True

    def __init__(
        self,
        num_frequencies: int = 256,
        spectrum: str | spectra.Spectrum = "gaussian",
        coupling: str | couplings.Coupling = "energy",
        num_dims: int | None = None,
        seed: int | None = None,
        features: str = "fourier",
        **kernel_kwargs: Any,
    ) -> None:
        super().__init__(**kernel_kwargs)
        self.num_frequencies = check_count("num_frequencies", num_frequencies)
        self.spectrum = spectra.by_name(spectrum)
        self.feature_kind = features
        self._map_class = feature_maps.by_name(features)
        self.coupling = couplings.for_features(coupling, features)
        if features == "laplace" and not isinstance(self.spectrum, spectra.Gaussian):
            raise InvalidArgumentError("Laplace features exist for the Gaussian spectrum only.")
        self.seed = random.resolve_seed(seed)
        self.feature_map: Fourier | Laplace | None = None
        if num_dims is not None:
            if self.ard_num_dims not in (None, num_dims):
                raise InvalidArgumentError(f"num_dims is {num_dims}, ard_num_dims {self.ard_num_dims}.")
            self._draw(num_dims)

    @property
    def num_features(self) -> int:
        """The number F of features."""
        return 2 * self.num_frequencies if self.feature_kind == "fourier" else self.num_frequencies

    def features(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, F)
        """Return the features of inputs at the current lengthscale.

        Args:
            x: Inputs (..., n, d).
        """
        return self._features(x, self.lengthscale)

    def exact(self) -> gpytorch.kernels.Kernel:
        """Return the exact kernel at the same lengthscale.

        It shares no parameters with this kernel.
        """
        return exact_kernel(self.spectrum, self)

    def get_extra_state(self) -> Tensor:
        """Return the state that repeats the draw, for a state_dict.

        It is JSON as a tensor of bytes (b,), since some callers require tensors.
        """
        dims = None if self.feature_map is None else self.feature_map.frequencies.shape[1]
        distribution = {name: repr(getattr(self, name)) for name in _DISTRIBUTION}
        return encode({"seed": self.seed, "num_dims": dims, "num_frequencies": self.num_frequencies, **distribution})

    def set_extra_state(self, state: Tensor) -> None:
        """Repeat the draw of a state.

        Args:
            state: The result (b,) of `get_extra_state`.

        Raises:
            InvalidArgumentError: If the state has another coupling, spectrum, kind or number of features.
        """
        found = from_bytes(state)
        found = found if isinstance(found, dict) else {}
        integers = all(isinstance(found.get(name), int) for name in ("num_frequencies", "seed"))
        dims = found.get("num_dims", "unknown")
        if not integers or not isinstance(dims, int | None) or not set(_DISTRIBUTION) <= set(found):
            raise InvalidArgumentError("This is no state of a RandomFeatureKernel.")
        for name in _DISTRIBUTION:
            own = repr(getattr(self, name))
            if found[name] != own:
                raise InvalidArgumentError(f"The state has the {name} {found[name]}, not {own}.")
        if found["num_frequencies"] != self.num_frequencies:
            raise InvalidArgumentError(
                f"The state has {found['num_frequencies']} frequencies, not {self.num_frequencies}."
            )
        self.seed, self.feature_map = found["seed"], None
        if dims is not None:
            self._draw(dims)

    def forward(
        self,
        x1: Tensor,  # (..., n, d)
        x2: Tensor,  # (..., k, d)
        diag: bool = False,
        last_dim_is_batch: bool = False,
        **params: Any,
    ) -> Tensor | LinearOperator:  # (..., n, k), or (..., n)
        """Return the covariance (..., n, k), or its diagonal (..., n).

        The covariance is a linear operator. It has a low rank if there are fewer features than points.

        Args:
            x1: Inputs (..., n, d).
            x2: Inputs (..., k, d).
            diag: Whether to return the diagonal.
            last_dim_is_batch: Whether each column is an input of its own. The covariance then has the batch (..., d).
            params: Not used.
        """
        x1, x2, scale = with_columns_as_batch(self, x1, x2, last_dim_is_batch)
        phi1 = self._features(x1, scale)
        same = x1 is x2 or (torch.equal(x1, x2) and not (x1.requires_grad or x2.requires_grad))
        phi2 = phi1 if same else self._features(x2, scale)
        if diag:
            return (phi1 * phi2).sum(-1)
        if not same:
            return MatmulLinearOperator(phi1, phi2.mT)
        return LowRankRootLinearOperator(phi1) if phi1.shape[-1] < phi1.shape[-2] else RootLinearOperator(phi1)

    def prediction_strategy(self, train_inputs: Any, train_prior_dist: Any, train_labels: Any, likelihood: Any) -> Any:
        """Return GPyTorch's prediction strategy for products of features, which works in F dimensions.

        GPyTorch before 1.15 has no such strategy. The result is then the default one. Arguments are those of
        `gpytorch.kernels.Kernel`.
        """
        strategy = LINEAR_STRATEGY or super().prediction_strategy
        return strategy(train_inputs, train_prior_dist, train_labels, likelihood)

    def _features(self, x: Tensor, scale: Tensor) -> Tensor:
        feature_map = self._draw(x.shape[-1]) if self.feature_map is None else self.feature_map
        out: Tensor = feature_map(x.div(scale))
        return out

    def _draw(self, num_dims: int) -> Fourier | Laplace:
        generator = random.generator(self.seed, random.Role.FREQUENCIES)
        draw = self.coupling.sample(self.num_frequencies, num_dims, spectrum=self.spectrum, generator=generator)
        self.feature_map = self._map_class(draw)
        return self.feature_map


def encode(state: dict[str, Any]) -> Tensor:
    """Return a dictionary as JSON in a tensor (b,) of bytes.

    The length does not depend on whether `num_dims` is known. BoTorch restores saved states element by element, also
    after a draw.

    Args:
        state: The dictionary, with the key "num_dims".

    Examples:
        >>> from_bytes(encode({"seed": 1, "num_dims": None}))
        {'seed': 1, 'num_dims': None}
    """
    width = len(json.dumps({**state, "num_dims": None})) + 16
    return torch.frombuffer(bytearray(json.dumps(state).ljust(width).encode()), dtype=torch.uint8)


def from_bytes(state: Any) -> Any:
    """Return the content of JSON in a tensor (b,) of bytes, or None if there is none.

    Args:
        state: The tensor.

    Examples:
        >>> from_bytes(torch.tensor([91, 93])), from_bytes("other")
        ([], None)
    """
    try:
        return json.loads(bytes(state.detach().cpu().to(torch.uint8).tolist()))
    except (AttributeError, TypeError, ValueError, RecursionError):
        return None
