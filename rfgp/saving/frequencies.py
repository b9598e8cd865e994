"""Frequencies of random features in files."""

import math

import torch
from torch import Tensor

from rfgp.couplings import Coupling, FastSimplex, Frequencies, StructuredFrequencies
from rfgp.couplings.hadamard import next_power_of_two
from rfgp.saving.container import Tensors

_MAX_NORM = 40
"""The largest excess of the norm of a frequency of positive features over three standard norms."""


def encode_frequencies(frequencies: Frequencies) -> dict[str, Tensor]:
    """Return frequencies (m, d) as tensors by name.

    Args:
        frequencies: The frequencies.
    """
    if isinstance(frequencies, StructuredFrequencies):
        return {"signs": frequencies.signs, "lengths": frequencies.lengths}
    return {"frequencies": frequencies.dense(), "weights": frequencies.weights}


def decode_frequencies(
    tensors: Tensors,
    shape: tuple[int, int],
    coupling: Coupling,
    features: str,
) -> Frequencies:
    """Return the frequencies (m, d) that `encode_frequencies` wrote.

    Args:
        tensors: The tensors (...) by name.
        shape: The number m of frequencies and the number d of columns.
        coupling: The coupling of the frequencies.
        features: "fourier" or "laplace".

    Raises:
        ValueError: If the tensors do not match the shape or the features.
    """
    frequencies = _frequencies(tensors, shape[1], coupling, features)
    if frequencies.shape != shape:
        raise ValueError(f"frequencies must match the options and the columns, got shape {frequencies.shape}")
    longest = 3 * math.sqrt(shape[1]) + _MAX_NORM  # exp(omega . x) must not overflow near the data
    if features == "laplace" and not bool(frequencies.dense().norm(dim=1).max() < longest):
        raise ValueError("the frequencies must be as short as those of a draw")
    return frequencies


def _frequencies(tensors: Tensors, d: int, coupling: Coupling, features: str) -> Frequencies:
    if "signs" not in tensors:
        is_paired = coupling.is_antithetic and features == "laplace"
        return Frequencies(tensors["frequencies"], tensors["weights"], is_paired)
    signs, lengths = tensors["signs"], tensors["lengths"]
    size = next_power_of_two(d)
    blocks = -(-len(lengths) // size)
    whole = signs.dtype == torch.int8 and signs.ndim == 3 and signs.shape[::2] == (blocks, size) and lengths.ndim == 1
    if not whole or not bool((signs.abs() == 1).all()):
        raise ValueError("the signs of structured frequencies must match the options and the columns")
    return StructuredFrequencies(signs, lengths, d, isinstance(coupling, FastSimplex))
