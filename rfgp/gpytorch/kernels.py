"""Random features of vectors and of graph nodes as GPyTorch kernels, and the exact kernel of a spectrum."""

from collections.abc import Hashable, Iterable
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from graphs.features import NodeFeatures
from graphs.kernels import GraphKernel
from rfgp import couplings, random, spectra
from rfgp import features as feature_maps
from rfgp.blocks import Prior, SparseWeightBlock, WeightBlock
from rfgp.errors import InvalidArgumentError
from rfgp.features import Fourier, Laplace, WalkFeatures
from rfgp.features.walks import Draw
from rfgp.gpytorch.covariances import PriorKernel, SparseLinearOperator, decode, encode, sparse_features
from rfgp.messages import check_count
from rfgp.sparse import SparseValues, SparsityPattern

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
        scale = self.lengthscale
        if last_dim_is_batch:
            x1, x2, scale = x1.mT.unsqueeze(-1), x2.mT.unsqueeze(-1), scale.unsqueeze(-3)
        x1, x2 = x1 / scale, x2 / scale
        if diag:
            pairs: Tensor = self.spectrum.kernel_between(x1.unsqueeze(-2), x2.unsqueeze(-2))
            return pairs.squeeze(-1).squeeze(-1)
        out: Tensor = self.spectrum.kernel_between(x1, x2)
        return out


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


class RandomFeatureKernel(PriorKernel):
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
    def is_low_rank(self) -> bool:
        """Whether the covariance is a product of dense features at all inputs, which it always is."""
        return True

    @property
    def num_features(self) -> int:
        """The number F of features."""
        return 2 * self.num_frequencies if self.feature_kind == "fourier" else self.num_frequencies

    def exact(self) -> gpytorch.kernels.Kernel:
        """Return the exact kernel at the same lengthscale.

        It shares no parameters with this kernel.
        """
        return exact_kernel(self.spectrum, self)

    @property
    def _state(self) -> dict[str, Any]:
        """The data for JSON that repeat the draw."""
        dims = None if self.feature_map is None else self.feature_map.frequencies.shape[1]
        distribution = {name: repr(getattr(self, name)) for name in ("feature_kind", "coupling", "spectrum")}
        return {"seed": self.seed, "num_dims": dims, "num_frequencies": self.num_frequencies, **distribution}

    def get_extra_state(self) -> Tensor:
        """Return the state that repeats the draw, for a state_dict.

        It is JSON as a tensor of bytes (b,), since some callers require tensors.
        """
        return encode(self._state)

    def set_extra_state(self, state: Tensor) -> None:
        """Repeat the draw of a state.

        Args:
            state: The result (b,) of `get_extra_state`.

        Raises:
            InvalidArgumentError: If the state has another coupling, spectrum, kind or number of features.
        """
        found = decode(state, self._state, drawn=("seed", "num_dims"))
        self.seed, self.feature_map = random.resolve_seed(found["seed"]), None
        if found["num_dims"] is not None:
            self._draw(check_count("num_dims", found["num_dims"]))

    def read_rows(self, x: Tensor, kernels: torch.Size) -> tuple[Tensor, bool]:
        """Return inputs (..., n, d) divided by the lengthscale of each kernel of the batch."""
        return x.div(self.lengthscale.reshape(*kernels, 1, -1)), False

    def priors_of_kernels(self) -> list[Prior]:
        """Return the prior of the features, which all kernels of the batch share."""
        return [Prior(weights=(WeightBlock(self._features, self.num_features),))]

    def _features(self, x: Tensor) -> Tensor:
        feature_map = self._draw(x.shape[-1]) if self.feature_map is None else self.feature_map
        out: Tensor = feature_map(x)
        return out

    def _draw(self, num_dims: int) -> Fourier | Laplace:
        generator = random.generator(self.seed, random.Role.FREQUENCIES)
        draw = self.coupling.sample(self.num_frequencies, num_dims, spectrum=self.spectrum, generator=generator)
        self.feature_map = self._map_class(draw)
        return self.feature_map


# --- Sparse features of graph nodes as a GPyTorch kernel --------------------------------------------------------------


class GraphFeatureKernel(PriorKernel):
    """A graph kernel estimated by sparse features: of random walks, or deterministic ones.

    Inputs are positions of nodes (..., n, 1), integer or float64. Parameters of the graph kernel are GPyTorch
    parameters `raw_<name>` with a positive constraint, one for each element of a batch. `kernel.<name>` has their
    values. Features stay sparse, except for inputs that differ along a batch, whose covariances are dense.

    Args:
        walks: Features of `graphs.sample_walks`, `chebyshev_features`, `taylor_features` or `spectral_features`. Their
            nodes must include all inputs.
        kernel: The graph kernel at its starting values.
        kernel_kwargs: Options of `gpytorch.kernels.Kernel`.

    Raises:
        InvalidArgumentError: At a call, if an input is not a start node of the walks.

    Examples:
        >>> import graphs
        >>> import networkx as nx
        >>> import torch
        >>> from rfgp.gpytorch import GraphFeatureKernel
        >>> walks = graphs.sample_walks(graphs.Graph.from_networkx(nx.path_graph(5)), num_walkers=16, seed=0)
        >>> GraphFeatureKernel(walks, graphs.kernels.Diffusion())(torch.tensor([[0], [4]])).shape
        torch.Size([2, 2])
    """

    def __init__(self, walks: Draw, kernel: GraphKernel, **kernel_kwargs: Any) -> None:
        if not isinstance(walks, NodeFeatures):
            raise InvalidArgumentError(
                f"walks must be features of nodes, such as graphs.sample_walks(graph), got {type(walks).__name__}."
            )
        super().__init__(**kernel_kwargs)
        self._names = kernel.parameters
        for name, value in zip(kernel.parameters, kernel.values, strict=True):
            constraint = gpytorch.constraints.Positive()
            start = constraint.inverse_transform(torch.full(self.batch_shape, float(value)))
            self.register_parameter(f"raw_{name}", torch.nn.Parameter(start))
            self.register_constraint(f"raw_{name}", constraint)
        self._see(WalkFeatures(walks, kernel))

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_names", ()):
            raw = f"raw_{name}"
            return getattr(self, f"{raw}_constraint").transform(getattr(self, raw))
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_names", ()):
            raw = getattr(self, f"raw_{name}")
            value = torch.as_tensor(value, dtype=raw.dtype, device=raw.device).expand(raw.shape)
            self.initialize(**{f"raw_{name}": getattr(self, f"raw_{name}_constraint").inverse_transform(value)})
        else:
            super().__setattr__(name, value)

    @property
    def lengthscale(self) -> Tensor | None:
        """The lengthscale of the graph kernel, of the shape of the batch, or None if it has none."""
        return self.__getattr__("lengthscale") if "lengthscale" in self._names else None

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The names of the graph kernel's p parameters."""
        return tuple(self._names)

    def at(self, nodes: Iterable[Hashable]) -> "GraphFeatureKernel":
        """Return the kernel on other nodes of the same draw.

        It shares the parameters of this kernel.

        Args:
            nodes: The labels of the nodes.
        """
        other = GraphFeatureKernel.__new__(
            GraphFeatureKernel
        )  # copy.copy would share the dictionary of GPyTorch's kernels
        other.__dict__.update(self.__dict__, _modules=dict(self._modules))
        other._see(self.feature_map.at(nodes))
        return other

    def _see(self, features: WalkFeatures) -> None:
        """Take the rows of a draw for the nodes that there are."""
        self.feature_map = features
        self._pattern = SparsityPattern(*features.walks.pattern)
        self._row_of = np.full(features.walks.graph.num_nodes, -1)
        self._row_of[features.walks.nodes] = np.arange(self._pattern.shape[0])

    def features(
        self,
        x: Tensor,  # (n, 1)
    ) -> SparseLinearOperator:  # (..., n, N)
        """Return the sparse features of nodes, for each element of the batch of the kernel.

        Args:
            x: Positions (n, 1) of the nodes.
        """
        blocks = [prior.graph_features[0] for prior in self.priors_of_kernels()]
        places = torch.arange(len(blocks)).reshape(self.batch_shape)
        return sparse_features(blocks, places, x, blocks[0].parameters[0].dtype)

    def priors_of_kernels(self) -> list[Prior]:
        """Return the priors of the features at the parameters of all kernels of the batch."""
        if self._names:
            thetas = torch.stack([getattr(self, name).reshape(-1) for name in self._names], dim=-1)
        else:
            thetas = torch.zeros(self.batch_shape.numel(), 0)
        values = [self.feature_map(theta) for theta in thetas]  # of all start nodes, once for all rows
        unit, size = torch.ones((), dtype=torch.float64), self._pattern.shape[1]
        blocks = [SparseWeightBlock(self._at, unit, size, 0, (one,), position=self._find) for one in values]
        return [Prior(graph_features=(block,)) for block in blocks]

    def _at(self, rows: Tensor, keep: bool, values: Tensor) -> SparseValues:
        """Return the features of rows (n,) of the draw, from the values of all rows."""
        pattern, entries = self._pattern.take(rows.cpu().numpy())
        return SparseValues(values[entries.to(values.device)], pattern)

    def _find(self, positions: Tensor) -> Tensor:
        """Return the rows of the draw of nodes at positions, (n, 1) -> (n,)."""
        wanted = _whole(positions[..., 0]).cpu().numpy()
        outside = (wanted < 0) | (wanted >= len(self._row_of))
        rows = self._row_of[wanted.clip(0, len(self._row_of) - 1)]
        missing = outside | (rows < 0)
        if missing.any():
            raise InvalidArgumentError(
                f"The walks do not start at position {wanted[missing][0]}. Draw them from every node that "
                "the model will see: sample_walks(graph, nodes=...), or kernel.at(nodes)."
            )
        return torch.from_numpy(rows)


def _whole(positions: Tensor) -> Tensor:
    """Return positions (...) as integers."""
    integers = positions.long()
    if positions.is_floating_point() and not bool((integers == positions).all()):
        raise InvalidArgumentError(f"Positions of nodes are whole numbers, got {positions[integers != positions][0]}.")
    return integers
