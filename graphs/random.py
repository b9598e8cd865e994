"""Counter-based random numbers: a value depends on its keys alone.

A draw is keyed by integers, for example by (seed, role, start node, walker, step). Walks therefore do not change with
the number of threads, the size of chunks, or the other start nodes.

The mixing function is the finalizer of splitmix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
generators", OOPSLA). The same expressions serve numpy arrays here and the compiled loops of `graphs.walks.loops`.
"""

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

GENERATOR_VERSION = 2
"""The version of the generator. Raise it if the same seed no longer gives the same walks."""

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_1 = np.uint64(30)
_SHIFT_2 = np.uint64(27)
_SHIFT_3 = np.uint64(31)
_DROPPED_BITS = np.uint64(12)
_UNIT = 2.0**-52


class Role(IntEnum):
    """The independent streams of one seed.

    Examples:
        >>> from graphs.random import Role
        >>> [role.name for role in Role]
        ['LENGTHS', 'STEPS', 'STARTS']
    """

    LENGTHS = 1
    STEPS = 2
    STARTS = 3


def mix(state: Any) -> Any:
    """Return well-mixed bits of a state, uint64, as a scalar or an array.

    Args:
        state: A uint64, or an array of them.

    Examples:
        >>> import numpy as np
        >>> from graphs.random import mix
        >>> hex(int(mix(np.zeros(1, dtype=np.uint64))[0]))
        '0xe220a8397b1dcdaf'
    """
    state = state + GOLDEN
    state = (state ^ (state >> _SHIFT_1)) * _MULTIPLIER_1
    state = (state ^ (state >> _SHIFT_2)) * _MULTIPLIER_2
    return state ^ (state >> _SHIFT_3)


def to_unit(bits: Any) -> Any:
    """Map uint64 bits to the open interval (0, 1), using 52 bits plus one half.

    Args:
        bits: A uint64, or an array of them.

    Examples:
        >>> import numpy as np
        >>> from graphs.random import to_unit
        >>> to_unit(np.array([2**63], dtype=np.uint64)).round(12).tolist()
        [0.5]
    """
    return ((bits >> _DROPPED_BITS) + 0.5) * _UNIT


def stream(seed: int, role: Role) -> NDArray[np.uint64]:
    """Return the key (1,) of one role of a seed.

    Args:
        seed: The seed, an integer from 0.
        role: The role.

    Examples:
        >>> from graphs import random
        >>> bool(random.stream(0, random.Role.LENGTHS) != random.stream(0, random.Role.STEPS))
        True
    """
    return derive(np.array([seed % 2**64], dtype=np.uint64), np.array([int(role)]))


def derive(
    key: NDArray[np.uint64],  # (...)
    index: NDArray[Any],  # (...), integers >= 0, broadcast against key
) -> NDArray[np.uint64]:  # (...)
    """Return the child keys of `key` at `index`.

    Args:
        key: Keys (...).
        index: Integers (...) from 0, broadcast against the keys.

    Examples:
        >>> import numpy as np
        >>> from graphs import random
        >>> key = random.stream(0, random.Role.LENGTHS)
        >>> len(set(random.derive(key, np.arange(100)).tolist()))
        100
    """
    return np.asarray(mix(key ^ mix(index.astype(np.uint64))), dtype=np.uint64)


def uniforms(key: NDArray[np.uint64], index: NDArray[Any]) -> NDArray[np.float64]:
    """Return a uniform in (0, 1) for each child of `key` at `index`, broadcast.

    Args:
        key: Keys (...).
        index: Integers (...) from 0, broadcast against the keys.

    Examples:
        >>> import numpy as np
        >>> from graphs import random
        >>> key = random.stream(0, random.Role.LENGTHS)
        >>> u = random.uniforms(key, np.arange(1000))
        >>> bool((0 < u).all() and (u < 1).all()), round(float(u.mean()), 1)
        (True, 0.5)
    """
    return np.asarray(to_unit(derive(key, index)), dtype=np.float64)
