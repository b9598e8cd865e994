"""Terms of a posterior by their names, and checks that posteriors have in common."""

from collections.abc import Sequence
from typing import Any

from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError

MOST_JOINT = 2000
"""The most points whose joint covariance is solved for at once."""


def known_terms(prior: Prior, names: Sequence[str]) -> tuple[str, ...]:
    """Return names of terms of a prior.

    Raises:
        InvalidArgumentError: there is no such term, or none is named.
    """
    known = prior.names
    if not names:
        raise InvalidArgumentError(f"At least one term must be named, got none. The terms are {', '.join(known)}.")
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise InvalidArgumentError(f"There is no term {', '.join(unknown)}. The terms are {', '.join(known)}.")
    return tuple(names)


def check_divided(prior: Prior, *sums: Sequence[str]) -> None:
    """Raise if sums of terms have different parts of a block of neighbors that is read as one process.

    Args:
        prior: The prior.
        sums: The names of the terms of each sum.

    Raises:
        InvalidArgumentError: they have.
    """
    block = prior.neighbors
    parts = [] if block is None else [tuple(bool(flag) for flag in block.flags(names)) for names in sums]
    if block is not None and len({part for part in parts if any(part)}) > 1:
        raise InvalidArgumentError(
            f"The terms {', '.join(block.names)} have latent neighbors of their sum, which is not divided here. Use "
            "Vecchia(condition_on='responses')."
        )


def check_joint(count: int, points: str, advice: str = "", most: int = MOST_JOINT) -> None:
    """Raise unless a joint covariance of so many points may be solved for.

    Args:
        count: The number of points.
        points: What they are called.
        advice: What else can be done.
        most: The limit.

    Raises:
        InvalidArgumentError: there are more.
    """
    if count > most:
        raise InvalidArgumentError(
            f"A joint covariance of {count} {points} is asked for; at most {most} are solved for at once. Ask for "
            f"fewer{advice}."
        )


def make_contiguous(state: Any, *names: str) -> None:
    """Make tensors of a frozen object contiguous, as they are in files: the last bits of products depend on it."""
    for name in names:
        object.__setattr__(state, name, getattr(state, name).contiguous())
