"""The minimization of the energy, and solved directions: bundled with the package, or kept in a process."""

import hashlib
import json
import math
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rfgp import random
from rfgp.couplings.energy.potential import Potential, Repulsion
from rfgp.couplings.orthogonal import haar_blocks
from rfgp.couplings.radial import PROPOSAL_SCALES, RadialDistribution
from rfgp.descent import adam
from rfgp.spectra import Spectrum

# --- Directions of minimal energy (mean squared kernel error up to a constant), by Adam on a product of spheres -------

Array = NDArray[Any]
ProgressCallback = Callable[[int, int], None]
"""Called with the number of steps done and the number of all steps."""

VERSION = 1
"""The version of the solver, part of the keys of stored solutions. Increase it when solutions change."""

FULL_STEPS, _NORM_STEPS = 300, 100
QUICK_PAIRS, BLOCK_PAIRS = 4e8, 2.5e8  # pairs of all steps together: 2.5 and 1.5 s on two cores
_MIN_STEPS = 10
_RATE, _RATE_SCALE = 0.1, 0.01


@dataclass(frozen=True, eq=False)
class Solution:
    """Directions of jointly drawn frequencies.

    The i-th one belongs to the i-th stratum of the norms in ascending order.

    Attributes:
        directions: (n, d), float16. Normalize them after reading.
        proposal_scale: b of `RadialDistribution`.
        num_steps: The number of steps over all pairs.
        num_blocks: The number of equal blocks from which the search started. 1 if there were none.

    Examples:
        >>> Solution(np.array([[3.0, 4.0]], np.float16), 1.0, 0, 1).unit().tolist()
        [[0.6, 0.8]]
    """

    directions: Array
    proposal_scale: float
    num_steps: int
    num_blocks: int

    def unit(self) -> torch.Tensor:
        """Return the directions (n, d), float64, of unit length."""
        directions = torch.as_tensor(self.directions.astype(np.float64))
        unit: torch.Tensor = directions / directions.norm(dim=1, keepdim=True)
        return unit


@dataclass(frozen=True, eq=False)
class Problem:
    """The minimization that determines the directions of jointly drawn frequencies.

    Attributes:
        potential: The energy of pairs.
        spectrum: The spectrum of the norms.
        num_dims: d.
        weighted: Whether the proposal scale is optimized as well.
        proposal_histogram: The heights of `RadialDistribution`. If None, they are equal.
        proposal_scale: b of `RadialDistribution`, if it is not optimized. The default is 1.

    Examples:
        >>> from rfgp import couplings, spectra
        >>> problem = couplings.Energy().problem(3, spectra.Gaussian())
        >>> [len(values) for values in problem.strata(4)]
        [4, 4]
    """

    potential: Potential
    spectrum: Spectrum
    num_dims: int
    weighted: bool
    proposal_histogram: tuple[float, ...] | None
    proposal_scale: float = 1.0

    def strata(self, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the norms in the middle of the strata, and their weights, for b = 1.

        Args:
            n: The number of strata.

        Returns:
            The norms in ascending order and the weights, (n,) each.
        """
        middle = (torch.arange(n, dtype=torch.float64) + 0.5) / n
        return RadialDistribution(self.spectrum, self.num_dims, proposal_histogram=self.proposal_histogram).draw(middle)

    def scale_proposal(self, strata: tuple[torch.Tensor, torch.Tensor], log_b: float) -> tuple[Array, Array]:
        """Return the norms (n,) and weights (n,) of strata for another b.

        Args:
            strata: The norms and weights for b = 1, (n,) each.
            log_b: log b.
        """
        norms, weights = RadialDistribution(self.spectrum, self.num_dims, math.exp(log_b)).scale_proposal(*strata)
        return norms.numpy(), weights.numpy()

    def table_end(self, n: int) -> float:
        """Return the largest distance of two frequencies.

        The top half percent of the norms is left out.

        Args:
            n: The number of frequencies.
        """
        top = self.spectrum.radial_quantile(torch.tensor([min(1 - 0.5 / n, 0.995)]), self.num_dims)
        return 2 * float(top) * (PROPOSAL_SCALES[1] if self.weighted else max(self.proposal_scale, 1.0))


def plan(n: int, d: int, full: bool) -> tuple[int, int]:
    """Return the number of blocks and of joint steps for n frequencies.

    A quick plan takes at most 5 s. If the time allows, it has many steps over all frequencies at once. Otherwise it
    has few steps from rotated copies of one solved block, or none if even these would take too long.

    Args:
        n: The number of frequencies.
        d: The number of dimensions.
        full: Whether there is no time limit.

    Examples:
        >>> plan(100, 10, full=False), plan(4096, 10, full=False)[0] > 1
        ((1, 300), True)
    """
    cost = 1 + d / 50  # of a pair: a fixed part, and two products of d
    joint = int(QUICK_PAIRS / (n**2 * cost))
    if full or joint >= FULL_STEPS or n <= d or d == 1:
        return 1, FULL_STEPS
    largest = max(d, int(math.sqrt(BLOCK_PAIRS / (FULL_STEPS * cost))))
    return -(-n // largest), joint if joint >= _MIN_STEPS else 0


def solve(problem: Problem, n: int, *, full: bool, progress: ProgressCallback | None = None) -> Solution:
    """Return directions for n frequencies. All randomness comes from a fixed seed.

    Args:
        problem: The problem.
        n: The number of directions.
        full: Whether there is no time limit.
        progress: Called with the number of steps done and the number of all steps. If None, it is not called.

    Examples:
        >>> from rfgp import couplings, spectra
        >>> problem = couplings.Energy().problem(2, spectra.Gaussian())
        >>> solve(problem, 6, full=True).directions.shape
        (6, 2)
    """
    num_blocks, num_steps = plan(n, problem.num_dims, full)
    generator = random.generator(0, n, problem.num_dims)
    if n <= problem.num_dims or problem.num_dims == 1:  # orthogonal directions are best, or there is a single one
        start = np.eye(n, problem.num_dims) if problem.num_dims > 1 else np.ones((n, 1))
        log_scale = math.log(problem.proposal_scale)
        if problem.weighted:
            log_scale = _descend(problem, start, 0.0, _NORM_STEPS, progress, optimize_directions=False)[1]
        return Solution(start.astype(np.float16), math.exp(log_scale), _NORM_STEPS if problem.weighted else 0, 1)
    start, log_scale = first_directions(problem, n, num_blocks, generator)
    if num_steps:
        start, log_scale = _descend(problem, start, log_scale, num_steps, progress)
    return Solution(start.astype(np.float16), math.exp(log_scale), num_steps, num_blocks)


def first_directions(problem: Problem, n: int, num_blocks: int, generator: torch.Generator) -> tuple[Array, float]:
    """Return the directions from which the search starts, and log b.

    With one block they are orthogonal blocks in random order. Otherwise they are rotated copies of one solved block,
    with interleaved strata.

    Args:
        problem: The problem.
        n: The number of directions.
        num_blocks: The number of copies of one block.
        generator: A CPU generator.

    Returns:
        The directions, (n, d), and log b.

    Examples:
        >>> from rfgp import couplings, spectra
        >>> problem = couplings.Energy().problem(2, spectra.Gaussian())
        >>> first_directions(problem, 6, 1, torch.Generator().manual_seed(0))[0].shape
        (6, 2)
    """
    d = problem.num_dims
    if num_blocks == 1:
        blocks = haar_blocks(n, d, generator)
        first = 1.1 if problem.weighted else problem.proposal_scale
        return blocks[torch.randperm(n, generator=generator)].numpy(), math.log(first)
    size = -(-n // num_blocks)
    block = solve(problem, size, full=True)
    rotations = haar_blocks(num_blocks * d, d, generator).reshape(num_blocks, d, d)
    copies = block.unit() @ rotations  # (blocks, size, d)
    return copies.transpose(0, 1).reshape(-1, d)[:n].numpy(), math.log(block.proposal_scale)


def _descend(
    problem: Problem,
    start: Array,  # (n, d)
    log_scale: float,
    num_steps: int,
    progress: ProgressCallback | None,
    optimize_directions: bool = True,
) -> tuple[Array, float]:
    """Return directions and log b after Adam steps whose rates decay along a cosine."""
    strata, table_end = problem.strata(len(start)), problem.table_end(len(start))
    repulsion, knots = Repulsion(problem.potential, table_end), np.linspace(0.0, table_end, 4096)
    means = problem.potential.mean_term(knots)
    directions, log_b = start, np.array([log_scale])
    direction_moments = scale_moments = (0.0, 0.0)  # of Adam

    def mean_term(r: Array) -> Array:
        return np.interp(r, knots, means)

    with repulsion.threads():
        for step in range(num_steps):
            fraction = 0.5 * (1 + math.cos(math.pi * step / num_steps))
            norms, weights = problem.scale_proposal(strata, log_b[0])
            frequencies = directions * np.minimum(norms, 1e9)[:, None]  # squares stay finite in float32
            gradient, in_weights = repulsion(frequencies, weights, with_weight_gradient=problem.weighted)
            if problem.weighted:
                radial = (gradient * frequencies).sum(1)
                slope = _scale_slope(problem, mean_term, strata, log_b[0], radial, weights * in_weights)
                change, scale_moments = adam(np.array([slope]), scale_moments, step + 1, _RATE_SCALE * fraction)
                log_b = np.clip(log_b - change, *np.log(PROPOSAL_SCALES))
            if optimize_directions:
                gradient = gradient * norms[:, None]
                gradient -= (gradient * directions).sum(1, keepdims=True) * directions
                change, direction_moments = adam(gradient, direction_moments, step + 1, _RATE * fraction)
                directions = directions - change
                directions /= np.linalg.norm(directions, axis=1, keepdims=True)
            if progress is not None:
                progress(step + 1, num_steps)
    return directions, float(log_b[0])


def _scale_slope(
    problem: Problem,
    mean_term: Callable[[Array], Array],
    strata: tuple[torch.Tensor, torch.Tensor],
    log_b: float,
    radial: Array,
    in_logs: Array,
) -> float:
    """Return the derivative in log b of the mean squared error over rotations.

    The error is sum_k c_k E (k_hat - k)^2.

    The error is S / n^2 - (2 / n) sum_i w_i M(r_i) plus a constant. The weights in the middle of the strata need not
    add up to n, and the second term penalizes lowering their sum.

    Args:
        problem: The problem.
        mean_term: M, the potential's `mean_term`.
        strata: Norms and weights for b = 1.
        log_b: log b.
        radial: (n,), r_i dS/dr_i.
        in_logs: (n,), w_i dS/dw_i.
    """
    n, step = len(radial), 1e-4
    up, down = (problem.scale_proposal(strata, log_b + sign * step) for sign in (1, -1))
    log_weight_slope = (np.log(up[1]) - np.log(down[1])) / (2 * step)
    mean = sum(sign * (w @ mean_term(r)) for sign, (r, w) in ((1, up), (-1, down))) / (2 * step)
    return float((radial.sum() + in_logs @ log_weight_slope) / n**2 - 2 / n * mean)


# --- Solved directions: bundled with the package, or solved once in a process -----------------------------------------

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

    On one kind of processor it is the same from both sources. The key covers the version of the solver and all that the
    solution depends on.

    Args:
        problem: The problem.
        n: The number of directions.
        full: Whether there is no time limit.
        progress: Called with the number of steps done and the number of all steps. If None, it is not called.

    Examples:
        >>> from rfgp import couplings, spectra
        >>> problem = couplings.Energy().problem(4, spectra.Gaussian())
        >>> solution(problem, 4, full=False).directions.tolist()[0]  # orthogonal ones, which need no search
        [1.0, 0.0, 0.0, 0.0]
    """
    key = key_of(problem, n, full=full)
    with lock:  # threads wait for each other; processes may solve the same twice
        if key not in memory:
            _remember(key, bundled().get(key) or solve(problem, n, full=full, progress=progress))
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
        "version": VERSION,
        "features": potential.kind,
        "distances": [value.hex() for value in potential.distances.tolist()],
        "strengths": [round(value, 9) for value in potential.log_distance_weights.tolist()],
        "spectrum": repr(problem.spectrum),
        "shape": [n, problem.num_dims],
        "weighted": problem.weighted,
        "broadening": problem.proposal_scale,
        "tilt": problem.proposal_histogram,
        "plan": plan(n, problem.num_dims, full),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


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
        found = {key: (content[f"{key}.directions"], content[f"{key}.meta"].tolist()) for key in keys}
    return {
        key: Solution(rows, scale, int(steps), int(blocks)) for key, (rows, (scale, steps, blocks)) in found.items()
    }


def _remember(key: str, solved: Solution) -> None:
    while memory and sum(kept.directions.nbytes for kept in memory.values()) > MAX_BYTES_IN_MEMORY:
        del memory[next(iter(memory))]
    memory[key] = solved
