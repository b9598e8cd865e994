"""Score and information of a Matern process of one column, in one pass."""

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rfgp.autograd import Array, as_array
from rfgp.rows import Block
from rfgp.solvers.chain.rows import ChainRows
from rfgp.solvers.chain.states import Scores


class ChainScore:
    """Derivatives of the log marginal likelihood.

    The 3 + k coordinates are the log lengthscale, log s^2, the log noise and the mean.

    Args:
        given: The process given the rows.
        rows: The rows.
        learned: The learned variance of one observation, without the noise of the rows.
    """

    def __init__(self, given: ChainRows, rows: Block, learned: float) -> None:
        self._given, self._rows, self._learned = given, rows, learned

    @property
    def deviance(self) -> Tensor:
        """Minus twice the log likelihood, for s^2 = 1 and without constants, 0-d."""
        return self._rows.output_weights.new_tensor(
            sum(n * (scores.log_determinant + scores.squares) for n, _, _, scores in self._outputs)
        )

    @property
    def gradient(self) -> Tensor:
        """The derivatives, without those of repeated rows, (3 + k,)."""
        score = np.zeros(3 + self._rows.num_outputs)
        for count, scales, means, scores in self._outputs:
            score += count * (0.5 * scales @ scores.in_scales - means @ scores.in_means)
        return torch.from_numpy(score)

    @cached_property
    def information(self) -> Tensor:
        """The estimate of the Fisher information, (3 + k, 3 + k)."""
        size, rows = 3 + self._rows.num_outputs, self._rows
        information = np.zeros((size, size))
        for count, scales, means, scores in self._outputs:
            information += count * (0.5 * scales @ scores.of_scales @ scales.T + means @ scores.of_means @ means.T)
        if rows.weight is not None:  # repeated rows have the noise of one observation each
            repeated = (as_array(rows.weight) - 1) * np.square(self._noise_fraction)
            information[2, 2] += 0.5 * float(rows.output_weights.sum()) * repeated.sum()
        return torch.from_numpy(information)

    @property
    def _noise_fraction(self) -> Array:
        """The fraction of each row's noise variance due to the learned noise, (1,) or (n,)."""
        fixed = self._rows.fixed_noise
        return np.ones(1) if fixed is None else self._learned / (self._learned + as_array(fixed))

    @cached_property
    def _outputs(self) -> list[tuple[float, Array, Array, Scores]]:
        """The weight of each output, and the coordinates as directions of its scores, (3 + k, q + 2) twice.

        A log lengthscale is -log kappa. As s^2 grows, all innovations grow by its root, and noise falls relative to it.
        """
        learned, k, given = self._noise_fraction, self._rows.num_outputs, self._given
        ones = np.ones(len(learned))
        fractions = learned[None] if len(ones) == 1 else np.stack([given.order.sorted(learned), ones])
        scales, means = np.zeros((3 + k, len(fractions) + 2)), np.zeros((k, 3 + k, len(fractions) + 2))
        scales[0, 1] = scales[1, -1] = -1.0
        scales[1, 0] = scales[2, 2] = 1.0
        means[:, 0, 0] = means[:, 1, -2] = -1.0
        means[:, 2, 1] = 1.0
        means[range(k), range(3, 3 + k), -1] = given.variance**-0.5
        counts = self._rows.output_weights.tolist()
        pairs = zip(counts, means, given.states, strict=True)
        return [(count, scales, directions, states.scores(fractions)) for count, directions, states in pairs]
