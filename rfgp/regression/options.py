"""Options of a model, and of a noise that depends on the inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch

from rfgp import random
from rfgp.approximations import Approximation, Exact
from rfgp.approximations.planning import AUTO, read_approximation
from rfgp.approximations.role import TermData
from rfgp.columns.indicators import Indicators
from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError
from rfgp.kernels import Kernel, Sum
from rfgp.kernels.kernel import transformed
from rfgp.kernels.role import Key
from rfgp.likelihoods import Gaussian, Likelihood, by_name
from rfgp.parameters import Hyperprior, ParameterValues
from rfgp.rows import Block
from rfgp.spectra.spectrum import positive

# --- The kernel of the logarithm of the noise, approximations of its terms, and bounds of the noise ------------------

NOISE_BOUNDS = (1e-6, 1e2)
"""The bounds of the noise variance, in variances of the targets."""
PREFIX = "noise."
"""The prefix of the terms of the noise, and of the dotted names of their hyperparameters."""


def check_kernel(likelihood: Likelihood) -> None:
    """Check that the kernel of the noise is a kernel.

    Args:
        likelihood: The likelihood.

    Raises:
        InvalidArgumentError: If it is another object.
    """
    kernel = likelihood.noise_kernel
    if kernel is not None and not isinstance(kernel, Kernel):
        raise InvalidArgumentError(f"The kernel of the noise must be a kernel such as k.RBF(), got {kernel!r}.")


def noise_kernel(likelihood: Likelihood, kernel: Kernel, keys: Sequence[Key]) -> Kernel | None:
    """Return the kernel of the noise with explicit columns and prefixed names.

    Args:
        likelihood: The likelihood.
        kernel: The kernel of the function.
        keys: All columns but the target.

    Raises:
        InvalidArgumentError: If the name of a term of the function begins with the prefix.
    """
    if likelihood.noise_kernel is None:
        return None
    taken = [term.name for term in kernel.terms() if f"{term.name}.".startswith(PREFIX)]
    if taken:
        raise InvalidArgumentError(
            f"The name of a term must not begin with {PREFIX[:-1]!r} if the noise has a kernel, got {taken[0]!r}. "
            "Give the term another name."
        )
    of_noise = transformed(likelihood.noise_kernel, lambda factor: factor.expanded(keys))
    return Sum(tuple(replace(term, name=f"{PREFIX}{term.name}") for term in of_noise.terms()))


def by_process(approximation: Any, function: Sequence[TermData], noise: Sequence[TermData]) -> tuple[Any, Any]:
    """Return the approximations of the terms of the function, and those of its noise.

    A single approximation applies to both, or only to the one that supports it.

    Args:
        approximation: "auto", an approximation, or a dict by the names of terms.
        function: The terms of the function.
        noise: The terms of the noise, possibly empty.
    """
    if not noise:
        return approximation, AUTO
    if isinstance(approximation, Mapping):
        names = [name for name in approximation if name.startswith(PREFIX)]
        return {n: a for n, a in approximation.items() if n not in names}, {n: approximation[n] for n in names}
    if not isinstance(approximation, Approximation):
        return approximation, approximation
    supports = [any(approximation.unsupported_reason(data) is None for data in terms) for terms in (function, noise)]
    for_function, for_noise = (
        approximation if is_supported or not any(supports) else AUTO for is_supported in supports
    )
    return for_function, for_noise


def with_least_noise(
    values: ParameterValues, approximations: Mapping[str, Approximation], terms: Sequence[TermData], rows: Block
) -> ParameterValues:
    """Return values with the smallest noise that approximations of all terms allow.

    Args:
        values: The hyperparameters.
        approximations: The approximations by the names of terms.
        terms: The terms.
        rows: Some of the rows. In single precision the bound is that of features.
    """
    if "noise" not in values.space.quantities:
        return values
    is_single = torch.float32 in (rows.inputs.dtype, rows.targets.dtype)
    least = (
        NOISE_BOUNDS[0]
        if is_single
        else max(approximations[term_data.term.name].least_noise(term_data) for term_data in terms)
    )
    noise = values.space.quantities["noise"]
    noise = replace(noise, bounds=(noise.bounds[0] * (least / NOISE_BOUNDS[0]), noise.bounds[1]))
    return replace(values, space=replace(values.space, quantities={**values.space.quantities, "noise": noise}))


# --- Options of a model ----------------------------------------------------------------------------------------------

MEANS = ("constant", "zero")
"""Mean functions."""


@dataclass(frozen=True)
class ModelOptions:
    """The options of `rfgp.GP`.

    Attributes:
        kernel: The kernel.
        likelihood: The likelihood, or its name.
        approximations: "auto", an approximation, or a dict by the names of terms.
        inference: "laplace" or "variational". If None, the default of the likelihood.
        mean: "constant", or "zero".
        standardize: Whether numbers and targets are standardized.
        start: Starting values by dotted name or unique suffix, in the user's units.
        priors: Log densities by dotted name or unique suffix.
        seed: The random seed.
        dtype: The dtype of the rows. If None, that of the data.
        budget: The number of features that the terms with random features share. If None, they share none.
        memory: The memory limit in bytes. If None, a fixed fraction of the machine's memory.
        time_limit: The time limit of a fit in seconds. If None, there is none. It is not part of a saved model.
        alternatives: A few kernels on the same columns by name. All are fitted, and the best by leave-one-out is kept.
            If empty, the fit keeps `kernel`.
        search_space: The candidates of kernel="auto" with approximations, eliminated in rounds of `rfgp.selection`. If
            None, the fit keeps `kernel`.
        selects_noise: Whether a fit chooses the noise after the kernel, from scales of residuals.
        indicators: The levels of columns that are read as indicators, by key. Known with data if the kernel is
            selected.
        starts: Starting values by dotted name. Known with data.
        hyperpriors: Log densities by dotted name. Known with data.

    Raises:
        InvalidArgumentError: If an option has a wrong type or value.

    Examples:
        >>> from rfgp import kernels as k
        >>> ModelOptions(k.RBF(), seed=3).seed
        3
    """

    kernel: Kernel
    likelihood: Any = "gaussian"
    approximations: Any = "auto"
    inference: str | None = None
    mean: str = "constant"
    standardize: bool = True
    start: Mapping[str, Any] = field(default_factory=dict)
    priors: Mapping[str, Hyperprior | None] = field(default_factory=dict)
    seed: Any = None
    dtype: torch.dtype | None = None
    budget: int | None = None
    memory: float | None = None
    time_limit: float | None = None
    alternatives: Mapping[str, Kernel] = field(default_factory=dict)
    search_space: Any = None
    selects_noise: bool = False
    indicators: Indicators = field(default_factory=dict)
    starts: Mapping[str, Any] = field(default_factory=dict)
    hyperpriors: Mapping[str, Hyperprior | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise InvalidArgumentError(f'kernel must be a kernel such as k.RBF(), or "auto", got {self.kernel!r}.')
        object.__setattr__(self, "likelihood", by_name(self.likelihood))
        if isinstance(self.likelihood, Gaussian) and self.likelihood.noise is not None:
            raise InvalidArgumentError(
                f"likelihood must not have a noise, got {self.likelihood!r}. Use noise= of the model."
            )
        check_kernel(self.likelihood)
        check_inference(self.inference, self.likelihood)
        object.__setattr__(self, "approximations", read_approximation(self.approximations))
        if self.mean not in MEANS:
            raise InvalidArgumentError(f"mean must be one of {', '.join(MEANS)}, got {self.mean!r}.")
        for name in ("start", "priors"):
            value = getattr(self, name)
            if not isinstance(value, Mapping):
                raise InvalidArgumentError(
                    f"{name} must be a dict by the dotted names of hyperparameters, got {value!r}."
                )
        if self.budget is not None:
            object.__setattr__(self, "budget", check_count("budget", self.budget))
        if self.memory is not None:
            object.__setattr__(self, "memory", positive("memory", self.memory))
        object.__setattr__(self, "seed", random.resolve_seed(self.seed))

    @property
    def has_matrices(self) -> bool:
        """Whether the user requested exact terms only, as `rfgp.ExactGP` does."""
        return all(isinstance(approximation, Exact) for approximation in self._given)

    @property
    def _given(self) -> list[Any]:
        """The approximations from the user."""
        given = self.approximations
        return list(given.values()) if isinstance(given, Mapping) else [given]

    def changed(self, **changes: Any) -> Self:
        """Return the options with some changed."""
        return replace(self, **changes)


def check_inference(inference: str | None, likelihood: Likelihood) -> None:
    """Check that a likelihood supports an approximation of the posterior.

    Args:
        inference: The approximation of the posterior, such as "laplace". If None, the default of the likelihood.
        likelihood: The likelihood.

    Raises:
        InvalidArgumentError: If it does not. The message names the supported ones.
    """
    known = likelihood.approximations
    if inference is not None and inference not in known:
        options = " or ".join(map(repr, known)) if known else "None"
        raise InvalidArgumentError(f"inference must be {options} for {likelihood!r}, got {inference!r}.")
