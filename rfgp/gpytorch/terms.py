"""Sums of terms, each with its own approximation, as one GPyTorch kernel.

The chapter has, in this order: `DrawnTerms`, the terms with their draws, resolved on rows; `kernel_of`; and
`TermKernel`, which has the parameters.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import gpytorch
import torch
from torch import Tensor

from rfgp import random
from rfgp.approximations import Exact
from rfgp.approximations.planning import assign, read_approximation
from rfgp.approximations.role import Approximation
from rfgp.blocks import Prior
from rfgp.columns import ColumnKind, InputTable
from rfgp.columns.rules import Key, sources_of
from rfgp.errors import InvalidArgumentError
from rfgp.gpytorch.covariances import PriorKernel, decode, encode
from rfgp.kernels import Kernel
from rfgp.kernels.kernel import transformed
from rfgp.kernels.role import check_points, requests_of, unused
from rfgp.models.spec import ModelOptions, ModelSpec
from rfgp.models.state import begin
from rfgp.parameters import Hyperparameter, ParameterValues, find_path, find_paths
from rfgp.rows import Chunk
from rfgp.torch_context import with_torch_defaults

# --- The terms with their draws, resolved on rows ---------------------------------------------------------------------

OTHERS = ("noise", "mean")
"""The hyperparameters of a model that its kernel does not have."""
INSTEAD = "Use RandomFeatures(), InducingPoints() or Exact(). rfgp.GP supports the others."
"""Remedies for approximations that are not covariance functions."""


@dataclass(frozen=True, eq=False)
class DrawnTerms:
    """The terms of a kernel with their random draws.

    Copies of a model share the object.

    Attributes:
        spec: The kernel, its terms and their approximations.
        values: The hyperparameters at which the draws were made.
        num_rows: The number n of rows that decided starts and draws.
        num_columns: The number d of columns of inputs.
    """

    spec: ModelSpec
    values: ParameterValues
    num_rows: int
    num_columns: int

    @classmethod
    def of(cls, options: ModelOptions, rows: Tensor) -> "DrawnTerms":
        """Return the terms resolved on rows, for targets of variance 1.

        Args:
            options: The kernel, its approximations, starting values and seed.
            rows: Training inputs (n, d), or similar rows.

        Raises:
            DataError: If a column is missing or cannot be read.
            InvalidArgumentError: If an approximation has no covariance function, or the path of a starting value is
                unknown.
        """
        ramp = torch.arange(len(rows), dtype=torch.float64, device=rows.device)
        expanded = transformed(options.kernel, lambda factor: factor.expanded(range(rows.shape[1])))
        nodes = sources_of(r.key for r in requests_of(expanded.terms()) if r.kind is ColumnKind.NODE)
        begun = begin(ModelSpec(options), Chunk(_table(rows, nodes), (ramp - ramp.mean()) / ramp.std()))
        assert isinstance(begun.spec, ModelSpec)
        drawn = cls(begun.spec, begun.hyperparameters, len(rows), rows.shape[1])
        for name in options.start:
            find_path(name, drawn.paths)
        return drawn._as_covariance(options.approximations)

    # --- hyperparameters --------------------------------------------------------------------------

    @property
    def quantities(self) -> dict[str, Hyperparameter]:
        """The hyperparameters of the kernel by path."""
        return {path: one for path, one in self.values.space.quantities.items() if path not in OTHERS}

    @property
    def learnable(self) -> dict[str, Tensor]:
        """The initial values (...) of learned draws, such as frequencies, by path."""
        return {path: draw for term in self.spec.term_priors for path, draw in term.learnable.items()}

    @property
    def paths(self) -> list[str]:
        """The paths of the hyperparameters and of the learned draws."""
        return [*self.quantities, *self.learnable]

    def prior(self, known: Mapping[str, Tensor]) -> Prior:
        """Return the prior at given hyperparameters.

        Args:
            known: Hyperparameters and learned draws (...) by path.
        """
        assert self.spec.columns is not None
        return Prior.of_terms([term.at(known, self.spec.columns) for term in self.spec.term_priors])

    @property
    def is_low_rank(self) -> bool:
        """Whether the covariance is a product of dense features at all inputs.

        This excludes levels, since new levels add to the covariance.
        """
        assert self.spec.schema is not None
        prior = self.prior({path: self.values.standardized(path) for path in self.quantities})
        has_levels = ColumnKind.LEVEL in self.spec.schema.kinds
        return prior.has_weights_only and not prior.dense.has_residual and not has_levels

    # --- draws ------------------------------------------------------------------------------------

    def with_new_basis(self, approximation: Any, values: Mapping[str, Any]) -> "DrawnTerms":
        """Return the terms with other approximations, drawn at some hyperparameters.

        Args:
            approximation: One approximation, or a dict by the names of terms. Other terms keep theirs.
            values: The hyperparameters by path.

        Raises:
            InvalidArgumentError: If a term is unknown, or an approximation does not support a term.
        """
        new = self.values.with_values(**values)
        data = self.spec.term_data(new, self.num_rows)
        chosen = assign(read_approximation(approximation), data, self.spec.approximations)
        drawn = replace(self, spec=self.spec.with_approximations(chosen, new, self.num_rows), values=new)
        drawn._refuse(drawn._without_covariance())
        return drawn

    def draws_shared_with(self, other: "DrawnTerms") -> list[str]:
        """Return the paths of learned draws in terms with the same approximation in both objects.

        Args:
            other: The same terms, perhaps with other approximations.
        """
        old = self.spec.approximations
        same = [name for name, one in other.spec.approximations.items() if old[name] == one]
        pairs = zip(other.spec.terms, other.spec.term_priors, strict=True)
        return [path for term, prior in pairs if term.name in same for path in prior.learnable]

    def _as_covariance(self, asked: Any) -> "DrawnTerms":
        """Return the terms with an exact covariance where a plan chose an approximation that has none.

        Args:
            asked: The approximations that the user gave.

        Raises:
            InvalidArgumentError: If the user chose an approximation without a covariance function.
        """
        found, chosen = self._without_covariance(), self.spec.approximations
        own = asked if isinstance(asked, Mapping) else {name: one for name, one in chosen.items() if one is asked}
        self._refuse({name: why for name, why in found.items() if name in own})
        if not found:
            return self
        wanted: dict[str, Approximation] = {**own, **{name: Exact() for name in found}}
        return replace(self, spec=self.spec.with_approximations(wanted, self.values, self.num_rows))

    def _without_covariance(self) -> dict[str, str]:
        """Return the names of terms whose approximations are no covariance functions, each with the reason."""
        known = {path: self.values.standardized(path) for path in self.quantities}
        assert self.spec.columns is not None
        found = {}
        for term, drawn in zip(self.spec.terms, self.spec.term_priors, strict=True):
            why = _reason(drawn.at(known, self.spec.columns))
            if why is not None:
                found[term.name] = why
        return found

    def _refuse(self, reasons: Mapping[str, str]) -> None:
        for name, why in reasons.items():
            raise InvalidArgumentError(
                f"{self.spec.approximations[name]!r} of the term {name!r} cannot be part of a GPyTorch kernel, because "
                f"{why}"
            )

    # --- rows -------------------------------------------------------------------------------------

    def read(self, x: Tensor) -> tuple[Tensor, bool]:
        """Return the columns (..., n, D) that the kernel reads, and whether there are new levels.

        Args:
            x: Inputs (..., n, d).

        Raises:
            DataError: If a column cannot be read.
            InvalidArgumentError: If the number of columns differs from that of the rows.
        """
        schema, columns = self.spec.schema, self.spec.columns
        assert schema is not None
        assert columns is not None
        if x.shape[-1] != self.num_columns:
            raise InvalidArgumentError(
                f"Inputs must have {self.num_columns} columns, got {x.shape[-1]}. Use k.Additive for one "
                "term a column, instead of last_dim_is_batch."
            )
        if all(kind is ColumnKind.NUMBER for kind in schema.kinds):
            x = x if x.is_floating_point() else x.double()
            keys = list(map(int, schema.sources))
            return (x if keys == list(range(self.num_columns)) else x[..., keys]), False
        nodes = sources_of(column.key for column in schema.columns if column.kind is ColumnKind.NODE)
        found = schema.read(_table(x.reshape(-1, self.num_columns), nodes))
        check_points(self.spec.terms, found)
        levels = [place for place, kind in enumerate(schema.kinds) if kind is ColumnKind.LEVEL]
        known = torch.tensor([columns.num_levels[place] for place in levels], device=found.device)
        return found.reshape(*x.shape[:-1], -1), bool((found[:, levels] >= known).any())

    # --- states -----------------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        """The data for JSON that repeat the draws for the same kernel and rows."""
        assert self.spec.columns is not None
        rows = self.spec.columns.sample.double().cpu().contiguous().numpy()
        return {
            "seed": self.spec.options.seed,
            "rows": hashlib.sha256(rows.tobytes()).hexdigest(),
            "approximations": {name: repr(one) for name, one in self.spec.approximations.items()},
            "values": {path: self.values.value(path).tolist() for path in self.quantities},
        }

    def restored(self, state: Any) -> "DrawnTerms":
        """Return the terms with the draws of a state.

        Args:
            state: The tensor (b,) of `state` of the same terms.

        Raises:
            InvalidArgumentError: If the state is invalid, or has other terms, approximations or rows.
        """
        own = self.state
        found = decode(state, own, drawn=("seed", "values"))
        if found == own:
            return self
        spec = replace(self.spec, options=self.spec.options.changed(seed=random.resolve_seed(found["seed"])))
        return replace(self, spec=spec).with_new_basis({}, found["values"])

    def __deepcopy__(self, memo: Any) -> "DrawnTerms":
        return self


def _table(rows: Tensor, nodes: Iterable[Key]) -> InputTable:
    """Return the table of rows (n, d), with whole numbers as integers in the columns of nodes."""
    table = InputTable.of(rows)
    known = {key: table.columns[key] for key in nodes if key in table.columns}
    whole = {key: column.long() for key, column in known.items() if bool((column == column.round()).all())}
    return replace(table, columns={**table.columns, **whole})


def _reason(prior: Prior) -> str | None:
    """Return why a prior has no covariance function, as a clause after "because". None if it has one."""
    if prior.neighbors is not None:
        return f"neighbors approximate a density and not a covariance. {INSTEAD}"
    if prior.precisions:
        return f"it factorizes a sparse precision and never forms a covariance. {INSTEAD}"
    if any(block.residual is not None and not block.residual.is_noise for block in prior.weights):
        return "its bound is that of no covariance. Use method='sor' or method='fitc', or rfgp.GP."
    return None


# --- The kernel, which has the parameters -----------------------------------------------------------------------------


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


class TermKernel(PriorKernel):
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
        return encode(self._drawn.state)

    @with_torch_defaults()
    def set_extra_state(self, state: Tensor) -> None:
        """Repeat the draws of a state.

        Args:
            state: The result (b,) of `get_extra_state`.

        Raises:
            InvalidArgumentError: If the state has other terms, approximations or rows X.
        """
        self._drawn = self._drawn.restored(state)

    # --- the priors, for `PriorKernel` ------------------------------------------------------------

    @property
    def is_low_rank(self) -> bool:
        """Whether all terms are products of dense features at all inputs."""
        return self._drawn.is_low_rank

    def read_rows(self, x: Tensor, kernels: torch.Size) -> tuple[Tensor, bool]:
        """Return the columns (..., n, D) that the terms read of inputs, and whether there are new levels."""
        return self._drawn.read(x)

    def priors_of_kernels(self) -> list[Prior]:
        """Return the priors of the terms for all kernels of the batch."""
        size = len(self.batch_shape)
        found = {path: self.read(path) for path in self._raw_names}
        flat = {path: value.reshape(-1, *value.shape[size:]) for path, value in found.items()}
        numbers = range(self.batch_shape.numel())
        return [self._drawn.prior({path: value[number] for path, value in flat.items()}) for number in numbers]


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
