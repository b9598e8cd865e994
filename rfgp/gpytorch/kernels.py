"""Stationary kernels of vectors as GPyTorch kernels: coupled random features, and the exact kernel of a spectrum."""

import json
from typing import Any

import gpytorch
import torch
from gpytorch.kernels import Kernel
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
from rfgp.messages import check_count

# --- Exact stationary kernels: those of GPyTorch, or evaluated through a spectrum -------------------------------------

_MATERN = (0.5, 1.5, 2.5)
"""The values of nu of GPyTorch's Matern kernel."""


class SpectrumKernel(Kernel):
    """The stationary kernel of a spectrum, exactly.

    Use GPyTorch's own kernels, which are faster, for the Gaussian, Matern (nu in {1/2, 3/2, 5/2}) and rational
    quadratic kernels. This class evaluates the others.

    Args:
        spectrum: A spectrum, by name or as an object.
        kernel_kwargs: Options of `gpytorch.kernels.Kernel`.

    Raises:
        InvalidArgumentError: If the name is unknown.

    Examples:
        >>> import torch
        >>> from rfgp.gpytorch import SpectrumKernel
        >>> SpectrumKernel("gaussian")(torch.rand(5, 2)).shape
        torch.Size([5, 5])
    """

    has_lengthscale = True

    def __init__(self, spectrum: str | spectra.Spectrum, **kernel_kwargs: Any) -> None:
        super().__init__(**kernel_kwargs)
        self.spectrum = spectra.by_name(spectrum)

    def forward(
        self,
        x1: Tensor,  # (..., n, d)
        x2: Tensor,  # (..., k, d)
        diag: bool = False,
        last_dim_is_batch: bool = False,
        **params: Any,
    ) -> Tensor:  # (..., n, k), or (..., n)
        """Return the covariance (..., n, k), or its diagonal (..., n).

        Args:
            x1: Inputs (..., n, d).
            x2: Inputs (..., k, d).
            diag: Whether to return the diagonal.
            last_dim_is_batch: Whether each column is an input of its own. The covariance then has the batch (..., d).
            params: Not used.
        """
        x1, x2, scale = with_columns_as_batch(self, x1, x2, last_dim_is_batch)
        x1, x2 = x1 / scale, x2 / scale
        if diag:
            pairs: Tensor = self.spectrum.kernel_between(x1.unsqueeze(-2), x2.unsqueeze(-2))
            return pairs.squeeze(-1).squeeze(-1)
        out: Tensor = self.spectrum.kernel_between(x1, x2)
        return out


def with_columns_as_batch(
    kernel: Kernel,
    x1: Tensor,  # (..., n, d)
    x2: Tensor,  # (..., k, d)
    last_dim_is_batch: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return two inputs and the lengthscale, with each column as an input of its own if this is wanted.

    Args:
        kernel: The kernel with the lengthscale.
        x1: The first inputs, (..., n, d).
        x2: The second inputs, (..., k, d).
        last_dim_is_batch: Whether each column is an input of its own, (..., d, n, 1).

    Examples:
        >>> x = torch.zeros(5, 2)
        >>> [one.shape[:-1] for one in with_columns_as_batch(gpytorch.kernels.RBFKernel(), x, x, True)]
        [torch.Size([2, 5]), torch.Size([2, 5]), torch.Size([1, 1])]
    """
    if not last_dim_is_batch:
        return x1, x2, kernel.lengthscale
    first, second = (x.transpose(-1, -2).unsqueeze(-1) for x in (x1, x2))
    return first, second, kernel.lengthscale.unsqueeze(-3)


def exact_kernel(spectrum: spectra.Spectrum, like: Kernel) -> Kernel:
    """Return the exact kernel of a spectrum, with lengthscale, prior and constraint copied from a kernel.

    Args:
        spectrum: The spectrum of the new kernel.
        like: A kernel with a lengthscale. The new kernel shares no parameters with it.

    Examples:
        >>> import gpytorch
        >>> from rfgp import spectra
        >>> like = gpytorch.kernels.RBFKernel()
        >>> like.lengthscale = 0.5
        >>> round(exact_kernel(spectra.Matern(1.5), like).lengthscale.item(), 3)
        0.5
    """
    options: dict[str, Any] = {"ard_num_dims": like.ard_num_dims, "batch_shape": like.batch_shape}
    options["lengthscale_constraint"] = like.raw_lengthscale_constraint
    options["lengthscale_prior"] = getattr(like, "lengthscale_prior", None)
    options["active_dims"] = None if like.active_dims is None else tuple(like.active_dims.tolist())
    kernel = _exact(spectrum, options).to(like.raw_lengthscale)
    with torch.no_grad():
        kernel.raw_lengthscale.copy_(like.raw_lengthscale)
    return kernel


def _exact(spectrum: spectra.Spectrum, options: dict[str, Any]) -> Kernel:
    if isinstance(spectrum, spectra.Gaussian):
        return gpytorch.kernels.RBFKernel(**options)
    if isinstance(spectrum, spectra.Matern) and spectrum.nu in _MATERN:
        return gpytorch.kernels.MaternKernel(nu=spectrum.nu, **options)
    if isinstance(spectrum, spectra.RationalQuadratic):
        kernel = gpytorch.kernels.RQKernel(**options)
        kernel.alpha = spectrum.alpha
        kernel.raw_alpha.requires_grad_(False)  # a fixed number of the spectrum
        return kernel
    return SpectrumKernel(spectrum, **options)


# --- Coupled random features of vectors as a GPyTorch kernel ----------------------------------------------------------

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
