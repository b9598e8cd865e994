"""The kernel of the logarithm of the noise: the names of its terms, and their approximations."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rfgp.approximations import Approximation
from rfgp.approximations.planning import AUTO
from rfgp.approximations.role import TermData
from rfgp.errors import InvalidArgumentError
from rfgp.kernels import Kernel, Sum
from rfgp.kernels.arguments import Key
from rfgp.kernels.kernel import transformed
from rfgp.likelihoods import Likelihood

PREFIX = "noise."
"""The beginning of the names of the terms of the noise, and of the paths of their hyperparameters."""


def check_kernel(likelihood: Likelihood) -> None:
    """Refuse a kernel of the noise that is none.

    Raises:
        InvalidArgumentError: it is of another class.
    """
    kernel = likelihood.noise_kernel
    if kernel is not None and not isinstance(kernel, Kernel):
        raise InvalidArgumentError(f"The kernel of the noise must be a kernel such as k.RBF(), got {kernel!r}.")


def noise_kernel(likelihood: Likelihood, kernel: Kernel, keys: Sequence[Key]) -> Kernel | None:
    """Return the kernel of the noise with explicit columns and names that begin with the prefix. None without one.

    Args:
        likelihood: The likelihood.
        kernel: The kernel of the function.
        keys: All columns but the target.

    Raises:
        InvalidArgumentError: a term of the function has such a name.
    """
    if likelihood.noise_kernel is None:
        return None
    taken = [term.name for term in kernel.terms() if f"{term.name}.".startswith(PREFIX)]
    if taken:
        raise InvalidArgumentError(
            f"The name of a term must not begin with {PREFIX[:-1]!r} if the noise has a kernel, got {taken[0]!r}. "
            "Give the term another name."
        )
    own = transformed(likelihood.noise_kernel, lambda factor: factor.expanded(keys))
    return Sum(tuple(replace(term, name=f"{PREFIX}{term.name}") for term in own.terms()))


def by_process(approximation: Any, function: Sequence[TermData], noise: Sequence[TermData]) -> tuple[Any, Any]:
    """Return the approximations of the function, and those of its noise.

    One value is for both, unless it serves the terms of one of them only.

    Args:
        approximation: "auto", an approximation, or a dict by the names of terms.
        function: The terms of the function.
        noise: The terms of the noise. There may be none.
    """
    if not noise:
        return approximation, AUTO
    if isinstance(approximation, Mapping):
        names = [name for name in approximation if name.startswith(PREFIX)]
        return {n: a for n, a in approximation.items() if n not in names}, {n: approximation[n] for n in names}
    if not isinstance(approximation, Approximation):
        return approximation, approximation
    serves = [any(approximation.refusal(data) is None for data in terms) for terms in (function, noise)]
    own, other = (approximation if one or not any(serves) else AUTO for one in serves)
    return own, other
