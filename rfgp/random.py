"""Seeds and generators. Randomness is always an argument, and there is no global random state."""

from enum import IntEnum

import numpy as np
import torch

from graphs.checks import resolve_seed as resolve_seed
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
    CALIBRATION = 12


def child_seed(seed: int, *key: int) -> int:
    """Return the seed in [0, 2^63) of a child stream, independent of its siblings.

    Args:
        seed: The seed.
        key: The integers that identify the child stream, such as a `Role`.

    Examples:
        >>> child_seed(0, Role.FREQUENCIES) != child_seed(1, Role.FREQUENCIES)
        True
    """
    state = np.random.SeedSequence(seed, spawn_key=key).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


def generator(seed: int, *key: int) -> torch.Generator:
    """Return a CPU generator for a child stream of a seed.

    Args:
        seed: The seed.
        key: The integers that identify the child stream, such as a `Role`.

    Examples:
        >>> torch.equal(torch.rand(2, generator=generator(0)), torch.rand(2, generator=generator(0)))
        True
    """
    return torch.Generator().manual_seed(child_seed(seed, *key))


def numpy_generator(seed: int, *key: int) -> np.random.Generator:
    """Return a numpy generator for a child stream of a seed.

    Args:
        seed: The seed.
        key: The integers that identify the child stream, such as a `Role`.

    Examples:
        >>> bool(numpy_generator(0).random() == numpy_generator(0).random())
        True
    """
    return np.random.default_rng(np.random.SeedSequence(resolve_seed(seed), spawn_key=key))


def chosen(seed: int | None, given: torch.Generator | None, *key: int) -> torch.Generator:
    """Return the given CPU generator, or a new one for a child stream of the seed.

    Args:
        seed: An integer. If None and there is no generator, one from the system.
        given: A CPU generator, or None.
        key: The key of the child stream.

    Raises:
        InvalidArgumentError: If both are given, or `given` is not a generator.

    Examples:
        >>> source = generator(0)
        >>> chosen(None, source) is source
        True
    """
    if given is None:
        return generator(resolve_seed(seed), *key)
    if seed is not None:
        raise InvalidArgumentError("seed and generator must not both be given, got two. Leave one out.")
    if not isinstance(given, torch.Generator):
        raise InvalidArgumentError(f"generator must be a torch.Generator, got {given!r}.")
    return given
