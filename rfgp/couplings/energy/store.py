"""Solved directions: bundled with the package, kept in the user's cache folder, or solved now."""

import hashlib
import io
import json
import os
import threading
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rfgp.couplings.energy import solver
from rfgp.couplings.energy.solver import Problem, ProgressCallback, Solution
from rfgp.errors import CacheWarning
from rfgp.files import cache_folder, sweep, write_atomically

BUNDLED = Path(__file__).with_name("solved.npz")

MAX_BYTES_IN_MEMORY = 2**27
"""The bytes of solutions above which the oldest ones are dropped from memory."""
memory: dict[str, Solution] = {}
"""Solutions by their keys, the oldest first, until the process ends."""
lock = threading.RLock()


def _unlock_in_child() -> None:
    """Renew the lock in a forked process.

    The process must not wait for a thread of its parent.
    """
    global lock
    lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_in_child)


def solution(problem: Problem, n: int, *, full: bool, progress: ProgressCallback | None = None) -> Solution:
    """Return the solution of a problem for n frequencies.

    On one kind of processor it is the same from each source. The key of a file covers the version of the solver and all
    that the solution depends on. Files are written atomically and checked when they are read, so processes may share
    the folder. A damaged file is solved again.

    Args:
        problem: The problem.
        n: The number of directions.
        full: Whether there is no time limit.
        progress: Called with the number of steps done and the number of all steps. If None, it is not called.

    Warns:
        CacheWarning: If the solution could not be kept.

    Examples:
        >>> from rfgp import couplings, spectra
        >>> problem = couplings.Energy().problem(4, spectra.Gaussian())
        >>> solution(problem, 4, full=False).directions.tolist()[0]  # orthogonal ones, which need no search
        [1.0, 0.0, 0.0, 0.0]
    """
    key = key_of(problem, n, full=full)
    with lock:  # threads wait for each other; processes may solve the same twice
        if key not in memory:
            solved = bundled().get(key) or read(key, n, problem.num_dims)
            if solved is None:
                solved = solver.solve(problem, n, full=full, progress=progress)
                if solved.num_steps or solved.num_blocks > 1:  # otherwise there was nothing to solve
                    write(key, solved)
            _remember(key, solved)
        return memory[key]


@lru_cache(maxsize=64)
def key_of(problem: Problem, n: int, *, full: bool) -> str:
    """Return the key of a solution: a digest of all that it depends on.

    Args:
        problem: The problem.
        n: The number of directions.
        full: Whether there is no time limit.

    Examples:
        >>> from rfgp import couplings, spectra
        >>> problem = couplings.Energy().problem(4, spectra.Gaussian())
        >>> len(key_of(problem, 8, full=False)), key_of(problem, 8, full=True) == key_of(problem, 9, full=True)
        (32, False)
    """
    potential = problem.potential
    content = {  # names of an earlier version stay, so that keys do not change
        "version": solver.VERSION,
        "features": potential.kind,
        "distances": [value.hex() for value in potential.distances.tolist()],
        "strengths": [round(value, 9) for value in potential.log_distance_weights.tolist()],
        "spectrum": repr(problem.spectrum),
        "shape": [n, problem.num_dims],
        "weighted": problem.weighted,
        "broadening": problem.proposal_scale,
        "tilt": problem.proposal_histogram,
        "plan": solver.plan(n, problem.num_dims, full),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def bundle(solutions: dict[str, Solution], path: Path = BUNDLED) -> None:
    """Write the solutions that are part of the package.

    `tests/support/bundle.py` calls it.

    Args:
        solutions: The solutions by their keys.
        path: The file. The default is in the package.

    Examples:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "solved.npz")
        >>> bundle({"key": solver.Solution(np.eye(2, dtype=np.float16), 1.0, 0, 1)}, path)
        >>> sorted(np.load(path, allow_pickle=False).files)
        ['key.directions', 'key.meta']
    """
    content = {f"{key}.{name}": value for key, solved in solutions.items() for name, value in _arrays(solved).items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **content)
    write_atomically(path, buffer.getvalue())


def _arrays(solved: Solution) -> dict[str, Any]:
    meta = np.array([solved.proposal_scale, solved.num_steps, solved.num_blocks], np.float64)
    return {"directions": solved.directions, "meta": meta}


def _solution(directions: Any, meta: Any) -> Solution:
    return Solution(directions, float(meta[0]), int(meta[1]), int(meta[2]))


@lru_cache(maxsize=1)
def bundled() -> dict[str, Solution]:
    """Return the solutions that are part of the package, by their keys.

    Examples:
        >>> all(len(key) == 32 for key in bundled())
        True
    """
    if not BUNDLED.exists():
        return {}
    with np.load(BUNDLED, allow_pickle=False) as content:
        keys = {name.partition(".")[0] for name in content.files}
        return {key: _solution(content[f"{key}.directions"], content[f"{key}.meta"]) for key in keys}


def _path(key: str) -> Path:
    return cache_folder() / "energy" / f"{key}.npz"


def read(key: str, n: int, d: int) -> Solution | None:
    """Return a solution from the cache folder, or None if there is no valid one.

    Args:
        key: The key, from `key_of`.
        n: The number of directions.
        d: The number of dimensions.

    Examples:
        >>> read("no-such-key", 2, 2) is None
        True
    """
    try:
        content = _path(key).read_bytes()
        digest, payload = content[:32], content[32:]
        if hashlib.sha256(payload).digest() != digest:
            return None
        with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
            directions, meta = arrays["directions"], arrays["meta"]
            if meta.shape != (3,) or meta.dtype != np.float64 or not np.isfinite(meta).all() or meta[0] <= 0:
                return None
            solved = _solution(directions, meta)
    except Exception:  # numpy and zip raise many errors for damaged bytes; the problem is then solved again
        return None
    fits = solved.directions.shape == (n, d) and solved.directions.dtype == np.float16
    return solved if fits and np.isfinite(solved.directions).all() else None


def write(key: str, solved: Solution) -> None:
    """Write a solution to the cache folder, with a checksum of its bytes.

    Args:
        key: The key, from `key_of`.
        solved: The solution.

    Warns:
        CacheWarning: If it could not be kept.

    Examples:
        >>> import tempfile
        >>> from unittest import mock
        >>> with mock.patch.dict(os.environ, RFGP_CACHE_DIR=tempfile.mkdtemp()):
        ...     write("key", solver.Solution(np.eye(2, dtype=np.float16), 1.0, 300, 1))
        ...     read("key", 2, 2).num_steps
        300
    """
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **_arrays(solved))
    payload = buffer.getvalue()
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, hashlib.sha256(payload).digest() + payload)
        sweep(path.parent, ".*")
    except OSError as error:
        warnings.warn(
            f"Solved directions could not be kept in {path.parent}: {error.strerror or error}. The next process solves "
            "them again. Set RFGP_CACHE_DIR to another folder.",
            CacheWarning,
            stacklevel=2,
        )


def _remember(key: str, solved: Solution) -> None:
    while memory and sum(kept.directions.nbytes for kept in memory.values()) > MAX_BYTES_IN_MEMORY:
        del memory[next(iter(memory))]
    memory[key] = solved
