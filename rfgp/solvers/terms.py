"""Named terms of a posterior, and checks shared by posteriors."""

from collections.abc import Sequence
from typing import Any

from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError

MAX_JOINT = 2000
"""The maximum number of points with a joint covariance in one solve."""


def known_terms(prior: Prior, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of terms of a prior.

    Args:
        prior: The prior.
        names: The names of terms.

    Raises:
        InvalidArgumentError: If a term is unknown, or none is named.
    """
    known = prior.names
    if not names:
        raise InvalidArgumentError(f"At least one term must be named, got none. Use one of {', '.join(known)}.")
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise InvalidArgumentError(f"There is no term {', '.join(unknown)}. The terms are {', '.join(known)}.")
    return tuple(names)


def check_divided(prior: Prior, *sums: Sequence[str]) -> None:
    """Raise if sums of terms have different parts of a block of neighbors.

    The latent values of the block are those of its sum.

    Args:
        prior: The prior.
        sums: The names of the terms of each sum.

    Raises:
        InvalidArgumentError: If they have.
    """
    block = prior.neighbors
    parts = [] if block is None else [tuple(bool(flag) for flag in block.flags(names)) for names in sums]
    if block is not None and len({part for part in parts if any(part)}) > 1:
        raise InvalidArgumentError(
            f"The terms {', '.join(block.names)} must be predicted together, got a part of them: their latent "
            "neighbors are not divided. Use Vecchia(condition_on='responses')."
        )


def check_joint(count: int, points: str, advice: str = "", max_points: int = MAX_JOINT) -> None:
    """Raise if a joint covariance has too many points.

    Args:
        count: The number of points.
        points: The name of the points in the message.
        advice: A remedy for the message.
        max_points: The maximum number of points.

    Raises:
        InvalidArgumentError: If there are more points.
    """
    if count > max_points:
        raise InvalidArgumentError(
            f"A joint covariance must have at most {max_points} {points}, got {count}. Use fewer{advice}."
        )


def make_contiguous(state: Any, *names: str) -> None:
    """Make tensors of a frozen object contiguous, like loaded ones.

    The last bits of products depend on the memory layout.

    Args:
        state: The object.
        names: The names of the attributes, which are tensors.
    """
    for name in names:
        object.__setattr__(state, name, getattr(state, name).contiguous())
