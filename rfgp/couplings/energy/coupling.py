"""The energy coupling: stratified norms, and directions that repel each other."""

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rfgp.couplings.coupling import Coupling, Frequencies, WeightedDraws, random_signs
from rfgp.couplings.energy import product, solver
from rfgp.couplings.energy.potential import KINDS, check_distances, make_potential
from rfgp.couplings.energy.solver import Problem, ProgressCallback, Solution
from rfgp.couplings.orthogonal import haar_rows, stratified
from rfgp.couplings.radial import PROPOSAL_SCALES, RadialDistribution, check_histogram
from rfgp.errors import CouplingWarning, InvalidArgumentError
from rfgp.spectra import Gaussian, Spectrum

Array = NDArray[Any]


class Energy(WeightedDraws, Coupling):
    """Frequencies that repel each other, for any m.

    The norms are stratified over all m frequencies, one in each of m quantiles of their distribution. The directions
    minimize the energy: the mean squared kernel error up to a constant, a sum over pairs of frequencies
    (`rfgp.couplings.energy.potential`). They are solved once for each m and d. A draw has new norms in the strata, one
    Haar rotation for all directions, and a random order of the frequencies. So each frequency has the spectral measure
    as its distribution. Up to m = d these are orthogonal directions with stratified norms. Beyond, the error is well
    below that of independent orthogonal blocks. The gain is smallest if m is far too small for the lengthscale.

    The frequencies of a product of kernels (`sample_product`) are drawn jointly over the columns of all factors. Their
    directions are solved anew in each draw (`rfgp.couplings.energy.product`): 512 frequencies take about a second.

    Args:
        features: "fourier", or "laplace": pairs omega, -omega for positive (Laplace) features, m even.
        weighted: Whether norms are drawn from a broader distribution than the spectrum's, with importance weights. Its
            scale is optimized together with the directions. Then phi(x) . phi(x) is 1 in expectation only.
        proposal_scale: The factor of all norms, from 0.8 to 1.6, with importance weights. It must be 1 if `weighted` is
            True. The default 1 changes nothing.
        distances: The distances whose errors are minimized and their weights, (k, 2), from `distances_between(x /
            lengthscale, features)`. If None, ten distances from 0.3 to 3 lengthscales, each relative to the error of
            independent frequencies (pairs, for positive features).
        proposal_histogram: Heights of the density of F(|omega|) on (0, 1) in bins of equal width, with importance
            weights. F is the radial distribution function. `leverage_histogram` returns such heights. If None, the
            density is uniform.
        effort: "quick", so that a draw solves for at most about 5 s on two cores. More than about 1,000 frequencies
            then take few steps from copies of one block. Or "full", without that limit.

    Source: the second moment under a common rotation, Reid et al. (2024), Eqs. 14 to 18.

    Raises:
        InvalidArgumentError: If an option is out of range.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.Energy(weighted=True).sample(16, 3, seed=0)
        Frequencies(m=16, d=3)
        >>> couplings.Energy("laplace").sample(16, 3, seed=0).antithetic
        True
    """

    def __init__(
        self,
        features: str = "fourier",
        weighted: bool = False,
        distances: Any = None,
        proposal_histogram: Sequence[float] | None = None,
        effort: str = "quick",
        proposal_scale: float = 1.0,
    ) -> None:
        if features not in KINDS:
            raise InvalidArgumentError(f"features must be one of {', '.join(KINDS)}, got {features!r}.")
        if effort not in ("quick", "full"):
            raise InvalidArgumentError(f'effort must be "quick" or "full", got {effort!r}.')
        if not PROPOSAL_SCALES[0] <= proposal_scale <= PROPOSAL_SCALES[1] or (weighted and proposal_scale != 1.0):
            raise InvalidArgumentError(
                f"proposal_scale must lie between {PROPOSAL_SCALES[0]} and {PROPOSAL_SCALES[1]}, and be 1 if "
                f"weighted is True, got {proposal_scale!r}."
            )
        self.features, self.weighted, self.effort = features, bool(weighted), effort
        self.proposal_scale = float(proposal_scale)
        self.distances = None if distances is None else check_distances(distances).tolist()
        self.proposal_histogram = None if proposal_histogram is None else check_histogram(proposal_histogram).tolist()

    @property
    def is_antithetic(self) -> bool:
        """Whether frequencies come in pairs omega, -omega, as positive features need them."""
        return self.features == "laplace"

    def solve(
        self,
        num_frequencies: int,
        num_dims: int,
        *,
        spectrum: Spectrum | None = None,
        progress: ProgressCallback | None = None,
    ) -> "Energy":
        """Solve for the directions without a time limit, and keep them until the process ends.

        For m = 4096 this takes about half a minute on two cores.

        Args:
            num_frequencies: m.
            num_dims: d.
            spectrum: The spectrum. If None, the Gaussian one.
            progress: Called with the number of steps done and the number of all steps.

        Returns:
            The coupling with effort="full". Its draws of this size use the solution. Draws with effort="quick" do not,
            because draws must not depend on the content of a cache.

        Raises:
            InvalidArgumentError: For the reasons of `sample`.
        """
        measure = self._check(num_frequencies, num_dims, spectrum or Gaussian())
        patient = Energy(**{**vars(self), "effort": "full"})
        patient._solution(patient._count(int(num_frequencies)), int(num_dims), measure, progress)
        return patient

    def solution(self, num_frequencies: int, num_dims: int, *, spectrum: Spectrum | None = None) -> Solution:
        """Return the solved directions (n, d) before rotation, and the proposal scale b.

        The i-th direction belongs to the i-th smallest norm.

        Args:
            num_frequencies: m. n is m, or the number m / 2 of pairs.
            num_dims: d.
            spectrum: The spectrum. If None, the Gaussian one.

        Returns:
            The directions, the proposal scale and the number of steps of the search.

        Raises:
            InvalidArgumentError: For the reasons of `sample`.
        """
        measure = self._check(num_frequencies, num_dims, spectrum or Gaussian())
        return self._solution(self._count(int(num_frequencies)), int(num_dims), measure)

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        n = self._count(m)
        solved = self._solution(n, d, spectrum)
        radial = RadialDistribution(spectrum, d, solved.proposal_scale, self.proposal_histogram)
        lengths, weights = radial.draw(stratified(n, generator, mirrored=True))
        rotation = haar_rows(1, d, d, generator)
        order = torch.randperm(n, generator=generator)
        rows = ((solved.unit() @ rotation) * lengths[:, None])[order]
        if self.features == "fourier":
            return Frequencies(rows, weights[order])
        return Frequencies.paired(rows, weights[order])

    def _draw_product(self, m: int, factors: list[tuple[Spectrum, int]], generator: torch.Generator) -> Frequencies:
        """Draw frequencies jointly over all factors, with the product of their potentials.

        With `distances`, which belong to one factor, the frequencies of the factors are paired at random.
        """
        if self.features != "fourier" or self.distances is not None:
            return super()._draw_product(m, factors, generator)
        strata = product.paired_strata(m, len(factors), generator)
        blocks, weights = [], torch.ones(m, dtype=torch.float64)
        for (measure, d), indices in zip(factors, strata, strict=True):
            solved = self._solution(m, d, measure)
            radial = RadialDistribution(measure, d, solved.proposal_scale, self.proposal_histogram)
            lengths, parts = radial.draw(stratified(m, generator, mirrored=True))
            directions = solved.unit() if d > 1 else random_signs(m, generator)
            blocks.append((directions * lengths[:, None])[indices].numpy())
            weights = weights * parts[indices]
        blocks = self._repelled(blocks, weights.numpy(), factors)
        rotations = [haar_rows(1, d, d, generator) for _, d in factors]
        rotated = [torch.as_tensor(block) @ rotation for block, rotation in zip(blocks, rotations, strict=True)]
        return Frequencies(torch.cat(rotated, dim=1), weights)

    def _repelled(self, blocks: list[Array], weights: Array, factors: list[tuple[Spectrum, int]]) -> list[Array]:
        """Return frequencies with the same norms and directions of lower energy.

        The result has the frequencies (m, d_a) of each factor.
        """
        m, spectra, dims = len(weights), tuple(measure for measure, _ in factors), tuple(d for _, d in factors)
        if max(dims) == 1:
            return list(product.signed(np.hstack(blocks), weights, spectra).T[:, :, None])
        size, num_steps = product.plan(m, len(dims), self.effort == "full")
        if num_steps == 0:
            return blocks
        table_ends = tuple(self.problem(d, measure).table_end(m) for measure, d in factors)
        potential = product.ProductPotential.of(spectra, dims, table_ends)
        parts = [
            product.with_optimized_directions(
                [b[i : i + size] for b in blocks], weights[i : i + size], potential, num_steps
            )
            for i in range(0, m, size)
        ]
        return [np.concatenate(rows) for rows in zip(*parts, strict=True)]

    def _count(self, m: int) -> int:
        """Return the number of directions that are solved for."""
        if self.features == "fourier":
            return m
        if m % 2:
            raise InvalidArgumentError(f"num_frequencies must be even, got {m}. Positive features come in pairs.")
        return m // 2

    def problem(self, num_dims: int, spectrum: Spectrum) -> Problem:
        """Return the minimization problem for the directions in d dimensions.

        Args:
            num_dims: d.
            spectrum: The spectrum.

        Raises:
            InvalidArgumentError: If positive features are combined with another spectrum than the Gaussian one.
        """
        if self.features == "laplace" and not isinstance(spectrum, Gaussian):
            raise InvalidArgumentError(
                f"The spectrum of positive (Laplace) features must be Gaussian, got {spectrum!r}."
            )
        distances = None if self.distances is None else tuple(map(tuple, self.distances))
        proposal_histogram = None if self.proposal_histogram is None else tuple(self.proposal_histogram)
        return _problem(
            self.features, spectrum, num_dims, distances, self.weighted, proposal_histogram, self.proposal_scale
        )

    def _solution(self, n: int, d: int, spectrum: Spectrum, progress: ProgressCallback | None = None) -> Solution:
        full = self.effort == "full"
        problem = self.problem(d, spectrum)
        if solver.plan(n, d, full)[0] > 1 and (n, d) not in _announced:
            _announced.add((n, d))
            warnings.warn(
                f"Solving the directions of {n} frequencies together would take more than 5 s. The energy coupling "
                "starts from copies of one block and takes few steps. "
                'by_name("energy", effort="full") solves them once.',
                CouplingWarning,
                stacklevel=4,
            )
        return solver.solution(problem, n, full=full, progress=progress)

    def __repr__(self) -> str:
        defaults = vars(Energy()) if vars(self) else {}
        changed = {name: value for name, value in vars(self).items() if value != defaults[name]}
        shown = {name: "..." if isinstance(value, list) else repr(value) for name, value in changed.items()}
        return f"Energy({', '.join(f'{name}={value}' for name, value in shown.items())})"


_announced: set[tuple[int, int]] = set()


@lru_cache(maxsize=64)
def _problem(
    features: str,
    spectrum: Spectrum,
    num_dims: int,
    distances: tuple[tuple[float, ...], ...] | None,
    weighted: bool,
    proposal_histogram: tuple[float, ...] | None,
    proposal_scale: float,
) -> Problem:
    """Return the problem, the same object for equal arguments.

    The object is the cache key of `solver.key_of`.
    """
    potential = make_potential(features, spectrum, num_dims, distances)
    return Problem(potential, spectrum, num_dims, weighted, proposal_histogram, proposal_scale)
