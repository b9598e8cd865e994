"""Hyperparameters as a torch module that users read, set and differentiate."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rfgp.errors import NotFittedError
from rfgp.parameters import Hyperparameter, ParameterSpace, ParameterValues, find_path

LEVELS = (0.05, 0.5, 0.95)
"""The levels of quantiles of the posterior of hyperparameters."""


@dataclass(frozen=True, repr=False)
class HyperparameterPosterior:
    """The posterior of the hyperparameters that a fit with hyperparameter_posterior="integrated" integrated over.

    Entries are in the order of `names`. Those of a vector have names such as "rbf.lengthscale[0]". Means, deviations
    and quantiles are in the user's units. `raw_means`, `raw_deviations` and `correlations` are of unconstrained
    coordinates: the logarithms of standardized values, and the mean in deviations of the target. For positive
    hyperparameters `raw_deviations` is the standard deviation of the logarithm.

    Attributes:
        names: The integrated hyperparameters.
        at_mode: Free hyperparameters that stay at the mode: they are at a bound, or the data give less curvature than
            their prior alone.
        means: The means.
        deviations: The standard deviations.
        quantiles: The quantiles of 5 %, 50 % and 95 % of each.
        raw_means: The means of unconstrained coordinates.
        raw_deviations: Their standard deviations.
        correlations: Their correlations, one row for each hyperparameter.
        weights: The weights of the averaged models of the design, the mode first.
        num_points: The number of points of the design. Points of a weight below 1e-4 are dropped.
        evaluations: The number of evaluations of the posterior density.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 10, 30)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.3 * np.random.default_rng(0).standard_normal(30)
        >>> gp = rfgp.GP(rfgp.kernels.RBF(), hyperparameter_posterior="integrated", seed=0).fit(X, y)
        >>> posterior = gp.hyperparameters.posterior()
        >>> posterior.names, posterior.num_points
        (('rbf.lengthscale[0]', 'rbf.outputscale', 'noise', 'mean'), 49)
        >>> low, median, high = posterior.quantiles[0]
        >>> bool(low < median < high)
        True
    """

    names: tuple[str, ...]
    at_mode: tuple[str, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]
    quantiles: tuple[tuple[float, ...], ...]
    raw_means: tuple[float, ...]
    raw_deviations: tuple[float, ...]
    correlations: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    num_points: int
    evaluations: int

    @property
    def is_consistent(self) -> bool:
        """Whether all parts have a value for each name."""
        parts = (self.means, self.deviations, self.quantiles, self.raw_means, self.raw_deviations, self.correlations)
        sizes = {*map(len, parts), *map(len, self.correlations)} | {len(self.names)}
        return len(sizes) == 1 and {*map(len, self.quantiles)} <= {len(LEVELS)}

    def __repr__(self) -> str:
        at_mode = f", at the mode: {', '.join(self.at_mode)}" if self.at_mode else ""
        return f"HyperparameterPosterior({', '.join(self.names)}, {self.num_points} points{at_mode})"

    def __str__(self) -> str:
        width = max(map(len, (*self.names, *self.at_mode, "hyperparameter")))
        lines = [f"{'hyperparameter':<{width}} {'mean':>10} {'deviation':>10} {'5 %':>10} {'50 %':>10} {'95 %':>10}"]
        for name, mean, deviation, levels in zip(self.names, self.means, self.deviations, self.quantiles, strict=True):
            lines.append(f"{name:<{width}} " + " ".join(f"{v:>10.4g}" for v in (mean, deviation, *levels)))
        return "\n".join([*lines, *(f"{name:<{width}} at the mode" for name in self.at_mode)])


class Hyperparameters(nn.Module):
    """The hyperparameters of a model by path, as a torch module.

    `hyperparameters["trend.lengthscale"]` is a value in the user's units, differentiable in the raw parameters. A path
    may be shortened to a unique suffix, such as `hyperparameters.lengthscale`. `standardized(path)` is the value in
    standardized units. `mean` is the constant mean.

    Args:
        values: The initial values.
        posterior: Their posterior. If None, it is not known.

    Examples:
        >>> import rfgp
        >>> gp = rfgp.GP(rfgp.kernels.RBF(lengthscale=2.0), start={"noise": 0.1}, seed=0)
        >>> gp = gp.condition([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.5])
        >>> gp.hyperparameters.set(noise=0.2)
        >>> round(gp.hyperparameters["noise"].item(), 3)
        0.2
    """

    def __init__(self, values: ParameterValues, posterior: HyperparameterPosterior | None = None) -> None:
        super().__init__()
        self._space, self._posterior = values.space, posterior
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

    def posterior(self) -> HyperparameterPosterior:
        """Return means, standard deviations, quantiles and correlations of the integrated hyperparameters.

        They are those of the last fit. Later changes of hyperparameters or rows do not change them.

        Raises:
            NotFittedError: If the last fit did not integrate over hyperparameters.
        """
        if self._posterior is None:
            raise NotFittedError(
                "The posterior of hyperparameters requires a fit that integrates over them. Fit a model with "
                "hyperparameter_posterior='integrated', or sample gp.log_density."
            )
        return self._posterior

    def unconstrained(self, fixed: Iterable[str] = ()) -> Tensor:
        """Return the current values in unconstrained coordinates, (p,), float64.

        They are the logarithms of standardized values, and the mean in standard deviations of the target, in the order
        of `names`.

        Args:
            fixed: Names of hyperparameters to leave out. Those that no fit changes, such as given periods, always are.

        Raises:
            InvalidArgumentError: If there is no such hyperparameter.
        """
        return torch.from_numpy(self.values.vector(self._space.free(fixed)))

    def at(self, values: Any, fixed: Iterable[str] = ()) -> dict[str, Tensor]:
        """Return all hyperparameters in the user's units by name, at unconstrained coordinates.

        Args:
            values: The coordinates of `unconstrained(fixed)`, (p,).
            fixed: The names that are left out.

        Examples:
            >>> import rfgp
            >>> gp = rfgp.GP(rfgp.kernels.RBF(), seed=0).condition([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.5])
            >>> x = gp.hyperparameters.unconstrained(fixed="mean")
            >>> list(gp.hyperparameters.at(x, fixed="mean")) == list(gp.hyperparameters.names), x.shape
            (True, torch.Size([3]))
        """
        vector = torch.as_tensor(values, dtype=torch.float64).detach().cpu().numpy()
        moved = self.values.detached().moved(self._space.free(fixed), vector)
        return {name: moved.value(name) for name in moved.space.names}

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
