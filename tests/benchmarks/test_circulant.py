"""Circulant frequencies, a baseline of the orthogonal paper: rows of a block are shifts, each of the right norm."""

import torch
from checks import fails
from frequency_draws import check_distribution, sample

from benchmarks.papers.orthogonal import accuracy
from rfgp import spectra


def test_rows_of_a_block_are_shifts(monkeypatch):
    monkeypatch.setattr(torch, "randperm", lambda n, generator: torch.arange(n))
    rows = accuracy.Circulant().sample(7, 5, seed=0).dense().abs()
    for shift in range(5):
        torch.testing.assert_close(rows[shift], rows[0].roll(shift))
    assert not torch.allclose(rows[5].sort().values, rows[0].sort().values)


def test_frequencies_have_the_spectral_distribution():
    check_distribution(sample(accuracy.Circulant(), 4, 3), spectra.Gaussian())


def test_planted_norms_are_seen(monkeypatch):
    monkeypatch.setattr(accuracy, "uniform", lambda count, generator: torch.full((count,), 0.8, dtype=torch.float64))
    assert fails(check_distribution, sample(accuracy.Circulant(), 4, 3), spectra.Gaussian())
