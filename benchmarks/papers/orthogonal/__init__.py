"""Orthogonal random features (Yu et al. 2016): variances, errors of kernels, linear machines, and binary codes."""

from benchmarks.papers.orthogonal.accuracy import figure_4, figure_5, speed
from benchmarks.papers.orthogonal.codes import figure_6
from benchmarks.papers.orthogonal.simulations import figure_2, figure_3
from benchmarks.record import Figure

FIGURES: dict[str, Figure] = {
    "figure-2": figure_2,
    "figure-3": figure_3,
    "figure-4": figure_4,
    "figure-5": figure_5,
    "figure-6": figure_6,
    "speed": speed,
}
