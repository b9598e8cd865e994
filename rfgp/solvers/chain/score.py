"""Score and information of the hyperparameters of a Matern process of one column, in one pass over the rows."""

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rfgp.autograd import Array, as_array
from rfgp.rows import Block
from rfgp.solvers.chain.rows import ChainRows
from rfgp.solvers.chain.states import Scores


class ChainScore:
    """Derivatives of the log density in log lengthscale, log s^2, log noise and the mean, 3 + k coordinates.

    Args:
        given: The process given the rows.
        rows: The rows.
        learned: The learned variance of one observation, without the noise of the rows.
    """

    def __init__(self, given: ChainRows, rows: Block, learned: float) -> None:
        self._given, self._rows, self._learned = given, rows, learned

    @property
    def deviance(self) -> Tensor:
        """Minus twice the log density, for s^2 = 1 and without constants, 0-d."""
        return self._rows.output_weights.new_tensor(
            sum(n * (one.log_determinant + one.squares) for n, _, _, one in self._outputs)
        )

    @property
    def gradient(self) -> Tensor:
        """The derivatives, without those of repeated rows, (3 + k,)."""
        score = np.zeros(3 + self._rows.num_outputs)
        for count, scales, means, one in self._outputs:
            score += count * (0.5 * scales @ one.in_scales - means @ one.in_means)
        return torch.from_numpy(score)

    @cached_property
    def information(self) -> Tensor:
        """The estimate of the Fisher information, (3 + k, 3 + k)."""
        size, rows = 3 + self._rows.num_outputs, self._rows
        information = np.zeros((size, size))
        for count, scales, means, one in self._outputs:
            information += count * (0.5 * scales @ one.of_scales @ scales.T + means @ one.of_means @ means.T)
        if rows.weight is not None:  # repeated rows have the noise of one observation each
            repeated = (as_array(rows.weight) - 1) * np.square(self._share)
            information[2, 2] += 0.5 * float(rows.output_weights.sum()) * repeated.sum()
        return torch.from_numpy(information)

    @property
    def _share(self) -> Array:
        """The share of the learned noise in the noise of rows, (1,) or (n,)."""
        fixed = self._rows.fixed_noise
        return np.ones(1) if fixed is None else self._learned / (self._learned + as_array(fixed))

    @cached_property
    def _outputs(self) -> list[tuple[float, Array, Array, Scores]]:
        """The weight of each output, and the coordinates as directions of its scores, (3 + k, q + 2) twice.

        A log lengthscale is -log kappa. As s^2 grows, all innovations grow by its root, and noise falls relative to it.
        """
        share, k, given = self._share, self._rows.num_outputs, self._given
        shares = share[None] if len(share) == 1 else np.stack([given.order.sorted(share), np.ones(len(share))])
        scales, means = np.zeros((3 + k, len(shares) + 2)), np.zeros((k, 3 + k, len(shares) + 2))
        scales[0, 1] = scales[1, -1] = -1.0
        scales[1, 0] = scales[2, 2] = 1.0
        means[:, 0, 0] = means[:, 1, -2] = -1.0
        means[:, 2, 1] = 1.0
        means[range(k), range(3, 3 + k), -1] = given.variance**-0.5
        counts = self._rows.output_weights.tolist()
        pairs = zip(counts, means, given.states, strict=True)
        return [(count, scales, own, states.scores(shares)) for count, own, states in pairs]
