"""Hyperparameters: their paths, starts, units, bounds and priors, the space of a model, and values in it.

Fits optimize logarithms of standardized values within bounds, and the mean without a logarithm. Users see their own
units. A `ParameterSpace` lists hyperparameters, and `ParameterValues` hold their numbers. The torch module
`Hyperparameters` wraps both.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from rfgp.errors import InvalidArgumentError
from rfgp.scaling import Affine

# --- Paths of hyperparameters, by name or by a unique suffix ---------------------------------------------------------


def find_path(name: str, paths: Sequence[str], argument: str = "") -> str:
    """Return the path with a name: the path itself, or the only one that ends with it.

    Args:
        name: A path such as "trend.lengthscale", or its end, such as "lengthscale".
        paths: All paths.
        argument: The argument that has the name, for the message.

    Raises:
        InvalidArgumentError: If no path ends with the name, or several do.

    Examples:
        >>> from rfgp.parameters import find_path
        >>> find_path("lengthscale", ["trend.lengthscale", "trend.outputscale", "noise"])
        'trend.lengthscale'
    """
    if name in paths:
        return name
    found = [path for path in paths if path.endswith(f".{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidArgumentError(f"{name!r} must name one hyperparameter, got {', '.join(found)}. Give its path.")
    close = difflib.get_close_matches(name, paths, n=3)
    hint = f" Did you mean {', '.join(close)}?" if close else ""
    where, known = f" in {argument}" if argument else "", ", ".join(dict.fromkeys(paths))
    raise InvalidArgumentError(f"A hyperparameter{where} must be one of {known}, got {name!r}.{hint}")


def find_paths(patterns: Iterable[str], paths: Sequence[str]) -> list[str]:
    """Return the paths that match names or patterns with *, in the order of the paths.

    Args:
        patterns: Paths, unique ends of paths, or patterns of paths such as "trend.*" and "*.lengthscale".
        paths: All paths.

    Raises:
        InvalidArgumentError: If a name has no path or several, or a pattern matches none.

    Examples:
        >>> from rfgp.parameters import find_paths
        >>> find_paths(["*.lengthscale"], ["a.lengthscale", "b.lengthscale", "noise"])
        ['a.lengthscale', 'b.lengthscale']
    """
    found: set[str] = set()
    for pattern in patterns:
        if any(mark in pattern for mark in "*?"):
            matched = [path for path in paths if fnmatchcase(path, pattern.replace("[", "[[]"))]
            if not matched:
                raise InvalidArgumentError(
                    f"A pattern must match a hyperparameter of {', '.join(paths)}, got {pattern!r}."
                )
            found.update(matched)
        else:
            found.add(find_path(pattern, paths))
    return [path for path in paths if path in found]


# --- Hyperparameters: the only learnable state of a process ----------------------------------------------------------


class Hyperprior(Protocol):
    """A prior of a hyperparameter: anything with a log density.

    An example is a `torch.distributions.Distribution`.

    Examples:
        >>> import rfgp
        >>> class Exponential:
        ...     def log_prob(self, value):
        ...         return -value
        >>> gp = rfgp.GP(rfgp.kernels.RBF(), priors={"lengthscale": Exponential()}, seed=0)
        >>> gp = gp.condition([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.5])
        >>> gp.hyperparameters.log_prior().item() == -gp.hyperparameters["lengthscale"].item()
        True
    """

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density of each entry, 0-d or (d,)."""


@dataclass(frozen=True)
class BoundaryAvoiding:
    """A weak prior that keeps a variance away from 0, with log density log(value) / 2.

    It is the limit of gamma distributions of the standard deviation with shape 2 and rate 0 (improper).

    Source: Chung, Rabe-Hesketh, Dorie, Gelman and Liu (2013), "A nondegenerate penalized likelihood estimator for
    variance parameters in multilevel models", Psychometrika 78(4), Section 3.

    Examples:
        >>> import math, rfgp
        >>> prior = BoundaryAvoiding()
        >>> math.isclose(prior.log_prob(torch.tensor(4.0)).item(), math.log(4) / 2, rel_tol=1e-6)
        True
        >>> rfgp.GP(rfgp.kernels.RBF(), priors={"noise": prior}, seed=0)
        GP(kernel=RBF(), priors={'noise': BoundaryAvoiding()}, seed=0, not fitted)
    """

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log(value) / 2 of each entry, 0-d or (d,)."""
        return 0.5 * value.log()


@dataclass(frozen=True)
class Hyperparameter:
    """One hyperparameter, with its start and bounds.

    A kernel of your own returns one for each name in `hyperparameters(columns)`. For a length, such as a lengthscale or
    a width, the unit is `columns.scale`, and `columns.spread` is a good start: the standard deviation of the column.

    Attributes:
        start: Standardized starting value, () or (d,), a tensor or numbers.
        unit: The user's value is unit * standardized value. It broadcasts against `start`.
        bounds: Smallest and largest standardized value, each () or (d,).
        saturates: Whether the model depends weakly, through 1 / value^2, on large values. Lengthscales do.
        is_variance: Whether start and bounds are variances of the target. The unit then lacks its square.
        is_fixed: Whether fits keep the start.
        is_positive: Whether fits search over the logarithm. Otherwise values may have any sign.

    Examples:
        >>> from rfgp import kernels as k
        >>> @dataclass(frozen=True, eq=False, repr=False)
        ... class Tent(k.Kernel):
        ...     def covariance(self, a, b, values):
        ...         return (1 - (a - b.mT).abs() / values["width"]).clamp_min(0)
        ...
        ...     def hyperparameters(self, columns):
        ...         one = columns.spread[0]
        ...         return {"width": Hyperparameter(one, columns.scale[0], (0.01 * one, 100 * one))}
        >>> Tent("t").matrix({"t": [0.0, 1.0, 5.0]}, values={"width": 4.0}).tolist()
        [[1.0, 0.75, 0.0], [0.75, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    start: Tensor
    unit: Tensor
    bounds: tuple[Tensor, Tensor]
    saturates: bool = False
    is_variance: bool = False
    is_fixed: bool = False
    is_positive: bool = True

    def __post_init__(self) -> None:
        given = (self.start, self.unit, *self.bounds)
        start, unit, *bounds = (x if isinstance(x, Tensor) else torch.tensor(x, dtype=torch.float64) for x in given)
        vars(self).update(start=start, unit=unit, bounds=tuple(bounds))

    @property
    def is_shared(self) -> bool:
        """Whether columns with different units share one standardized value."""
        return self.start.ndim == 0 and self.unit.ndim == 1

    def to_raw(self, value: Tensor) -> Tensor:
        """Return standardized values (...) as raw ones: logarithms of positive ones."""
        return value.log() if self.is_positive else value

    def from_raw(self, raw: Tensor) -> Tensor:
        """Return raw values (...) as standardized ones."""
        return raw.exp() if self.is_positive else raw


@dataclass(frozen=True, eq=False)
class ParameterSpace:
    """The hyperparameters of a model, and its constant mean.

    Attributes:
        quantities: The hyperparameters except the mean, by name.
        mean: The map from the user's units of the mean to its raw number, () or (k,).
        targets: The map from the user's units of the mean to standardized ones.
        hyperpriors: Log densities by name, in the user's units. Priors of `rfgp.priors` may be in standardized units,
            as are those of hyperparameters that standardized columns share.
        extra_tensors: Starting values of further tensors that fits optimize, without units or bounds.

    Examples:
        >>> from rfgp.scaling import Affine
        >>> one, same = torch.ones(()), Affine(torch.zeros(()), torch.ones(()))
        >>> space = ParameterSpace.of({"noise": Hyperparameter(one, one, (0.01 * one, 100 * one))}, same, same)
        >>> space.names, space.start
        (('noise', 'mean'), ParameterValues(noise=1, mean=0))
    """

    quantities: Mapping[str, Hyperparameter]
    mean: Affine
    targets: Affine
    hyperpriors: Mapping[str, Hyperprior]
    extra_tensors: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        quantities: Mapping[str, Hyperparameter],
        mean: Affine,
        targets: Affine,
        hyperpriors: Mapping[str, Hyperprior | None] | None = None,
    ) -> "ParameterSpace":
        """Return the space without the hyperpriors that are None.

        Args:
            quantities: The hyperparameters except the mean, by name.
            mean: The map from the user's units of the mean to its raw number.
            targets: The map from the user's units of the mean to standardized ones.
            hyperpriors: Priors by name, or None for a hyperparameter without one. If None, there are none.

        Raises:
            InvalidArgumentError: If a hyperprior has an unknown name.
        """
        given = {name: prior for name, prior in (hyperpriors or {}).items() if prior is not None}
        space = cls(dict(quantities), mean, targets, given)
        for name in hyperpriors or {}:
            space.check(name)
        return space

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all hyperparameters, "mean" last."""
        return (*self.quantities, *self.extra_tensors, "mean")

    @property
    def start(self) -> "ParameterValues":
        """The starting values."""
        raw = {name: quantity.to_raw(quantity.start) for name, quantity in self.quantities.items()}
        return ParameterValues(self, {**raw, **self.extra_tensors, "mean": torch.zeros_like(self.mean.location)})

    def check(self, name: str) -> None:
        """Check that a hyperparameter exists.

        Raises:
            InvalidArgumentError: If there is no such name. The message lists the names.
        """
        if name not in self.quantities and name not in self.extra_tensors and name != "mean":
            raise InvalidArgumentError(f"A hyperparameter must be one of {', '.join(self.names)}, got {name!r}.")

    def free(self, fixed: Iterable[str]) -> list[str]:
        """Return the names that are not fixed.

        Args:
            fixed: Names, unique ends of paths, or patterns with *.

        Raises:
            InvalidArgumentError: If there is no such name.
        """
        held = set(find_paths([fixed] if isinstance(fixed, str) else fixed, self.names))
        held |= {name for name, quantity in self.quantities.items() if quantity.is_fixed}
        return [name for name in self.names if name not in held]

    def bounds(self, name: str) -> list[tuple[float | None, float | None]]:
        """Return the bounds of raw entries. The mean and `extra_tensors` are unbounded."""
        if name not in self.quantities:
            return [(None, None)] * self.extra_tensors.get(name, self.mean.location).numel()
        quantity = self.quantities[name]
        low, high = (
            quantity.to_raw(bound).expand(quantity.start.shape).reshape(-1).tolist() for bound in quantity.bounds
        )
        return list(zip(low, high, strict=True))

    def read(self, name: str, value: Any, raw: Tensor) -> Tensor:
        """Return a value in the user's units as a raw one, shaped as `raw`, () or (d,).

        Raises:
            InvalidArgumentError: If the name is unknown, or the value is not positive or has a wrong shape.
        """
        self.check(name)
        try:
            new = torch.as_tensor(value, dtype=raw.dtype, device=raw.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidArgumentError(f"{name} must be a number or an array of numbers, got {value!r}.") from error
        if name != "mean":
            return self.quantities[name].to_raw(_to_standardized(name, new, self.quantities[name], raw.shape))
        if new.shape not in ((), raw.shape) or not bool(torch.isfinite(new).all()):
            kind = "one finite number" if raw.ndim == 0 else f"{len(raw)} finite numbers, or one for all"
            raise InvalidArgumentError(f"mean must be {kind}, got {value!r}.")
        return self.mean.forward(new).expand(raw.shape)


@dataclass(frozen=True, eq=False, repr=False)
class ParameterValues:
    """Values of the hyperparameters of a space.

    Attributes:
        space: The hyperparameters.
        raw: By name, logarithms of standardized values, () or (d,). The mean is in the raw units of the space.

    Examples:
        >>> from rfgp.scaling import Affine
        >>> one, same = torch.ones(()), Affine(torch.zeros(()), torch.ones(()))
        >>> space = ParameterSpace.of({"noise": Hyperparameter(one, 2 * one, (0.01 * one, 100 * one))}, same, same)
        >>> space.start.with_values(noise=3.0)
        ParameterValues(noise=3, mean=0)
    """

    space: ParameterSpace
    raw: Mapping[str, Tensor]

    def standardized(self, name: str) -> Tensor:
        """Return a standardized hyperparameter, 0-d or (d,), or (k,) for k outputs' mean."""
        self.space.check(name)
        if name == "mean":
            return self.space.targets.forward(self.space.mean.inverse(self.raw[name]))
        raw = self.raw[name]
        return raw if name in self.space.extra_tensors else self.space.quantities[name].from_raw(raw)

    def value(self, name: str) -> Tensor:
        """Return a hyperparameter in the user's units, 0-d or (d,)."""
        if name == "mean":
            return self.space.mean.inverse(self.raw[name])
        standardized = self.standardized(name)
        return standardized if name in self.space.extra_tensors else standardized * self.space.quantities[name].unit

    def log_hyperprior(self) -> Tensor:
        """Return the total log density of the hyperpriors, 0-d.

        Raises:
            InvalidArgumentError: If a value is outside of the support of its prior.
        """
        total = torch.zeros((), dtype=self.raw["mean"].dtype, device=self.raw["mean"].device)
        for name, prior in self.space.hyperpriors.items():
            shared = name in self.space.quantities and self.space.quantities[name].is_shared
            is_standardized = shared or getattr(prior, "is_standardized", False)
            value = self.standardized(name) if is_standardized else self.value(name)
            try:
                total = total + prior.log_prob(value).sum()
            except ValueError as error:
                raise InvalidArgumentError(
                    f"The prior of {name} has no density at {_short(value)}: {str(error)[:100]}."
                ) from error
        return total

    def equals(self, other: "ParameterValues") -> bool:
        """Return whether all values are equal."""
        return all(torch.equal(raw, other.raw[name]) for name, raw in self.raw.items())

    # --- other values ----------------------------------------------------------------------------

    def with_extra_tensors(
        self, extra_tensors: Mapping[str, Tensor], hyperpriors: Mapping[str, Hyperprior]
    ) -> "ParameterValues":
        """Return the values with further tensors (...) and their hyperpriors."""
        space = replace(self.space, extra_tensors=extra_tensors, hyperpriors={**self.space.hyperpriors, **hyperpriors})
        return ParameterValues(space, {**self.raw, **extra_tensors})

    def with_values(self, **values: Any) -> "ParameterValues":
        """Return the values with some replaced by name, in the user's units.

        Raises:
            InvalidArgumentError: If a name is unknown, or a value is not positive or has a wrong shape.
        """
        for name in values:
            self.space.check(name)
        return self.replaced({name: self.space.read(name, value, self.raw[name]) for name, value in values.items()})

    def replaced(self, raw: Mapping[str, Tensor]) -> "ParameterValues":
        """Return the values with raw ones replaced by name, 0-d or (d,), and dtypes kept."""
        new = {name: value.detach().to(self.raw[name]).reshape(self.raw[name].shape) for name, value in raw.items()}
        return replace(self, raw={**self.raw, **new})

    def shifted(self, **amounts: Any) -> "ParameterValues":
        """Return the values with numbers (0-d) added to raw ones by name."""
        pairs = [(name, self.raw[name].detach(), amount) for name, amount in amounts.items()]
        return self.replaced(
            {name: raw + torch.as_tensor(amount, dtype=raw.dtype, device=raw.device) for name, raw, amount in pairs}
        )

    def detached(self) -> "ParameterValues":
        """Return a copy without gradients."""
        return replace(self, raw={name: value.detach().clone() for name, value in self.raw.items()})

    def leaves(self, names: Iterable[str]) -> "ParameterValues":
        """Return a copy in which the raw values of these names require gradients."""
        copied = self.detached()
        for name in names:
            copied.raw[name].requires_grad_()
        return copied

    def clamped(self, names: Iterable[str]) -> tuple["ParameterValues", bool]:
        """Return values clamped to their bounds, and whether this moved one of the names."""
        inside = {}
        for name in names:
            raw, quantity = self.raw[name], self.space.quantities[name]
            low, high = (quantity.to_raw(bound).to(raw) for bound in quantity.bounds)
            inside[name] = raw.clamp(low, high)
        return self.replaced(inside), any(not torch.equal(new, self.raw[name]) for name, new in inside.items())

    # --- as a vector -----------------------------------------------------------------------------

    def flat(self) -> Tensor:
        """Return a copy of all raw values, (p,), without gradients."""
        return parameters_to_vector([self.raw[name].detach() for name in self.space.names]).clone()

    def vector(self, names: Iterable[str]) -> NDArray[np.float64]:
        """Return the raw values of some names in one vector, (p,)."""
        parts = [self.raw[name].detach().reshape(-1).double().cpu().numpy() for name in names]

        return np.concatenate(parts) if parts else np.zeros(0)

    def moved(
        self,
        names: Iterable[str],
        vector: NDArray[np.float64],  # (p,)
    ) -> "ParameterValues":
        """Return the values with the raw ones of some names from a vector (p,)."""
        new, first, numbers = {}, 0, torch.tensor(vector)
        for name in names:
            size = self.raw[name].numel()
            new[name] = numbers[first : first + size]
            first += size
        return self.replaced(new)

    def __str__(self) -> str:
        return ", ".join(f"{name}={_short(self.value(name))}" for name in self.space.names)

    def __repr__(self) -> str:
        return f"ParameterValues({self})"


def _to_standardized(name: str, value: Tensor, quantity: Hyperparameter, shape: torch.Size) -> Tensor:
    """Divide by the unit and reduce to `shape`. A shared value may have one entry for each column."""
    unit, kind = quantity.unit, "positive and finite" if quantity.is_positive else "finite"
    if (quantity.is_positive and not bool((value > 0).all())) or not bool(torch.isfinite(value).all()):
        raise InvalidArgumentError(f"{name} must be {kind}, got {value.tolist()}.")
    if len(shape) == 0 and unit.ndim == 1:  # shared by standardized columns or by outputs
        if value.ndim and value.shape != unit.shape:
            raise InvalidArgumentError(f"{name} must have shape () or {tuple(unit.shape)}, got {tuple(value.shape)}.")
        value = value if value.ndim == 0 else value / unit
        if value.ndim and bool((value - value[0]).abs().max() > 1e-6 * value[0]):
            raise InvalidArgumentError(
                f"{name} must be one standardized number, because all columns (ard=False) or outputs share it, got "
                f"{value.tolist()}. Pass one value, or values in proportion to the units."
            )
        return value if value.ndim == 0 else value[0]
    if value.ndim and value.shape != shape:
        raise InvalidArgumentError(f"{name} must have shape () or {tuple(shape)}, got {tuple(value.shape)}.")
    return (value / unit).expand(shape)


def _short(value: Tensor) -> str:
    numbers = [f"{v:.4g}" for v in value.detach().reshape(-1).tolist()]
    return numbers[0] if value.ndim == 0 else "[" + ", ".join(numbers) + "]"
