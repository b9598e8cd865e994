"""Frequencies: a fixed draw at unit lengthscale."""

import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.messages import counted


class Frequencies:
    """m frequencies in d dimensions and their weights, drawn on the CPU in float64.

    The kernel estimate is k_hat(x, z) = sum_i w_i / m cos(omega_i . (x - z)).

    Args:
        matrix: (m, d), one frequency per row.
        weights: (m,), nonnegative, with mean 1. If None, all are 1.
        antithetic: Whether the frequencies come in pairs omega, -omega. Only positive (Laplace) features can use such
            pairs.

    Raises:
        InvalidArgumentError: If an argument is not a real tensor, the shapes do not match, or a weight is negative or
            not finite.

    Examples:
        >>> from rfgp import couplings
        >>> frequencies = couplings.Frequencies(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        >>> frequencies.project(torch.tensor([[3.0, 4.0]]))
        tensor([[3., 8.]])
    """

    def __init__(self, matrix: Tensor, weights: Tensor | None = None, antithetic: bool = False) -> None:
        for tensor in (matrix,) if weights is None else (matrix, weights):
            if not isinstance(tensor, Tensor) or tensor.is_complex():
                kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
                raise InvalidArgumentError(
                    "Frequencies must be a real tensor (m, d) or a draw of a coupling, and weights a real tensor (m,), "
                    f"got {kind}. Use torch.as_tensor for an array."
                )
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise InvalidArgumentError(f"Frequencies must be a matrix (m, d), got shape {tuple(matrix.shape)}.")
        w = torch.ones_like(matrix[:, 0]) if weights is None else weights
        if w.shape != matrix.shape[:1]:
            raise InvalidArgumentError(f"weights must have shape ({len(matrix)},), got {tuple(w.shape)}.")
        if not bool(((w >= 0) & torch.isfinite(w)).all()):
            raise InvalidArgumentError("weights must be finite and nonnegative, got others.")
        self._matrix, self._weights, self._antithetic = matrix, w, antithetic

    @property
    def weights(self) -> Tensor:
        """The weights (m,)."""
        return self._weights

    @property
    def amplitudes(self) -> Tensor:
        """The factors sqrt(w_i / m) of the features, in the shape of the weights."""
        return (self.weights / self.shape[0]).sqrt()

    @property
    def antithetic(self) -> bool:
        """Whether the frequencies come in pairs omega, -omega."""
        return self._antithetic

    @staticmethod
    def paired(
        rows: Tensor,  # (m / 2, d)
        weights: Tensor,  # (m / 2,)
    ) -> "Frequencies":
        """Return m frequencies: each row, then its negative with the same weight.

        Args:
            rows: The first frequency of each pair, (m / 2, d).
            weights: Their weights, (m / 2,).

        Raises:
            InvalidArgumentError: If the rows are not a matrix, or for the reasons of the constructor.
        """
        if rows.ndim != 2:
            raise InvalidArgumentError(f"Frequencies must be a matrix (m, d), got shape {tuple(rows.shape)}.")
        pairs = torch.stack([rows, -rows], dim=1).reshape(-1, rows.shape[1])
        return Frequencies(pairs, weights.repeat_interleave(2), antithetic=True)

    def with_negatives(self) -> "Frequencies":
        """Return 2 m frequencies: each one, then its negative with the same weight.

        Raises:
            InvalidArgumentError: If the frequencies come in pairs already.
        """
        if self.antithetic:
            raise InvalidArgumentError("Frequencies must not be antithetic, got pairs omega, -omega.")
        return self._paired()

    def _paired(self) -> "Frequencies":
        return Frequencies.paired(self.dense(), self.weights)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, d)."""
        return self._matrix.shape[0], self._matrix.shape[1]

    @property
    def requires_grad(self) -> bool:
        """Whether gradients in the frequencies or the weights are required."""
        return self._matrix.requires_grad or self._weights.requires_grad

    def project(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, m)
        """Return x . omega_i, in the dtype and on the device of x.

        Args:
            x: Inputs, (..., n, d).

        Returns:
            The inner products, (..., n, m).

        Raises:
            InvalidArgumentError: If x does not have d columns.
        """
        self.check_inputs(x)
        return x @ self._matrix.to(x).mT

    def adjoint(
        self,
        values: Tensor,  # (n, m)
    ) -> Tensor:  # (n, d)
        """Return sum_i values_i omega_i for each row, the transpose of `project`.

        It is differentiable in the values.

        Args:
            values: The factors of the frequencies, (n, m).

        Returns:
            The sums, (n, d).
        """
        return values @ self._matrix.to(values)

    def dense(self) -> Tensor:
        """Return the matrix (m, d)."""
        return self._matrix

    def __repr__(self) -> str:
        m, d = self.shape
        return f"{type(self).__name__}({m=}, {d=})"

    def check_inputs(
        self,
        x: Tensor,  # (..., n, d)
    ) -> None:
        """Refuse inputs that cannot be projected.

        Args:
            x: The inputs, (..., n, d).

        Raises:
            InvalidArgumentError: If x is not a floating-point tensor with d columns.
        """
        if not isinstance(x, Tensor) or not x.is_floating_point():
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise InvalidArgumentError(f"Inputs must be a floating-point tensor, got {kind}.")
        if x.ndim < 1 or x.shape[-1] != self.shape[1]:
            raise InvalidArgumentError(
                f"Inputs must have {counted(self.shape[1], 'column')}, got shape {tuple(x.shape)}."
            )


def check_unpaired(frequencies: Frequencies, purpose: str, remedy: str = "") -> None:
    """Refuse antithetic frequencies.

    Args:
        frequencies: The frequencies.
        purpose: The features or the matrix that need others, or "".
        remedy: What else can be done, after the advice of another coupling.

    Raises:
        InvalidArgumentError: If the frequencies are antithetic.

    Examples:
        >>> check_unpaired(Frequencies(torch.ones(2, 3)), "for sign features")
    """
    if frequencies.antithetic:
        needed = f"frequencies must not be antithetic {purpose}".rstrip()
        raise InvalidArgumentError(f"{needed}, got pairs omega, -omega. Use the coupling without -antithetic{remedy}.")


def as_frequencies(frequencies: Frequencies | Tensor) -> Frequencies:
    """Return `Frequencies`, given as such or as a plain tensor.

    Args:
        frequencies: The frequencies, or a tensor (m, d).

    Examples:
        >>> from rfgp import couplings
        >>> couplings.as_frequencies(torch.eye(3))
        Frequencies(m=3, d=3)
    """
    return frequencies if isinstance(frequencies, Frequencies) else Frequencies(frequencies)
