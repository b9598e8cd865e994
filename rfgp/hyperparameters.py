"""Hyperparameters as a torch module that users read, set and differentiate."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rfgp.parameters import Hyperparameter, ParameterSpace, ParameterValues, find_path


class Hyperparameters(nn.Module):
    """The hyperparameters of a model by path, as a torch module.

    `hyperparameters["trend.lengthscale"]` is a value in the user's units, differentiable in the raw parameters. A path
    may be shortened to a unique suffix, such as `hyperparameters.lengthscale`. `standardized(path)` is the value in
    standardized units. `mean` is the constant mean.

    Args:
        values: The initial values.

    Examples:
        >>> import rfgp
        >>> gp = rfgp.GP(rfgp.kernels.RBF(lengthscale=2.0), start={"noise": 0.1}, seed=0)
        >>> gp = gp.condition([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.5])
        >>> gp.hyperparameters.set(noise=0.2)
        >>> round(gp.hyperparameters["noise"].item(), 3)
        0.2
    """

    def __init__(self, values: ParameterValues) -> None:
        super().__init__()
        self._space = values.space
        raw = {_key(name): nn.Parameter(value) for name, value in values.detached().raw.items()}
        mean = raw.pop("mean")
        self.raw = nn.ParameterDict(raw)
        self.raw["mean"] = mean

    @property
    def space(self) -> ParameterSpace:
        """The space of the hyperparameters."""
        return self._space

    @property
    def values(self) -> ParameterValues:
        """The current values, differentiable in the raw parameters."""
        return ParameterValues(self._space, {name: self.raw[_key(name)] for name in self._space.names})

    @property
    def quantities(self) -> Mapping[str, Hyperparameter]:
        """The hyperparameters except the mean, by name."""
        return self._space.quantities

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all hyperparameters, "mean" last."""
        return self._space.names

    def standardized(self, name: str) -> Tensor:
        """Return a hyperparameter in standardized units, 0-d or (d,).

        Args:
            name: The path, or a unique end of it. The mean of k outputs is (k,).
        """
        return self.values.standardized(self.path(name))

    def value(self, name: str) -> Tensor:
        """Return a hyperparameter in the user's units, 0-d or (d,).

        Args:
            name: The path, or a unique end of it.
        """
        return self.values.value(self.path(name))

    def log_prior(self) -> Tensor:
        """Return the total log density of the hyperpriors, 0-d."""
        return self.values.log_hyperprior()

    def set(self, **values: Any) -> None:
        """Set hyperparameters by name, in the user's units, in place.

        Args:
            **values: The values by path, or by a unique end of it.

        Raises:
            InvalidArgumentError: If a name is unknown, a value is not positive, or its shape is wrong.
        """
        given = {self.path(name): value for name, value in values.items()}
        new = self.values.with_values(**given).raw
        with torch.no_grad():
            for name in given:
                self.raw[_key(name)].copy_(new[name])

    def path(self, name: str) -> str:
        """Return the path of a hyperparameter, from the path or a unique end of it.

        Args:
            name: The path, or a unique end of it.

        Raises:
            InvalidArgumentError: If there is no such hyperparameter, or several.
        """
        return find_path(name, self.names)

    def __getitem__(self, name: str) -> Tensor:
        return self.value(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __setitem__(self, name: str, value: Any) -> None:
        self.set(**{name: value})

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getattr__(self, name: str) -> Any:
        if self._means_one(name):
            return self.value(name)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._means_one(name):
            self.set(**{name: value})
        else:
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        own = {name for name in vars(type(self)) if not name.startswith("_")}
        ends = {name.rpartition(".")[2] for name in self.names}
        return sorted({*filter(self._means_one, ends), *own, *_OF_MODULES})

    def _means_one(self, name: str) -> bool:
        """Return whether a name is a path or the end of exactly one."""
        space = self.__dict__.get("_space")
        names = () if space is None else space.names
        return name in names or sum(path.endswith(f".{name}") for path in names) == 1

    def __repr__(self) -> str:
        return f"Hyperparameters({self.values})"


_OF_MODULES = ("raw", "parameters", "named_parameters", "state_dict", "load_state_dict", "zero_grad")
"""The members that `dir()` lists. A torch module has many more."""


def _key(name: str) -> str:
    """Return a path without dots, which torch refuses in names of parameters."""
    return name.replace(".", "/")
