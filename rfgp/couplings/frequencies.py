"""Frequencies: a frozen draw at unit lengthscale."""

import torch
from torch import Tensor

from rfgp.counts import counted
from rfgp.errors import InvalidArgumentError


class Frequencies:
    """m frequencies in d dimensions and their weights, drawn on the CPU in float64.

    The kernel estimate is k_hat(x, z) = sum_i w_i / m cos(omega_i . (x - z)).

    Args:
        matrix: (m, d), one frequency per row.
        weights: (m,), 1 on average, none negative; None: all 1.
        antithetic: Whether the rows come in pairs omega, -omega, which only positive features can use.

    Raises:
        InvalidArgumentError: what is no real tensor, shapes that do not match, or weights that are negative or not
            finite.
    """

    def __init__(self, matrix: Tensor, weights: Tensor | None = None, antithetic: bool = False) -> None:
        for given in (matrix,) if weights is None else (matrix, weights):
            if not isinstance(given, Tensor) or given.is_complex():
                kind = given.dtype if isinstance(given, Tensor) else type(given).__name__
                raise InvalidArgumentError(
                    "Frequencies are a real tensor (m, d), or a draw of a coupling, and their weights one (m,), got "
                    f"{kind}. torch.as_tensor makes one of an array."
                )
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise InvalidArgumentError(f"Frequencies are a matrix (m, d), got shape {tuple(matrix.shape)}.")
        w = torch.ones_like(matrix[:, 0]) if weights is None else weights
        if w.shape != matrix.shape[:1]:
            raise InvalidArgumentError(f"{len(matrix)} frequencies need as many weights, got {len(w)}.")
        if not bool(((w >= 0) & torch.isfinite(w)).all()):
            raise InvalidArgumentError("The weights of frequencies must be finite, and none negative.")
        self._matrix, self._weights, self._antithetic = matrix, w, antithetic

    @property
    def weights(self) -> Tensor:
        """The weights (m,)."""
        return self._weights

    @property
    def amplitudes(self) -> Tensor:
        """What features are multiplied by, sqrt(w_i / m), shaped like the weights."""
        return (self.weights / self.shape[0]).sqrt()

    @property
    def antithetic(self) -> bool:
        """Whether the rows come in pairs omega, -omega."""
        return self._antithetic

    @staticmethod
    def paired(
        rows: Tensor,  # (m / 2, d)
        weights: Tensor,  # (m / 2,)
    ) -> "Frequencies":
        """Return m frequencies: each row beside its negative, with the same weight.

        Raises:
            InvalidArgumentError: rows that are no matrix, or as the constructor.
        """
        if rows.ndim != 2:
            raise InvalidArgumentError(f"Frequencies are a matrix (m, d), got shape {tuple(rows.shape)}.")
        pairs = torch.stack([rows, -rows], dim=1).reshape(-1, rows.shape[1])
        return Frequencies(pairs, weights.repeat_interleave(2), antithetic=True)

    def with_negatives(self) -> "Frequencies":
        """Return 2 m frequencies: each beside its negative, with the same weight.

        Raises:
            InvalidArgumentError: they have their negatives already.
        """
        if self.antithetic:
            raise InvalidArgumentError("These frequencies come in pairs omega, -omega already.")
        return self._paired()

    def _paired(self) -> "Frequencies":
        return Frequencies.paired(self.dense(), self.weights)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, d)."""
        return self._matrix.shape[0], self._matrix.shape[1]

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are wanted in the frequencies or weights themselves."""
        return self._matrix.requires_grad or self._weights.requires_grad

    def project(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, m)
        """Return x . omega_i, in the dtype and on the device of x.

        Raises:
            InvalidArgumentError: x has another number of columns.
        """
        self.check_inputs(x)
        return x @ self._matrix.to(x).mT

    def adjoint(
        self,
        values: Tensor,  # (n, m)
    ) -> Tensor:  # (n, d)
        """Return sum_i values_i omega_i for each row, the transpose of `project`; differentiable in the values."""
        return values @ self._matrix.to(values)

    def dense(self) -> Tensor:
        """Return the matrix (m, d), float64."""
        return self._matrix

    def __repr__(self) -> str:
        m, d = self.shape
        return f"{type(self).__name__}({m=}, {d=})"

    def check_inputs(
        self,
        x: Tensor,  # (..., n, d)
    ) -> None:
        """Refuse inputs that cannot be projected.

        Raises:
            InvalidArgumentError: x is no floating-point tensor, or has not d columns.
        """
        if not isinstance(x, Tensor) or not x.is_floating_point():
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise InvalidArgumentError(f"Inputs must be a floating-point tensor, got {kind}.")
        if x.ndim < 1 or x.shape[-1] != self.shape[1]:
            raise InvalidArgumentError(
                f"Inputs must have {counted(self.shape[1], 'column')}, got shape {tuple(x.shape)}."
            )


def as_frequencies(frequencies: Frequencies | Tensor) -> Frequencies:
    """Return frequencies, given as such or as a plain (m, d) tensor."""
    return frequencies if isinstance(frequencies, Frequencies) else Frequencies(frequencies)
