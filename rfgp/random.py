"""Seeds and generators. Randomness is always passed in; there is no global random state."""

import secrets
from enum import IntEnum

import numpy as np
import torch

from rfgp.errors import InvalidArgumentError


class Role(IntEnum):
    """The independent child streams of one seed."""

    FREQUENCIES = 1
    SPLIT = 2
    DATA = 3
    SAMPLE = 4
    BATCHES = 5
    FUNCTIONS = 6
    CHECK = 7
    ORDER = 8
    INDUCING = 9
    CHOICE = 10
    TERMS = 11


def resolve_seed(seed: int | None) -> int:
    """Return `seed` as an int in [0, 2^63), taking one from the system where it is None.

    Raises:
        InvalidArgumentError: `seed` is not an integer in that range.
    """
    if seed is None:
        return secrets.randbits(63)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= int(seed) < 2**63:
        raise InvalidArgumentError(f"seed must be an integer from 0 to 2**63 - 1 or None, got {seed!r}.")
    return int(seed)


def child_seed(seed: int, *key: int) -> int:
    """Return the seed in [0, 2^63) of a child stream, independent of its siblings."""
    state = np.random.SeedSequence(seed, spawn_key=key).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


def generator(seed: int, *key: int) -> torch.Generator:
    """Return a CPU generator for a child stream of `seed`."""
    return torch.Generator().manual_seed(child_seed(seed, *key))


def numpy_generator(seed: int, *key: int) -> np.random.Generator:
    """Return a numpy generator for a child stream of `seed`."""
    return np.random.default_rng(np.random.SeedSequence(resolve_seed(seed), spawn_key=key))


def chosen(seed: int | None, given: torch.Generator | None, *key: int) -> torch.Generator:
    """Return the CPU generator that a caller gave, or that of a child stream of his seed, or of one from the system.

    Raises:
        InvalidArgumentError: both are given, or something else.
    """
    if given is None:
        return generator(resolve_seed(seed), *key)
    if seed is not None:
        raise InvalidArgumentError("Give a seed or a generator, not both.")
    if not isinstance(given, torch.Generator):
        raise InvalidArgumentError(f"generator must be a torch.Generator, got {given!r}.")
    return given
