"""The kernel of the logarithm of the noise, approximations of its terms, and bounds of the noise."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from rfgp.approximations import Approximation
from rfgp.approximations.planning import AUTO
from rfgp.approximations.role import TermData
from rfgp.errors import InvalidArgumentError
from rfgp.kernels import Kernel, Sum
from rfgp.kernels.arguments import Key
from rfgp.kernels.kernel import transformed
from rfgp.likelihoods import Likelihood
from rfgp.parameters import ParameterValues
from rfgp.regression.base_spec import NOISE_BOUNDS
from rfgp.rows import Block

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
