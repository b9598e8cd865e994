"""Hyperparameters: the only learnable state of a process.

They are optimised as logarithms of standardised values (the mean as it is), within bounds, and
reported in the user's units.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rfgp.errors import InvalidArgumentError
from rfgp.scaling import Affine


class Prior(Protocol):
    """Anything with a log density, for example a `torch.distributions.Distribution`."""

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density of each entry, 0-d or (d,)."""


@dataclass(frozen=True)
class BoundaryAvoiding:
    """A prior that keeps a variance from 0 and says next to nothing elsewhere: log density = log(value) / 2.

    It is the limit of gamma laws of the standard deviation with shape 2 and rate 0 (improper): an optimum moves by
    about one standard error at most, and never to 0, where a marginal likelihood that is flat in the noise often has
    its maximum.

    Source: Chung, Rabe-Hesketh, Dorie, Gelman and Liu (2013), "A nondegenerate penalized likelihood estimator for
    variance parameters in multilevel models", Psychometrika 78(4), Section 3.
    """

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log(value) / 2 of each entry, 0-d or (d,)."""
        return 0.5 * value.log()


@dataclass(frozen=True)
class Quantity:
    """One positive hyperparameter.

    Attributes:
        start: Standardised starting value, () or (d,).
        unit: The user's value is unit * standardised value; broadcasts against `start`.
        bounds: Least and largest standardised value, each () or (d,).
    """

    start: Tensor
    unit: Tensor
    bounds: tuple[Tensor, Tensor]

    @property
    def is_shared(self) -> bool:
        """Whether one standardised value stands for several columns with units of their own."""
        return self.start.ndim == 0 and self.unit.ndim == 1


class Hyperparameters(nn.Module):
    """Named positive quantities and a constant mean.

    `hyperparameters.<name>` is a value in the user's units, differentiable in the raw parameters;
    `standardized(name)` is the same in standardised units. `mean` is the constant mean.

    Args:
        quantities: The positive quantities by name.
        center: The user's mean is center + spread * raw mean: mean and deviation of the data, () or (k,).
        spread: Likewise, ().
        targets: The map from the user's units of the mean to standardised ones.
        priors: Log densities of named values, in the user's units; of a quantity that is shared by
            standardised columns, of its one standardised value. None: none.
    """

    def __init__(
        self,
        quantities: Mapping[str, Quantity],
        center: Tensor,
        spread: Tensor,
        targets: Affine,
        priors: Mapping[str, Prior | None] | None = None,
    ) -> None:
        super().__init__()
        self._quantities = dict(quantities)
        for name in priors or {}:
            self._check_name(name)
        self._priors = {name: prior for name, prior in (priors or {}).items() if prior is not None}
        self.raw = nn.ParameterDict({name: nn.Parameter(q.start.log()) for name, q in self._quantities.items()})
        self.raw["mean"] = nn.Parameter(torch.zeros_like(center))
        self._mean, self._targets = Affine(center, spread), targets

    @property
    def quantities(self) -> Mapping[str, Quantity]:
        """The positive quantities by name."""
        return self._quantities

    @property
    def mean_map(self) -> Affine:
        """The map from the user's units of the mean to its raw parameter."""
        return self._mean

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all hyperparameters, "mean" last."""
        return (*self._quantities, "mean")

    def flat(self) -> Tensor:
        """Return a copy of all raw parameters, (p,), without gradients."""
        return torch.cat([p.detach().reshape(-1) for p in self.parameters()]).clone()

    def standardized(self, name: str) -> Tensor:
        """Return a hyperparameter in standardised units, 0-d or (d,); of the mean of k outputs (k,)."""
        self._check_name(name)
        raw: Tensor = self.raw[name]
        return self._targets.forward(self._mean.inverse(raw)) if name == "mean" else raw.exp()

    def value(self, name: str) -> Tensor:
        """Return a hyperparameter in the user's units, 0-d or (d,)."""
        if name == "mean":
            return self._mean.inverse(self.raw[name])
        return self.standardized(name) * self._quantities[name].unit

    def set(self, **values: Any) -> None:
        """Set hyperparameters by name, in the user's units, in place.

        Raises:
            InvalidArgumentError: an unknown name, a value that is not positive, or a wrong shape.
        """
        checked = {name: self._read(name, value) for name, value in values.items()}
        with torch.no_grad():
            for name, new in checked.items():
                self.raw[name].copy_(new)

    def _read(self, name: str, value: Any) -> Tensor:
        """Return a value in the user's units as a raw one."""
        self._check_name(name)
        raw = self.raw[name]
        try:
            new = torch.as_tensor(value, dtype=raw.dtype, device=raw.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidArgumentError(f"{name} must be a number or an array of numbers, got {value!r}.") from error
        if name != "mean":
            return _to_standardized(name, new, self._quantities[name].unit, raw.shape).log()
        if new.shape not in ((), raw.shape) or not bool(torch.isfinite(new).all()):
            kind = "one finite number" if raw.ndim == 0 else f"{len(raw)} finite numbers, or one for all"
            raise InvalidArgumentError(f"mean must be {kind}, got {value!r}.")
        return self._mean.forward(new).expand(raw.shape)

    def log_prior(self) -> Tensor:
        """Return the total log density of the priors, 0-d."""
        total = torch.zeros((), dtype=self.raw["mean"].dtype, device=self.raw["mean"].device)
        for name, prior in self._priors.items():
            shared = name != "mean" and self._quantities[name].is_shared
            value = self.standardized(name) if shared else self.value(name)
            try:
                total = total + prior.log_prob(value).sum()
            except ValueError as error:
                raise InvalidArgumentError(
                    f"The prior of {name} has no density at {_short(value)}: {str(error)[:100]}."
                ) from error
        return total

    def free(self, fixed: Iterable[str]) -> list[tuple[str, nn.Parameter, list[tuple[float | None, float | None]]]]:
        """Return name, raw parameter and its entries' raw bounds for each hyperparameter that is not fixed."""
        held = {fixed} if isinstance(fixed, str) else set(fixed)
        for name in held:
            self._check_name(name)
        return [(name, self.raw[name], self._raw_bounds(name)) for name in self.names if name not in held]

    def _raw_bounds(self, name: str) -> list[tuple[float | None, float | None]]:
        if name == "mean":
            return [(None, None)] * self.raw[name].numel()
        quantity = self._quantities[name]
        low, high = (bound.log().expand(quantity.start.shape).reshape(-1).tolist() for bound in quantity.bounds)
        return list(zip(low, high, strict=True))

    def __getattr__(self, name: str) -> Any:
        if name == "mean" or name in self.__dict__.get("_quantities", {}):
            return self.value(name)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "mean" or name in self.__dict__.get("_quantities", {}):
            self.set(**{name: value})
        else:
            super().__setattr__(name, value)

    def __repr__(self) -> str:
        rows = (f"{name}={_short(self.value(name))}" for name in self.names)
        return f"Hyperparameters({', '.join(rows)})"

    def _check_name(self, name: str) -> None:
        if name not in self.names:
            raise InvalidArgumentError(f"There is no hyperparameter {name!r}; there are {', '.join(self.names)}.")


def _to_standardized(name: str, value: Tensor, unit: Tensor, shape: torch.Size) -> Tensor:
    """Divide by the unit and reduce to `shape`: a shared value may come once per column."""
    if not bool((value > 0).all()) or not bool(torch.isfinite(value).all()):
        raise InvalidArgumentError(f"{name} must be positive and finite, got {value.tolist()}.")
    if len(shape) == 0 and unit.ndim == 1:  # one lengthscale over standardised columns, one noise of several outputs
        value = value if value.ndim == 0 else value / unit
        if value.ndim and bool((value - value[0]).abs().max() > 1e-6 * value[0]):
            raise InvalidArgumentError(
                f"{name} is shared by all columns (ard=False) or outputs, so it is one number in standardised units, "
                "or one for each of them in proportion to their units."
            )
        return value if value.ndim == 0 else value[0]
    if value.ndim and value.shape != shape:
        raise InvalidArgumentError(f"{name} must have shape () or {tuple(shape)}, got {tuple(value.shape)}.")
    return (value / unit).expand(shape)


def _short(value: Tensor) -> str:
    numbers = [f"{v:.4g}" for v in value.detach().reshape(-1).tolist()]
    return numbers[0] if value.ndim == 0 else "[" + ", ".join(numbers) + "]"
