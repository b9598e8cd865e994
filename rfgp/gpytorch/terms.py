"""Sums of terms, each with its own approximation, as one GPyTorch kernel."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, Self

import gpytorch
import torch
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator
from torch import Tensor

from rfgp.approximations import Exact
from rfgp.approximations.role import Approximation
from rfgp.errors import InvalidArgumentError
from rfgp.gpytorch.covariances import BatchOfPriors, have_equal_values, is_one_element, is_same_memory
from rfgp.gpytorch.drawn import DrawnTerms
from rfgp.gpytorch.kernels import LINEAR_STRATEGY, from_bytes
from rfgp.kernels import Kernel
from rfgp.kernels.role import unused
from rfgp.models.spec import ModelOptions
from rfgp.parameters import find_path, find_paths
from rfgp.torch_context import with_torch_defaults


@with_torch_defaults()
def kernel_of(
    kernel: Kernel,
    approximations: Any = "auto",
    *,
    X: Tensor,
    start: Mapping[str, Any] | None = None,
    priors: Mapping[str, gpytorch.priors.Prior] | None = None,
    fixed: str | Iterable[str] = (),
    seed: int | None = None,
    batch_shape: torch.Size | None = None,
) -> "TermKernel":
    """Return a kernel of `rfgp.kernels`, with approximations of its terms, as a GPyTorch kernel.

    Columns are numbered, levels are integers, and inputs are in the user's units. Starting output scales are those for
    targets of variance 1.

    Args:
        kernel: The kernel.
        approximations: One approximation for all terms that it supports, a dict of approximations by the names of
            terms, or "auto". The approximations of other terms are automatic. Approximations must be covariance
            functions, which excludes Vecchia, sparse precisions, and inducing points with method="vfe". Learned
            frequencies and points are parameters.
        X: Training inputs (n, d), or batches of them (..., n, d), or similar rows. They determine starting values,
            bounds, levels, inducing points and the plan. Parameters have their dtype and device.
        start: Starting values by path or unique suffix, such as {"trend.lengthscale": 2.0}.
        priors: GPyTorch priors by path or unique suffix.
        fixed: Paths, unique suffixes or patterns of hyperparameters that have no gradient.
        seed: The seed of random draws. If None, one from the system.
        batch_shape: The shape of a batch of kernels, which share the draws. If None, one kernel.

    Returns:
        The kernel.

    Raises:
        DataError: If a column is missing from X or cannot be read.
        InvalidArgumentError: If an option has a wrong type or value, or an approximation has no covariance function.

    Examples:
        >>> import torch
        >>> import rfgp.gpytorch
        >>> from rfgp import kernels as k
        >>> X = torch.rand(50, 2, generator=torch.Generator().manual_seed(0))
        >>> trend = {"trend": rfgp.RandomFeatures(8)}
        >>> kernel = rfgp.gpytorch.kernel_of(k.RBF(0, name="trend") + k.Linear(1), trend, X=X, seed=0)
        >>> kernel(X).evaluate_kernel().root.shape
        torch.Size([50, 17])
        >>> kernel.hyperparameters["trend.lengthscale"] = 0.5
        >>> [name for name, _ in kernel.named_parameters()]
        ['raw_trend_lengthscale', 'raw_linear_1_variance', 'raw_trend_outputscale']
    """
    if not isinstance(X, Tensor) or X.ndim < 2 or X.shape[:-1].numel() < 2 or X.shape[-1] == 0:
        shape = tuple(X.shape) if isinstance(X, Tensor) else type(X).__name__
        raise InvalidArgumentError(f"X must be a tensor (n, d) with at least two rows and one column, got {shape}.")
    rows = X.detach().reshape(-1, X.shape[-1]).double()
    options = ModelOptions(kernel, "gaussian", approximations, standardize=False, start=start or {}, seed=seed)
    dtype = X.dtype if X.is_floating_point() else torch.get_default_dtype()
    made = TermKernel(DrawnTerms.of(options, rows), batch_shape=torch.Size(batch_shape or ()))
    made._begin(rows.new_empty(0, dtype=dtype), priors or {}, fixed)
    return made


class TermKernel(gpytorch.kernels.Kernel):
    """A sum of terms, each with its own approximation, made by `kernel_of`.

    If all terms have weights, the covariance has a low rank, which GPyTorch exploits. Terms without weights compute the
    covariances of the elements of a batch one after another, unless the second inputs have no batch.

    Inducing points with method="fitc" add the missing variance of each row. It is part of kernel(X), but not of
    kernel(X, Z). For variational models use method="sor".

    Args:
        drawn: The terms.
        batch_shape: The shape of a batch of kernels.

    Examples:
        >>> import torch
        >>> import rfgp.gpytorch
        >>> from rfgp import kernels as k
        >>> X = torch.linspace(0, 1, 20).unsqueeze(1)
        >>> kernel = rfgp.gpytorch.kernel_of(k.RBF(0), rfgp.InducingPoints(5, method="sor"), X=X, seed=0)
        >>> kernel(X).evaluate_kernel().root.shape
        torch.Size([20, 5])
        >>> kernel.exact().approximations
        {'rbf(0)': Exact()}
    """

    def __init__(self, drawn: DrawnTerms, batch_shape: torch.Size) -> None:
        super().__init__(batch_shape=batch_shape)
        self._drawn = drawn
        self._raw_names: dict[str, str] = {}

    def _begin(self, like: Tensor, priors: Mapping[str, Any], fixed: str | Iterable[str]) -> None:
        """Register the parameters at their starting values, with constraints and priors, with the type of a tensor."""
        for path, quantity in self._drawn.quantities.items():
            raw = self._register(path, like.new_zeros(self.batch_shape + quantity.start.shape))
            if quantity.is_positive:
                low, high = (bound.expand(quantity.start.shape).clone() for bound in quantity.bounds)
                self.register_constraint(raw, gpytorch.constraints.Interval(low, high).to(like))
            self.write(path, self._drawn.values.standardized(path))
            getattr(self, raw).requires_grad_(not quantity.is_fixed)
        self._register_draws(like)
        for path in find_paths([fixed] if isinstance(fixed, str) else fixed, self._drawn.paths):
            getattr(self, self._raw_names[path]).requires_grad_(False)
        for name, prior in priors.items():
            path = find_path(name, self._drawn.paths)
            if not isinstance(prior, gpytorch.priors.Prior):
                raise InvalidArgumentError(f"The prior of {path} must be a GPyTorch prior, got {prior!r}.")
            label = self._raw_names[path].removeprefix("raw_")
            self.register_prior(f"{label}_prior", prior, partial(_read, path=path), partial(_write, path=path))

    def _register(self, path: str, start: Tensor) -> str:
        """Register the parameter (...) of a path, and return its name."""
        label = unused(
            re.sub(r"\W+", "_", path).strip("_"), {raw.removeprefix("raw_") for raw in self._raw_names.values()}
        )
        self._raw_names[path] = f"raw_{label}"
        self.register_parameter(f"raw_{label}", torch.nn.Parameter(start))
        return f"raw_{label}"

    def _register_draws(self, like: Tensor) -> None:
        """Register the draws that are learned as parameters, with the type of a tensor, in place of earlier ones."""
        for path in [path for path in self._raw_names if path not in self._drawn.quantities]:
            delattr(self, self._raw_names.pop(path))
        for path, draw in self._drawn.learnable.items():
            self._register(path, draw.detach().to(like).expand(self.batch_shape + draw.shape).clone())

    # --- hyperparameters --------------------------------------------------------------------------

    @property
    def hyperparameters(self) -> "HyperparametersByPath":
        """The hyperparameters by path, in the user's units, which can be set.

        The object is also callable, as the method `hyperparameters` of GPyTorch.
        """
        return HyperparametersByPath(self)

    @property
    def raw_names(self) -> dict[str, str]:
        """The names of the raw parameters by path."""
        return dict(self._raw_names)

    def read(self, path: str) -> Tensor:
        """Return a hyperparameter or learned draw, (..., p) or (...).

        Args:
            path: Its path.
        """
        raw = getattr(self, self._raw_names[path])
        constraint = self.constraint_for_parameter_name(self._raw_names[path])
        return raw if constraint is None else constraint.transform(raw)

    def write(self, path: str, value: Any) -> None:
        """Set a hyperparameter or learned draw.

        Args:
            path: Its path.
            value: A number, or numbers of its shape.

        Raises:
            InvalidArgumentError: If the value has another shape, or lies outside its bounds.
        """
        name = self._raw_names[path]
        raw, constraint = getattr(self, name), self.constraint_for_parameter_name(name)
        number = torch.as_tensor(value, dtype=raw.dtype, device=raw.device).detach()
        try:
            number = number.expand(raw.shape)
        except RuntimeError as error:
            raise InvalidArgumentError(f"{path} must have shape {tuple(raw.shape)}, got {number.tolist()}.") from error
        new = number if constraint is None else constraint.inverse_transform(number)
        if not bool(torch.isfinite(new).all()):
            between = "" if constraint is None else f" and between {' and '.join(str(b.tolist()) for b in constraint)}"
            raise InvalidArgumentError(f"{path} must be finite{between}, got {number.tolist()}.")
        self.initialize(**{name: new})

    # --- approximations ---------------------------------------------------------------------------

    @property
    def quantities(self) -> list[str]:
        """The paths of the hyperparameters, without learned draws."""
        return [*self._drawn.quantities]

    @property
    def approximations(self) -> dict[str, Approximation]:
        """The approximation of each term by name."""
        return dict(self._drawn.spec.approximations)

    @with_torch_defaults()
    def with_approximation(self, approximation: Any) -> Self:
        """Return the kernel with other approximations at the same hyperparameters.

        It shares no parameters with this kernel. Draws that depend on hyperparameters, such as inducing points, are
        made at the current ones. For a batch of kernels they are made at the means over the batch.

        Args:
            approximation: One approximation for all terms that it supports, or a dict of approximations by the names of
                terms. Other terms keep their approximations and learned draws. {} repeats the draws that are not
                learned.

        Raises:
            InvalidArgumentError: If a term is unknown, or an approximation does not support a term.
        """
        found: Self = deepcopy(self)
        found._drawn = self._drawn.with_new_basis(approximation, _means(self))
        found._register_draws(next(self.parameters()).detach())
        for path in self._drawn.draws_shared_with(found._drawn):
            found.write(path, self.read(path))
        return found

    def exact(self) -> Self:
        """Return the kernel without approximations at the same hyperparameters.

        It shares no parameters with this kernel.
        """
        return self.with_approximation(Exact())

    # --- states -----------------------------------------------------------------------------------

    def get_extra_state(self) -> Tensor:
        """Return the state that repeats the draws, for a state_dict.

        It is JSON as a tensor of bytes (b,).
        """
        return torch.frombuffer(bytearray(json.dumps(self._drawn.state).encode()), dtype=torch.uint8)

    @with_torch_defaults()
    def set_extra_state(self, state: Tensor) -> None:
        """Repeat the draws of a state.

        Args:
            state: The result (b,) of `get_extra_state`.

        Raises:
            InvalidArgumentError: If the state has other terms, approximations or rows X.
        """
        self._drawn = self._drawn.restored(from_bytes(state))

    # --- covariances ------------------------------------------------------------------------------

    def forward(
        self,
        x1: Tensor,  # (..., n, d)
        x2: Tensor,  # (..., m, d)
        diag: bool = False,
        last_dim_is_batch: bool = False,
        **params: Any,
    ) -> Tensor | LinearOperator:  # (..., n, m), or (..., n)
        """Return the covariance (..., n, m), or its diagonal (..., n).

        If all terms have weights, the covariance is a linear operator of low rank.

        Args:
            x1: Inputs (..., n, d).
            x2: Inputs (..., m, d).
            diag: Whether to return the diagonal.
            last_dim_is_batch: Not supported.
            params: Not used.

        Raises:
            InvalidArgumentError: If `last_dim_is_batch` is True.
        """
        if last_dim_is_batch:
            raise InvalidArgumentError("last_dim_is_batch is not supported. Use k.Additive for one term a column.")
        batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2], self.batch_shape)
        is_batch = not diag and self.batch_shape.numel() == 1 < x1.shape[:-2].numel()
        if is_batch and not is_same_memory(x1, x2) and not have_equal_values(x1, x2) and is_one_element(x2):
            rows = x1.expand(*batch, *x1.shape[-2:]).flatten(0, -2)
            found = to_linear_operator(self.forward(rows, x2.reshape(-1, *x2.shape[-2:])[0])).to_dense()
            return found.reshape(*batch, x1.shape[-2], x2.shape[-2])
        pair = self._drawn.pair(x1, x2, batch, self._dtype_of(x1))
        priors = self._priors_of(batch)
        return pair.diagonal(priors).reshape(*batch, -1) if diag else pair.covariance(priors, batch)

    @property
    def num_features(self) -> int:
        """The number F of features of all terms.

        Raises:
            InvalidArgumentError: If a term is not a product of dense features.
        """
        self._drawn.check_low_rank()
        return self._priors_of(self.batch_shape).priors[0].num_features

    def features(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, F)
        """Return features (..., n, F) whose inner products are the covariance.

        Args:
            x: Inputs (..., n, d).

        Raises:
            InvalidArgumentError: If a term is not a product of dense features.
        """
        self._drawn.check_low_rank()
        batch = torch.broadcast_shapes(x.shape[:-2], self.batch_shape)
        pair = self._drawn.pair(x, x, batch, self._dtype_of(x))
        phi = self._priors_of(batch).roots(pair.a)
        return phi.reshape(*batch, *phi.shape[-2:]).to(pair.dtype)

    def prediction_strategy(self, train_inputs: Any, train_prior_dist: Any, train_labels: Any, likelihood: Any) -> Any:
        """Return GPyTorch's prediction strategy for products of features, if the covariance is one at all inputs.

        Otherwise, and for GPyTorch before 1.15, it is the default one. Arguments are those of
        `gpytorch.kernels.Kernel`.
        """
        strategy = (LINEAR_STRATEGY if self._drawn.is_low_rank else None) or super().prediction_strategy
        return strategy(train_inputs, train_prior_dist, train_labels, likelihood)

    def _dtype_of(self, x: Tensor) -> torch.dtype:
        """Return the type of a covariance: that of the inputs, or of the parameters if inputs are integers."""
        return x.dtype if x.is_floating_point() else next(self.parameters()).dtype

    def _priors_of(self, batch: torch.Size) -> BatchOfPriors:
        """Return the priors of all kernels of the batch, for a batch of inputs."""
        count, size = self.batch_shape.numel(), len(self.batch_shape)
        found = {path: self.read(path) for path in self._raw_names}
        flat = {path: value.reshape(count, *value.shape[size:]) for path, value in found.items()}
        priors = [self._drawn.prior({path: value[number] for path, value in flat.items()}) for number in range(count)]
        return BatchOfPriors(priors, torch.arange(count).reshape(self.batch_shape).expand(batch).reshape(-1))


class HyperparametersByPath(Mapping[str, Tensor]):
    """The hyperparameters of a kernel by path, in the user's units.

    Args:
        kernel: The kernel.
    """

    def __init__(self, kernel: TermKernel) -> None:
        self._kernel = kernel

    def __getitem__(self, name: str) -> Tensor:
        """Return the hyperparameter of a path or unique suffix, (..., p) or (...)."""
        return self._kernel.read(find_path(name, list(self)))

    def __setitem__(self, name: str, value: Any) -> None:
        """Set the hyperparameter of a path or unique suffix."""
        self._kernel.write(find_path(name, list(self)), value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernel.raw_names)

    def __len__(self) -> int:
        return len(self._kernel.raw_names)

    def __call__(self) -> Iterator[torch.nn.Parameter]:
        """Yield the raw parameters (...), as GPyTorch's method of this name does."""
        return self._kernel.parameters()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({ {path: value.tolist() for path, value in self.items()} })"


def _means(kernel: TermKernel) -> dict[str, Tensor]:
    """Return the hyperparameters (...) by path, averaged over the batch of kernels."""
    size = len(kernel.batch_shape)
    found = {path: kernel.read(path).detach() for path in kernel.quantities}
    return {path: value.flatten(0, size - 1).mean(0) if size else value for path, value in found.items()}


def _read(module: TermKernel, path: str) -> Tensor:
    """Return a hyperparameter (...), for a prior."""
    return module.read(path)


def _write(module: TermKernel, value: Tensor, path: str) -> None:
    """Set a hyperparameter to a value (...), for a prior."""
    module.write(path, value)
